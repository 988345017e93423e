/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Joins what Kubernetes and Slurm say by node name. Pure. A row for every node that a pool selects,
 * and for every Slurm node that carries a pool's feature.
 */
#ifndef TG_CORE_WORLD_H
#define TG_CORE_WORLD_H

#include "core/decide.h"

struct world_input {
    const struct kube_node *const *nodes; /* any order */
    size_t n_nodes;
    const struct kube_pod *const *pods;
    size_t n_pods;
    const struct kube_pool *const *pools;
    size_t n_pools;
    const struct slurm_snapshot *slurm;
};

struct world {
    struct node_facts *rows; /* sorted by name; borrows from the input */
    size_t n;
};

void world_join(const struct world_input *in, struct world *ret);
void world_clear(struct world *w);
/* NULL when there is no such row. */
const struct node_facts *world_find(const struct world *w, const char *name);

#endif
