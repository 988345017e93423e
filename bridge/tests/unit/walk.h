/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Walks one node through a sequence of events, one byte each, and lets decide() act after every one
 * until it is quiet. Slurm is sim.h; what people and machines may expect is kept beside it, by rules of
 * its own, and compared. Shared by the property test and the fuzzer.
 */
#ifndef TG_TESTS_WALK_H
#define TG_TESTS_WALK_H

#include <stdio.h>

#include "core/plan.h"
#include "core/text.h"
#include "tests/unit/events.h"
#include "tests/unit/sim.h"

enum walk_event {
    WALK_CORDON,
    WALK_UNCORDON,
    WALK_NOT_READY,
    WALK_READY,
    WALK_READY_ABSENT,
    WALK_DELETED,
    WALK_ADDED,
    WALK_ADDED_CORDONED,
    WALK_LABEL_OFF,
    WALK_LABEL_ON,
    WALK_SLURMD_DIES,
    WALK_SLURMD_BACK,
    WALK_POD_RESTARTS,
    WALK_TIMES_OUT,
    WALK_KILL_TASK_FAILED,
    WALK_PERSON_DRAINS,
    WALK_PERSON_DOWNS,
    WALK_PERSON_FAILS,
    WALK_PERSON_RESUMES,
    WALK_EXTRA_TEXT,
    WALK_EXTRA_OBJECT,
    WALK_EXTRA_EMPTIED,
    WALK_BRIDGE_RESTARTS,
    WALK_BRIDGE_AWAY,
    WALK_BRIDGE_BACK,
    WALK_ONE_SECOND,
    WALK_SIX_SECONDS,
    WALK_EVENTS_
};

static const char *const walk_event_names[WALK_EVENTS_] = {
    [WALK_CORDON] = "cordon",
    [WALK_UNCORDON] = "uncordon",
    [WALK_NOT_READY] = "NotReady",
    [WALK_READY] = "Ready",
    [WALK_READY_ABSENT] = "no Ready condition",
    [WALK_DELETED] = "Node deleted",
    [WALK_ADDED] = "Node added",
    [WALK_ADDED_CORDONED] = "Node added, cordoned",
    [WALK_LABEL_OFF] = "label removed",
    [WALK_LABEL_ON] = "label added",
    [WALK_SLURMD_DIES] = "slurmd falls silent",
    [WALK_SLURMD_BACK] = "slurmd answers",
    [WALK_POD_RESTARTS] = "slurmd pod restarts",
    [WALK_TIMES_OUT] = "SlurmdTimeout",
    [WALK_KILL_TASK_FAILED] = "slurmctld drains it",
    [WALK_PERSON_DRAINS] = "person drains",
    [WALK_PERSON_DOWNS] = "person sets DOWN",
    [WALK_PERSON_FAILS] = "person sets FAIL",
    [WALK_PERSON_RESUMES] = "person resumes",
    [WALK_EXTRA_TEXT] = "person writes Extra",
    [WALK_EXTRA_OBJECT] = "person writes an object to Extra",
    [WALK_EXTRA_EMPTIED] = "person empties Extra",
    [WALK_BRIDGE_RESTARTS] = "bridge restarts",
    [WALK_BRIDGE_AWAY] = "bridge stops",
    [WALK_BRIDGE_BACK] = "bridge starts",
    [WALK_ONE_SECOND] = "1 s",
    [WALK_SIX_SECONDS] = "6 s",
};

/* What must never be seen. */
enum walk_broken {
    WALK_FINE,
    WALK_PERSON_LOST,      /* a person's hold is gone, or not word for word */
    WALK_PERSON_OVERRULED, /* we acted on a node that a person holds */
    WALK_RESUME_UNDONE,    /* drained again for a cause that a person had overruled */
    WALK_FREE_WITH_CAUSE,  /* schedulable although a cause stands that nobody overruled */
    WALK_ONE_WITNESS,      /* DOWN without both witnesses */
    WALK_EARLY_RESUME,     /* not Ready for the hold time, or slurmd not answering */
    WALK_NO_CAUSE,         /* drained or set down for nothing */
    WALK_HELD_ON,          /* all is well and it is still held */
    WALK_EXTRA_LOST,       /* what others keep in Extra was changed */
    WALK_REFUSED,          /* slurmctld would have refused the action */
    WALK_NOT_IDEMPOTENT,
    WALK_NOT_QUIET,    /* more than WALK_ACTIONS_MAX actions for one event */
    WALK_RESTART_ACTS, /* a bridge that starts anew acts on a quiet world */
    WALK_TIME_UNANNOUNCED, /* time alone changes the decision, and look_again_at did not say so */
    WALK_BROKEN_
};

#define WALK_ACTIONS_MAX 3
#define WALK_HOLD_MS     5000 /* what is promised; the policy is an argument */
#define WALK_CONFIRM_MS  5000

#define WALK_TEXT        "rack 7, slot 3"
#define WALK_OBJECT      "\"rack\":7"

struct walk {
    const struct policy *policy;
    struct kube_node kube;
    bool node, label;
    bool slurmd; /* answers */
    int64_t silent_since;
    struct sim sim;
    bool unseen; /* a person resumed it while no bridge ran */
    bool away;   /* no bridge runs */
    bool asked;  /* slurmd is asked by TCP */
    struct probe_fact probe;
    int64_t now;
    /* what people expect */
    const char
        *person; /* the text of whoever holds it, NULL: nobody but us or slurmctld */
    bool person_drain, person_down, person_fail;
    const char *left_over; /* the text of the one who let go last */
    const char *extra;     /* what must be found in Extra */
    bool foreign;          /* and nothing else: the ledger can not be kept */
    bool text_only; /* the ledger is not there; it comes back with the next action */
    uint32_t must;  /* causes that we may not drain for */
    uint32_t may;   /* causes that we need not drain for */
    enum walk_broken broken;
};

static const struct kube_pool walk_pool = {.name = (char[]){"hpc"},
                                           .feature = (char[]){"hpc"}};

static inline uint32_t walk_bit(enum cause c)
{
    return UINT32_C(1) << c;
}

static inline uint32_t walk_causes(const struct walk *w)
{
    if (!w->node)
        return walk_bit(CAUSE_GONE);
    return (w->kube.ready == TRI_NO ? walk_bit(CAUSE_NOT_READY) : 0) |
           (!w->label ? walk_bit(CAUSE_LEFT_POOL) : 0) |
           (w->kube.unschedulable ? walk_bit(CAUSE_CORDONED) : 0);
}

/* The cause that our text tells, and all that are less bad. */
static inline uint32_t walk_up_to_text(const char *reason)
{
    static const struct {
        const char *text;
        enum cause cause;
    } texts[] = {
        {"tidegate/k8s: node is cordoned", CAUSE_CORDONED},
        {"tidegate/k8s: node left pool", CAUSE_LEFT_POOL},
        {"tidegate/k8s: node is NotReady", CAUSE_NOT_READY},
        {"tidegate/k8s: node is gone", CAUSE_GONE},
    };
    uint32_t bits = 0;

    for (size_t i = 0; i < TG_LEN(texts); i++) {
        bits |= walk_bit(texts[i].cause);
        if (reason && strncmp(reason, texts[i].text, strlen(texts[i].text)) == 0)
            return bits;
    }
    return 0;
}

/* The worst of these: the one that the text names. */
static inline uint32_t walk_text_cause(const char *reason)
{
    uint32_t bits = walk_up_to_text(reason);

    return bits & ~(bits >> 1);
}

static inline bool walk_ours(const struct walk *w)
{
    return !w->person && walk_up_to_text(w->sim.reason);
}

/* Causes that a free node may have. Without a ledger the text tells of an overruling, but not what stood
 * beside that cause: all that is less bad counts as overruled, then and later. */
static inline uint32_t walk_allowed(const struct walk *w)
{
    bool text = w->foreign && sim_is_free(&w->sim) &&
                (walk_causes(w) & walk_text_cause(w->sim.reason));

    return w->may | (text ? walk_up_to_text(w->sim.reason) : 0);
}

static inline void walk_break(struct walk *w, enum walk_broken what)
{
    if (!w->broken)
        w->broken = what;
}

/* ---- events ----------------------------------------------------------------------------------- */

static inline void walk_set_ready(struct walk *w, enum tri ready)
{
    if (w->kube.ready != ready)
        w->kube.ready_since = w->now;
    w->kube.ready = ready;
}

static inline void walk_add_node(struct walk *w, bool cordoned)
{
    if (w->node)
        return;
    w->node = w->label = true;
    w->kube.unschedulable = cordoned;
    w->kube.ready = TRI_UNKNOWN;
    walk_set_ready(w, TRI_YES);
}

static inline void walk_slurmd(struct walk *w, bool answers)
{
    if (w->slurmd && !answers)
        w->silent_since = w->now;
    w->slurmd = answers;
}

static inline void walk_time(struct walk *w, int64_t ms)
{
    w->now += ms;
    if (w->slurmd && w->sim.not_responding)
        sim_registers(&w->sim, false, w->now);
}

/*
 * The node is taken: where the ledger is not there, the memory of an overruling went with it. And where
 * no bridge was there to take a person's text away that was left over, slurmctld's DOWN carries it, and
 * nobody can tell that from a person's DOWN.
 */
static inline void walk_taken(struct walk *w, bool was_free)
{
    if (!was_free || sim_is_free(&w->sim))
        return;
    if (!w->person && w->left_over && w->sim.reason &&
        strcmp(w->sim.reason, w->left_over) == 0) {
        w->person = w->left_over;
        w->person_down = true;
    }
    if (w->foreign)
        w->must = w->may = 0;
    if (w->away)
        w->must = 0;
}

static inline void walk_slurm_event(struct walk *w, enum walk_event e)
{
    bool was_free = sim_is_free(&w->sim);

    if (e == WALK_TIMES_OUT && !w->slurmd) {
        sim_times_out(&w->sim, w->now);
    } else if (e == WALK_SLURMD_BACK && !w->slurmd) {
        walk_slurmd(w, true);
        sim_registers(&w->sim, false, w->now);
    } else if (e == WALK_POD_RESTARTS) {
        walk_slurmd(w, true);
        sim_registers(&w->sim, true, w->now);
    } else if (e == WALK_KILL_TASK_FAILED && was_free && w->slurmd &&
               !w->sim.not_responding &&
               (sim_is_blank(w->sim.reason) ||
                strcmp(w->sim.reason, REASON_BLANK) == 0)) {
        sim_drains_itself(&w->sim, "Kill task failed", w->now);
        w->person =
            w->sim.reason && !sim_is_blank(w->sim.reason) ? "Kill task failed" : " ";
        w->person_drain = true;
    }
    walk_taken(w, was_free);
}

static inline void walk_person_holds(struct walk *w, enum walk_event e)
{
    bool was_free = sim_is_free(&w->sim);

    if (e == WALK_PERSON_DRAINS) {
        w->person = "bad dimm, ask alice";
        w->person_drain = w->sim.drain = true;
    } else if (e == WALK_PERSON_DOWNS) {
        w->person = "bad psu";
        w->person_down = true;
        w->sim.base = SLURM_BASE_DOWN;
    } else {
        w->person = "Not responding since Monday";
        w->person_fail = w->sim.fail = true;
    }
    sim_say(&w->sim, w->person, SIM_ROOT, w->now);
    walk_taken(w, was_free);
}

static inline void walk_person_resumes(struct walk *w)
{
    if (sim_is_free(&w->sim))
        return;
    if (walk_ours(w)) {
        w->must |= walk_causes(w) & walk_up_to_text(w->sim.reason);
        w->may |= w->must;
    }
    w->unseen = w->away;
    if (w->person)
        w->left_over = w->person;
    w->person = NULL;
    w->person_drain = w->person_down = w->person_fail = false;
    sim_resume(&w->sim);
}

/* The ledger goes; what is left of it is our text on a free node. */
static inline void walk_extra(struct walk *w, const char *text, const char *kept,
                              bool foreign)
{
    w->may = walk_allowed(w);
    mem_set(&w->sim.extra, text);
    w->extra = kept;
    w->foreign = foreign;
    w->text_only = true;
    w->must = 0;
    if (!sim_is_free(&w->sim) || !walk_ours(w))
        w->may = 0;
}

static inline void walk_bridge(struct walk *w, bool away)
{
    w->away = away;
    w->asked = false;
    w->probe = (struct probe_fact){0};
}

static inline void walk_do(struct walk *w, enum walk_event e)
{
    switch (e) {
    case WALK_CORDON:
    case WALK_UNCORDON:
        w->kube.unschedulable = e == WALK_CORDON;
        break;
    case WALK_NOT_READY:
        walk_set_ready(w, TRI_NO);
        break;
    case WALK_READY:
        walk_set_ready(w, TRI_YES);
        break;
    case WALK_READY_ABSENT:
        walk_set_ready(w, TRI_UNKNOWN);
        break;
    case WALK_DELETED:
        w->node = false;
        break;
    case WALK_ADDED:
    case WALK_ADDED_CORDONED:
        walk_add_node(w, e == WALK_ADDED_CORDONED);
        break;
    case WALK_LABEL_OFF:
    case WALK_LABEL_ON:
        w->label = e == WALK_LABEL_ON;
        break;
    case WALK_SLURMD_DIES:
        walk_slurmd(w, false);
        break;
    case WALK_SLURMD_BACK:
    case WALK_POD_RESTARTS:
    case WALK_TIMES_OUT:
    case WALK_KILL_TASK_FAILED:
        walk_slurm_event(w, e);
        break;
    case WALK_PERSON_DRAINS:
    case WALK_PERSON_DOWNS:
    case WALK_PERSON_FAILS:
        walk_person_holds(w, e);
        break;
    case WALK_PERSON_RESUMES:
        walk_person_resumes(w);
        break;
    case WALK_EXTRA_TEXT:
        walk_extra(w, WALK_TEXT, WALK_TEXT, true);
        break;
    case WALK_EXTRA_OBJECT:
        walk_extra(w, "{" WALK_OBJECT "}", WALK_OBJECT, false);
        break;
    case WALK_EXTRA_EMPTIED:
        walk_extra(w, NULL, NULL, false);
        break;
    case WALK_BRIDGE_RESTARTS:
        walk_bridge(w, w->away);
        break;
    case WALK_BRIDGE_AWAY:
    case WALK_BRIDGE_BACK:
        walk_bridge(w, e == WALK_BRIDGE_AWAY);
        break;
    case WALK_ONE_SECOND:
        walk_time(w, 1000);
        break;
    case WALK_SIX_SECONDS:
    case WALK_EVENTS_:
        walk_time(w, 6000);
        break;
    }
    w->must &= walk_causes(w);
    if (w->text_only && !(walk_causes(w) & walk_text_cause(w->sim.reason)))
        w->must = 0; /* the text is all that tells of it, and its cause has cleared */
    /* what came before the bridge sees the resume may have been there when the person did it */
    if (w->unseen && sim_is_free(&w->sim))
        w->may |= walk_causes(w);
    w->unseen = w->unseen && w->away;
    if (!w->away)
        w->may &= walk_causes(w);
}

/* ---- rounds ----------------------------------------------------------------------------------- */

static inline struct node_facts walk_facts(const struct walk *w,
                                           const struct slurm_node *s)
{
    return (struct node_facts){
        .name = "w1",
        .kube = w->node ? &w->kube : NULL,
        .pool = &walk_pool,
        .selected = w->node && w->label ? &walk_pool : NULL,
        .slurm = s,
        .probe = w->probe,
        .slurm_uid = SIM_SLURM_UID,
    };
}

static inline void walk_ask(struct walk *w)
{
    enum tri answers = w->slurmd ? TRI_YES : TRI_NO;

    if (!w->asked)
        w->probe = (struct probe_fact){0};
    else if (w->probe.answers != answers)
        w->probe = (struct probe_fact){answers, w->now};
}

static inline void walk_check_action(struct walk *w, const struct action *a)
{
    uint32_t causes = walk_causes(w),
             both = walk_bit(CAUSE_GONE) | walk_bit(CAUSE_NOT_READY);

    if (w->person && (a->verb != VERB_NOTE || a->reason))
        walk_break(w, WALK_PERSON_OVERRULED);
    if (a->verb == VERB_DRAIN || a->verb == VERB_DOWN) {
        if (!causes)
            walk_break(w, WALK_NO_CAUSE);
        else if (!(causes & ~w->must))
            walk_break(w, WALK_RESUME_UNDONE);
    }
    if (a->verb == VERB_DOWN &&
        (!(causes & both) || w->slurmd || w->now - w->silent_since < WALK_CONFIRM_MS))
        walk_break(w, WALK_ONE_WITNESS);
    if (a->verb == VERB_RESUME) {
        bool was_down = w->sim.base == SLURM_BASE_DOWN || w->sim.not_responding;

        if (!w->node || w->kube.ready != TRI_YES ||
            w->now - w->kube.ready_since < WALK_HOLD_MS || (was_down && !w->slurmd))
            walk_break(w, WALK_EARLY_RESUME);
        if (causes & ~w->may)
            walk_break(w, WALK_FREE_WITH_CAUSE);
    }
}

/* Decides once and acts. Returns the verdict. */
static inline struct verdict walk_round(struct walk *w)
{
    struct slurm_node s;
    struct node_facts f;
    struct verdict v;
    struct plan plan;

    walk_ask(w);
    sim_look(&w->sim, "w1", &s);
    f = walk_facts(w, &s);
    v = decide(&f, w->policy, w->now);
    plan_make(&f, &v, 1, &plan);
    if (plan.n) {
        w->text_only = w->foreign; /* the ledger is written again */
        walk_check_action(w, &plan.actions[0]);
        if (sim_apply(&w->sim, &plan.actions[0], w->now) < 0)
            walk_break(w, WALK_REFUSED);
        slurm_node_clear(&s);
        sim_look(&w->sim, "w1", &s);
        if (decide(&f, w->policy, w->now).verb != VERB_NONE)
            walk_break(w, WALK_NOT_IDEMPOTENT);
        /* without a ledger, a drain for something worse hides what was overruled before */
        if (w->foreign && (v.verb == VERB_DRAIN || v.verb == VERB_DOWN))
            w->must = w->may = 0;
    }
    plan_clear(&plan);
    slurm_node_clear(&s);
    return v;
}

static inline void walk_check_time(struct walk *w, const struct node_facts *f,
                                   const struct verdict *v)
{
    int64_t at = v->look_again_at;

    if ((at && at <= w->now) ||
        decide(f, w->policy, at ? at - 1 : w->now + 3600000).verb != VERB_NONE)
        walk_break(w, WALK_TIME_UNANNOUNCED);
}

static inline void walk_check_person(struct walk *w)
{
    size_t n = w->person ? strlen(w->person) : 0;
    const char *is = w->sim.reason;

    if (w->person &&
        (!is || strncmp(is, w->person, n) != 0 ||
         (is[n] && strcmp(is + n, SIM_SUFFIX) != 0) ||
         (w->person_drain && !w->sim.drain) || (w->person_fail && !w->sim.fail) ||
         (w->person_down && w->sim.base != SLURM_BASE_DOWN)))
        walk_break(w, WALK_PERSON_LOST);
    if (w->extra && (!w->sim.extra || !strstr(w->sim.extra, w->extra) ||
                     (w->foreign && strcmp(w->sim.extra, w->extra) != 0)))
        walk_break(w, WALK_EXTRA_LOST);
}

/* Nothing more to do until something happens. */
static inline void walk_check_quiet(struct walk *w, const struct verdict *v)
{
    uint32_t causes = walk_causes(w);
    bool fine = w->node && w->kube.ready == TRI_YES &&
                w->now - w->kube.ready_since >= WALK_HOLD_MS && w->slurmd;
    struct slurm_node s;
    struct node_facts f;

    walk_check_person(w);
    if (!w->person && sim_is_free(&w->sim) && (causes & ~walk_allowed(w)))
        walk_break(w, WALK_FREE_WITH_CAUSE);
    if (!w->person && !sim_is_free(&w->sim) && !(causes & ~w->must) && fine)
        walk_break(w, WALK_HELD_ON);

    sim_look(&w->sim, "w1", &s);
    f = walk_facts(w, &s);
    walk_check_time(w, &f, v);
    f.probe = (struct probe_fact){0};
    if (decide(&f, w->policy, w->now).verb != VERB_NONE)
        walk_break(w, WALK_RESTART_ACTS);
    slurm_node_clear(&s);
}

static inline void walk_rounds(struct walk *w)
{
    int actions = 0;

    for (;;) {
        struct verdict v = walk_round(w);

        if (v.verb != VERB_NONE) {
            if (++actions > WALK_ACTIONS_MAX) {
                walk_break(w, WALK_NOT_QUIET);
                return;
            }
        } else if (v.suspect == w->asked) {
            walk_check_quiet(w, &v);
            return;
        }
        w->asked = v.suspect;
    }
}

/* ---- a walk ----------------------------------------------------------------------------------- */

/* ret_step: how many events it took. */
static inline enum walk_broken walk(const uint8_t *events, size_t n,
                                    const struct policy *policy, size_t *ret_step)
{
    struct walk w = {
        .policy = policy,
        .kube = {.name = (char[]){"w1"}, .ready = TRI_YES},
        .node = true,
        .label = true,
        .slurmd = true,
        .sim = {.base = SLURM_BASE_IDLE, .registered = true},
        .now = INT64_C(1733050000000),
    };
    size_t i = 0;

    w.kube.ready_since = w.now - 3600000;
    walk_rounds(&w);
    for (; i < n && !w.broken; i++) {
        walk_do(&w, events[i] % WALK_EVENTS_);
        if (!w.away)
            walk_rounds(&w);
        else
            walk_check_person(&w);
    }
    sim_clear(&w.sim);
    *ret_step = i;
    return w.broken;
}

static inline int walk_breaks(const uint8_t *events, size_t n,
                              const struct policy *policy)
{
    size_t step;

    return (int)walk(events, n, policy, &step);
}

static inline size_t walk_shrink(uint8_t *events, size_t n, const struct policy *policy)
{
    return events_shrink(events, n, policy, walk_breaks);
}

static inline void walk_print(FILE *f, const uint8_t *events, size_t n)
{
    events_print(f, events, n, walk_event_names, WALK_EVENTS_);
}

#endif
