/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From verdicts to few batched actions: nodes with the same change share one. Pure. */
#ifndef TG_CORE_PLAN_H
#define TG_CORE_PLAN_H

#include "core/decide.h"

struct plan {
    struct action
        *actions; /* RESUME last: nothing is given back before what must go is gone */
    size_t n;
};

/* facts[i] and verdicts[i] belong together; the names stay borrowed from the facts. */
void plan_make(const struct node_facts *facts, const struct verdict *verdicts, size_t n,
               struct plan *ret);
void plan_clear(struct plan *p);

#endif
