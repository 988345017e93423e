// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/titled.h"

#define MANY 500

static struct kube_pool hpc = {.name = (char[]){"hpc"}}, gpu = {.name = (char[]){"gpu"}};
static struct slurm_node plain;

static struct node_facts node(const char *name, const struct kube_pool *pool)
{
    return (struct node_facts){.name = name, .pool = pool, .slurm = &plain};
}

static struct verdict drain(enum cause c, int64_t at)
{
    return (struct verdict){.verb = VERB_DRAIN,
                            .cause = c,
                            .write_extra = true,
                            .ledger = {.episode = c, .episode_at = at}};
}

static void nothing_gives_nothing(void **state)
{
    struct node_facts f = node("a", &hpc);
    struct verdict v = {.verb = VERB_NONE};
    struct plan p;

    (void)state;
    plan_make(&f, &v, 1, &p);
    assert_int_equal(p.n, 0);
    plan_clear(&p);
    plan_make(NULL, NULL, 0, &p);
    assert_int_equal(p.n, 0);
    plan_clear(&p);
}

static void many_share_one(void **state)
{
    static char names[MANY][8];
    struct node_facts f[MANY];
    struct verdict v[MANY];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "n%zu", i);
        f[i] = node(names[i], &hpc);
        v[i] = drain(CAUSE_CORDONED, 7);
    }
    plan_make(f, v, MANY, &p);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.actions[0].n, MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(p.actions[0].names[i], f[i].name);
    assert_string_equal(p.actions[0].reason,
                        "tidegate/k8s: node is cordoned in Kubernetes");
    assert_int_equal(p.actions[0].ledger.episode, CAUSE_CORDONED);
    plan_clear(&p);
    assert_null(p.actions);
}

/* Whatever differs in what would be written keeps nodes apart. */
static void others_stay_apart(void **state)
{
    struct slurm_node rack7 = {.extra_other = (char[]){"{\"rack\":7}"}};
    struct node_facts f[] = {node("a", &hpc), node("b", &gpu), node("c", &hpc),
                             node("d", &hpc), node("e", &hpc), node("f", &hpc),
                             node("g", &hpc)};
    struct verdict v[TG_LEN(f)];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < TG_LEN(f); i++)
        v[i] = drain(CAUSE_LEFT_POOL, 7);
    /* b: the pool is in the text */
    v[2].cause = CAUSE_CORDONED;
    v[3].ledger.episode_at = 8;
    v[4].ledger.overruled = 2;
    f[5].slurm = &rack7;
    v[6].write_extra = false;
    plan_make(f, v, TG_LEN(f), &p);
    assert_int_equal(p.n, TG_LEN(f));
    assert_string_equal(p.actions[1].reason,
                        "tidegate/k8s: node left pool gpu in Kubernetes");
    assert_string_equal(p.actions[5].extra_other, "{\"rack\":7}");
    assert_false(p.actions[6].write_extra);
    plan_clear(&p);
}

static void what_goes_goes_first(void **state)
{
    static const enum verb want[] = {VERB_DOWN, VERB_DRAIN, VERB_NOTE, VERB_RESUME};
    struct node_facts f[] = {node("a", &hpc), node("b", &hpc), node("c", &hpc),
                             node("d", &hpc), node("e", &hpc)};
    struct verdict v[] = {{.verb = VERB_RESUME},
                          {.verb = VERB_NOTE, .blank_reason = true},
                          {.verb = VERB_NONE},
                          drain(CAUSE_CORDONED, 1),
                          {.verb = VERB_DOWN, .cause = CAUSE_GONE, .down = true}};
    struct plan p;

    (void)state;
    plan_make(f, v, TG_LEN(f), &p);
    assert_int_equal(p.n, TG_LEN(want));
    for (size_t i = 0; i < TG_LEN(want); i++)
        assert_int_equal(p.actions[i].verb, want[i]);
    assert_string_equal(
        p.actions[0].reason,
        "tidegate/k8s: node is gone from Kubernetes and slurmd does not answer");
    assert_string_equal(p.actions[2].reason, REASON_BLANK);
    assert_null(p.actions[3].reason);
    plan_clear(&p);
}

static void features_and_deletes(void **state)
{
    struct kube_pool pool = {.name = (char[]){"hpc"},
                             .feature = (char[]){"hpc"},
                             .feature_labels = (char *[]){(char[]){"zone"}},
                             .n_feature_labels = 1};
    struct label labels[] = {{(char[]){"zone"}, (char[]){"a"}},
                             {(char[]){"zone"}, (char[]){"b"}}};
    struct kube_node kube[3] = {0};
    struct slurm_node slurm = {.features = (char[]){"hpc"}};
    struct node_facts f[4];
    struct verdict v[4] = {{.verb = VERB_FEATURES},
                           {.verb = VERB_FEATURES},
                           {.verb = VERB_FEATURES, .blank_reason = true},
                           {.verb = VERB_DELETE}};
    struct plan p;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        f[i] = node((const char *[]){"a", "b", "c", "d"}[i], &pool);
        f[i].slurm = &slurm;
        f[i].kube = &kube[i / 2];
    }
    kube[0].labels = (struct labels){&labels[0], 1};
    kube[1].labels = (struct labels){&labels[1], 1};
    plan_make(f, v, 4, &p);
    assert_int_equal(p.n, 3);
    assert_string_equal(p.actions[0].features, "hpc,zone=a");
    assert_int_equal(p.actions[0].n, 2);
    assert_null(p.actions[0].reason);
    assert_string_equal(p.actions[1].features, "hpc,zone=b");
    assert_string_equal(p.actions[1].reason, REASON_BLANK);
    assert_int_equal(p.actions[2].verb, VERB_DELETE);
    assert_null(p.actions[2].features);
    plan_clear(&p);
}

static void a_note_keeps_the_text(void **state)
{
    struct node_facts f = node("a", &hpc);
    struct verdict v = {.verb = VERB_NOTE, .write_extra = true};
    struct plan p;

    (void)state;
    plan_make(&f, &v, 1, &p);
    assert_int_equal(p.n, 1);
    assert_null(p.actions[0].reason);
    plan_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TITLED("no verb, no action", nothing_gives_nothing),
        TITLED("promise 7: 500 nodes with the same change are one action",
               many_share_one),
        TITLED("nodes with another reason, ledger or Extra are not mixed",
               others_stay_apart),
        TITLED("promise 2: what must go goes first, what is given back comes last",
               what_goes_goes_first),
        TITLED("promise 7: features are grouped by their text, and deletes come last but "
               "for what is given back",
               features_and_deletes),
        TITLED("promise 1: a note about a node that a person holds writes no reason",
               a_note_keeps_the_text),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
