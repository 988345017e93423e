// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/ledger.h"

struct parsed {
    enum extra_state state;
    struct ledger ledger;
    char *other;
};

static struct parsed parse(const char *text)
{
    struct parsed p;

    ledger_parse(text, &p.state, &p.ledger, &p.other);
    return p;
}

static void assert_foreign(const char *text)
{
    struct parsed p = parse(text);

    assert_int_equal(p.state, EXTRA_FOREIGN);
    assert_true(ledger_is_empty(&p.ledger));
    assert_string_equal(p.other, text);
    free(p.other);
}

/* Parsing `text` and writing it again gives `want`. */
static void assert_again(const char *text, const char *want)
{
    struct parsed p = parse(text);
    char *again = ledger_render(&p.ledger, p.other);

    assert_int_equal(p.state, EXTRA_OURS);
    assert_string_equal(again, want);
    free(again);
    free(p.other);
}

static void test_empty(void **state)
{
    static const char *const texts[] = {NULL, "", " ", "\n", "{}", " { } "};

    (void)state;
    for (size_t i = 0; i < TG_LEN(texts); i++) {
        struct parsed p = parse(texts[i]);

        assert_int_equal(p.state, EXTRA_OURS);
        assert_true(ledger_is_empty(&p.ledger));
        assert_null(p.other);
        assert_again(texts[i], "");
    }
}

static void test_round_trip(void **state)
{
    struct ledger l = {.episode = CAUSE_CORDONED,
                       .episode_at = 1733050000123,
                       .overruled = 1u << CAUSE_NOT_READY | 1u << CAUSE_GONE};
    char *text = ledger_render(&l, NULL);
    struct parsed p = parse(text);

    (void)state;
    assert_string_equal(
        text, "{\"tidegate\":{\"v\":1,\"episode\":\"cordoned\",\"at\":1733050000123,"
              "\"overruled\":[\"not-ready\",\"gone\"]}}");
    assert_int_equal(p.state, EXTRA_OURS);
    assert_true(ledger_equal(&p.ledger, &l));
    assert_null(p.other);
    free(text);

    l = (struct ledger){.overruled = 1u << CAUSE_CORDONED};
    text = ledger_render(&l, "{\"a\":1}");
    assert_string_equal(text,
                        "{\"tidegate\":{\"v\":1,\"overruled\":[\"cordoned\"]},\"a\":1}");
    free(text);
}

static void test_agents_words(void **state)
{
    struct ledger l = {.episode = CAUSE_HEALTH,
                       .episode_at = 7,
                       .checks = UINT64_MAX,
                       .overruled = 1u << CAUSE_LINE,
                       .overruled_checks = 1,
                       .line = 0xab};
    struct parsed p;
    char *text;

    (void)state;
    instance_copy(l.proved, "0123456789abcdef0123456789abcdef");
    instance_copy(l.failed, "a \"b\"");
    text = ledger_render(&l, NULL);
    assert_string_equal(
        text,
        "{\"tidegate\":{\"v\":1,\"episode\":\"health\",\"at\":7,"
        "\"checks\":\"ffffffffffffffff\",\"overruled\":[\"line\"],"
        "\"overruled_checks\":\"1\",\"proved\":\"0123456789abcdef0123456789abcdef\","
        "\"failed\":\"a--b-\",\"line\":\"ab\"}}");
    p = parse(text);
    assert_int_equal(p.state, EXTRA_OURS);
    assert_true(ledger_equal(&p.ledger, &l));
    free(text);

    /* of an episode that has ended nothing is written */
    l = (struct ledger){.checks = 3, .line = 1};
    text = ledger_render(&l, NULL);
    assert_string_equal(text, "{\"tidegate\":{\"v\":1,\"line\":\"1\"}}");
    free(text);
}

static void test_others_are_kept(void **state)
{
    (void)state;
    /* numbers that no double holds, escapes, nested things, a key that only looks like
     * ours */
    assert_again("{ \"n\": 12345678901234567890.50 ,\"s\":\"\\u0041\\\"},\", "
                 "\"o\":{\"tidegate\":[1]}}",
                 "{\"n\": 12345678901234567890.50 "
                 ",\"s\":\"\\u0041\\\"},\",\"o\":{\"tidegate\":[1]}}");
    assert_again(
        "{\"a\":1,\"tidegate\":{\"v\":1,\"episode\":\"gone\",\"at\":7},\"b\":[{}]}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"gone\",\"at\":7},\"a\":1,\"b\":[{}]}");
    assert_again("{\"a\":1,\"tidegate\":{\"v\":1}}", "{\"a\":1}");
    assert_again("{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}");
}

static void test_foreign(void **state)
{
    static const char *const texts[] = {
        "rack 7, slot 3",
        "[]",
        "\"tidegate\"",
        "null",
        "{",
        "{\"a\":1",
        "{\"a\":1}}",
        "{\"a\":1} rest",
        "\xef\xbb\xbf{}",
        "{\"tidegate\":null}",
        "{\"tidegate\":{}}",
        "{\"tidegate\":{\"v\":2}}",
        "{\"tidegate\":{\"v\":\"1\"}}",
        "{\"tidegate\":{\"v\":1,\"new\":true}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"flood\",\"at\":1}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"none\",\"at\":1}}",
        "{\"tidegate\":{\"v\":1,\"at\":1}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"gone\",\"at\":-1}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"gone\",\"at\":1.5}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"gone\",\"at\":1e300}}",
        "{\"tidegate\":{\"v\":1,\"overruled\":\"gone\"}}",
        "{\"tidegate\":{\"v\":1,\"overruled\":[7]}}",
        "{\"tidegate\":{\"v\":1,\"overruled\":[\"health\"]}}",
        "{\"tidegate\":{\"v\":1,\"checks\":\"1\"}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"health\",\"at\":1,\"checks\":1}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"health\",\"at\":1,\"checks\":\"\"}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"health\",\"at\":1,\"checks\":\"01\"}}",
        "{\"tidegate\":{\"v\":1,\"episode\":\"health\",\"at\":1,\"checks\":\"F\"}}",
        "{\"tidegate\":{\"v\":1,\"overruled_checks\":\"10000000000000000\"}}",
        "{\"tidegate\":{\"v\":1,\"proved\":\"\"}}",
        "{\"tidegate\":{\"v\":1,\"proved\":\"a b\"}}",
        "{\"tidegate\":{\"v\":1,\"proved\":\"0123456789012345678901234567890123456789\"}"
        "}",
        "{\"tidegate\":{\"v\":1,\"failed\":7}}",
        "{\"tidegate\":{\"v\":1,\"line\":\"100000000\"}}",
        "{\"tidegate\":{\"v\":1,\"line\":17}}",
        "{\"tidegate\":{\"v\":1},\"tidegate\":{\"v\":1}}",
        "{\"\\u0074idegate\":{\"v\":1}}",
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(texts); i++)
        assert_foreign(texts[i]);
}

static void test_too_much(void **state)
{
    char text[LEDGER_EXTRA_MAX + 64];

    (void)state;
    memset(text, '[', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_foreign(text);
    text[5000] = '\0'; /* short enough, but nested too deep */
    assert_foreign(text);

    /* A person's object that leaves no room for ours. */
    memset(text, 'x', sizeof(text));
    memcpy(text, "{\"a\":\"", 6);
    strcpy(text + LEDGER_EXTRA_MAX - 2, "\"}");
    assert_int_equal(strlen(text), LEDGER_EXTRA_MAX);
    assert_foreign(text);
}

static void test_room(void **state)
{
    struct ledger all = {.episode = CAUSE_LEFT_POOL,
                         .episode_at = INT64_C(1) << 53,
                         .checks = UINT64_MAX,
                         .overruled = ((1u << CAUSE_COUNT_) - 1) & ~(1u << CAUSE_HEALTH),
                         .overruled_checks = UINT64_MAX,
                         .line = UINT32_MAX};
    char text[LEDGER_EXTRA_MAX];
    struct parsed p;
    char *full;

    (void)state;
    memset(text, 'x', sizeof(text));
    instance_copy(all.proved, text); /* too long: cut */
    instance_copy(all.failed, text);
    assert_int_equal(strlen(all.proved), INSTANCE_SIZE - 1);
    memcpy(text, "{\"a\":\"", 6);
    strcpy(text + LEDGER_EXTRA_MAX - 514, "\"}"); /* as large as may be */
    p = parse(text);
    assert_int_equal(p.state, EXTRA_OURS);
    full = ledger_render(&all, p.other);
    free(p.other);
    p = parse(full);
    assert_int_equal(p.state, EXTRA_OURS);
    assert_true(ledger_equal(&p.ledger, &all));
    assert_string_equal(p.other, text);
    free(p.other);
    free(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_agents_words), cmocka_unit_test(test_others_are_kept),
        cmocka_unit_test(test_foreign),      cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
