// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void selectors_match(void **state)
{
    struct labels node = {0}, selector = {0};

    (void)state;
    labels_add(&node, "tidegate.dev/pool", "hpc");
    labels_add(&node, "zone", "a");
    assert_false(labels_match(&selector, &node)); /* empty: nothing */
    labels_add(&selector, "tidegate.dev/pool", "hpc");
    assert_true(labels_match(&selector, &node));
    labels_add(&selector, "zone", "b");
    assert_false(labels_match(&selector, &node));
    labels_clear(&selector);
    labels_add(&selector, "gpu", "");
    assert_false(labels_match(&selector, &node));
    assert_string_equal(labels_get(&node, "zone"), "a");
    assert_null(labels_get(&node, "Zone"));
    labels_clear(&selector);
    labels_clear(&node);
    assert_int_equal(node.n, 0);
}

static void causes_have_names(void **state)
{
    (void)state;
    for (enum cause c = CAUSE_NONE; c < CAUSE_COUNT_; c++) {
        assert_non_null(cause_name(c));
        assert_int_equal(cause_from_name(cause_name(c)), c);
    }
    assert_int_equal(cause_from_name("Cordoned"), CAUSE_NONE);
    assert_int_equal(cause_from_name(""), CAUSE_NONE);
    assert_int_equal(cause_from_name(NULL), CAUSE_NONE);
    assert_string_equal(cause_name(CAUSE_LEFT_POOL), "left-pool");
}

static void verbs_have_names(void **state)
{
    (void)state;
    assert_string_equal(verb_name(VERB_NONE), "none");
    assert_string_equal(verb_name(VERB_DRAIN), "drain");
    assert_string_equal(verb_name(VERB_DOWN), "down");
    assert_string_equal(verb_name(VERB_RESUME), "resume");
    assert_string_equal(verb_name(VERB_NOTE), "note");
}

static void ledgers_compare(void **state)
{
    struct ledger a = {0}, b = {0};

    (void)state;
    assert_true(ledger_is_empty(&a));
    assert_true(ledger_equal(&a, &b));
    b.episode_at = 5; /* means nothing without an episode */
    assert_true(ledger_is_empty(&b));
    assert_true(ledger_equal(&a, &b));
    a.episode = b.episode = CAUSE_CORDONED;
    assert_false(ledger_is_empty(&b));
    assert_false(ledger_equal(&a, &b));
    a.episode_at = 5;
    assert_true(ledger_equal(&a, &b));
    a.overruled = 1u << CAUSE_CORDONED;
    assert_false(ledger_equal(&a, &b));
    a.episode = CAUSE_NONE;
    assert_false(ledger_is_empty(&a));
}

/* What is freed here is looked at by AddressSanitizer. */
static void values_are_cleared(void **state)
{
    struct kube_node node = {.name = mem_strdup("n"), .uid = mem_strdup("u")};
    struct kube_pod pod = {.name = mem_strdup("p"), .node = mem_strdup("n")};
    struct kube_pool pool = {.name = mem_strdup("hpc"), .feature = mem_strdup("hpc")};
    struct action a = {.names = mem_calloc(1, sizeof(char *)), .reason = mem_strdup("r")};
    struct slurm_snapshot *s = mem_zalloc(sizeof(*s));

    (void)state;
    labels_add(&node.labels, "a", "b");
    labels_add(&pool.selector, "a", "b");
    s->nodes = mem_calloc(2, sizeof(s->nodes[0]));
    s->n = 2;
    s->nodes[1].reason = mem_strdup("bad dimm");
    kube_node_clear(&node);
    kube_node_clear(&node);
    kube_pod_clear(&pod);
    kube_pool_clear(&pool);
    action_clear(&a);
    slurm_snapshot_free(s);
    slurm_snapshot_free(NULL);
    assert_null(node.name);
    assert_null(pool.selector.items);
    assert_null(a.reason);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selectors_match),    cmocka_unit_test(causes_have_names),
        cmocka_unit_test(verbs_have_names),   cmocka_unit_test(ledgers_compare),
        cmocka_unit_test(values_are_cleared),
    };

    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
