// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Many random walks of a node with an agent (walk_agents.h). TIDEGATE_WALKS sets how many, TIDEGATE_SEED
 * where they begin; a broken promise is printed as the shortest walk to it.
 */
#include <inttypes.h>

#include "tests/unit/titled.h"
#include "tests/unit/walk_agents.h"

#define EVENTS_MAX 32

static struct {
    uint8_t events[EVENTS_MAX];
    size_t n;
} found[AWALK_BROKEN_];

static const struct policy agents = {
    .resume_hold_ms = AWALK_HOLD_MS, .down_confirm_ms = AWALK_CONFIRM_MS, .agents = true};

static size_t make_walk(uint64_t *seed, uint8_t *events)
{
    return events_make(seed, events, EVENTS_MAX, AWALK_EVENTS_);
}

static int walk_all(void **state)
{
    uint64_t walks = events_env("TIDEGATE_WALKS", EVENTS_WALKS),
             seed = events_env("TIDEGATE_SEED", 1);

    (void)state;
    for (uint64_t i = 0; i < walks; i++) {
        uint8_t events[EVENTS_MAX];
        size_t n = make_walk(&seed, events);
        enum awalk_broken what = awalk(events, n, &agents, &n);

        if (!what || found[what].n)
            continue;
        found[what].n = awalk_shrink(events, n, &agents);
        memcpy(found[what].events, events, found[what].n);
    }
    return 0;
}

static void never(void **state)
{
    enum awalk_broken what = *(const enum awalk_broken *)*state;

    if (!found[what].n)
        return;
    awalk_print(stderr, found[what].events, found[what].n);
    fail_msg("the walk above breaks it");
}

/* The walks must be able to find something: a policy that keeps less than is promised. */
static void assert_finds(const struct policy *policy, enum awalk_broken what)
{
    uint64_t seed = 7;

    for (int i = 0; i < 100000; i++) {
        uint8_t events[EVENTS_MAX];
        size_t n = make_walk(&seed, events);

        if (awalk(events, n, policy, &n) == what)
            return;
    }
    fail_msg("not found");
}

static void finds_early_resume(void **state)
{
    (void)state;
    assert_finds(&(struct policy){.down_confirm_ms = AWALK_CONFIRM_MS, .agents = true},
                 AWALK_EARLY_RESUME);
}

static void finds_hasty_down(void **state)
{
    (void)state;
    assert_finds(&(struct policy){.resume_hold_ms = AWALK_HOLD_MS, .agents = true},
                 AWALK_JOB_KILLED);
}

static void finds_no_agents(void **state)
{
    const struct policy none = {.resume_hold_ms = AWALK_HOLD_MS,
                                .down_confirm_ms = AWALK_CONFIRM_MS};

    (void)state;
    assert_finds(&none, AWALK_EARLY_RESUME);
}

#define NEVER(what, title)                                                               \
    {                                                                                    \
        .name = (title), .test_func = never,                                             \
        .initial_state = (void *)&(const enum awalk_broken)                              \
        {                                                                                \
            what                                                                         \
        }                                                                                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        NEVER(AWALK_PERSON_OVERRULED,
              "promise 1, rule 1: any walk with an agent: nothing is "
              "done to a node that a person holds"),
        NEVER(AWALK_RESUME_UNDONE,
              "promise 1, rule 2: any walk with an agent: checks that a "
              "person overruled do not drain again before they passed once"),
        NEVER(AWALK_JOB_KILLED,
              "promise 2, promise 3: any walk with an agent: DOWN only when "
              "both witnesses agree, or when a stopping pod's time is up"),
        NEVER(AWALK_RECORD_LOST,
              "promise 1, promise 2: any walk with an agent: a record is "
              "deleted only when we drained it and no job is there"),
        NEVER(AWALK_EARLY_RESUME,
              "promise 4, rule 4: any walk with an agent: resumed only on "
              "its agent's word, when all is well for the hold time"),
        NEVER(AWALK_UNPROVED,
              "row unproved: any walk with an agent: no node of a pool that "
              "wants proof is given to jobs without"),
        NEVER(AWALK_FREE_WITH_CAUSE,
              "promise 2, row stopping, row unhealthy: any walk with an "
              "agent: no node is free while its checks fail or its pod goes"),
        NEVER(
            AWALK_HELD_ON,
            "rule 3: any walk with an agent: what is fine again is not held any longer"),
        NEVER(AWALK_RESTART_ACTS,
              "promise 6: any walk with an agent: a bridge that starts anew "
              "neither resumes nor sets down nor forgets"),
        NEVER(AWALK_NOT_IDEMPOTENT,
              "any walk with an agent: deciding again after the action gives nothing"),
        NEVER(AWALK_NOT_QUIET, "any walk with an agent: quiet after a few rounds"),
        NEVER(AWALK_REFUSED,
              "any walk with an agent: nothing is asked that slurmctld would refuse"),
        NEVER(AWALK_TIME_UNANNOUNCED,
              "any walk with an agent: what time alone will change is "
              "announced by look_again_at"),
        TITLED("the walks find a resume before the promised hold time",
               finds_early_resume),
        TITLED("the walks find a DOWN before the promised confirm time",
               finds_hasty_down),
        TITLED("the walks find a policy that listens to no agent", finds_no_agents),
    };

    return cmocka_run_group_tests_name("decide, random walks with an agent", tests,
                                       walk_all, NULL);
}
