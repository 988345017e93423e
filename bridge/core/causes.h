/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The policy: what may be wrong with a node, and what is done about it. Pure; the inside of decide.h. */
#ifndef TG_CORE_CAUSES_H
#define TG_CORE_CAUSES_H

#include "core/decide.h"

/* A look at one node. f->slurm is there. */
struct look {
    const struct node_facts *f;
    const struct policy *p;
    int64_t now;
    int64_t again_at; /* when time alone will change an answer; 0: never */
};

/* Announces that time alone changes an answer at `at`. */
void look_again(struct look *l, int64_t at);

struct cause_row {
    const char *class; /* how its reasons begin, behind TEXT_PREFIX */
    enum cause cause;
    enum verb does;
    /* UNKNOWN: whoever could tell has not spoken; it then stays as the ledger has it. */
    enum tri (*stands)(struct look *l);
    /* Whether its jobs are to be requeued now: DOWN. NULL: never. */
    bool (*overdue)(struct look *l);
    enum verb when_idle; /* once it is drained and no job is left there */
};

extern const struct cause_row cause_rows[]; /* worst first */
extern const size_t cause_rows_n;

static inline uint32_t cause_bit(enum cause c)
{
    return UINT32_C(1) << c;
}

/* All causes that stand, as bits; those that are overruled, too. */
uint32_t causes_standing(struct look *l);

/* Of class: "k8s", "fail", ...: how a reason begins. */
const char *cause_class(enum cause c);

/* Its agent has reported over a link that stands, from the pod that Kubernetes shows there. */
bool agent_reports(const struct node_facts *f);
bool agent_heard(const struct look *l); /* the same, and the policy knows of agents */
/* Slurm can be made to forget the record without anything being lost that is not ours to lose. */
bool record_renewable(const struct slurm_node *s);
/* The agent's line is another one than the record's. */
bool line_differs(const struct look *l);
/* The record is new, as slurmd made it: nobody has resumed it or drained it for anything else yet. */
bool record_new(const struct slurm_node *s);
uint32_t line_print(const struct node_line *line); /* never 0 */

#endif
