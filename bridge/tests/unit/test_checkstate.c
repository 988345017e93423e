// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/checkstate.h"

static const struct check_rule two_of_three = {2, 3, CLEAR_RUNS, 2};

/*
 * Runs one after the other, the time counted up from 1: '.' a good one, 'x' a failed one, 'B' a boot
 * between them. Returns what `holds` was after each run: '-' or 'H'.
 */
static const char *walk(struct check_state *s, const struct check_rule *rule,
                        const char *runs)
{
    static char seen[64];
    char boot[8] = "boot0";
    size_t n = 0;

    for (const char *p = runs; *p; p++) {
        bool held = s->holds, changed;

        if (*p == 'B') {
            boot[4]++;
            continue;
        }
        changed = check_state_add(s, rule, *p == 'x', boot, (int64_t)n + 1);
        assert_int_equal(changed, held != s->holds);
        seen[n++] = s->holds ? 'H' : '-';
    }
    seen[n] = '\0';
    return seen;
}

static void test_walks(void **state)
{
    static const struct {
        struct check_rule rule;
        const char *runs, *holds;
    } rows[] = {
        {{1, 1, CLEAR_RUNS, 1}, ".x.x", "-H-H"},
        {{2, 3, CLEAR_RUNS, 2}, "x...x..", "-------"},
        {{2, 3, CLEAR_RUNS, 2}, "x.x", "--H"},
        {{2, 3, CLEAR_RUNS, 2}, "x..x..x", "-------"},
        {{2, 3, CLEAR_RUNS, 2}, "xx.x.x..", "-HHHHHH-"},
        /* the failures of a hold that is over do not help to the next */
        {{2, 16, CLEAR_RUNS, 1}, "xx.x.x", "-H---H"},
        {{16, 16, CLEAR_RUNS, 16},
         "xxxxxxxxxxxxxxxx...............x................",
         "---------------HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH-"},
        /* another boot, and a good run after it */
        {{1, 1, CLEAR_BOOT, 0}, "x..B.", "HHH-"},
        {{1, 1, CLEAR_BOOT, 0}, "xBx..B.", "HHHH-"},
        {{1, 1, CLEAR_PERSON, 0}, "x..B....", "HHHHHHH"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct check_state s = {0};

        assert_string_equal(walk(&s, &rows[i].rule, rows[i].runs), rows[i].holds);
    }
}

static void test_since_is_when_it_began(void **state)
{
    struct check_state s = {0};

    (void)state;
    assert_string_equal(walk(&s, &two_of_three, ".xxxx"), "--HHH");
    assert_int_equal(s.since, 3);
    assert_string_equal(s.boot_id, "boot0");
    assert_int_equal(s.runs, 5);
}

static void test_a_person_releases_only_what_waits_for_one(void **state)
{
    struct check_rule person = {1, 1, CLEAR_PERSON, 0};
    struct check_state s = {0};

    (void)state;
    assert_false(check_state_released(&s, &person));
    (void)walk(&s, &person, "xx");
    assert_true(check_state_released(&s, &person));
    assert_false(s.holds);
    assert_string_equal(walk(&s, &person, ".x"), "-H");

    s = (struct check_state){0};
    (void)walk(&s, &two_of_three, "xx");
    assert_false(check_state_released(&s, &two_of_three));
    assert_true(s.holds);
}

static void test_unsettled(void **state)
{
    struct check_state s = {0};

    (void)state;
    assert_false(check_state_unsettled(&s, &two_of_three));
    (void)walk(&s, &two_of_three, "x");
    assert_true(check_state_unsettled(&s, &two_of_three));
    (void)walk(&s, &two_of_three, "..");
    assert_true(check_state_unsettled(&s, &two_of_three));
    (void)walk(&s, &two_of_three, ".");
    assert_false(check_state_unsettled(&s, &two_of_three));
    (void)walk(&s, &two_of_three, "xx.");
    assert_true(check_state_unsettled(&s, &two_of_three));
}

/* A rule that got stricter (a prolog's run, another configuration) finds an old failure: a good run holds no node. */
static void test_a_good_run_never_begins_to_hold(void **state)
{
    struct check_state s = {0};
    struct check_rule one_of_three = {1, 3, CLEAR_RUNS, 2};

    (void)state;
    assert_string_equal(walk(&s, &two_of_three, "x"), "-");
    assert_string_equal(walk(&s, &one_of_three, ".."), "--");
    assert_string_equal(walk(&s, &one_of_three, "x"), "H");
}

/* A long boot id is cut, never written past its end. */
static void test_long_boot_id(void **state)
{
    struct check_state s = {0};
    struct check_rule rule = {1, 1, CLEAR_BOOT, 0};
    char id[200];

    (void)state;
    memset(id, 'a', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    assert_true(check_state_add(&s, &rule, true, id, 1));
    assert_int_equal(strlen(s.boot_id), sizeof(s.boot_id) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_since_is_when_it_began),
        cmocka_unit_test(test_a_person_releases_only_what_waits_for_one),
        cmocka_unit_test(test_unsettled),
        cmocka_unit_test(test_a_good_run_never_begins_to_hold),
        cmocka_unit_test(test_long_boot_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
