// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan.h"

#include "core/features.h"
#include "core/text.h"

/* What must go goes first; what is given back comes last. */
static const enum verb order[] = {VERB_DOWN,     VERB_DRAIN,  VERB_NOTE,
                                  VERB_FEATURES, VERB_DELETE, VERB_RESUME};

static bool same_change(const struct action *a, const struct action *b)
{
    return a->verb == b->verb && a->write_extra == b->write_extra &&
           mem_same_str(a->reason, b->reason) &&
           mem_same_str(a->extra_other, b->extra_other) &&
           mem_same_str(a->features, b->features) &&
           (!a->write_extra || ledger_equal(&a->ledger, &b->ledger));
}

/* Moves *one's only node to the action with the same change, or makes it one of its own. */
static void add(struct plan *p, size_t first, struct action *one, const char *name)
{
    struct action *a = NULL;

    for (size_t i = p->n; i-- > first && !a;) {
        if (same_change(&p->actions[i], one))
            a = &p->actions[i];
    }
    if (a) {
        action_clear(one);
    } else {
        p->actions = mem_resize(p->actions, p->n + 1, sizeof(*p->actions));
        a = &p->actions[p->n++];
        *a = *one;
        *one = (struct action){0};
    }
    /* doubled at powers of two */
    if ((a->n & (a->n - 1)) == 0)
        a->names = mem_resize(a->names, a->n ? a->n * 2 : 1, sizeof(*a->names));
    a->names[a->n++] = name;
}

void plan_make(const struct node_facts *facts, const struct verdict *verdicts, size_t n,
               struct plan *ret)
{
    *ret = (struct plan){0};
    for (size_t o = 0; o < TG_LEN(order); o++) {
        size_t first = ret->n;

        for (size_t i = 0; i < n; i++) {
            const struct verdict *v = &verdicts[i];
            struct action one = {.verb = v->verb, .write_extra = v->write_extra};

            if (v->verb != order[o])
                continue;
            if (v->verb == VERB_DRAIN || v->verb == VERB_DOWN)
                one.reason = text_reason_for(&facts[i], v);
            else if (v->verb == VERB_RESUME && v->why == WHY_QUALIFYING)
                one.reason = mem_strdup(TEXT_ON_PROBATION);
            else if (v->blank_reason)
                one.reason = mem_strdup(REASON_BLANK);
            if (v->verb == VERB_FEATURES)
                one.features = features_wanted(&facts[i]);
            one.ledger = v->ledger;
            if (v->write_extra)
                mem_set(&one.extra_other, facts[i].slurm->extra_other);
            add(ret, first, &one, facts[i].name);
        }
    }
}

void plan_clear(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        action_clear(&p->actions[i]);
    free(p->actions);
    *p = (struct plan){0};
}
