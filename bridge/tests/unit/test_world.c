// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/world.h"

#include <string.h>

#include "tests/unit/titled.h"

#define MAX 8

/* A small cluster, put together by the tests. */
struct cluster {
    struct kube_node nodes[MAX];
    struct kube_pod pods[MAX];
    struct kube_pool pools[MAX];
    struct slurm_node slurm[MAX];
    const struct kube_node *node_list[MAX];
    const struct kube_pod *pod_list[MAX];
    const struct kube_pool *pool_list[MAX];
    struct slurm_snapshot snapshot;
    struct world_input in;
    struct world world;
};

static int set_up(void **state)
{
    struct cluster *c = mem_zalloc(sizeof(*c));

    c->in.nodes = c->node_list;
    c->in.pods = c->pod_list;
    c->in.pools = c->pool_list;
    c->in.slurm = &c->snapshot;
    c->snapshot.nodes = c->slurm;
    c->snapshot.slurm_uid = 64030;
    *state = c;
    return 0;
}

static int tear_down(void **state)
{
    struct cluster *c = *state;

    world_clear(&c->world);
    for (size_t i = 0; i < MAX; i++) {
        kube_node_clear(&c->nodes[i]);
        kube_pod_clear(&c->pods[i]);
        kube_pool_clear(&c->pools[i]);
        slurm_node_clear(&c->slurm[i]);
    }
    free(c);
    return 0;
}

static void add_pool(struct cluster *c, const char *name, const char *key,
                     const char *value)
{
    struct kube_pool *p = &c->pools[c->in.n_pools];

    p->name = mem_strdup(name);
    p->feature = mem_strdup(name);
    labels_add(&p->selector, key, value);
    c->pool_list[c->in.n_pools++] = p;
}

static struct kube_node *add_node(struct cluster *c, const char *name, const char *pool)
{
    struct kube_node *n = &c->nodes[c->in.n_nodes];

    n->name = mem_strdup(name);
    if (pool)
        labels_add(&n->labels, "pool", pool);
    c->node_list[c->in.n_nodes++] = n;
    return n;
}

static void add_pod(struct cluster *c, const char *name, const char *node,
                    bool terminating)
{
    struct kube_pod *p = &c->pods[c->in.n_pods];

    p->name = mem_strdup(name);
    p->node = mem_strdup(node);
    p->terminating = terminating;
    c->pod_list[c->in.n_pods++] = p;
}

static void add_slurm(struct cluster *c, const char *name, const char *features)
{
    struct slurm_node *s = &c->slurm[c->snapshot.n++];

    s->name = mem_strdup(name);
    s->features = mem_strdup(features);
    s->dynamic = true;
}

static const struct node_facts *join(struct cluster *c, const char *name)
{
    world_clear(&c->world);
    world_join(&c->in, &c->world);
    return world_find(&c->world, name);
}

static void empty(void **state)
{
    struct cluster *c = *state;

    assert_null(join(c, "w1"));
    assert_int_equal(c->world.n, 0);
    c->in.slurm = NULL;
    assert_null(join(c, "w1"));
}

static void both_sides_in_one_row(void **state)
{
    struct cluster *c = *state;
    const struct node_facts *f;

    add_pool(c, "hpc", "pool", "hpc");
    for (int i = 2; i >= 0; i--)
        add_node(c, (const char *[]){"w1", "w10", "w2"}[i], "hpc");
    for (int i = 0; i < 3; i++)
        add_slurm(c, (const char *[]){"w2", "w1", "w10"}[i], "hpc");
    add_pod(c, "slurmd-a", "w10", false);
    f = join(c, "w10");
    assert_int_equal(c->world.n, 3);
    assert_string_equal(c->world.rows[0].name, "w1");
    assert_string_equal(c->world.rows[2].name, "w2");
    assert_string_equal(f->kube->name, "w10");
    assert_string_equal(f->slurm->name, "w10");
    assert_string_equal(f->pod->name, "slurmd-a");
    assert_ptr_equal(f->pool, &c->pools[0]);
    assert_ptr_equal(f->selected, &c->pools[0]);
    assert_null(f->rival);
    assert_int_equal(f->slurm_uid, 64030);
    assert_null(world_find(&c->world, "w1")->pod);
    assert_null(world_find(&c->world, "w"));
}

static void only_ours(void **state)
{
    struct cluster *c = *state;

    add_pool(c, "hpc", "pool", "hpc");
    add_node(c, "control-plane", NULL);
    add_node(c, "web", "web");
    add_slurm(c, "login", NULL);
    add_slurm(c, "other", "gpu,hpcx,xhpc");
    add_slurm(c, "static", "hpc");
    c->slurm[2].dynamic = false;
    assert_null(join(c, "web"));
    assert_int_equal(c->world.n, 0);
}

static void feature_among_others(void **state)
{
    struct cluster *c = *state;

    add_pool(c, "hpc", "pool", "hpc");
    add_slurm(c, "first", "hpc,fast");
    add_slurm(c, "last", "fast,hpc");
    add_slurm(c, "middle", "fast,hpc,big");
    (void)join(c, "first");
    assert_int_equal(c->world.n, 3);
}

static void not_registered(void **state)
{
    struct cluster *c = *state;
    const struct node_facts *f;

    add_pool(c, "hpc", "pool", "hpc");
    add_node(c, "w1", "hpc");
    f = join(c, "w1");
    assert_non_null(f);
    assert_null(f->slurm);
    assert_ptr_equal(f->pool, &c->pools[0]);
}

static void gone(void **state)
{
    struct cluster *c = *state;
    const struct node_facts *f;

    add_pool(c, "hpc", "pool", "hpc");
    add_slurm(c, "w1", "hpc");
    f = join(c, "w1");
    assert_non_null(f);
    assert_null(f->kube);
    assert_null(f->selected);
    assert_ptr_equal(f->pool, &c->pools[0]);
}

static void left(void **state)
{
    struct cluster *c = *state;
    const struct node_facts *f;

    add_pool(c, "hpc", "pool", "hpc");
    add_pool(c, "gpu", "pool", "gpu");
    add_node(c, "w1", NULL);
    add_node(c, "w2", "gpu");
    add_slurm(c, "w1", "hpc");
    add_slurm(c, "w2", "hpc");
    f = join(c, "w1");
    assert_ptr_equal(f->pool, &c->pools[0]);
    assert_null(f->selected);
    f = world_find(&c->world, "w2");
    assert_ptr_equal(f->pool, &c->pools[0]);
    assert_ptr_equal(f->selected, &c->pools[1]);
}

static void two_pools(void **state)
{
    struct cluster *c = *state;
    const struct node_facts *f;

    add_pool(c, "slow", "disk", "nvme");
    add_pool(c, "hpc", "pool", "hpc");
    labels_add(&add_node(c, "w1", "hpc")->labels, "disk", "nvme");
    add_slurm(c, "w1", "hpc");
    f = join(c, "w1");
    assert_ptr_equal(f->selected, &c->pools[1]); /* by name, whatever the order */
    assert_ptr_equal(f->rival, &c->pools[0]);
}

static void the_pod_that_stays(void **state)
{
    struct cluster *c = *state;

    add_pool(c, "hpc", "pool", "hpc");
    add_node(c, "w1", "hpc");
    add_pod(c, "old", "w1", true);
    add_pod(c, "new", "w1", false);
    add_pod(c, "pending", NULL, false);
    add_pod(c, "elsewhere", "w0", false);
    assert_string_equal(join(c, "w1")->pod->name, "new");
    c->pods[1].terminating = true;
    assert_non_null(join(c, "w1")->pod);
}

#define IN_CLUSTER(title, f)                                                             \
    {.name = (title), .test_func = (f), .setup_func = set_up, .teardown_func = tear_down}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CLUSTER("nothing known, no rows", empty),
        IN_CLUSTER("a node of both sides is one row, whatever the order",
                   both_sides_in_one_row),
        IN_CLUSTER("what is of no pool has no row", only_ours),
        IN_CLUSTER("a pool's feature may stand among others", feature_among_others),
        IN_CLUSTER("row new node: selected, not registered", not_registered),
        IN_CLUSTER("row gone: in Slurm with the pool's feature, not in Kubernetes", gone),
        IN_CLUSTER("row left-pool: not selected, or by another pool", left),
        IN_CLUSTER("a second pool that selects the node is its rival", two_pools),
        IN_CLUSTER("of two pods on a node the one that stays counts", the_pod_that_stays),
    };

    return cmocka_run_group_tests_name("world", tests, NULL, NULL);
}
