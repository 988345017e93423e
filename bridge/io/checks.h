/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs the health checks of a node and keeps their state: each check is a program with a deadline, and
 * moments at which it runs. A check that hangs, crashes or cannot be started has failed.
 */
#ifndef TG_IO_CHECKS_H
#define TG_IO_CHECKS_H

#include <systemd/sd-event.h>

#include "codec/checkconf.h"
#include "core/model.h"
#include "io/children.h"

struct checks;

struct checks_host {
    const char *state_file; /* NULL: nothing is kept over a restart */
    /* What a check may ask for in its environment: TIDEGATE_CLOCK_OFFSET_MS and so on; called before
     * each run, returns "NAME=value" strings ended by NULL, good until the next call. */
    const char *const *(*environment)(void *userdata);
    bool (*idle)(void *userdata); /* no job on the node */
    void (*on_change)(
        void *userdata); /* another set of failing checks, or another text */
    void *userdata;
};

/* `conf` is given away. A state file that cannot be read is said in the log and counts as none. */
int checks_new(sd_event *event, struct children *children, struct checkconf *conf,
               const struct checks_host *host, struct checks **ret, struct err *err)
    _must_use_;
void checks_free(struct checks *c);
TG_DEFINE_FREEP(struct checks, checks_free);

/* Runs those of the moment; on_done (NULL: nobody waits) once all have ended, with the names and
 * sentences of those that failed at this run (borrowed), also when N-of-M does not hold them against the node yet. */
void checks_run(struct checks *c, enum check_moment moment, const char *const *setenv,
                void (*on_done)(const struct check_fact *failed, size_t n,
                                void *userdata),
                void *userdata);
/* Now, out of turn: the one of that name, or all (NULL). */
void checks_run_now(struct checks *c, const char *name);
/* Those that keep the node from jobs now; borrowed. */
const struct check_fact *checks_failing(const struct checks *c, size_t *ret_n);
/* Begins the periodic and idle ones. */
void checks_begin(struct checks *c);
/* Takes another configuration: what stays of a check keeps its state. */
void checks_replace(struct checks *c, struct checkconf *conf);

#endif
