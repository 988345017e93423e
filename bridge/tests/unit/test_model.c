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
    assert_string_equal(verb_name(VERB_FEATURES), "features");
    assert_string_equal(verb_name(VERB_DELETE), "delete");
}

/* These stand in ledgers: another value would forget what a person has overruled. */
static void checks_have_bits(void **state)
{
    struct check_fact checks[] = {{.name = (char[]){"scratch"}},
                                  {.name = (char[]){"gpu"}}};
    const struct agent_fact a = {.checks = checks, .n_checks = 2};

    (void)state;
    assert_int_equal(check_bit("scratch"), UINT64_C(1) << 59);
    assert_int_equal(check_bit("gpu"), UINT64_C(1) << 13);
    assert_int_equal(agent_checks_mask(&a), check_bit("scratch") | check_bit("gpu"));
    assert_int_equal(agent_checks_mask(&(struct agent_fact){0}), 0);
    assert_true(check_bit("") != 0);
}

static void instances_are_cleaned(void **state)
{
    char kept[INSTANCE_SIZE];

    (void)state;
    instance_copy(kept, "a\"b\\c\n");
    assert_string_equal(kept, "a-b-c-");
    assert_true(instance_is("a\"b\\c\n", kept));
    assert_false(instance_is("a", kept));
    instance_copy(kept, NULL);
    assert_string_equal(kept, "");
    assert_false(instance_is("", kept));
    assert_false(instance_is(NULL, kept));
    instance_copy(kept, "0123456789012345678901234567890123456789x");
    assert_int_equal(strlen(kept), INSTANCE_SIZE - 1);
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
    a = b;
    a.checks = 1;
    assert_false(ledger_equal(&a, &b));
    a.episode = b.episode = CAUSE_NONE; /* and neither do the checks */
    assert_true(ledger_equal(&a, &b));
    assert_true(ledger_is_empty(&a));
    a.overruled_checks = 1;
    assert_false(ledger_equal(&a, &b));
    assert_false(ledger_is_empty(&a));
    a = (struct ledger){.line = 1};
    assert_false(ledger_equal(&a, &b));
    assert_false(ledger_is_empty(&a));
    a = (struct ledger){.proved = "x"};
    assert_false(ledger_equal(&a, &b));
    assert_false(ledger_is_empty(&a));
    a = (struct ledger){.failed = "x"};
    assert_false(ledger_equal(&a, &b));
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
        cmocka_unit_test(checks_have_bits),   cmocka_unit_test(instances_are_cleaned),
        cmocka_unit_test(values_are_cleared),
    };

    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
