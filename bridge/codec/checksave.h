/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The states of a node's health checks as they are kept in a file over a restart of the pod:
 *
 *   {"v": 1, "checks": [{"name": "scratch", "holds": true, "since": 1764590000000, "history": "110",
 *                        "boot": "3f0c...", "text": "/scratch has 1 % free, ..."}]}
 *
 * history: its last runs, the oldest first, 1 for a failed one. A check without an entry never failed.
 */
#ifndef TG_CODEC_CHECKSAVE_H
#define TG_CODEC_CHECKSAVE_H

#include "base/buf.h"
#include "base/err.h"
#include "codec/checkconf.h"

#define CHECK_TEXT_MAX 200 /* bytes of a check's sentence: a Slurm reason is one line */
#define CHECKSAVE_MAX                                                                    \
    131072 /* bytes of the file; the longest that we write is half of that */

struct checksave_item {
    char name[CHECKCONF_NAME_MAX + 1];
    struct check_state state;      /* of one run at least */
    char text[CHECK_TEXT_MAX + 1]; /* printable ASCII, not empty */
};

struct checksave {
    struct checksave_item items[CHECKCONF_CHECKS_MAX];
    size_t n;
};

/* -EMSGSIZE, -EBADMSG; strict, as a file that was tampered with must not hold a node or let it go. */
int checksave_parse(const char *text, size_t size, struct checksave **ret,
                    struct err *err) _must_use_;
void checksave_free(struct checksave *s);
TG_DEFINE_FREEP(struct checksave, checksave_free);

/* Appends the text, a line, to `to` (whose cap is at least CHECKSAVE_MAX). */
void checksave_render(const struct checksave *s, struct buf *to);

#endif
