/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The reservations and jobs by which nodes prove themselves (core/qualify.h), on the thread and in the order
 * of io/ctld.h. Callbacks run on the loop's thread.
 */
#ifndef TG_IO_CTLD_QUALIFY_H
#define TG_IO_CTLD_QUALIFY_H

#include "core/qualify.h"
#include "io/ctld.h"

/* code 0: `world` is given away to the callback; < 0: -EHOSTDOWN, -EACCES or -EIO, the sentence in error. */
typedef void (*ctld_qualify_load_cb)(int code, struct qualify_world *world,
                                     const char *error, void *userdata);
void ctld_qualify_load(struct ctld *c, ctld_qualify_load_cb cb, void *userdata);

struct ctld_qualify_outcome {
    enum qualify_verb verb;
    const char *node;
    uint32_t job;      /* of SUBMIT and CANCEL */
    int code;          /* 0 or -Exxx */
    const char *error; /* sentence, NULL when code is 0 */
};
typedef void (*ctld_qualify_done_cb)(const struct ctld_qualify_outcome *outcomes,
                                     size_t n, void *userdata);
/*
 * Does the actions in order; what of them is done already is no error. Reservations and jobs are read anew
 * just before: one that another bridge has made meanwhile is not made twice. Nothing is sent once
 * CLOCK_BOOTTIME has passed `valid_until_ms` (-ECANCELED). The actions are copied.
 */
void ctld_qualify_do(struct ctld *c, const struct qualify_action *actions, size_t n,
                     int64_t valid_until_ms, ctld_qualify_done_cb cb, void *userdata);

#endif
