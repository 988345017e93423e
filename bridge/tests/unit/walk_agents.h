/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * As walk.h, for a node with an agent: links lost and made, checks that fail, pods that stop, a slurmd that
 * dies, lines that change, nodes that prove themselves. The part of the bridge that does what a
 * verdict asks beside its verb (reservation, job, restart of slurmd) is here in a few lines.
 */
#ifndef TG_TESTS_WALK_AGENTS_H
#define TG_TESTS_WALK_AGENTS_H

#include <stdio.h>

#include "core/plan.h"
#include "core/text.h"
#include "tests/unit/events.h"
#include "tests/unit/sim.h"

#define AWALK_EVENTS(X)                                                                  \
    X(CORDON, "cordon")                                                                  \
    X(UNCORDON, "uncordon")                                                              \
    X(NOT_READY, "NotReady")                                                             \
    X(READY, "Ready")                                                                    \
    X(LEASE_STALE, "Lease stale")                                                        \
    X(LEASE_RENEWED, "Lease renewed")                                                    \
    X(LINK_LOST, "link lost")                                                            \
    X(LINK_MADE, "link made")                                                            \
    X(A_FAILS, "check a fails")                                                          \
    X(B_FAILS, "check b fails")                                                          \
    X(A_PASSES, "check a passes")                                                        \
    X(B_PASSES, "check b passes")                                                        \
    X(POD_STOPS, "pod is deleted")                                                       \
    X(GIVES_UP, "agent gives up")                                                        \
    X(POD_GONE, "pod is gone")                                                           \
    X(POD_NEW, "new pod")                                                                \
    X(POD_UNREADY, "pod not ready")                                                      \
    X(POD_READY, "pod ready")                                                            \
    X(CONTAINER_RESTARTS, "container restarts")                                          \
    X(SLURMD_DIES, "slurmd dies")                                                        \
    X(SLURMD_BACK, "slurmd is back")                                                     \
    X(TIMES_OUT, "SlurmdTimeout")                                                        \
    X(JOB_STARTS, "job starts")                                                          \
    X(JOB_ENDS, "job ends")                                                              \
    X(PERSON_DRAINS, "person drains")                                                    \
    X(PERSON_RESUMES, "person resumes")                                                  \
    X(LINE_CHANGES, "other memory")                                                      \
    X(QUALIFY_ON, "pool wants proof")                                                    \
    X(QUALIFY_OFF, "pool wants no proof")                                                \
    X(PROBE_PASSES, "probe passes")                                                      \
    X(PROBE_FAILS, "probe fails")                                                        \
    X(BRIDGE_RESTARTS, "bridge restarts")                                                \
    X(ONE_SECOND, "1 s")                                                                 \
    X(SIX_SECONDS, "6 s")

enum awalk_event {
#define X(name, text) AWALK_##name,
    AWALK_EVENTS(X)
#undef X
        AWALK_EVENTS_
};

static const char *const awalk_event_names[] = {
#define X(name, text) text,
    AWALK_EVENTS(X)
#undef X
};

/* What must never be seen. */
enum awalk_broken {
    AWALK_FINE,
    AWALK_PERSON_OVERRULED, /* we acted on a node that a person holds */
    AWALK_RESUME_UNDONE,    /* drained again for checks that a person had overruled */
    AWALK_JOB_KILLED,       /* DOWN without its witnesses, or before the time was up */
    AWALK_RECORD_LOST,      /* a record deleted that is in use, or not ours to delete */
    AWALK_EARLY_RESUME,     /* resumed without its agent's word */
    AWALK_UNPROVED,         /* free for all without the proof */
    AWALK_FREE_WITH_CAUSE,  /* free although checks fail, or its pod goes */
    AWALK_HELD_ON,          /* all is well and it is still held */
    AWALK_REFUSED,          /* slurmctld would have refused the action */
    AWALK_NOT_IDEMPOTENT,
    AWALK_NOT_QUIET,
    AWALK_RESTART_ACTS, /* a bridge that starts anew gives back, sets down or forgets */
    AWALK_TIME_UNANNOUNCED,
    AWALK_BROKEN_
};

#define AWALK_ROUNDS_MAX 16
#define AWALK_HOLD_MS    5000
#define AWALK_CONFIRM_MS 5000

enum awalk_job { AWALK_NO_JOB, AWALK_JOB_RUNS, AWALK_JOB_WELL, AWALK_JOB_BAD };

struct awalk {
    const struct policy *policy;
    struct kube_node kube;
    struct kube_pool pool;
    bool stale; /* the kubelet's Lease */
    int64_t lease_since;
    bool pod_is, pod_ready, pod_going;
    char pod_uid[16], instance[16];
    int starts;
    bool agent_is;           /* its process */
    struct agent_fact agent; /* what it said last */
    bool known;              /* to this bridge */
    struct check_fact checks[2];
    unsigned failing; /* bits: a, b */
    bool slurmd;
    int64_t silent_since;
    uint64_t memory;
    struct sim sim;
    bool asked;
    struct probe_fact probe;
    struct lease_fact kubelet;
    bool reserved;
    enum awalk_job job;
    char job_instance[16];
    int64_t now;
    /* what people expect */
    const char *person;
    uint64_t overruled; /* checks */
    bool excused;       /* a person has resumed this start without a proof */
    enum awalk_broken broken;
};

static inline void awalk_break(struct awalk *w, enum awalk_broken what)
{
    if (!w->broken)
        w->broken = what;
}

static inline bool awalk_free(const struct awalk *w)
{
    return !w->sim.deleted && sim_is_free(&w->sim);
}

/* ---- events ----------------------------------------------------------------------------------- */

static inline uint64_t awalk_failing(const struct awalk *w)
{
    return (w->failing & 1 ? check_bit("a") : 0) | (w->failing & 2 ? check_bit("b") : 0);
}

static inline bool awalk_heard(const struct awalk *w)
{
    return w->known && w->agent.linked == TRI_YES && w->pod_is &&
           strcmp(w->agent.pod_uid, w->pod_uid) == 0;
}

/* The agent tells, where it can. */
static inline void awalk_tell(struct awalk *w)
{
    static char a[] = "a is bad", b[] = "b is bad", name_a[] = "a", name_b[] = "b";

    if (!w->agent_is || w->agent.linked != TRI_YES)
        return;
    w->agent.n_checks = 0;
    if (w->failing & 1)
        w->checks[w->agent.n_checks++] = (struct check_fact){.name = name_a, .text = a};
    if (w->failing & 2)
        w->checks[w->agent.n_checks++] = (struct check_fact){.name = name_b, .text = b};
    w->agent.checks = w->checks;
    w->agent.line = (struct node_line){.boards = 1,
                                       .sockets = 1,
                                       .cores = 2,
                                       .threads = 2,
                                       .cpus = 4,
                                       .memory_mib = w->memory};
    w->agent.steps = w->sim.jobs;
}

static inline void awalk_link(struct awalk *w, bool stands)
{
    enum tri is = stands && w->agent_is ? TRI_YES : TRI_NO;

    if (is == w->agent.linked && w->known)
        return;
    w->known = w->known || is == TRI_YES;
    w->agent.linked = is;
    w->agent.since = w->now;
    w->agent.reported = is == TRI_YES;
    awalk_tell(w);
}

static inline void awalk_slurmd(struct awalk *w, bool answers)
{
    if (w->slurmd && !answers)
        w->silent_since = w->now;
    w->slurmd = answers;
    w->agent.slurmd = answers ? SLURMD_RUNNING : SLURMD_WAITING;
}

/* A record that is not there is made by the slurmd that registers. */
static inline void awalk_register(struct awalk *w, bool anew)
{
    if (!w->sim.deleted) {
        sim_registers(&w->sim, anew, w->now);
        return;
    }
    sim_clear(&w->sim);
    w->sim = (struct sim){.base = SLURM_BASE_IDLE,
                          .drain = true,
                          .registered = true,
                          .cpus = 4,
                          .sockets = 1,
                          .cores = 2,
                          .threads = 2,
                          .memory_mib = w->memory};
    sim_say(&w->sim, TEXT_NEW_NODE, SIM_SLURM_UID, w->now);
}

static inline void awalk_start(struct awalk *w, bool new_pod)
{
    w->starts++;
    if (new_pod)
        (void)snprintf(w->pod_uid, sizeof(w->pod_uid), "pod-%d", w->starts);
    (void)snprintf(w->instance, sizeof(w->instance), "start-%d", w->starts);
    w->pod_is = w->pod_ready = w->agent_is = true;
    w->pod_going = false;
    w->sim.jobs = 0;
    w->job = w->job == AWALK_JOB_RUNS ? AWALK_JOB_BAD : w->job;
    w->excused = false;
    w->agent.phase = AGENT_UP;
    w->agent.pod_uid = w->pod_uid;
    w->agent.instance = w->instance;
    w->agent.linked = TRI_NO;
    awalk_slurmd(w, true);
    awalk_link(w, true);
    awalk_register(w, true);
}

static inline void awalk_pod_event(struct awalk *w, enum awalk_event e)
{
    if (e == AWALK_POD_NEW && !w->pod_is) {
        awalk_start(w, true);
    } else if (e == AWALK_CONTAINER_RESTARTS && w->pod_is && !w->pod_going) {
        awalk_start(w, false);
    } else if (e == AWALK_POD_STOPS && w->pod_is) {
        w->pod_going = true;
        if (w->agent.linked == TRI_YES)
            w->agent.phase = AGENT_STOPPING;
    } else if (e == AWALK_GIVES_UP && w->pod_going && w->agent.linked == TRI_YES) {
        w->agent.phase = AGENT_GIVING_UP;
    } else if (e == AWALK_POD_GONE && w->pod_is) {
        w->pod_is = w->agent_is = false;
        awalk_slurmd(w, false);
        awalk_link(w, false);
    } else if (e == AWALK_POD_UNREADY || e == AWALK_POD_READY) {
        w->pod_ready = e == AWALK_POD_READY;
    }
}

static inline enum cause awalk_episode(const struct awalk *w)
{
    struct slurm_node s;
    enum cause c;

    sim_look(&w->sim, "w1", &s);
    c = s.ledger.episode;
    slurm_node_clear(&s);
    return c;
}

static inline uint64_t awalk_episode_checks(const struct awalk *w)
{
    struct slurm_node s;
    uint64_t checks;

    sim_look(&w->sim, "w1", &s);
    checks = s.ledger.checks;
    slurm_node_clear(&s);
    return checks;
}

static inline void awalk_person(struct awalk *w, bool drains)
{
    enum cause episode;

    if (w->sim.deleted)
        return;
    if (drains) {
        w->person = "bad dimm";
        w->sim.drain = true;
        sim_say(&w->sim, w->person, SIM_ROOT, w->now);
        return;
    }
    if (sim_is_free(&w->sim))
        return;
    episode = w->person ? CAUSE_NONE : awalk_episode(w);
    if (episode == CAUSE_HEALTH)
        w->overruled |= awalk_episode_checks(w);
    else if ((episode == CAUSE_NOT_READY || episode == CAUSE_SLURMD ||
              episode == CAUSE_STOPPING) &&
             awalk_heard(w))
        w->overruled |= awalk_failing(w);
    w->excused = true;
    w->person = NULL;
    sim_resume(&w->sim);
}

static inline void awalk_time(struct awalk *w, int64_t ms)
{
    w->now += ms;
    if (w->slurmd && !w->sim.deleted && w->sim.not_responding)
        sim_registers(&w->sim, false, w->now);
}

static inline void awalk_job_event(struct awalk *w, enum awalk_event e)
{
    if (e == AWALK_JOB_STARTS && awalk_free(w) && w->slurmd && !w->reserved &&
        !w->sim.not_responding)
        w->sim.jobs = 1;
    else if (e == AWALK_JOB_ENDS)
        w->sim.jobs = 0;
    else if (e == AWALK_PROBE_PASSES && w->job == AWALK_JOB_RUNS)
        w->job = AWALK_JOB_WELL;
    else if (e == AWALK_PROBE_FAILS && w->job == AWALK_JOB_RUNS)
        w->job = AWALK_JOB_BAD;
}

static inline void awalk_kube_event(struct awalk *w, enum awalk_event e)
{
    enum tri ready = e == AWALK_READY ? TRI_YES : TRI_NO;

    if (e == AWALK_CORDON || e == AWALK_UNCORDON) {
        w->kube.unschedulable = e == AWALK_CORDON;
    } else if (e == AWALK_LEASE_STALE || e == AWALK_LEASE_RENEWED) {
        if (w->stale != (e == AWALK_LEASE_STALE))
            w->lease_since = w->now;
        w->stale = e == AWALK_LEASE_STALE;
    } else if (w->kube.ready != ready) {
        w->kube.ready = ready;
        w->kube.ready_since = w->now;
        w->stale = w->stale && ready == TRI_NO; /* both are the kubelet's own doing */
    }
}

static inline void awalk_do(struct awalk *w, enum awalk_event e)
{
    switch (e) {
    case AWALK_CORDON:
    case AWALK_UNCORDON:
    case AWALK_NOT_READY:
    case AWALK_READY:
    case AWALK_LEASE_STALE:
    case AWALK_LEASE_RENEWED:
        awalk_kube_event(w, e);
        break;
    case AWALK_LINK_LOST:
    case AWALK_LINK_MADE:
        awalk_link(w, e == AWALK_LINK_MADE);
        break;
    case AWALK_A_FAILS:
    case AWALK_A_PASSES:
        w->failing = (w->failing & ~1u) | (e == AWALK_A_FAILS);
        break;
    case AWALK_B_FAILS:
    case AWALK_B_PASSES:
        w->failing = (w->failing & ~2u) | (e == AWALK_B_FAILS ? 2 : 0);
        break;
    case AWALK_POD_STOPS:
    case AWALK_GIVES_UP:
    case AWALK_POD_GONE:
    case AWALK_POD_NEW:
    case AWALK_POD_UNREADY:
    case AWALK_POD_READY:
    case AWALK_CONTAINER_RESTARTS:
        awalk_pod_event(w, e);
        break;
    case AWALK_SLURMD_DIES:
        awalk_slurmd(w, false);
        break;
    case AWALK_SLURMD_BACK:
        if (w->agent_is && !w->slurmd) {
            awalk_slurmd(w, true);
            awalk_register(w, false);
        }
        break;
    case AWALK_TIMES_OUT:
        if (!w->slurmd && !w->sim.deleted) {
            sim_times_out(&w->sim, w->now);
            w->sim.jobs = 0;
        }
        break;
    case AWALK_JOB_STARTS:
    case AWALK_JOB_ENDS:
    case AWALK_PROBE_PASSES:
    case AWALK_PROBE_FAILS:
        awalk_job_event(w, e);
        break;
    case AWALK_PERSON_DRAINS:
    case AWALK_PERSON_RESUMES:
        awalk_person(w, e == AWALK_PERSON_DRAINS);
        break;
    case AWALK_LINE_CHANGES:
        w->memory = w->memory == 8000 ? 4000 : 8000;
        break;
    case AWALK_QUALIFY_ON:
    case AWALK_QUALIFY_OFF:
        w->pool.qualify = e == AWALK_QUALIFY_ON;
        break;
    case AWALK_BRIDGE_RESTARTS:
        w->asked = w->known = false;
        w->agent.linked = w->agent.linked == TRI_YES ? TRI_NO : w->agent.linked;
        w->probe = (struct probe_fact){0};
        w->kubelet = (struct lease_fact){0};
        break;
    case AWALK_ONE_SECOND:
        awalk_time(w, 1000);
        break;
    case AWALK_SIX_SECONDS:
    case AWALK_EVENTS_:
        awalk_time(w, 6000);
        break;
    }
    awalk_tell(w);
    if (awalk_heard(w))
        w->overruled &= awalk_failing(w);
}

/* ---- rounds ----------------------------------------------------------------------------------- */

/* As qualify_fact() of core/qualify.c: only a job for the agent's own start counts. */
static inline struct qualify_fact awalk_qualify(const struct awalk *w)
{
    static const enum qualify_state states[] = {QUALIFY_RESERVED, QUALIFY_RUNNING,
                                                QUALIFY_PASSED, QUALIFY_FAILED};
    const char *instance = w->known ? w->agent.instance : NULL;
    bool mine = instance && strcmp(instance, w->job_instance) == 0;

    if (!w->reserved)
        return (struct qualify_fact){0};
    return (struct qualify_fact){.state = states[mine ? w->job : AWALK_NO_JOB],
                                 .instance = instance,
                                 .text = "fence took 12 s"};
}

static inline struct node_facts
awalk_facts(const struct awalk *w, const struct slurm_node *s, struct kube_pod *pod)
{
    static char name[] = "slurmd";

    *pod = (struct kube_pod){.name = name,
                             .uid = (char *)w->pod_uid,
                             .ready = w->pod_ready,
                             .terminating = w->pod_going};
    return (struct node_facts){
        .name = "w1",
        .kube = &w->kube,
        .pod = w->pod_is ? pod : NULL,
        .pool = &w->pool,
        .selected = &w->pool,
        .slurm = w->sim.deleted ? NULL : s,
        .agent = w->known ? &w->agent : NULL,
        .probe = w->probe,
        .kubelet = w->kubelet,
        .qualify = awalk_qualify(w),
        .slurm_uid = SIM_SLURM_UID,
    };
}

static inline void awalk_ask(struct awalk *w)
{
    enum tri answers = w->slurmd ? TRI_YES : TRI_NO,
             renewed = w->stale ? TRI_NO : TRI_YES;

    if (!w->asked) {
        w->probe = (struct probe_fact){0};
        w->kubelet = (struct lease_fact){0};
        return;
    }
    if (w->probe.answers != answers)
        w->probe = (struct probe_fact){answers, w->now};
    if (w->kubelet.renewed != renewed)
        w->kubelet = (struct lease_fact){renewed, w->now};
}

static inline void awalk_check_down(struct awalk *w)
{
    bool silent = !w->slurmd && w->now - w->silent_since >= AWALK_CONFIRM_MS &&
                  !(w->known && w->agent.linked == TRI_YES);
    bool kube = w->kube.ready == TRI_NO || w->stale || !w->pod_is || !w->pod_ready;
    bool up = w->known && w->agent.phase == AGENT_GIVING_UP && w->sim.jobs;

    if (!up && !(silent && kube))
        awalk_break(w, AWALK_JOB_KILLED);
}

static inline void awalk_check_resume(struct awalk *w, const struct action *a)
{
    bool proof = !w->pool.qualify || w->reserved || w->excused ||
                 strcmp(a->ledger.proved, w->instance) == 0;

    if (!awalk_heard(w) || w->agent.phase != AGENT_UP || !w->slurmd ||
        w->now - w->agent.since < AWALK_HOLD_MS || w->kube.ready != TRI_YES ||
        w->now - w->kube.ready_since < AWALK_HOLD_MS || w->pod_going ||
        (awalk_failing(w) & ~w->overruled))
        awalk_break(w, AWALK_EARLY_RESUME);
    if (!proof)
        awalk_break(w, AWALK_UNPROVED);
}

static inline void awalk_check_action(struct awalk *w, const struct action *a,
                                      const struct verdict *v)
{
    if (w->person && (a->verb != VERB_NOTE || a->reason))
        awalk_break(w, AWALK_PERSON_OVERRULED);
    if (a->verb == VERB_DRAIN && v->cause == CAUSE_HEALTH &&
        !(a->ledger.checks & ~w->overruled))
        awalk_break(w, AWALK_RESUME_UNDONE);
    if (a->verb == VERB_DOWN)
        awalk_check_down(w);
    if (a->verb == VERB_DELETE &&
        (w->sim.jobs || !w->sim.drain || !text_is_ours(w->sim.reason) || w->overruled ||
         w->reserved))
        awalk_break(w, AWALK_RECORD_LOST);
    if (a->verb == VERB_RESUME)
        awalk_check_resume(w, a);
}

/* Reservation, job and restart of slurmd, as a verdict asks for. Returns whether something was done. */
static inline bool awalk_follow(struct awalk *w, const struct verdict *v)
{
    bool mine = strcmp(w->job_instance, w->instance) == 0;

    if (v->ask == ASK_RESTART_SLURMD && w->sim.deleted) {
        awalk_register(w, true);
        return true;
    }
    if (v->verb != VERB_NONE || w->sim.deleted)
        return false;
    if (v->qualify && !w->reserved) {
        w->reserved = true;
        w->job = AWALK_NO_JOB;
        return true;
    }
    if (v->qualify && w->known && (w->job == AWALK_NO_JOB || !mine) && awalk_free(w)) {
        w->job = AWALK_JOB_RUNS;
        (void)snprintf(w->job_instance, sizeof(w->job_instance), "%s", w->instance);
        return true;
    }
    if (!v->qualify && w->reserved) {
        if (awalk_free(w) && w->pool.qualify && !w->excused &&
            strcmp(v->ledger.proved, w->instance) != 0)
            awalk_break(w, AWALK_UNPROVED);
        w->reserved = false;
        w->job = AWALK_NO_JOB;
        return true;
    }
    return false;
}

/* Decides once and acts. Returns the verdict; ret_done: whether something was done. */
static inline struct verdict awalk_round(struct awalk *w, bool *ret_done)
{
    struct slurm_node s;
    struct kube_pod pod;
    struct node_facts f;
    struct verdict v, again;
    struct plan plan;

    awalk_ask(w);
    sim_look(&w->sim, "w1", &s);
    f = awalk_facts(w, &s, &pod);
    v = decide(&f, w->policy, w->now);
    plan_make(&f, &v, 1, &plan);
    *ret_done = plan.n;
    if (plan.n) {
        awalk_check_action(w, &plan.actions[0], &v);
        if (sim_apply(&w->sim, &plan.actions[0], w->now) < 0)
            awalk_break(w, AWALK_REFUSED);
        if (v.verb == VERB_DOWN)
            w->sim.jobs = 0;
        slurm_node_clear(&s);
        sim_look(&w->sim, "w1", &s);
        f = awalk_facts(w, &s, &pod);
        again = decide(&f, w->policy, w->now);
        if (again.verb != VERB_NONE && again.cause != CAUSE_LINE &&
            /* once its jobs are gone the pod's end is no longer overdue */
            !(v.verb == VERB_DOWN && again.verb == VERB_DRAIN))
            awalk_break(w, AWALK_NOT_IDEMPOTENT);
    } else {
        *ret_done = awalk_follow(w, &v);
    }
    plan_clear(&plan);
    slurm_node_clear(&s);
    return v;
}

static inline bool awalk_all_well(const struct awalk *w)
{
    return awalk_heard(w) && w->agent.phase == AGENT_UP && w->slurmd && w->pod_ready &&
           !w->pod_going && w->kube.ready == TRI_YES && !w->stale &&
           !w->kube.unschedulable && !awalk_failing(w) &&
           w->memory == w->sim.memory_mib &&
           w->now - w->kube.ready_since >= AWALK_HOLD_MS &&
           w->now - w->lease_since >= AWALK_HOLD_MS &&
           w->now - w->agent.since >= AWALK_HOLD_MS && !w->pool.qualify;
}

static inline void awalk_check_quiet(struct awalk *w, const struct verdict *v)
{
    struct slurm_node s;
    struct kube_pod pod;
    struct node_facts f;
    struct verdict anew;
    int64_t at = v->look_again_at;

    if (w->sim.deleted)
        return;
    sim_look(&w->sim, "w1", &s);
    f = awalk_facts(w, &s, &pod);
    if (!w->person && awalk_free(w) &&
        ((awalk_heard(w) && (awalk_failing(w) & ~w->overruled)) ||
         (w->pod_is && w->pod_going && !(v->ledger.overruled & 1u << CAUSE_STOPPING))))
        awalk_break(w, AWALK_FREE_WITH_CAUSE);
    if (!w->person && !awalk_free(w) && awalk_all_well(w) &&
        (!w->kubelet.renewed || w->now - w->kubelet.since >= AWALK_HOLD_MS))
        awalk_break(w, AWALK_HELD_ON);
    if ((at && at <= w->now) ||
        decide(&f, w->policy, at ? at - 1 : w->now + 3600000).verb != VERB_NONE)
        awalk_break(w, AWALK_TIME_UNANNOUNCED);

    f.agent = NULL;
    f.probe = (struct probe_fact){0};
    f.kubelet = (struct lease_fact){0};
    anew = decide(&f, w->policy, w->now);
    if (anew.verb != VERB_NONE &&
        !(anew.verb == VERB_DRAIN && v->holder != HOLDER_NOBODY))
        awalk_break(w, AWALK_RESTART_ACTS);
    slurm_node_clear(&s);
}

static inline void awalk_rounds(struct awalk *w)
{
    for (int i = 0; i < AWALK_ROUNDS_MAX; i++) {
        bool done;
        struct verdict v = awalk_round(w, &done);

        if (!done && v.suspect == w->asked) {
            awalk_check_quiet(w, &v);
            return;
        }
        w->asked = v.suspect;
    }
    awalk_break(w, AWALK_NOT_QUIET);
}

/* ---- a walk ----------------------------------------------------------------------------------- */

/* ret_step: how many events it took. */
static inline enum awalk_broken awalk(const uint8_t *events, size_t n,
                                      const struct policy *policy, size_t *ret_step)
{
    struct awalk w = {
        .policy = policy,
        .kube = {.name = (char[]){"w1"}, .ready = TRI_YES},
        .pool = {.name = (char[]){"hpc"}, .feature = (char[]){"hpc"}},
        .sim = {.deleted = true},
        .memory = 8000,
        .silent_since = 1,
        .now = INT64_C(1733050000000),
    };
    size_t i = 0;

    w.kube.ready_since = w.lease_since = w.now - 3600000;
    awalk_start(&w, true);
    awalk_rounds(&w);
    for (; i < n && !w.broken; i++) {
        awalk_do(&w, events[i] % AWALK_EVENTS_);
        awalk_rounds(&w);
    }
    sim_clear(&w.sim);
    *ret_step = i;
    return w.broken;
}

static inline int awalk_breaks(const uint8_t *events, size_t n,
                               const struct policy *policy)
{
    size_t step;

    return (int)awalk(events, n, policy, &step);
}

static inline size_t awalk_shrink(uint8_t *events, size_t n, const struct policy *policy)
{
    return events_shrink(events, n, policy, awalk_breaks);
}

static inline void awalk_print(FILE *f, const uint8_t *events, size_t n)
{
    events_print(f, events, n, awalk_event_names, AWALK_EVENTS_);
}

#endif
