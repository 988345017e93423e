/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a node proves itself before it takes jobs: a reservation over it lets no job in but ours, which wires
 * up two processes by PMIx, one of them on another node when one is free. Pure. Nothing is remembered but in
 * Slurm: the reservation is named after the node, the job carries the instance of the agent that it is for.
 * See docs/architecture.md.
 */
#ifndef TG_CORE_QUALIFY_H
#define TG_CORE_QUALIFY_H

#include "core/decide.h"

#define QUALIFY_RESERVATION "tidegate-qualify-" /* and the node's name */
#define QUALIFY_JOB         "tidegate-qualify"

#define QUALIFY_AT_ONCE     16     /* nodes; each takes a few seconds */
#define QUALIFY_SLOT_MS     180000 /* one that takes longer no longer holds up others */
#define QUALIFY_PARTNER_MS  20000  /* how long a partner is waited for */
#define QUALIFY_MINUTES     2      /* the job's limit in Slurm */
#define QUALIFY_LAUNCH_S    30     /* the limit of srun */
#define QUALIFY_BOUND_S     10     /* the limit of the wire-up itself */
#define QUALIFY_JOBS_MAX    6      /* for one instance; then it has failed */

enum qualify_job_state {
    QUALIFY_JOB_WAITS,
    QUALIFY_JOB_RUNS,
    QUALIFY_JOB_WELL,      /* ended with 0 */
    QUALIFY_JOB_BAD,       /* ended otherwise */
    QUALIFY_JOB_CANCELLED, /* or never started: it tells nothing of the node */
};

/* A job that proves, or proved, a node. */
struct qualify_job {
    uint32_t id;
    char *node;
    char *instance;
    char *partner; /* NULL: it ran, or is to run, on the node alone */
    enum qualify_job_state state;
    bool wants_partner; /* does not start without one */
    bool timed_out;     /* of BAD: Slurm ended it at its limit */
    bool node_lost;     /* of BAD: one of its nodes died */
    uint32_t exit_code; /* of BAD */
    char *said;         /* what the probe said last, NULL: nothing */
    char *text;         /* of BAD: what went wrong; made by qualify_world_sort() */
    int64_t submitted_at;
};

struct qualify_reservation {
    char *node;
    int64_t since;
};

/* What slurmctld shows of this. */
struct qualify_world {
    struct qualify_reservation *reservations; /* ours; sorted by node */
    size_t n_reservations;
    struct qualify_job *jobs; /* sorted by node, then by number */
    size_t n_jobs;
    char *
        others; /* hostlist expression of the nodes in other people's reservations now; NULL */
};

/* Sorts, and makes the jobs' texts; to be called when it has been filled. */
void qualify_world_sort(struct qualify_world *w);
void qualify_world_free(struct qualify_world *w);
TG_DEFINE_FREEP(struct qualify_world, qualify_world_free);

/* The reservation over a node is about to be deleted, and counts as gone. */
void qualify_world_forget(struct qualify_world *w, const char *node);

/* For node_facts; borrows from `w` (NULL: nothing is known). */
struct qualify_fact qualify_fact(const struct qualify_world *w,
                                 const struct node_facts *f);

enum qualify_verb {
    QUALIFY_RESERVE,
    QUALIFY_SUBMIT,
    QUALIFY_CANCEL,  /* the job */
    QUALIFY_RELEASE, /* deletes the reservation, after its jobs were cancelled */
};
const char *qualify_verb_name(enum qualify_verb v);

/* One thing to ask of slurmctld. Borrows from the facts and from `w`. */
struct qualify_action {
    enum qualify_verb verb;
    const char *node;
    uint32_t job;         /* of CANCEL */
    const char *instance; /* of SUBMIT, as all that follows */
    const char *partition;
    bool wants_partner; /* it must not start without one */
    const char *
        not_with; /* a partner that it failed with already; NULL: none. Of RELEASE: the node
                      has passed with another one since */
};

/*
 * What is to be done next, after `verdicts` (of the rows) were made. A node whose verdict asks for a change is
 * left alone until that is done: a drain comes before the reservation ends. The caller frees *ret.
 */
size_t qualify_plan(const struct node_facts *rows, const struct verdict *verdicts,
                    size_t n, const struct qualify_world *w, int64_t now,
                    struct qualify_action **ret);

#endif
