/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of ctld that run on its worker thread and call libslurm. Private to
 * io/ctld*.c. */
#ifndef TG_IO_CTLD_PRIV_H
#define TG_IO_CTLD_PRIV_H

#include <slurm/slurm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "core/model.h"
#include "io/ctld.h"

/* Jobs on one node. */
struct ctld_jobs {
    char *node;
    uint32_t n;
    double share; /* the same, each counted as 1/(nodes it runs on) */
};

/* What a node was: its name, and ctld_fingerprint() of its record. */
struct ctld_print {
    char *name;
    uint64_t fingerprint;
};
struct ctld_prints {
    struct ctld_print *items; /* sorted by name */
    size_t n;
};
void ctld_prints_clear(struct ctld_prints *p);
void ctld_prints_copy(const struct ctld_prints *from, struct ctld_prints *ret);
const struct ctld_print *ctld_prints_find(const struct ctld_prints *p, const char *name);

/* What was read last from slurmctld. */
struct ctld_source {
    node_info_msg_t *nodes;      /* as libslurm gave it; NULL: never read, or let go */
    const node_info_t **by_name; /* records with a name, sorted; none without `nodes` */
    size_t n;
    struct ctld_prints
        prints; /* of the nodes as they were read last, also once they were let go */
    time_t nodes_stamp;     /* slurmctld's; 0: never read */
    bool any_busy;          /* some of them have work */
    bool nodes_full;        /* ask for everything next time */
    int64_t nodes_full_at;  /* CLOCK_BOOTTIME ms of the last whole answer */
    struct ctld_jobs *jobs; /* sorted by node */
    size_t n_jobs;
    time_t jobs_stamp;       /* slurmctld's; 0: ask for everything */
    int64_t jobs_not_before; /* CLOCK_BOOTTIME ms */
    uint32_t slurm_uid;
    bool slurm_uid_known;
    int64_t read_at;  /* CLOCK_BOOTTIME ms when the last read that went well began */
    uint64_t changes; /* grows with every answer that told something */
};

/* Reads what has changed. On failure what was read before stays, to be read anew. */
int ctld_source_refresh(struct ctld_source *s, struct err *err) _must_use_;
/* The same, and the records are there afterwards. */
int ctld_source_hold(struct ctld_source *s, struct err *err) _must_use_;
/* Lets the records go: they take more memory than all else that is known of the nodes. */
void ctld_source_release(struct ctld_source *s);
/* slurm_uid is known afterwards. */
int ctld_source_uid(struct ctld_source *s, struct err *err) _must_use_;
struct slurm_snapshot *ctld_source_snapshot(const struct ctld_source *s);
const node_info_t *ctld_source_find(const struct ctld_source *s, const char *name);
void ctld_source_clear(struct ctld_source *s);

/* Changes when somebody changes what the bridge decides on and writes: the hold, its
 * reason, Extra. */
uint64_t ctld_fingerprint(const node_info_t *node);

/* libslurm's errno as our code, with a sentence "what: ..."; -EHOSTDOWN, -EACCES or -EIO.
 */
int ctld_error(int slurm_errno, const char *what, struct err *err);

/* One node of a batch: as it was when it was decided on, and as it is just before the RPC. */
struct ctld_target {
    char *name;
    bool known;
    uint64_t fingerprint;
    bool there;
    uint64_t now;
};

struct ctld_batch {
    struct action *actions;       /* copies; names point into targets */
    struct ctld_target **targets; /* one array for each action */
    size_t n;
    int64_t valid_until_ms;
    struct ctld_outcome *outcomes; /* filled in by ctld_batch_run(); error is owned */
    size_t n_outcomes;
    size_t rpcs;
};

void ctld_batch_run(struct ctld_batch *b, struct ctld_source *s);

/*
 * Other work for slurmctld, in the order of all calls: `work` runs on the worker's thread, then `done` on
 * the loop's. `drop` frees `data` afterwards, also when it never came to that.
 */
void ctld_run(struct ctld *c, void (*work)(struct ctld_source *s, void *data),
              void (*done)(void *data), void (*drop)(void *data), void *data);

#endif
