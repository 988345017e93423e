// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/decide.h"

#include <string.h>

#include "core/causes.h"
#include "core/features.h"
#include "core/text.h"

/* What slurmctld writes by itself when a node falls silent or comes back; nobody's word. */
static const char *const slurm_texts[] = {"Not responding", "Node unexpectedly rebooted"};

const char *holder_name(enum holder h)
{
    switch (h) {
    case HOLDER_NOBODY:
        return "nobody";
    case HOLDER_TIDEGATE:
        return "tidegate";
    case HOLDER_SLURM:
        return "slurm";
    case HOLDER_PERSON:
        break;
    }
    return "person";
}

static bool slurms_own_text(const struct slurm_node *s, uint32_t slurm_uid)
{
    /* slurmctld writes as SlurmUser; before it knows better, as root */
    if (s->reason_uid != slurm_uid && s->reason_uid != 0)
        return false;
    for (size_t i = 0; i < TG_LEN(slurm_texts); i++) {
        if (strcmp(s->reason, slurm_texts[i]) == 0)
            return true;
    }
    return false;
}

/* How slurmctld begins when it drains a node that offers less than its record says. Root writes with the same
 * uid, and may begin with "Low" as well. */
static const char *const slurm_drains[] = {"Low RealMemory (reported:", "Low CPUs",
                                           "Low socket*core", "Low TmpDisk"};

static bool slurms_own_drain(const struct slurm_node *s, uint32_t slurm_uid)
{
    if (!s->invalid_reg || (s->reason_uid != slurm_uid && s->reason_uid != 0))
        return false;
    for (size_t i = 0; i < TG_LEN(slurm_drains); i++) {
        if (strncmp(s->reason, slurm_drains[i], strlen(slurm_drains[i])) == 0)
            return true;
    }
    return false;
}

enum holder decide_holder(const struct slurm_node *s, uint32_t slurm_uid)
{
    if (!s->drain && !s->fail && s->base != SLURM_BASE_DOWN)
        return HOLDER_NOBODY;
    /* scontrol takes none of the three of a person without a reason, but the API takes DRAIN */
    if (!s->reason)
        return s->drain || s->fail ? HOLDER_PERSON : HOLDER_SLURM;
    if (text_is_ours(s->reason))
        return HOLDER_TIDEGATE;
    /* slurmctld's text may have taken the place of the one that the DRAIN was set with: clear it
     * only when the DRAIN was ours. A FAIL never is. */
    if (slurms_own_text(s, slurm_uid) && !s->fail &&
        (!s->drain || s->ledger.episode != CAUSE_NONE))
        return HOLDER_SLURM;
    if (slurms_own_drain(s, slurm_uid) && !s->fail)
        return HOLDER_SLURM;
    return HOLDER_PERSON;
}

bool decide_in_pool(const struct slurm_node *s, const struct kube_pool *pool)
{
    const char *p = s->features;
    size_t n = pool->feature ? strlen(pool->feature) : 0;

    if (!s->dynamic || !n)
        return false;
    while (p && *p) {
        const char *end = strchrnul(p, ',');

        if ((size_t)(end - p) == n && strncmp(p, pool->feature, n) == 0)
            return true;
        p = *end ? end + 1 : end;
    }
    return false;
}

/* ---- the ledger ------------------------------------------------------------------------------- */

/* The cause that the episode was for, and all that are less bad. */
static uint32_t up_to(enum cause episode)
{
    uint32_t bits = 0;

    for (size_t i = cause_rows_n; i-- > 0;) {
        bits |= cause_bit(cause_rows[i].cause);
        if (cause_rows[i].cause == episode)
            break;
    }
    return bits;
}

/* The worst of `causes` that is overdue (any: whether or not); NULL when there is none such. */
static const struct cause_row *pick(struct look *l, uint32_t causes, bool any)
{
    for (size_t i = 0; i < cause_rows_n; i++) {
        const struct cause_row *row = &cause_rows[i];

        if ((causes & cause_bit(row->cause)) &&
            (any || (row->overdue && row->overdue(l))))
            return row;
    }
    return NULL;
}

static uint64_t failing_checks(const struct look *l)
{
    return agent_heard(l) ? agent_checks_mask(l->f->agent) : 0;
}

/* The cause that stands and that our text names; CAUSE_NONE when there is none such. */
static enum cause cause_of_text(const struct look *l, uint32_t standing)
{
    for (size_t i = 0; i < cause_rows_n; i++) {
        enum cause c = cause_rows[i].cause;

        if ((standing & cause_bit(c)) && text_names(l->f->slurm->reason, c))
            return c;
    }
    return CAUSE_NONE;
}

static void close_episode(struct ledger *l)
{
    l->episode = CAUSE_NONE;
    l->episode_at = 0;
    l->checks = 0;
}

/*
 * The checks whose failing keeps the node drained although a person had overruled them: the prolog drains
 * by itself, in our words and without an episode, and so after that resume. To resume it once more would
 * cost one job after the other.
 */
static uint64_t refused_since(const struct look *l, const struct verdict *v)
{
    const struct slurm_node *s = l->f->slurm;
    uint64_t named = 0;

    if (v->holder != HOLDER_TIDEGATE || s->ledger.episode != CAUSE_NONE ||
        !agent_heard(l) || !text_names(s->reason, CAUSE_HEALTH))
        return 0;
    for (size_t i = 0; i < l->f->agent->n_checks; i++) {
        const struct check_fact *c = &l->f->agent->checks[i];
        _cleanup_(mem_freep) char *text = text_reason_of_check(c);

        if (strcmp(text, s->reason) == 0)
            named |= check_bit(c->name);
    }
    return named ? named : UINT64_MAX; /* other figures in the text: any of them */
}

/* A person has resumed what was drained for `episode`: that, and what was less bad at that time. */
static void overrule(const struct look *l, enum cause episode, struct ledger *ret)
{
    uint32_t bits = up_to(episode);

    if ((bits & cause_bit(CAUSE_NOT_READY)) && l->f->kube && l->f->kube->ready == TRI_YES)
        bits |= OVERRULED_LEASE;
    ret->overruled |= bits & ~cause_bit(CAUSE_HEALTH);
    if (episode == CAUSE_HEALTH && ret->episode == CAUSE_HEALTH)
        ret->overruled_checks |= ret->checks; /* those alone, and none that came later */
    else if (bits & cause_bit(CAUSE_HEALTH))
        ret->overruled_checks |= failing_checks(l);
    close_episode(ret);
}

/*
 * Brings the ledger in line with who holds the node now.
 *
 * A person resumed what we had drained: that is what a node that nobody holds and whose ledger has
 * an open episode tells. Where the ledger is not there (a foreign Extra, or one that somebody has
 * emptied), our reason text that was left on the free node tells the same for as long as its cause
 * stands, since our own RESUME takes it away.
 */
static void settle_ledger(const struct look *l, uint32_t standing, struct verdict *v)
{
    struct ledger *ledger = &v->ledger;
    enum cause episode = CAUSE_NONE;

    if (v->holder == HOLDER_NOBODY)
        episode =
            ledger->episode != CAUSE_NONE ? ledger->episode : cause_of_text(l, standing);
    if (episode != CAUSE_NONE)
        overrule(l, episode, ledger);
    if (v->holder == HOLDER_PERSON)
        close_episode(ledger); /* a person's word took the place of ours */
    if (record_new(l->f->slurm) && agent_heard(l) && line_differs(l))
        ledger->line = line_print(&l->f->agent->line);
    /* until the cause has cleared once */
    ledger->overruled &= standing;
    if (!(standing & cause_bit(CAUSE_HEALTH)))
        ledger->overruled_checks = 0;
    else if (agent_heard(l))
        ledger->overruled_checks &= failing_checks(l) & ~refused_since(l, v);
}

/* Those of `standing` that a person has overruled. */
static uint32_t overruled(const struct look *l, uint32_t standing,
                          const struct ledger *ledger)
{
    bool health = agent_heard(l)
                      ? !(failing_checks(l) & ~ledger->overruled_checks)
                      : ledger->overruled_checks && ledger->episode != CAUSE_HEALTH;

    return standing & (ledger->overruled | (health ? cause_bit(CAUSE_HEALTH) : 0));
}

/* ---- holding ---------------------------------------------------------------------------------- */

/* Held for this cause already: is there something to do all the same? */
static void hold_on(const struct cause_row *row, const struct look *l, struct verdict *v)
{
    const struct slurm_node *s = l->f->slurm;
    uint64_t checks = failing_checks(l) & ~v->ledger.overruled_checks;
    bool idle = !s->jobs && !s->alloc_cpus && !s->completing && !s->rebooting &&
                !s->maint && record_renewable(s);

    if (row->cause == CAUSE_HEALTH && agent_heard(l) && checks != v->ledger.checks) {
        v->verb = row->does; /* others fail now: the text follows */
        v->ledger.checks = checks;
    } else if (row->when_idle == VERB_DELETE && idle && agent_heard(l) &&
               !l->f->agent->steps && l->f->qualify.state == QUALIFY_NONE) {
        v->verb = VERB_DELETE;
        v->ask = ASK_RESTART_SLURMD;
    }
}

static void hold_for(const struct cause_row *row, struct look *l, struct verdict *v)
{
    const struct slurm_node *s = l->f->slurm;
    bool down = row->overdue && row->overdue(l);
    bool escalate = down && s->base != SLURM_BASE_DOWN;

    v->why = WHY_CAUSE;
    v->down = down;
    if (v->holder == HOLDER_TIDEGATE && !escalate) {
        /* only a change is news. A foreign Extra tells none. */
        if (s->extra_state == EXTRA_FOREIGN)
            return;
        if (s->ledger.episode == row->cause) {
            hold_on(row, l, v);
            return;
        }
    }
    v->verb = escalate ? VERB_DOWN : row->does;
    close_episode(&v->ledger);
    v->ledger.episode = row->cause;
    v->ledger.episode_at = l->now;
    if (row->cause == CAUSE_HEALTH)
        v->ledger.checks = failing_checks(l) & ~v->ledger.overruled_checks;
    if (row->cause == CAUSE_UNPROVED && l->f->qualify.state == QUALIFY_FAILED)
        instance_copy(v->ledger.failed, l->f->qualify.instance);
}

/* ---- proving ---------------------------------------------------------------------------------- */

/* Without a ledger of ours nothing tells that it was done. */
static bool must_prove(const struct look *l, const struct verdict *v)
{
    return l->p->agents && l->f->pool->qualify &&
           l->f->slurm->extra_state == EXTRA_OURS &&
           !(v->ledger.overruled & cause_bit(CAUSE_UNPROVED));
}

/* For which start of the agent the job in the reservation is, or would be. */
static const char *proving_instance(const struct look *l)
{
    if (l->f->qualify.instance)
        return l->f->qualify.instance;
    return agent_heard(l) ? l->f->agent->instance : NULL;
}

static void note_proof(const struct look *l, struct verdict *v)
{
    if (l->f->qualify.state != QUALIFY_PASSED || !l->f->qualify.instance)
        return;
    instance_copy(v->ledger.proved, l->f->qualify.instance);
    memset(v->ledger.failed, 0, sizeof(v->ledger.failed));
}

/* A node that nobody holds, and that a reservation of ours keeps from other jobs: until Slurm shows the proof. */
static void go_on_proving(const struct look *l, struct verdict *v)
{
    if (l->f->qualify.state == QUALIFY_NONE || !must_prove(l, v))
        return;
    note_proof(l, v);
    v->qualify = !instance_is(proving_instance(l), l->f->slurm->ledger.proved);
    if (v->qualify && v->why == WHY_HEALTHY)
        v->why = WHY_QUALIFYING;
}

/* Returns whether it may be resumed now. */
static bool prove_first(const struct look *l, struct verdict *v)
{
    const char *instance = l->f->agent ? l->f->agent->instance : NULL;

    if (l->p->agents && l->f->pool->qualify &&
        l->f->slurm->extra_state == EXTRA_FOREIGN) {
        v->why = WHY_NO_LEDGER;
        return false;
    }
    if (!must_prove(l, v) || instance_is(instance, v->ledger.proved))
        return true;
    if (mem_same_str(instance, l->f->qualify.instance))
        note_proof(l, v);
    v->qualify = true;
    if (instance_is(instance, v->ledger.proved))
        return true;
    v->why = WHY_QUALIFYING;
    /* behind the reservation no other job gets in */
    return l->f->qualify.state == QUALIFY_RESERVED ||
           l->f->qualify.state == QUALIFY_RUNNING;
}

/* ---- giving back ------------------------------------------------------------------------------ */

/* Returns whether the node's agent has nothing against it. */
static bool agent_agrees(struct look *l, struct verdict *v)
{
    const struct agent_fact *a = l->f->agent;

    if (!l->p->agents)
        return true;
    if (!agent_heard(l)) {
        v->why = WHY_NO_AGENT;
        return false;
    }
    if (a->phase != AGENT_UP || l->f->pod->terminating) {
        v->why = WHY_STARTING;
        return false;
    }
    if (l->now - a->since < l->p->resume_hold_ms) {
        v->why = WHY_HOLD_TIME;
        look_again(l, a->since + l->p->resume_hold_ms);
        return false;
    }
    return true;
}

/* Returns whether Kubernetes has called it Ready for long enough. */
static bool kube_agrees(struct look *l, struct verdict *v)
{
    const struct kube_node *k = l->f->kube;
    int64_t since;

    if (!k || k->ready != TRI_YES) {
        v->why = WHY_NOT_READY_YET;
        return false;
    }
    since = k->ready_since;
    if (l->p->agents && l->f->kubelet.renewed == TRI_YES && l->f->kubelet.since > since &&
        l->f->slurm->ledger.episode == CAUSE_NOT_READY)
        since = l->f->kubelet.since;
    if (l->now - since >= l->p->resume_hold_ms)
        return true;
    v->why = WHY_HOLD_TIME;
    look_again(l, since + l->p->resume_hold_ms);
    return false;
}

/* Slurmd has to answer where its silence was seen. */
static bool slurmd_in_doubt(const struct look *l)
{
    const struct slurm_node *s = l->f->slurm;

    return s->base == SLURM_BASE_DOWN || s->not_responding ||
           s->ledger.episode == CAUSE_SLURMD ||
           (l->p->agents && l->f->agent && l->f->agent->slurmd != SLURMD_RUNNING);
}

/* Nothing stands against the node, and it is held by us or by slurmctld's own text. */
static void give_back(struct look *l, struct verdict *v)
{
    const struct slurm_node *s = l->f->slurm;
    const struct agent_fact *a = l->p->agents ? l->f->agent : NULL;

    if (s->invalid_reg && l->f->kube && l->f->kube->ready == TRI_YES) {
        v->why = WHY_INVALID_REG;
        return;
    }
    if (!kube_agrees(l, v) || !agent_agrees(l, v))
        return;
    if (slurmd_in_doubt(l) &&
        (l->f->probe.answers != TRI_YES || (a && a->slurmd != SLURMD_RUNNING))) {
        v->why = WHY_SILENT;
        return;
    }
    v->why = WHY_RESUMING;
    if (!prove_first(l, v))
        return;
    v->verb = VERB_RESUME;
    close_episode(&v->ledger);
    if (a && !instance_is(a->instance, v->ledger.failed))
        memset(v->ledger.failed, 0, sizeof(v->ledger.failed));
    if (a && a->line.cpus && !line_differs(l))
        v->ledger.line = 0;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/*
 * A text that is left on a node which nobody holds. Slurm would put it under the next DOWN of its own
 * (a restarted pod) or drain of its own, and these would look like the word of whoever wrote it.
 */
static bool stale_reason(const struct node_facts *f, const struct verdict *v)
{
    const struct slurm_node *s = f->slurm;

    if (v->holder != HOLDER_NOBODY || !s->reason || s->rebooting)
        return false;
    /* where the ledger cannot be kept, this text is what tells of the overruling */
    return !(s->extra_state == EXTRA_FOREIGN &&
             (v->ledger.overruled || v->ledger.overruled_checks));
}

/* Slurmd's port and the kubelet's Lease are asked only where there is a doubt. */
static bool is_suspect(const struct look *l, uint32_t standing, const struct verdict *v)
{
    const struct node_facts *f = l->f;
    const struct agent_fact *a = f->agent;

    for (size_t i = 0; i < cause_rows_n; i++) {
        if ((standing & cause_bit(cause_rows[i].cause)) && cause_rows[i].overdue)
            return true;
    }
    if (f->slurm->not_responding || (v->holder != HOLDER_NOBODY && slurmd_in_doubt(l)))
        return true;
    if (!l->p->agents || !f->kube)
        return false;
    if (v->holder != HOLDER_NOBODY && f->slurm->ledger.episode == CAUSE_NOT_READY)
        return true; /* by its Lease, perhaps: that has to be seen again */
    /* one that was never heard is none: after a failover that would be all */
    return !f->pod || !f->pod->ready || (a && a->linked == TRI_NO) ||
           (a && a->linked == TRI_YES && a->slurmd != SLURMD_RUNNING);
}

/* A record that was deleted comes back only with a new slurmd. */
static struct verdict not_registered(struct look *l)
{
    struct verdict v = {.why = WHY_NOT_REGISTERED};
    const struct agent_fact *a = l->f->agent;

    if (!l->f->selected || l->f->rival || !agent_heard(l) || a->phase >= AGENT_STOPPING ||
        a->slurmd != SLURMD_RUNNING)
        return v;
    if (l->now - a->since >= ASK_AGAIN_MS) /* its first registration may take a while */
        v.ask = ASK_RESTART_SLURMD;
    else
        v.look_again_at = a->since + ASK_AGAIN_MS;
    return v;
}

/* What is only to be written down, or put right beside the state. */
static void add_note(const struct look *l, struct verdict *v)
{
    const struct slurm_node *s = l->f->slurm;
    _cleanup_(mem_freep) char *features = NULL;

    v->write_extra = s->extra_state == EXTRA_OURS;
    v->blank_reason = v->verb == VERB_NONE && stale_reason(l->f, v);
    if (v->verb != VERB_NONE)
        return;
    features = features_wanted(l->f);
    if (features)
        v->verb = VERB_FEATURES;
    else if (v->blank_reason || (v->write_extra && !ledger_equal(&v->ledger, &s->ledger)))
        v->verb = VERB_NOTE;
}

struct verdict decide(const struct node_facts *f, const struct policy *p, int64_t now)
{
    struct verdict v = {.why = WHY_HEALTHY};
    struct look l = {.f = f, .p = p, .now = now};
    const struct cause_row *worst, *any;
    uint32_t standing, counted;

    if (!f->slurm)
        return not_registered(&l);
    v.holder = decide_holder(f->slurm, f->slurm_uid);
    v.ledger = f->slurm->ledger;
    if (f->rival || !f->pool) {
        v.why = f->rival ? WHY_TWO_POOLS : WHY_NOT_OURS;
        return v;
    }
    standing = causes_standing(&l);
    settle_ledger(&l, standing, &v);
    counted = standing & ~overruled(&l, standing, &v.ledger);
    worst = pick(&l, counted, false); /* what is overdue goes before what is worse */
    if (!worst)
        worst = pick(&l, counted, true);
    any = pick(&l, standing, true);
    v.cause = worst ? worst->cause : any ? any->cause : CAUSE_NONE;
    v.suspect = is_suspect(&l, standing, &v);

    if (v.holder == HOLDER_PERSON)
        v.why = WHY_PERSON;
    else if (worst)
        hold_for(worst, &l, &v);
    else if (v.holder != HOLDER_NOBODY)
        give_back(&l, &v);
    else if (any)
        v.why = WHY_OVERRULED;
    if (v.holder == HOLDER_NOBODY)
        go_on_proving(&l, &v);

    add_note(&l, &v);
    v.look_again_at = l.again_at;
    return v;
}
