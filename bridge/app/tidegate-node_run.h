/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tidegate-node run, PID 1 of the compute pod, in four parts that know nothing of each other: what the pod
 * is told by its environment, the daemons it keeps alive, the node's line, and the agent that joins them.
 * One event loop, one thread, and nothing that waits.
 */
#ifndef TG_APP_TIDEGATE_NODE_RUN_H
#define TG_APP_TIDEGATE_NODE_RUN_H

#include <systemd/sd-event.h>

#include "base/err.h"
#include "core/slurmdconf.h"
#include "io/agent_link.h"
#include "io/checks.h"
#include "io/children.h"
#include "io/local.h"

/* ---- environment -------------------------------------------------------------------- */

struct node_env { /* borrowed from the environment */
    const char *node;
    const char *pod_uid;
    const char *pool;
    const char *controller; /* slurmctld's address in numbers */
    const char *agents; /* the bridge's, with port; NULL: there is none to report to */
    const char *slurmd_conf;
    const char *checks; /* file */
    const char *state;  /* directory */
    bool gres;
    int64_t grace_ms;
};
/* -EINVAL with a sentence that names the variable, its value and what is expected. */
int node_env_read(struct node_env *ret, struct err *err) _must_use_;

/* ---- munge --------------------------------------------------------------------------- */

struct munge_user {
    uid_t uid;
    gid_t gid;
};
int munge_find_user(struct munge_user *ret, struct err *err) _must_use_;
/* Copies the Secret's key to where munged takes it from: a file that nobody else can read. Also makes the
 * directory of munged's socket, and takes away a socket that was left. */
int munge_prepare(const struct munge_user *user, struct err *err) _must_use_;
extern const char *const munge_argv[];
/* Whether munged has begun to listen since munge_prepare(). */
bool munge_answers(void);

/* ---- daemons ------------------------------------------------------------------------ */

struct daemons;

struct daemons_host {
    struct children *children;
    const struct node_env *env;
    void (*on_change)(void *userdata);  /* slurmd was started or has ended */
    void (*on_stopped)(void *userdata); /* both have ended after daemons_stop() */
    void *userdata;
};

/* Starts munged at once, slurmd once daemons_slurmd() has said how and munged answers. -EINVAL: this image
 * has no user munge; -ENOENT...: there is no key. */
int daemons_new(sd_event *event, const struct daemons_host *host, struct daemons **ret,
                struct err *err) _must_use_;
void daemons_free(struct daemons *d);
TG_DEFINE_FREEP(struct daemons, daemons_free);

/* slurmd's --conf (copied). One that runs goes on as it is until daemons_restart_slurmd(). */
void daemons_slurmd(struct daemons *d, const char *conf);
/* Polite, at once, and none of its failures. Steps live on. */
void daemons_restart_slurmd(struct daemons *d);
/* slurmd first, then munged; both are killed when they have not ended by `deadline` (clock_mono_ms). */
void daemons_stop(struct daemons *d, int64_t deadline);

struct daemons_facts {
    enum slurmd_state slurmd;
    pid_t slurmd_pid;  /* 0: none */
    uint32_t restarts; /* of slurmd, after an end that nobody asked for */
};
struct daemons_facts daemons_facts(const struct daemons *d);

/* ---- the node's line ---------------------------------------------------------------- */

struct shape;

struct shape_host {
    struct children *children;
    const struct node_env *env;
    const char *program; /* ours, for `line --json` */
    /* The line was measured: the first time, when it is another one, or when shape_measure() had asked for it. */
    void (*on_line)(const struct node_line *line, const char *conf, void *userdata);
    /* It can never be: a configuration that leaves nothing, at the first time. */
    void (*on_hopeless)(void *userdata);
    void *userdata;
};

/* Measures at once and every minute; one that fails is tried again soon. */
int shape_new(sd_event *event, const struct shape_host *host, struct shape **ret,
              struct err *err) _must_use_;
void shape_free(struct shape *s);
TG_DEFINE_FREEP(struct shape, shape_free);
/* Now, not when its turn comes; with `tell` on_line is called whatever it finds. */
void shape_measure(struct shape *s, bool tell);
/* As slurmd is told it, with what a person has set; cpus 0: not known yet. */
const struct node_line *shape_line(const struct shape *s);

/* ---- the agent ---------------------------------------------------------------------- */

enum stop_stage {
    STOP_NOT,
    STOP_TELLING,   /* the bridge, for a moment */
    STOP_WAITING,   /* for the job steps */
    STOP_GIVING_UP, /* the bridge has the jobs requeued */
    STOP_ENDING,    /* slurmd, then munged */
};

enum jobs_answer { JOBS_ASKING, JOBS_NONE, JOBS_SOME, JOBS_UNKNOWN };

struct agent {
    sd_event *event;
    struct node_env env;
    char *program; /* ours */
    char boot_id[64];
    char instance[40];
    struct children *children;
    struct daemons *daemons;
    struct shape *shape;
    struct checks *checks; /* NULL: none are configured */
    struct local *local;
    struct agent_link_config link_config;
    struct agent_link *link; /* NULL: there is no bridge to report to */
    enum agent_phase phase;
    bool restart_slurmd; /* once its line is measured */

    sd_event_source *stop_timer;
    enum stop_stage stop;
    int64_t tell_until, give_up_at, end_at; /* clock_mono_ms */
    bool cut_off;                           /* jobs had to be */
    struct {                                /* what slurmctld says of jobs on this node */
        pid_t child;                        /* that asks it; 0: none */
        enum jobs_answer answer;
        int64_t at;            /* of the answer */
        int64_t unknown_since; /* 0: it has answered */
        bool listed; /* the jobs that were here when told to stop are in `jobs` */
    } ctld;

    bool checks_begun;
    sd_event_source *conf_timer;
    int64_t conf_mark[3]; /* what the file of the checks was when it was read */
    char clock[48], memory[48];
    const char *check_env[3];
    uint32_t *
        jobs; /* that have passed the gate, or were here when told to stop; until their epilog */
    size_t n_jobs;
    struct held_question { /* of a prolog, until it is known which jobs were here */
        uint64_t id;
        struct local_question question;
    } *held;
    size_t n_held;
};

/* The job steps that run; what cannot be counted counts as one, so that nothing is ended for want of a look. */
uint32_t agent_steps(const struct agent *a);
/* Whether a process of a job is here: a step, a prolog or an epilog. */
bool agent_has_processes(const struct agent *a);
/* Also one of whose job a prolog has run, and its epilog has not: it may have no process just now. */
bool agent_has_jobs(const struct agent *a);
void agent_set_phase(struct agent *a, enum agent_phase phase);

/* Checks, and what prolog and epilog ask. -EBADMSG: the file of the checks is not right. */
int gate_open(struct agent *a, struct err *err) _must_use_;
/* The checks of the start, and then the others: once it is known what this node has. */
void gate_begin(struct agent *a);
void gate_close(struct agent *a);
void gate_let_in(struct agent *a, uint32_t job); /* it is here: its prologs may pass */
void gate_ask_again(struct agent *a);            /* answers those that are held */

/* The end, as for SIGTERM; a second time does nothing. */
int stop_prepare(struct agent *a, struct err *err) _must_use_;
void stop_begin(struct agent *a, const char *why);
void stop_look(struct agent *a); /* something has changed that may end the waiting */
void stop_done(void *agent);     /* on_stopped of the daemons */

#endif
