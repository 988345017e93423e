// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Many random walks (walk.h), and what was never seen on them. TIDEGATE_WALKS sets how many,
 * TIDEGATE_SEED where they begin; a broken promise is printed as the shortest walk to it.
 */
#include <inttypes.h>

#include "tests/unit/titled.h"
#include "tests/unit/walk.h"

#define EVENTS_MAX 24

static struct {
    uint8_t events[EVENTS_MAX];
    size_t n;
} found[WALK_BROKEN_];

static size_t make_walk(uint64_t *seed, uint8_t *events)
{
    return events_make(seed, events, EVENTS_MAX, WALK_EVENTS_);
}

static int walk_all(void **state)
{
    const struct policy policy = POLICY_DEFAULT;
    uint64_t walks = events_env("TIDEGATE_WALKS", EVENTS_WALKS),
             seed = events_env("TIDEGATE_SEED", 1);

    (void)state;
    for (uint64_t i = 0; i < walks; i++) {
        uint8_t events[EVENTS_MAX];
        size_t n = make_walk(&seed, events);
        enum walk_broken what = walk(events, n, &policy, &n);

        if (!what || found[what].n)
            continue;
        found[what].n = walk_shrink(events, n, &policy);
        memcpy(found[what].events, events, found[what].n);
    }
    return 0;
}

static void never(void **state)
{
    enum walk_broken what = *(const enum walk_broken *)*state;

    if (!found[what].n)
        return;
    walk_print(stderr, found[what].events, found[what].n);
    fail_msg("the walk above breaks it");
}

/* The walks must be able to find something: a policy that keeps less than is promised. */
static void assert_finds(const struct policy *policy, enum walk_broken what)
{
    uint64_t seed = 7;

    for (int i = 0; i < 100000; i++) {
        uint8_t events[EVENTS_MAX];
        size_t n = make_walk(&seed, events);

        if (walk(events, n, policy, &n) == what)
            return;
    }
    fail_msg("not found");
}

static void finds_early_resume(void **state)
{
    (void)state;
    assert_finds(&(struct policy){.resume_hold_ms = 0, .down_confirm_ms = 5000},
                 WALK_EARLY_RESUME);
}

static void finds_hasty_down(void **state)
{
    (void)state;
    assert_finds(&(struct policy){.resume_hold_ms = 5000, .down_confirm_ms = 0},
                 WALK_ONE_WITNESS);
}

static void finds_held_on(void **state)
{
    (void)state;
    assert_finds(&(struct policy){.resume_hold_ms = 60000, .down_confirm_ms = 5000},
                 WALK_HELD_ON);
}

#define NEVER(what, title)                                                               \
    {                                                                                    \
        .name = (title), .test_func = never,                                             \
        .initial_state = (void *)&(const enum walk_broken)                               \
        {                                                                                \
            what                                                                         \
        }                                                                                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        NEVER(WALK_PERSON_LOST,
              "promise 1: any walk: a person's hold stays, word for word"),
        NEVER(
            WALK_PERSON_OVERRULED,
            "promise 1, rule 1: any walk: nothing is done to a node that a person holds"),
        NEVER(WALK_EXTRA_LOST, "promise 1: any walk: what others keep in Extra stays"),
        NEVER(WALK_RESUME_UNDONE, "promise 1, rule 2: any walk: what a person resumed is "
                                  "not drained again before "
                                  "the cause has cleared once"),
        NEVER(WALK_FREE_WITH_CAUSE, "promise 2: any walk: no node is free while a cause "
                                    "stands that nobody overruled"),
        NEVER(WALK_ONE_WITNESS,
              "promise 3: any walk: DOWN only when both witnesses agree"),
        NEVER(WALK_NO_CAUSE, "promise 4: any walk: no drain without a cause"),
        NEVER(WALK_EARLY_RESUME, "promise 4, rule 4: any walk: resumed only when Ready "
                                 "for the hold time, and when "
                                 "slurmd answers where it was down"),
        NEVER(WALK_HELD_ON,
              "rule 3: any walk: what is fine again is not held any longer"),
        NEVER(
            WALK_RESTART_ACTS,
            "promise 6: any walk: a bridge that starts anew leaves a quiet world alone"),
        NEVER(WALK_NOT_IDEMPOTENT,
              "any walk: deciding again after the action gives nothing"),
        NEVER(WALK_NOT_QUIET,
              "any walk: quiet after at most three actions for one event"),
        NEVER(WALK_REFUSED, "any walk: nothing is asked that slurmctld would refuse"),
        NEVER(WALK_TIME_UNANNOUNCED,
              "any walk: what time alone will change is announced by look_again_at"),
        TITLED("the walks find a resume before the promised hold time",
               finds_early_resume),
        TITLED("the walks find a DOWN before the promised confirm time",
               finds_hasty_down),
        TITLED("the walks find a node that is held for too long", finds_held_on),
    };

    return cmocka_run_group_tests_name("decide, random walks", tests, walk_all, NULL);
}
