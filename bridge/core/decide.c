// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/decide.h"

#include <string.h>

#include "core/text.h"

static bool node_gone(const struct node_facts *f)
{
    return !f->kube;
}

/* Absent is not NotReady: a Node without the condition has not said anything yet. */
static bool node_not_ready(const struct node_facts *f)
{
    return f->kube && f->kube->ready == TRI_NO;
}

static bool node_left_pool(const struct node_facts *f)
{
    return f->kube && f->selected != f->pool;
}

static bool node_cordoned(const struct node_facts *f)
{
    return f->kube && f->kube->unschedulable;
}

/*
 * The policy, worst first. A cause ends when it no longer stands. `when_silent` is what it does once
 * slurmd's silence is confirmed: only where Kubernetes, too, has lost the node may that be DOWN,
 * since it takes two witnesses to requeue jobs.
 */
static const struct cause_row {
    enum cause cause;
    bool (*stands)(const struct node_facts *f);
    enum verb does;
    enum verb when_silent;
} causes[] = {
    {CAUSE_GONE, node_gone, VERB_DRAIN, VERB_DOWN},
    {CAUSE_NOT_READY, node_not_ready, VERB_DRAIN, VERB_DOWN},
    {CAUSE_LEFT_POOL, node_left_pool, VERB_DRAIN, VERB_DRAIN},
    {CAUSE_CORDONED, node_cordoned, VERB_DRAIN, VERB_DRAIN},
};

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

static uint32_t bit(enum cause c)
{
    return UINT32_C(1) << c;
}

/* All that stand, as bits; ret_worst: the worst of those not in `except`, or NULL. */
static uint32_t causes_standing(const struct node_facts *f, uint32_t except,
                                const struct cause_row **ret_worst)
{
    uint32_t standing = 0;

    *ret_worst = NULL;
    for (size_t i = 0; i < TG_LEN(causes); i++) {
        if (!causes[i].stands(f))
            continue;
        standing |= bit(causes[i].cause);
        if (!*ret_worst && !(except & bit(causes[i].cause)))
            *ret_worst = &causes[i];
    }
    return standing;
}

/* The cause that the episode was for, and all that are less bad. */
static uint32_t up_to(enum cause episode)
{
    uint32_t bits = 0;

    for (size_t i = TG_LEN(causes); i-- > 0;) {
        bits |= bit(causes[i].cause);
        if (causes[i].cause == episode)
            break;
    }
    return bits;
}

static void look_again(struct verdict *v, int64_t at)
{
    if (!v->look_again_at || at < v->look_again_at)
        v->look_again_at = at;
}

/* Slurmd's silence, confirmed. */
static bool confirmed_silent(const struct node_facts *f, const struct policy *p,
                             int64_t now, struct verdict *v)
{
    if (f->probe.answers != TRI_NO)
        return false;
    if (now - f->probe.since >= p->down_confirm_ms)
        return true;
    look_again(v, f->probe.since + p->down_confirm_ms);
    return false;
}

static void hold_for(const struct cause_row *row, const struct node_facts *f,
                     const struct policy *p, int64_t now, struct verdict *v)
{
    const struct slurm_node *s = f->slurm;
    bool silent = confirmed_silent(f, p, now, v);
    bool down = silent && row->when_silent == VERB_DOWN;
    bool escalate = down && s->base != SLURM_BASE_DOWN;
    bool foreign = s->extra_state == EXTRA_FOREIGN;

    v->why = WHY_CAUSE;
    v->down = down;
    if (v->holder == HOLDER_TIDEGATE && !escalate) {
        /* held already: only a change of cause is news. A foreign Extra tells no cause. */
        if (foreign || s->ledger.episode == row->cause)
            return;
    }
    v->verb = escalate ? VERB_DOWN : row->does;
    v->ledger.episode = row->cause;
    v->ledger.episode_at = now;
}

/* Nothing stands against the node, and it is held by us or by slurmctld's own text. */
static void give_back(const struct node_facts *f, const struct policy *p, int64_t now,
                      struct verdict *v)
{
    const struct slurm_node *s = f->slurm;

    if (!f->kube || f->kube->ready != TRI_YES) {
        v->why = WHY_NOT_READY_YET;
        return;
    }
    if (s->invalid_reg) {
        v->why = WHY_INVALID_REG;
        return;
    }
    if (now - f->kube->ready_since < p->resume_hold_ms) {
        v->why = WHY_HOLD_TIME;
        look_again(v, f->kube->ready_since + p->resume_hold_ms);
        return;
    }
    if ((s->base == SLURM_BASE_DOWN || s->not_responding) &&
        f->probe.answers != TRI_YES) {
        v->why = WHY_SILENT;
        return;
    }
    v->why = WHY_RESUMING;
    v->verb = VERB_RESUME;
    v->ledger.episode = CAUSE_NONE;
    v->ledger.episode_at = 0;
}

/* The cause that stands and that our text names; CAUSE_NONE when there is none such. */
static enum cause cause_of_text(const struct node_facts *f)
{
    for (size_t i = 0; i < TG_LEN(causes) && text_is_ours(f->slurm->reason); i++) {
        _cleanup_(mem_freep) char *text =
            text_reason(f, causes[i].cause, false);

        /* more may stand behind it: that slurmd does not answer, or what slurmctld appended */
        if (causes[i].stands(f) && strncmp(text, f->slurm->reason, strlen(text)) == 0)
            return causes[i].cause;
    }
    return CAUSE_NONE;
}

/*
 * A person resumed what we had drained: that is what a node that nobody holds and whose ledger has
 * an open episode tells. Where the ledger is not there (a foreign Extra, or one that somebody has
 * emptied), our reason text that was left on the free node tells the same for as long as its cause
 * stands, since our own RESUME takes it away. Returns the cause of the episode.
 */
static enum cause overruled_now(const struct node_facts *f)
{
    if (f->slurm->ledger.episode != CAUSE_NONE)
        return f->slurm->ledger.episode;
    return cause_of_text(f);
}

static void close_episode(struct ledger *l)
{
    l->episode = CAUSE_NONE;
    l->episode_at = 0;
}

/* Brings the ledger in line with who holds the node now. */
static void settle_ledger(const struct node_facts *f, struct verdict *v)
{
    const struct cause_row *worst;
    uint32_t standing = causes_standing(f, 0, &worst);
    enum cause episode = v->holder == HOLDER_NOBODY ? overruled_now(f) : CAUSE_NONE;

    if (v->holder == HOLDER_PERSON)
        close_episode(&v->ledger); /* a person's word took the place of ours */
    if (episode != CAUSE_NONE) {
        v->ledger.overruled |= up_to(episode);
        close_episode(&v->ledger);
    }
    v->ledger.overruled &= standing; /* until the cause has cleared once */
}

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
    return !(s->extra_state == EXTRA_FOREIGN && v->ledger.overruled);
}

struct verdict decide(const struct node_facts *f, const struct policy *p, int64_t now)
{
    struct verdict v = {.why = WHY_HEALTHY};
    const struct cause_row *worst, *any;

    if (!f->slurm) {
        v.why = WHY_NOT_REGISTERED;
        return v;
    }
    v.holder = decide_holder(f->slurm, f->slurm_uid);
    v.ledger = f->slurm->ledger;
    if (f->rival || !f->pool) {
        v.why = f->rival ? WHY_TWO_POOLS : WHY_NOT_OURS;
        return v;
    }
    settle_ledger(f, &v);
    (void)causes_standing(f, v.ledger.overruled, &worst);
    (void)causes_standing(f, 0, &any);
    v.cause = worst ? worst->cause : any ? any->cause : CAUSE_NONE;
    v.suspect = (any && any->when_silent == VERB_DOWN) || f->slurm->not_responding ||
                (v.holder != HOLDER_NOBODY && f->slurm->base == SLURM_BASE_DOWN);

    if (v.holder == HOLDER_PERSON)
        v.why = WHY_PERSON;
    else if (worst)
        hold_for(worst, f, p, now, &v);
    else if (v.holder != HOLDER_NOBODY)
        give_back(f, p, now, &v);
    else if (any)
        v.why = WHY_OVERRULED;

    v.write_extra = f->slurm->extra_state == EXTRA_OURS;
    v.blank_reason = v.verb == VERB_NONE && stale_reason(f, &v);
    if (v.verb == VERB_NONE &&
        (v.blank_reason ||
         (v.write_extra && !ledger_equal(&v.ledger, &f->slurm->ledger))))
        v.verb = VERB_NOTE;
    return v;
}
