/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs the health checks of a node and keeps their state: each check is a program with a deadline, and
 * moments at which it runs. A check that hangs, crashes or cannot be started has failed. What a
 * check has to say is the first line that it prints.
 *
 * A check that holds the node, or has failed lately, is run again each period until it is settled,
 * whatever its moments.
 */
#ifndef TG_IO_CHECKS_H
#define TG_IO_CHECKS_H

#include <systemd/sd-event.h>

#include "codec/checkconf.h"
#include "core/model.h"
#include "io/children.h"

struct checks;

struct checks_host {
    const char *
        state_file; /* NULL: nothing is kept over a restart; else in a directory of ours */
    const char *boot_id; /* NULL: what the kernel says */
    /* What a check may ask for in its environment: TIDEGATE_CLOCK_OFFSET_MS, the bridge's clock minus
     * this node's, not set while no bridge has told it, and TIDEGATE_REAL_MEMORY_MIB of the line; called
     * before each run, returns "NAME=value" strings ended by NULL, good until the next call. NULL: nothing. */
    const char *const *(*environment)(void *userdata);
    bool (*idle)(void *userdata); /* no job on the node */
    /* Another set of failing checks, or another text. From the loop, never from a call of this module. */
    void (*on_change)(void *userdata);
    void *userdata;
};

/* `conf` is given away. Strings of `host` are copied. A state file that cannot be read is said in the
 * log and counts as none; what is kept holds from the beginning. */
int checks_new(sd_event *event, struct children *children, struct checkconf *conf,
               const struct checks_host *host, struct checks **ret, struct err *err)
    _must_use_;
void checks_free(struct checks *c);
TG_DEFINE_FREEP(struct checks, checks_free);

/*
 * Runs those of the moment; on_done (NULL: nobody waits) once all have ended, with the names and
 * sentences of those that failed (borrowed); from the loop, never from within checks_run().
 * START: one that fails is run again after a second until it passes or holds, so that a failure
 * here is one that keeps the node from jobs. PROLOG: one failed run is enough to hold. Else a run may
 * have failed without N-of-M holding it against the node yet.
 */
void checks_run(struct checks *c, enum check_moment moment, const char *const *setenv,
                void (*on_done)(const struct check_fact *failed, size_t n,
                                void *userdata),
                void *userdata);
/* Now, out of turn: the one of that name, or all (NULL); those for an idle node only while it is. */
void checks_run_now(struct checks *c, const char *name);
/* Those that keep the node from jobs now, the longest standing first; borrowed until the loop runs again. */
const struct check_fact *checks_failing(const struct checks *c, size_t *ret_n);
/* A person lets the node go in spite of this one ("clear": "person"). -ENOENT: no such check;
 * -EALREADY: it holds nothing; -EPERM: it ends by itself, which the sentence says how. */
int checks_release(struct checks *c, const char *name, struct err *err) _must_use_;
/* Begins the periodic and idle ones. */
void checks_begin(struct checks *c);
/* Takes another configuration (given away): what stays of a check, by its name, keeps its state. */
void checks_replace(struct checks *c, struct checkconf *conf);

#endif
