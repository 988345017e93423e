// SPDX-License-Identifier: GPL-2.0-or-later
/* What Kubernetes shows: three caches, and how the world is joined from them. */
#include <string.h>

#include "app/tidegated.h"
#include "codec/k8s_obj.h"

struct watch {
    struct cache *nodes, *pods, *pools;
};

/* Kubelets renew their Node's status all the time; most of it is no news here. */
static bool same_node(const void *x, const void *y)
{
    const struct kube_node *a = x, *b = y;

    if (a->unschedulable != b->unschedulable || a->ready != b->ready ||
        a->ready_since != b->ready_since || a->labels.n != b->labels.n ||
        !mem_same_str(a->uid, b->uid) || !mem_same_str(a->boot_id, b->boot_id))
        return false;
    for (size_t i = 0; i < a->labels.n; i++) {
        if (!mem_same_str(a->labels.items[i].key, b->labels.items[i].key) ||
            !mem_same_str(a->labels.items[i].value, b->labels.items[i].value))
            return false;
    }
    return true;
}

static bool same_pod(const void *x, const void *y)
{
    const struct kube_pod *a = x, *b = y;

    return a->ready == b->ready && a->terminating == b->terminating &&
           mem_same_str(a->uid, b->uid) && mem_same_str(a->node, b->node) &&
           mem_same_str(a->ip, b->ip);
}

static int parse_node(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_node_parse(obj, ret, err);
}

static int parse_pod(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_pod_parse(obj, ret, err);
}

static int parse_pool(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_pool_parse(obj, ret, err);
}

static void clear_node(void *v)
{
    kube_node_clear(v);
}

static void clear_pod(void *v)
{
    kube_pod_clear(v);
}

static void clear_pool(void *v)
{
    kube_pool_clear(v);
}

static const char *pod_address(const void *v)
{
    return ((const struct kube_pod *)v)->ip;
}

/* Of two with one address (a pod that has ended keeps its own for a while) the one that lives. */
static bool lives_rather(const void *x, const void *y)
{
    const struct kube_pod *a = x, *b = y;

    if (a->terminating != b->terminating)
        return b->terminating;
    return a->ready && !b->ready;
}

static const struct cache_type node_type = {
    "nodes", sizeof(struct kube_node), parse_node, clear_node, same_node, NULL};
static const struct cache_type pod_type = {
    "pods", sizeof(struct kube_pod), parse_pod, clear_pod, same_pod, pod_address};
static const struct cache_type pool_type = {
    "pools", sizeof(struct kube_pool), parse_pool, clear_pool, NULL, NULL};

int watch_new(struct kube *kube, sd_event *event, const struct options *o,
              void (*on_change)(void *userdata), void *userdata, struct watch **ret,
              struct err *err)
{
    _cleanup_(watch_freep) struct watch *w = mem_zalloc(sizeof(*w));
    _cleanup_(mem_freep) char *ns = kube_escape(o->namespace);
    _cleanup_(mem_freep) char *selector = kube_escape(o->pod_selector);
    _cleanup_(mem_freep) char *pods = mem_printf("/api/v1/namespaces/%s/pods", ns);
    _cleanup_(mem_freep) char *query = mem_printf("labelSelector=%s", selector);
    _cleanup_(mem_freep) char *pools =
        mem_printf("/apis/tidegate.dev/v1alpha1/namespaces/%s/pools", ns);
    int r = cache_new(kube, event, &node_type, "/api/v1/nodes", NULL, on_change, userdata,
                      &w->nodes, err);

    if (r == 0)
        r = cache_new(kube, event, &pod_type, pods, query, on_change, userdata, &w->pods,
                      err);
    if (r == 0)
        r = cache_new(kube, event, &pool_type, pools, NULL, on_change, userdata,
                      &w->pools, err);
    if (r < 0)
        return r;
    *ret = w;
    w = NULL;
    return 0;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    cache_free(w->nodes);
    cache_free(w->pods);
    cache_free(w->pools);
    free(w);
}

bool watch_fresh(const struct watch *w)
{
    /* A cluster without a single Node cannot run us: such an answer is a failed look-up. */
    return cache_fresh(w->nodes) && cache_fresh(w->pods) && cache_fresh(w->pools) &&
           cache_count(w->nodes) > 0;
}

bool watch_synced(const struct watch *w)
{
    return cache_synced(w->nodes) && cache_synced(w->pods) && cache_synced(w->pools);
}

const struct kube_node *watch_node(const struct watch *w, const char *name)
{
    return cache_get(w->nodes, name);
}

const struct kube_pod *watch_pod_at(const struct watch *w, const char *addr)
{
    return cache_find_alias(w->pods, addr, lives_rather);
}

const void **watch_pools(const struct watch *w, size_t *ret_n)
{
    return cache_values(w->pools, ret_n);
}

void watch_join(const struct watch *w, const struct slurm_snapshot *slurm,
                struct world *ret)
{
    struct world_input in = {.slurm = slurm};
    _cleanup_(mem_freep) const void **nodes = cache_values(w->nodes, &in.n_nodes);
    _cleanup_(mem_freep) const void **pods = cache_values(w->pods, &in.n_pods);
    _cleanup_(mem_freep) const void **pools = cache_values(w->pools, &in.n_pools);

    in.nodes = (const struct kube_node *const *)nodes;
    in.pods = (const struct kube_pod *const *)pods;
    in.pools = (const struct kube_pool *const *)pools;
    world_join(&in, ret);
}
