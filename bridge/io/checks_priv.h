/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of io/checks share. */
#ifndef TG_IO_CHECKS_PRIV_H
#define TG_IO_CHECKS_PRIV_H

#include "codec/checksave.h"
#include "io/children.h"

struct check_words {
    char text[CHECK_TEXT_MAX + 1]; /* a sentence in printable ASCII, never empty */
};

/* How a run of the check has ended; returns whether it failed. */
bool check_result(const struct checkdef *d, const struct child_end *end,
                  struct check_words *ret);
struct check_words check_not_started(const struct checkdef *d, const char *why);
struct check_words check_still_hangs(const struct checkdef *d);
/* The same sentence, but for its numbers: news of a figure is no news. */
bool check_same_words(const char *a, const char *b);

/* Writes a file so that it is whole at any moment, on a thread: a disk may take its time to answer. */
struct keeper;
int keeper_new(sd_event *event, const char *path, struct keeper **ret, struct err *err)
    _must_use_;
/* The last text that was put is the one that will stand there; nothing is done for the same again. */
void keeper_put(struct keeper *k, const char *text, size_t size);
/* Waits for what is under way, 2 s at most. */
void keeper_free(struct keeper *k);
TG_DEFINE_FREEP(struct keeper, keeper_free);
/* -ENOENT: there is none. A file that others may write is refused (-EPERM). */
int keeper_load(const char *path, struct checksave **ret, struct err *err) _must_use_;

#endif
