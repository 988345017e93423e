// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/qualify.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/titled.h"

#define NOW     ((int64_t)1800000000000)
#define MAX     40
#define PARTNER "n2"

/* A pool of nodes that are idle in Slurm and have agents, and what Slurm shows of those that prove
 * themselves. n1 is the one that a test looks at. */
struct scene {
    char names[MAX][8];
    struct slurm_node slurm[MAX];
    struct agent_fact agents[MAX];
    struct kube_pool pool;
    struct node_facts rows[MAX];
    struct verdict verdicts[MAX];
    size_t n;
    struct qualify_world *world;
    struct qualify_action *actions;
    size_t n_actions;
};

static void add_node(struct scene *s)
{
    const size_t i = s->n++;

    /* n1, n2, ... n9, n:, ...: sorted */
    (void)snprintf(s->names[i], sizeof(s->names[i]), "n%c", (char)('1' + i));
    s->slurm[i] = (struct slurm_node){.name = s->names[i], .base = SLURM_BASE_IDLE};
    s->agents[i].instance = (char *)"start-1";
    s->rows[i] = (struct node_facts){.name = s->names[i],
                                     .pool = &s->pool,
                                     .slurm = &s->slurm[i],
                                     .agent = &s->agents[i]};
}

static int set_up(void **state)
{
    struct scene *s = mem_zalloc(sizeof(*s));

    s->pool.partition = (char *)"hpc";
    s->world = mem_zalloc(sizeof(*s->world));
    s->world->reservations = mem_calloc(MAX, sizeof(*s->world->reservations));
    s->world->jobs = mem_calloc(MAX, sizeof(*s->world->jobs));
    add_node(s);
    add_node(s);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;

    qualify_world_free(s->world);
    free(s->actions);
    free(s);
    return 0;
}

static void reserve(struct scene *s, const char *node, int64_t since)
{
    s->world->reservations[s->world->n_reservations++] =
        (struct qualify_reservation){.node = mem_strdup(node), .since = since};
    qualify_world_sort(s->world);
}

/* A job of n1 for its instance. partner NULL: alone. */
static struct qualify_job *add_job(struct scene *s, enum qualify_job_state state,
                                   const char *partner)
{
    const uint32_t id = (uint32_t)s->world->n_jobs + 10;
    struct qualify_job *j = &s->world->jobs[s->world->n_jobs++];

    *j = (struct qualify_job){.id = id,
                              .node = mem_strdup("n1"),
                              .instance = mem_strdup("start-1"),
                              .partner = mem_strdup(partner),
                              .state = state,
                              .exit_code = state == QUALIFY_JOB_BAD ? 1 : 0,
                              .submitted_at = NOW - 1000};
    return j;
}

static void plan(struct scene *s)
{
    qualify_world_sort(s->world);
    free(s->actions);
    s->n_actions = qualify_plan(s->rows, s->verdicts, s->n, s->world, NOW, &s->actions);
}

static const struct qualify_action *only_action(struct scene *s, enum qualify_verb verb)
{
    plan(s);
    assert_int_equal(s->n_actions, 1);
    assert_int_equal(s->actions[0].verb, verb);
    assert_string_equal(s->actions[0].node, "n1");
    return &s->actions[0];
}

static void nothing(struct scene *s)
{
    plan(s);
    assert_int_equal(s->n_actions, 0);
}

static enum qualify_state state_of(struct scene *s)
{
    qualify_world_sort(s->world);
    return qualify_fact(s->world, &s->rows[0]).state;
}

static const char *text_of(struct scene *s)
{
    qualify_world_sort(s->world);
    return qualify_fact(s->world, &s->rows[0]).text;
}

/* n1 is to prove itself, and its reservation stands. */
static void under_way(struct scene *s)
{
    s->verdicts[0].qualify = true;
    reserve(s, "n1", NOW - 1000);
}

/* ---- the straight way ------------------------------------------------------------------------- */

static void nothing_to_do(void **state)
{
    nothing(*state);
    assert_int_equal(state_of(*state), QUALIFY_NONE);
    assert_int_equal(qualify_fact(NULL, &((struct scene *)*state)->rows[0]).state,
                     QUALIFY_NONE);
}

static void reservation_first(void **state)
{
    struct scene *s = *state;

    s->verdicts[0].qualify = true;
    (void)only_action(s, QUALIFY_RESERVE);
}

static void job_when_free(void **state)
{
    struct scene *s = *state;
    const struct qualify_action *a;

    under_way(s);
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
    s->slurm[0].drain = true;
    nothing(s);
    s->slurm[0].drain = false;
    s->slurm[0].not_responding = true;
    nothing(s);
    s->slurm[0].not_responding = false;
    s->slurm[0].base = SLURM_BASE_DOWN;
    nothing(s);
    s->slurm[0].base = SLURM_BASE_IDLE;
    a = only_action(s, QUALIFY_SUBMIT);
    assert_string_equal(a->instance, "start-1");
    assert_string_equal(a->partition, "hpc");
    assert_true(a->wants_partner);
    assert_null(a->not_with);
}

static void one_job_at_a_time(void **state)
{
    struct scene *s = *state;

    under_way(s);
    add_job(s, QUALIFY_JOB_RUNS, PARTNER);
    nothing(s);
    assert_int_equal(state_of(s), QUALIFY_RUNNING);
    s->world->jobs[0].state = QUALIFY_JOB_WAITS;
    nothing(s);
    assert_int_equal(state_of(s), QUALIFY_RUNNING);
}

static void passed(void **state)
{
    struct scene *s = *state;

    under_way(s);
    add_job(s, QUALIFY_JOB_WELL, PARTNER);
    assert_int_equal(state_of(s), QUALIFY_PASSED);
    assert_string_equal(qualify_fact(s->world, &s->rows[0]).instance, "start-1");
    nothing(s); /* until it stands in the ledger */
    s->verdicts[0].qualify = false;
    (void)only_action(s, QUALIFY_RELEASE);
}

static void change_first(void **state)
{
    struct scene *s = *state;

    reserve(s, "n1", NOW);
    s->verdicts[0].verb = VERB_DRAIN;
    nothing(s);
    s->verdicts[0].verb = VERB_NONE;
    (void)only_action(s, QUALIFY_RELEASE);
}

static void forgotten(void **state)
{
    struct scene *s = *state;

    reserve(s, "n0", NOW);
    reserve(s, "n1", NOW);
    reserve(s, "n2", NOW);
    qualify_world_forget(s->world, "n1");
    assert_int_equal(state_of(s), QUALIFY_NONE);
    assert_int_equal(s->world->n_reservations, 2);
    assert_string_equal(s->world->reservations[1].node, "n2");
}

/* ---- another start, no agent, no row ---------------------------------------------------------- */

static void another_start(void **state)
{
    struct scene *s = *state;

    under_way(s);
    add_job(s, QUALIFY_JOB_RUNS, PARTNER);
    s->agents[0].instance = (char *)"start-2";
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
    assert_int_equal(only_action(s, QUALIFY_CANCEL)->job, 10);
    s->world->jobs[0].state = QUALIFY_JOB_CANCELLED;
    assert_string_equal(only_action(s, QUALIFY_SUBMIT)->instance, "start-2");
    /* what the earlier start has proved is nothing to this one */
    s->world->jobs[0].state = QUALIFY_JOB_WELL;
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
    (void)only_action(s, QUALIFY_SUBMIT);
}

static void no_agent(void **state)
{
    struct scene *s = *state;

    under_way(s);
    s->rows[0].agent = NULL;
    nothing(s);
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
}

static void strays(void **state)
{
    struct scene *s = *state;

    reserve(s, "gone", NOW);
    plan(s);
    assert_int_equal(s->n_actions, 1);
    assert_int_equal(s->actions[0].verb, QUALIFY_RELEASE);
    assert_string_equal(s->actions[0].node, "gone");
}

/* ---- partners --------------------------------------------------------------------------------- */

static void no_partner_at_all(void **state)
{
    struct scene *s = *state;

    under_way(s);
    s->slurm[1].base = SLURM_BASE_ALLOCATED;
    assert_false(only_action(s, QUALIFY_SUBMIT)->wants_partner);
    s->slurm[1].base = SLURM_BASE_MIXED;
    assert_true(only_action(s, QUALIFY_SUBMIT)->wants_partner);
    s->slurm[1].drain = true;
    assert_false(only_action(s, QUALIFY_SUBMIT)->wants_partner);
    s->slurm[1].drain = false;
    s->slurm[1].maint = true;
    assert_false(only_action(s, QUALIFY_SUBMIT)->wants_partner);
    s->slurm[1].maint = false;
    reserve(s, "n2", NOW); /* it has to prove itself, too */
    s->verdicts[1].qualify = true;
    s->slurm[1].not_responding = true;
    assert_false(only_action(s, QUALIFY_SUBMIT)->wants_partner);
}

static void partner_awaited(void **state)
{
    struct scene *s = *state;
    struct qualify_job *j;

    under_way(s);
    j = add_job(s, QUALIFY_JOB_WAITS, NULL);
    j->wants_partner = true;
    j->submitted_at = NOW - QUALIFY_PARTNER_MS + 1;
    nothing(s);
    j->submitted_at = NOW - QUALIFY_PARTNER_MS;
    assert_int_equal(only_action(s, QUALIFY_CANCEL)->job, 10);
    j->state = QUALIFY_JOB_CANCELLED;
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
    assert_false(only_action(s, QUALIFY_SUBMIT)->wants_partner);
}

static void alone_waits_on(void **state)
{
    struct scene *s = *state;

    under_way(s);
    add_job(s, QUALIFY_JOB_WAITS, NULL)->submitted_at = NOW - 3600000;
    nothing(s);
}

/* ---- failure ---------------------------------------------------------------------------------- */

static void second_opinion(void **state)
{
    struct scene *s = *state;
    const struct qualify_action *a;

    under_way(s);
    add_node(s);
    add_job(s, QUALIFY_JOB_BAD, PARTNER);
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
    a = only_action(s, QUALIFY_SUBMIT);
    assert_true(a->wants_partner);
    assert_string_equal(a->not_with, PARTNER);

    add_job(s, QUALIFY_JOB_WELL, "n3");
    assert_int_equal(state_of(s), QUALIFY_PASSED);
    s->verdicts[0].qualify = false;
    assert_string_equal(only_action(s, QUALIFY_RELEASE)->not_with, PARTNER);
}

static void failed_twice(void **state)
{
    struct scene *s = *state;

    under_way(s);
    add_job(s, QUALIFY_JOB_BAD, PARTNER);
    add_job(s, QUALIFY_JOB_BAD, "n3")->said =
        mem_strdup("tidegate-pmix: n1, rank 0: the first fence was not complete");
    assert_int_equal(state_of(s), QUALIFY_FAILED);
    assert_string_equal(text_of(s),
                        "partner n3: n1, rank 0: the first fence was not complete");
    nothing(s); /* until the node is drained */
}

static void failed_without_second_partner(void **state)
{
    struct scene *s = *state;
    struct qualify_job *j;

    under_way(s);
    add_job(s, QUALIFY_JOB_BAD, PARTNER);
    j = add_job(s, QUALIFY_JOB_CANCELLED, NULL);
    j->wants_partner = true;
    assert_int_equal(state_of(s), QUALIFY_FAILED);
    assert_string_equal(text_of(s),
                        "partner n2: exit status 1 and no word; look at slurmd's log");
}

static void failed_alone(void **state)
{
    struct scene *s = *state;

    under_way(s);
    add_job(s, QUALIFY_JOB_BAD, NULL)->timed_out = true;
    assert_int_equal(state_of(s), QUALIFY_FAILED);
    assert_string_equal(
        text_of(s),
        "no partner was free: not done within 2 minutes; look at slurmd's log");
}

static void cancelled_again_and_again(void **state)
{
    struct scene *s = *state;

    under_way(s);
    for (int i = 0; i < QUALIFY_JOBS_MAX - 1; i++)
        add_job(s, QUALIFY_JOB_CANCELLED, NULL);
    assert_int_equal(state_of(s), QUALIFY_RESERVED);
    (void)only_action(s, QUALIFY_SUBMIT);
    add_job(s, QUALIFY_JOB_CANCELLED, NULL);
    assert_int_equal(state_of(s), QUALIFY_FAILED);
    nothing(s);
}

/* ---- many ------------------------------------------------------------------------------------- */

static size_t count(const struct scene *s, enum qualify_verb verb)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_actions; i++)
        n += s->actions[i].verb == verb;
    return n;
}

static void at_most_so_many(void **state)
{
    struct scene *s = *state;

    while (s->n < MAX)
        add_node(s);
    for (size_t i = 0; i < s->n; i++)
        s->verdicts[i].qualify = true;
    plan(s);
    assert_int_equal(count(s, QUALIFY_RESERVE), QUALIFY_AT_ONCE);

    for (size_t i = 0; i < QUALIFY_AT_ONCE; i++) {
        s->slurm[i].not_responding = true;
        reserve(s, s->names[i], NOW - QUALIFY_SLOT_MS + 1);
    }
    plan(s);
    assert_int_equal(s->n_actions, 0);
    /* those that hang do not hold up others for ever */
    s->world->reservations[0].since = NOW - QUALIFY_SLOT_MS;
    plan(s);
    assert_int_equal(count(s, QUALIFY_RESERVE), 1);
}

#define IN_SCENE(title, f)                                                               \
    {.name = (title), .test_func = (f), .setup_func = set_up, .teardown_func = tear_down}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCENE("nobody to prove himself, nothing to do", nothing_to_do),
        IN_SCENE("the reservation comes before all else", reservation_first),
        IN_SCENE("the job comes once the node is free under its reservation",
                 job_when_free),
        IN_SCENE("a job that waits or runs is let be", one_job_at_a_time),
        IN_SCENE("a node that passed keeps its reservation until the verdict says so",
                 passed),
        IN_SCENE("no reservation ends before the drain that is asked for is done",
                 change_first),
        IN_SCENE("a reservation that is being deleted counts as gone", forgotten),
        IN_SCENE("a job is for one start of the agent only", another_start),
        IN_SCENE("without the agent's word no job is sent", no_agent),
        IN_SCENE("a reservation of a node that is no more is deleted", strays),
        IN_SCENE("no partner is waited for where there is none", no_partner_at_all),
        IN_SCENE("a partner is waited for, not for ever", partner_awaited),
        IN_SCENE("a job that needs no partner waits for its node", alone_waits_on),
        IN_SCENE("a wire-up that fails is tried with another partner", second_opinion),
        IN_SCENE("a node that fails with two partners has failed", failed_twice),
        IN_SCENE("where no second partner comes the node has failed",
                 failed_without_second_partner),
        IN_SCENE("a node that fails alone has failed", failed_alone),
        IN_SCENE("a job that is cancelled again and again is not sent for ever",
                 cancelled_again_and_again),
        IN_SCENE("a rack comes back in turns, and nodes that hang lose theirs",
                 at_most_so_many),
    };

    return cmocka_run_group_tests_name("qualify", tests, NULL, NULL);
}
