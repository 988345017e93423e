// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/world.h"

#include <string.h>

static int by_node_name(const void *a, const void *b)
{
    const struct kube_node *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int by_slurm_name(const void *a, const void *b)
{
    const struct slurm_node *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int by_pod_node(const void *a, const void *b)
{
    const struct kube_pod *const *x = a, *const *y = b;
    int r = strcmp((*x)->node, (*y)->node);

    /* of two pods on a node the one that stays comes first */
    return r ? r : (int)(*x)->terminating - (int)(*y)->terminating;
}

static int by_pool_name(const void *a, const void *b)
{
    const struct kube_pool *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static const struct kube_pool *pool_of_slurm(const struct slurm_node *s,
                                             const struct world_input *in)
{
    for (size_t i = 0; i < in->n_pools; i++) {
        if (decide_in_pool(s, in->pools[i]))
            return in->pools[i];
    }
    return NULL;
}

static void find_selecting(const struct kube_node *k, const struct world_input *in,
                           struct node_facts *f)
{
    for (size_t i = 0; i < in->n_pools; i++) {
        if (!labels_match(&in->pools[i]->selector, &k->labels))
            continue;
        if (f->selected) {
            f->rival = in->pools[i];
            return;
        }
        f->selected = in->pools[i];
    }
}

/* One row, when it is one of ours; of k and s one may be NULL. */
static void add_row(struct world *w, const struct world_input *in, const char *name,
                    const struct kube_node *k, const struct slurm_node *s)
{
    struct node_facts f = {
        .name = name,
        .kube = k,
        .slurm = s,
        .slurm_uid = in->slurm ? in->slurm->slurm_uid : 0,
    };

    if (k)
        find_selecting(k, in, &f);
    f.pool = s ? pool_of_slurm(s, in) : NULL;
    if (!f.pool)
        f.pool = f.selected;
    if (f.pool)
        w->rows[w->n++] = f;
}

static void add_pods(struct world *w, const struct kube_pod **pods, size_t n)
{
    size_t i = 0;

    for (size_t r = 0; r < w->n; r++) {
        while (i < n && strcmp(pods[i]->node, w->rows[r].name) < 0)
            i++;
        if (i < n && strcmp(pods[i]->node, w->rows[r].name) == 0)
            w->rows[r].pod = pods[i];
    }
}

void world_join(const struct world_input *given, struct world *ret)
{
    struct world_input sorted = *given;
    const struct world_input *in = &sorted;
    size_t n_slurm = in->slurm ? in->slurm->n : 0, n_pods = 0, i = 0, j = 0;
    _cleanup_(mem_freep) const struct kube_node **k = mem_calloc(in->n_nodes, sizeof(*k));
    _cleanup_(mem_freep) const struct slurm_node **s = mem_calloc(n_slurm, sizeof(*s));
    _cleanup_(mem_freep) const struct kube_pod **pods =
        mem_calloc(in->n_pods, sizeof(*pods));
    _cleanup_(mem_freep) const struct kube_pool **pools =
        mem_calloc(in->n_pools, sizeof(*pools));

    for (size_t x = 0; x < in->n_pools; x++)
        pools[x] = in->pools[x];
    for (size_t x = 0; x < in->n_nodes; x++)
        k[x] = in->nodes[x];
    for (size_t x = 0; x < n_slurm; x++)
        s[x] = &in->slurm->nodes[x];
    for (size_t x = 0; x < in->n_pods; x++) {
        if (in->pods[x]->node)
            pods[n_pods++] = in->pods[x];
    }
    qsort(k, in->n_nodes, sizeof(*k), by_node_name);
    qsort(s, n_slurm, sizeof(*s), by_slurm_name);
    qsort(pods, n_pods, sizeof(*pods), by_pod_node);
    /* so that the same two names are said each time of a node that two select */
    qsort(pools, in->n_pools, sizeof(*pools), by_pool_name);
    sorted.pools = pools;

    *ret = (struct world){.rows = mem_calloc(in->n_nodes + n_slurm, sizeof(*ret->rows))};
    while (i < in->n_nodes || j < n_slurm) {
        int order = i == in->n_nodes ? 1
                    : j == n_slurm   ? -1
                                     : strcmp(k[i]->name, s[j]->name);

        add_row(ret, in, order <= 0 ? k[i]->name : s[j]->name, order <= 0 ? k[i] : NULL,
                order >= 0 ? s[j] : NULL);
        i += order <= 0;
        j += order >= 0;
    }
    add_pods(ret, pods, n_pods);
}

void world_clear(struct world *w)
{
    free(w->rows);
    *w = (struct world){0};
}

static int by_row_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct node_facts *)row)->name);
}

const struct node_facts *world_find(const struct world *w, const char *name)
{
    return w->n ? bsearch(name, w->rows, w->n, sizeof(*w->rows), by_row_name) : NULL;
}
