// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/checkconf.h"
#include "codec/checksave.h"

/* ---- checks.json ------------------------------------------------------------------- */

static struct checkconf *parse(const char *text)
{
    struct checkconf *c = NULL;
    struct err err = {""};

    if (checkconf_parse(text, strlen(text), &c, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return c;
}

static void test_all_given(void **state)
{
    struct checkconf *c = parse(
        "{\"checks\": [{\"name\": \"scratch-1\", \"command\": [\"tidegate-node\", \"\"],"
        " \"moments\": [\"start\", \"idle\", \"epilog\"], \"period\": 86400, "
        "\"deadline\": 3,"
        " \"fail\": {\"times\": 2, \"of\": 16}, \"clear\": {\"times\": 4}}]}");
    const struct checkdef *d = &c->items[0];

    (void)state;
    assert_int_equal(c->n, 1);
    assert_string_equal(d->name, "scratch-1");
    assert_string_equal(d->command[0], "tidegate-node");
    assert_string_equal(d->command[1], "");
    assert_null(d->command[2]);
    assert_int_equal(d->moments, CHECK_START | CHECK_IDLE | CHECK_EPILOG);
    assert_int_equal(d->period_ms, 86400000);
    assert_int_equal(d->deadline_ms, 3000);
    assert_int_equal(d->rule.fail_times, 2);
    assert_int_equal(d->rule.fail_of, 16);
    assert_int_equal(d->rule.clear, CLEAR_RUNS);
    assert_int_equal(d->rule.clear_times, 4);
    checkconf_free(c);
}

static void test_defaults(void **state)
{
    struct checkconf *c =
        parse("{\"checks\": [{\"name\": \"a\", \"command\": [\"x\"]},"
              "{\"name\": \"b\", \"command\": [\"x\"], \"moments\": [\"prolog\"],"
              " \"fail\": {\"times\": 3}, \"clear\": \"boot\", \"period\": null},"
              "{\"name\": \"c\", \"command\": [\"x\"], \"clear\": \"person\","
              " \"fail\": {}, \"deadline\": 600}]}");

    (void)state;
    assert_int_equal(c->n, 3);
    assert_int_equal(c->items[0].moments, CHECK_START | CHECK_PERIOD);
    assert_int_equal(c->items[0].period_ms, 60000);
    assert_int_equal(c->items[0].deadline_ms, 10000);
    assert_int_equal(c->items[0].rule.fail_times, 2);
    assert_int_equal(c->items[0].rule.fail_of, 3);
    assert_int_equal(c->items[0].rule.clear_times, 2);
    assert_int_equal(c->items[1].deadline_ms, 8000);
    assert_int_equal(c->items[1].rule.fail_times, 3);
    assert_int_equal(c->items[1].rule.fail_of, 3);
    assert_int_equal(c->items[1].rule.clear, CLEAR_BOOT);
    assert_int_equal(c->items[2].rule.clear, CLEAR_PERSON);
    assert_int_equal(c->items[2].rule.fail_times, 2);
    assert_int_equal(c->items[2].deadline_ms, 600000);
    checkconf_free(c);
    c = parse("{\"checks\": []}");
    assert_int_equal(c->n, 0);
    checkconf_free(c);
}

#define ONE(rest) "{\"checks\": [{\"name\": \"a\", \"command\": [\"x\"]" rest "}]}"

static void test_refused(void **state)
{
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"", "not valid JSON"},
        {"[]", "not a JSON object"},
        {"{}", "checks: missing"},
        {"{\"checks\": {}}", "checks: wrong type, expected an array"},
        {"{\"checks\": [], \"check\": 1}", "key 'check' is not known"},
        {"{\"checks\": [1]}", "check number 1: wrong type, expected an object"},
        {"{\"checks\": [{}]}", "check number 1: name: missing"},
        {"{\"checks\": [{\"name\": \"A\"}]}", "name 'A', expected at most 32"},
        {"{\"checks\": [{\"name\": \"a23456789a123456789b123456789c123\"}]}",
         "expected at most 32"},
        {"{\"checks\": [{\"name\": \"a\"}]}", "check 'a': command: missing"},
        {"{\"checks\": [{\"name\": \"a\", \"command\": \"x\"}]}",
         "check 'a': command: wrong type, expected an array"},
        {"{\"checks\": [{\"name\": \"a\", \"command\": []}]}", "command: 0 words"},
        {"{\"checks\": [{\"name\": \"a\", \"command\": [\"\"]}]}", "word 1 is empty"},
        {"{\"checks\": [{\"name\": \"a\", \"command\": [\"x\", 1]}]}", "word 2 is empty"},
        {ONE(", \"moments\": []"), "would never run"},
        {ONE(", \"moments\": [\"Start\"]"), "moments: 'Start', expected start, period"},
        {ONE(", \"moments\": [1]"), "moments: 'no string'"},
        {ONE(", \"period\": 0"), "period: 0, expected 1 to 86400"},
        {ONE(", \"period\": 86401"), "period: 86401, expected 1 to 86400"},
        {ONE(", \"period\": 1.5"), "expected a whole number"},
        {ONE(", \"deadline\": 601"), "deadline: 601, expected 1 to 600"},
        {ONE(", \"deadline\": -1"), "deadline: -1"},
        {ONE(", \"deadline\": 9, \"moments\": [\"prolog\"]"),
         "of prolog or epilog: deadline: 9, expected 1 to 8"},
        {ONE(", \"fail\": {\"times\": 4, \"of\": 3}"),
         "fail: times: 4, expected at most"},
        {ONE(", \"fail\": {\"times\": 2, \"of\": 17}"), "fail: of: 17, expected 1 to 16"},
        {ONE(", \"fail\": {\"time\": 2}"), "fail: key 'time' is not known"},
        {ONE(", \"fail\": 2"), "fail: wrong type, expected an object"},
        {ONE(", \"clear\": \"never\""), "clear: 'never', expected \"boot\""},
        {ONE(", \"clear\": {\"times\": 0}"), "clear: times: 0"},
        {ONE(", \"clear\": {\"runs\": 1}"), "clear: key 'runs'"},
        {ONE(", \"clear\": 2"), "clear: wrong type"},
        {ONE("}, {\"name\": \"a\", \"command\": [\"y\"]"),
         "two checks have the name 'a'"},
        {ONE(", \"Deadline\": 3"), "check 'a': key 'Deadline' is not known"},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        struct checkconf *c = NULL;
        struct err err = {""};

        assert_int_equal(checkconf_parse(rows[i].text, strlen(rows[i].text), &c, &err),
                         -EBADMSG);
        assert_null(c);
        if (!strstr(err.text, rows[i].said))
            fail_msg("%s: said '%s', expected '%s'", rows[i].text, err.text,
                     rows[i].said);
    }
}

static void test_too_large(void **state)
{
    struct buf b = BUF_INIT(CHECKCONF_MAX + 64);
    struct checkconf *c = NULL;
    struct err err;

    (void)state;
    assert_int_equal(buf_puts(&b, "{\"checks\": ["), 0);
    for (int i = 0; i <= CHECKCONF_CHECKS_MAX; i++)
        assert_int_equal(buf_printf(&b, "%s{\"name\": \"c%d\", \"command\": [\"x\"]}",
                                    i ? "," : "", i),
                         0);
    assert_int_equal(buf_puts(&b, "]}"), 0);
    assert_int_equal(checkconf_parse(b.data, b.len, &c, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "65 checks, expected at most 64"));
    while (b.len <= CHECKCONF_MAX)
        assert_int_equal(buf_puts(&b, " "), 0);
    assert_int_equal(checkconf_parse(b.data, b.len, &c, &err), -EMSGSIZE);
    buf_free(&b);
}

/* ---- the states that are kept ------------------------------------------------------ */

static void test_saved_and_read(void **state)
{
    struct checksave s = {.n = 2}, *again = NULL;
    struct buf b = BUF_INIT(CHECKSAVE_MAX), b2 = BUF_INIT(CHECKSAVE_MAX);
    struct err err = {""};

    (void)state;
    s.items[0] = (struct checksave_item){
        .name = "scratch",
        .state = {true, 1764590000000, 6, 3, "3f0c"},
        .text = "/scratch has 1 % free: \"delete\" \\ files",
    };
    s.items[1] = (struct checksave_item){
        .name = "b", .state = {.history = 1, .runs = 16}, .text = "x"};
    checksave_render(&s, &b);
    assert_string_equal(
        b.data,
        "{\"v\":1,\"checks\":[{\"name\":\"scratch\",\"holds\":true,\"history\":\"110\","
        "\"text\":\"/scratch has 1 % free: \\\"delete\\\" \\\\ files\","
        "\"since\":1764590000000,\"boot\":\"3f0c\"},"
        "{\"name\":\"b\",\"holds\":false,\"history\":\"0000000000000001\","
        "\"text\":\"x\"}]}\n");
    assert_int_equal(checksave_parse(b.data, b.len, &again, &err), 0);
    assert_memory_equal(&s.items[0].state, &again->items[0].state,
                        sizeof(struct check_state));
    checksave_render(again, &b2);
    assert_string_equal(b.data, b2.data);
    checksave_free(again);
    buf_free(&b);
    buf_free(&b2);
}

/* The longest that we write is one that we read. */
static void test_longest_save(void **state)
{
    struct checksave *s = mem_zalloc(sizeof(*s)), *again = NULL;
    struct buf b = BUF_INIT(CHECKSAVE_MAX);
    struct err err = {""};

    (void)state;
    s->n = CHECKCONF_CHECKS_MAX;
    for (size_t i = 0; i < s->n; i++) {
        struct checksave_item *item = &s->items[i];

        memset(item->name, 'n', sizeof(item->name) - 1);
        memset(item->text, '"', sizeof(item->text) - 1);
        item->state = (struct check_state){true, INT64_C(1) << 52, 0xffff, 16, ""};
        memset(item->state.boot_id, '\\', sizeof(item->state.boot_id) - 1);
    }
    checksave_render(s, &b);
    assert_true(b.len < CHECKSAVE_MAX);
    assert_int_equal(checksave_parse(b.data, b.len, &again, &err), 0);
    assert_int_equal(again->n, s->n);
    checksave_free(again);
    checksave_free(s);
    buf_free(&b);
}

#define SAVED(rest) "{\"v\": 1, \"checks\": [{\"name\": \"a\", " rest "}]}"

static void test_save_refused(void **state)
{
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"", "not valid JSON"},
        {"{\"checks\": []}", "v: missing"},
        {"{\"v\": 2, \"checks\": []}", "v: 2, expected 1"},
        {"{\"v\": 1}", "checks: missing"},
        {"{\"v\": 1, \"checks\": [{}]}", "check number 1: name: missing"},
        {SAVED("\"history\": \"1\", \"text\": \"x\""), "holds: missing"},
        {SAVED("\"holds\": 1, \"history\": \"1\", \"text\": \"x\""), "holds: wrong type"},
        {SAVED("\"holds\": false, \"history\": \"12\", \"text\": \"x\""), "history: "},
        {SAVED("\"holds\": false, \"history\": \"11111111111111111\", \"text\": \"x\""),
         "history: expected at most 16"},
        {SAVED("\"holds\": false, \"history\": \"1\", \"text\": \"a\\u001bb\""),
         "text: not printable"},
        {SAVED("\"holds\": true, \"history\": \"1\", \"text\": \"x\""), "since: missing"},
        {SAVED("\"holds\": true, \"history\": \"1\", \"text\": \"x\", \"since\": -1"),
         "since: -1"},
        {SAVED("\"holds\": true, \"history\": \"1\", \"text\": \"x\", \"since\": 1"),
         "boot: missing"},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        struct checksave *s = NULL;
        struct err err = {""};

        assert_int_equal(checksave_parse(rows[i].text, strlen(rows[i].text), &s, &err),
                         -EBADMSG);
        assert_null(s);
        if (!strstr(err.text, rows[i].said))
            fail_msg("%s: said '%s', expected '%s'", rows[i].text, err.text,
                     rows[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_given),      cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_saved_and_read), cmocka_unit_test(test_longest_save),
        cmocka_unit_test(test_save_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
