// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/causes.h"

#include <string.h>

#include "core/text.h"

#define READY_STEP_MS 1000 /* lastTransitionTime is in whole seconds */

void look_again(struct look *l, int64_t at)
{
    if (!l->again_at || at < l->again_at)
        l->again_at = at;
}

/* ---- who says what ---------------------------------------------------------------------------- */

static bool linked(const struct look *l)
{
    return l->p->agents && l->f->agent && l->f->agent->linked == TRI_YES;
}

/* Two pods may be there while one goes: an agent speaks for its own. */
static bool of_this_pod(const struct node_facts *f)
{
    return f->agent && f->pod && f->pod->uid &&
           mem_same_str(f->agent->pod_uid, f->pod->uid);
}

bool agent_reports(const struct node_facts *f)
{
    return f->agent && f->agent->linked == TRI_YES && f->agent->reported &&
           of_this_pod(f);
}

bool agent_heard(const struct look *l)
{
    return l->p->agents && agent_reports(l->f);
}

/* Kubernetes' word that nothing runs in a slurmd pod there: it has none, or none that is ready. */
static bool pod_lost(const struct node_facts *f)
{
    return !f->pod || !f->pod->ready;
}

/* Slurmd's port is silent, and so is the agent, whose steps could run on without slurmd. */
static bool silent_for(struct look *l, int64_t ms)
{
    const struct probe_fact *probe = &l->f->probe;

    if (probe->answers != TRI_NO || linked(l))
        return false;
    if (l->now - probe->since >= ms)
        return true;
    look_again(l, probe->since + ms);
    return false;
}

/* How the ledger has it. */
static bool stood(const struct look *l, enum cause c)
{
    const struct ledger *was = &l->f->slurm->ledger;

    return was->episode == c || (was->overruled & cause_bit(c)) ||
           (c == CAUSE_HEALTH && was->overruled_checks);
}

static enum tri yes_if(bool stands)
{
    return stands ? TRI_YES : TRI_NO;
}

/* ---- gone, not ready -------------------------------------------------------------------------- */

static enum tri node_gone(struct look *l)
{
    return yes_if(!l->f->kube);
}

/* Whether it is by the Lease alone that it was called not ready: Ready has not changed since. */
static bool was_stale(const struct look *l)
{
    const struct ledger *was = &l->f->slurm->ledger;

    return (was->overruled & OVERRULED_LEASE) ||
           (was->episode == CAUSE_NOT_READY &&
            l->f->kube->ready_since + READY_STEP_MS <= was->episode_at);
}

/* Absent is not NotReady: a Node without the condition has not said anything yet. */
static enum tri node_not_ready(struct look *l)
{
    const struct node_facts *f = l->f;

    if (!f->kube)
        return TRI_NO;
    if (f->kube->ready == TRI_NO)
        return TRI_YES;
    if (!l->p->agents || f->kube->ready != TRI_YES)
        return TRI_NO;
    if (f->kubelet.renewed == TRI_UNKNOWN)
        return was_stale(l) ? TRI_UNKNOWN : TRI_NO;
    return yes_if(f->kubelet.renewed == TRI_NO);
}

static bool silent(struct look *l)
{
    return silent_for(l, l->p->down_confirm_ms);
}

/* ---- the slurmd pod --------------------------------------------------------------------------- */

static enum tri pod_stopping(struct look *l)
{
    const struct node_facts *f = l->f;
    bool terminating = f->pod && f->pod->terminating;

    if (!l->p->agents || !f->kube)
        return TRI_NO;
    if (linked(l))
        return yes_if(f->agent->phase >= AGENT_STOPPING ||
                      (terminating && of_this_pod(f)));
    if (terminating || (f->agent && f->agent->phase >= AGENT_STOPPING))
        return TRI_YES;
    return TRI_UNKNOWN; /* ended by the word of the next agent */
}

/* Its agent has run out of time for the jobs, or slurmd has ended and the pod is gone or going. */
static bool stopping_overdue(struct look *l)
{
    const struct agent_fact *a = l->f->agent;

    if (a && a->phase == AGENT_GIVING_UP && l->f->slurm->jobs)
        return true;
    return pod_lost(l->f) && silent(l);
}

/* The agent says that slurmd runs, or that it will and that steps live on meanwhile. */
static bool slurmd_cared_for(const struct look *l)
{
    const struct agent_fact *a = l->f->agent;

    return linked(l) &&
           (a->slurmd == SLURMD_RUNNING || (a->slurmd == SLURMD_WAITING && a->steps > 0));
}

/* Confirmed silence, linked or not: an agent whose slurmd does not run has no say in it. */
static enum tri slurmd_silent(struct look *l)
{
    const struct probe_fact *probe = &l->f->probe;
    enum tri stopping = pod_stopping(l);

    if (!l->p->agents || !l->f->kube || slurmd_cared_for(l) || stopping == TRI_YES ||
        (stopping == TRI_UNKNOWN && stood(l, CAUSE_STOPPING)) ||
        probe->answers == TRI_YES)
        return TRI_NO;
    if (probe->answers == TRI_UNKNOWN)
        return TRI_UNKNOWN;
    if (l->now - probe->since >= l->p->down_confirm_ms)
        return TRI_YES;
    look_again(l, probe->since + l->p->down_confirm_ms);
    return TRI_UNKNOWN;
}

/* One side alone never kills a job: Kubernetes has to say so, too, and it takes twice the time. */
static bool slurmd_overdue(struct look *l)
{
    return pod_lost(l->f) && silent_for(l, 2 * l->p->down_confirm_ms);
}

/* ---- what the agent says of the node ---------------------------------------------------------- */

static enum tri checks_fail(struct look *l)
{
    if (!l->p->agents)
        return TRI_NO;
    return agent_heard(l) ? yes_if(l->f->agent->n_checks > 0) : TRI_UNKNOWN;
}

static enum tri probe_failed(struct look *l)
{
    const struct node_facts *f = l->f;
    const struct ledger *was = &f->slurm->ledger;

    if (!l->p->agents || !f->pool || !f->pool->qualify)
        return TRI_NO;
    if (f->qualify.state == QUALIFY_FAILED && f->qualify.instance)
        return yes_if(!instance_is(f->qualify.instance, was->proved));
    return agent_heard(l) ? yes_if(instance_is(f->agent->instance, was->failed))
                          : TRI_UNKNOWN;
}

/* What a person has overruled is kept in the record. */
static bool overruling_kept(const struct slurm_node *s)
{
    return (s->ledger.overruled & ~cause_bit(CAUSE_LINE)) || s->ledger.overruled_checks;
}

static bool record_ours(const struct slurm_node *s)
{
    return s->dynamic && s->extra_state == EXTRA_OURS && !s->extra_other;
}

bool record_renewable(const struct slurm_node *s)
{
    return record_ours(s) && !overruling_kept(s);
}

bool record_new(const struct slurm_node *s)
{
    return s->drain && s->reason && strcmp(s->reason, TEXT_NEW_NODE) == 0;
}

bool line_differs(const struct look *l)
{
    const struct slurm_node *s = l->f->slurm;
    const struct node_line *n = l->f->agent ? &l->f->agent->line : NULL;

    return n && n->cpus &&
           (n->cpus != s->cpus || n->sockets != s->sockets || n->cores != s->cores ||
            n->threads != s->threads || n->memory_mib != s->memory_mib);
}

uint32_t line_print(const struct node_line *line)
{
    const uint64_t parts[] = {line->cpus, line->sockets, line->cores, line->threads,
                              line->memory_mib};
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < TG_LEN(parts); i++)
        h = (h ^ parts[i]) * UINT64_C(0x100000001b3);
    return (uint32_t)(h ^ (h >> 32)) | 1;
}

/*
 * A record that was made from this very line and still differs (SLURMD_CONF may say otherwise) would do so
 * again: it is taken as it is, and the ledger keeps the line's print.
 */
static enum tri line_changed(struct look *l)
{
    const struct slurm_node *s = l->f->slurm;
    bool accepted;

    if (!l->p->agents)
        return TRI_NO;
    if (!agent_heard(l) || !l->f->agent->line.cpus)
        return TRI_UNKNOWN;
    accepted = s->ledger.line == line_print(&l->f->agent->line) || record_new(s);
    if (!record_ours(s) || (!s->invalid_reg && (!line_differs(l) || accepted)))
        return TRI_NO;
    return overruling_kept(s) ? TRI_UNKNOWN : TRI_YES;
}

/* ---- what people and schedulers said to Kubernetes --------------------------------------------- */

static enum tri node_left_pool(struct look *l)
{
    return yes_if(l->f->kube && l->f->selected != l->f->pool);
}

static enum tri node_cordoned(struct look *l)
{
    return yes_if(l->f->kube && l->f->kube->unschedulable);
}

/*
 * The policy, worst first; text.c has the class and the words of each, and what ends it. A cause ends
 * when it no longer stands, and the node is given back when none does. DOWN takes two witnesses, since it
 * requeues jobs.
 */
/* clang-format off */
const struct cause_row cause_rows[] = {
    /* class     cause            does        while            DOWN when         once idle */
    {"k8s",    CAUSE_GONE,      VERB_DRAIN, node_gone,       silent,           VERB_NONE},
    {"k8s",    CAUSE_NOT_READY, VERB_DRAIN, node_not_ready,  silent,           VERB_NONE},
    {"fail",   CAUSE_SLURMD,    VERB_DRAIN, slurmd_silent,   slurmd_overdue,   VERB_NONE},
    {"update", CAUSE_STOPPING,  VERB_DRAIN, pod_stopping,    stopping_overdue, VERB_NONE},
    {"k8s",    CAUSE_LEFT_POOL, VERB_DRAIN, node_left_pool,  NULL,             VERB_NONE},
    {"health", CAUSE_HEALTH,    VERB_DRAIN, checks_fail,     NULL,             VERB_NONE},
    {"health", CAUSE_UNPROVED,  VERB_DRAIN, probe_failed,    NULL,             VERB_NONE},
    {"update", CAUSE_LINE,      VERB_DRAIN, line_changed,    NULL,             VERB_DELETE},
    {"k8s",    CAUSE_CORDONED,  VERB_DRAIN, node_cordoned,   NULL,             VERB_NONE},
};
/* clang-format on */
const size_t cause_rows_n = TG_LEN(cause_rows);

const char *cause_class(enum cause c)
{
    for (size_t i = 0; i < TG_LEN(cause_rows); i++) {
        if (cause_rows[i].cause == c)
            return cause_rows[i].class;
    }
    return "k8s";
}

uint32_t causes_standing(struct look *l)
{
    uint32_t standing = 0;

    for (size_t i = 0; i < TG_LEN(cause_rows); i++) {
        enum cause c = cause_rows[i].cause;
        enum tri stands = cause_rows[i].stands(l);

        if (stands == TRI_YES || (stands == TRI_UNKNOWN && stood(l, c)))
            standing |= cause_bit(c);
    }
    if (standing & cause_bit(CAUSE_NOT_READY))
        standing |= OVERRULED_LEASE;
    return standing;
}
