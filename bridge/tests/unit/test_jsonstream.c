// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/jsonstream.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"

/* What came out, as "I<text>|" and "E<text>|". */
struct seen {
    struct buf text;
    int answer; /* what the callback returns */
};

static int note(enum jsonstream_piece kind, const char *text, size_t len, void *userdata,
                struct err *err)
{
    struct seen *seen = userdata;

    assert_int_equal(strlen(text), len);
    assert_int_equal(
        buf_printf(&seen->text, "%c%s|", kind == JSONSTREAM_ITEM ? 'I' : 'E', text), 0);
    return seen->answer < 0 ? err_set(err, seen->answer, "told to") : 0;
}

/* Feeds `text` in pieces of `step` bytes; the first failure, or that of finish. */
static int feed(enum jsonstream_mode mode, size_t cap, const char *text, size_t len,
                size_t step, struct seen *seen, struct err *err)
{
    _cleanup_(jsonstream_freep) struct jsonstream *s =
        jsonstream_new(mode, cap, note, seen);
    int r;

    seen->text = BUF_INIT(1 << 16);
    for (size_t at = 0; at < len; at += step) {
        r = jsonstream_feed(s, text + at, len - at < step ? len - at : step, err);
        if (r < 0) {
            assert_int_equal(jsonstream_feed(s, "{}", 2, NULL), r);
            assert_int_equal(jsonstream_finish(s, NULL), r);
            return r;
        }
    }
    return jsonstream_finish(s, err);
}

static void expect(enum jsonstream_mode mode, const char *text, const char *expected)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        struct seen seen = {0};

        assert_int_equal(feed(mode, 4096, text, strlen(text), step, &seen, NULL), 0);
        assert_string_equal(buf_str(&seen.text), expected);
        buf_free(&seen.text);
    }
}

static int fails(enum jsonstream_mode mode, const char *text)
{
    struct seen seen = {0};
    struct err err = {"nothing"};
    int first = 0;

    for (size_t step = 1; step == 1 || step <= strlen(text); step++) {
        int r = feed(mode, 64, text, strlen(text), step, &seen, &err);

        assert_true(r < 0);
        assert_memory_equal(err.text, "JSON stream: ", 13);
        assert_true(step == 1 || r == first);
        first = r;
        buf_free(&seen.text);
    }
    return first;
}

static void objects(void **state)
{
    (void)state;
    expect(JSONSTREAM_OBJECTS, "", "");
    expect(JSONSTREAM_OBJECTS, "{\"a\":1}\n{\"b\":[{}]}\n", "I{\"a\":1}|I{\"b\":[{}]}|");
    expect(JSONSTREAM_OBJECTS, "{}{}\r\n\t {}", "I{}|I{}|I{}|");
    /* Brackets, quotes and backslashes inside strings. */
    expect(JSONSTREAM_OBJECTS, "{\"}\\\"{\":\"]\\\\\"}{\"c\":\"\\\\\\\"}\"}",
           "I{\"}\\\"{\":\"]\\\\\"}|I{\"c\":\"\\\\\\\"}\"}|");
}

static void lists(void **state)
{
    (void)state;
    expect(JSONSTREAM_LIST, "{\"kind\":\"L\",\"items\":[{\"a\":1},{\"b\":{}}],\"x\":1}\n",
           "I{\"a\":1}|I{\"b\":{}}|E{\"kind\":\"L\",\"items\":[],\"x\":1}|");
    expect(JSONSTREAM_LIST, " { \"items\" : [ {} , {} ] } ",
           "I{}|I{}|E{ \"items\" : [] }|");
    expect(JSONSTREAM_LIST, "{\"items\":[]}", "E{\"items\":[]}|");
    expect(JSONSTREAM_LIST, "{\"items\":null,\"kind\":\"L\"}",
           "E{\"items\":null,\"kind\":\"L\"}|");
    /* "items" elsewhere than as the list's own member is none. */
    expect(JSONSTREAM_LIST,
           "{\"metadata\":{\"items\":[{}]},\"k\":\"items\",\"z\":[\"items\"],\"items\":[{"
           "\"items\":[1]}]}",
           "I{\"items\":[1]}|"
           "E{\"metadata\":{\"items\":[{}]},\"k\":\"items\",\"z\":[\"items\"],\"items\":["
           "]}|");
}

static void no_list_is_taken_for_an_empty_one(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        "{\"kind\":\"Status\"}",
        "{\"itemsx\":[]}",
        "{\"item\":[]}",
        "{\"items\":{}}",
        "{\"items\":\"[]\"}",
        "{\"items\":[]",
        "{\"items\":[{}",
        "{\"items\":[{}]",
        "{\"items\":[{},]}",
        "{\"items\":[,{}]}",
        "{\"items\":[{}{}]}",
        "{\"items\":[1]}",
        "{\"items\":[null]}",
        "{\"items\":[[]]}",
        "{\"items\":[],\"items\":[]}",
        "{\"items\":[]}{}",
        "{\"items\":[]}x",
        "[]",
        "null",
    };

    (void)state;
    for (size_t k = 0; k < TG_LEN(bad); k++)
        assert_int_equal(fails(JSONSTREAM_LIST, bad[k]), -EBADMSG);
}

static void broken_objects(void **state)
{
    static const char *const bad[] = {"{",     "{\"a", "{\"a\\", "{}}",
                                      "{},{}", "[]",   "x",      "{}\"a\""};

    (void)state;
    for (size_t k = 0; k < TG_LEN(bad); k++)
        assert_int_equal(fails(JSONSTREAM_OBJECTS, bad[k]), -EBADMSG);
}

static void a_zero_byte_is_refused(void **state)
{
    struct seen seen = {0};

    (void)state;
    assert_int_equal(feed(JSONSTREAM_OBJECTS, 64, "{\"a\":\"\0\"}", 9, 9, &seen, NULL),
                     -EBADMSG);
    assert_string_equal(buf_str(&seen.text), "");
    buf_free(&seen.text);
}

static void cap_is_per_piece(void **state)
{
    struct buf b = BUF_INIT(256);

    (void)state;
    assert_int_equal(buf_printf(&b, "{\"a\":\"%058d\"}", 0), 0);
    assert_int_equal(b.len, 66); /* fails() has a cap of 64 */
    assert_int_equal(fails(JSONSTREAM_OBJECTS, b.data), -EMSGSIZE);
    /* The envelope has the same cap. */
    buf_clear(&b);
    assert_int_equal(buf_printf(&b, "{\"items\":[],\"a\":\"%058d\"}", 0), 0);
    assert_int_equal(fails(JSONSTREAM_LIST, b.data), -EMSGSIZE);
    buf_free(&b);
}

static void an_item_over_the_cap_fails_the_list(void **state)
{
    struct buf b = BUF_INIT(4096);
    struct seen seen = {0};
    struct err err;

    (void)state;
    assert_int_equal(buf_printf(&b, "{\"items\":[{\"a\":1},{\"a\":\"%0200d\"}]}", 0), 0);
    assert_int_equal(feed(JSONSTREAM_LIST, 100, b.data, b.len, 7, &seen, &err),
                     -EMSGSIZE);
    assert_string_equal(err.text, "JSON stream: an object is larger than 100 bytes");
    assert_string_equal(buf_str(&seen.text), "I{\"a\":1}|");
    buf_free(&seen.text);
    /* The list may be as long as it wants. */
    buf_clear(&b);
    assert_int_equal(buf_puts(&b, "{\"items\":[{}"), 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(buf_puts(&b, ",{\"a\":1}"), 0);
    assert_int_equal(buf_puts(&b, "]}"), 0);
    assert_int_equal(feed(JSONSTREAM_LIST, 100, b.data, b.len, 7, &seen, &err), 0);
    buf_free(&seen.text);
    buf_free(&b);
}

static void the_callback_may_end_it(void **state)
{
    struct seen seen = {.answer = -ECANCELED};
    struct err err;

    (void)state;
    assert_int_equal(feed(JSONSTREAM_OBJECTS, 64, "{}{}", 4, 4, &seen, &err), -ECANCELED);
    assert_string_equal(err.text, "told to");
    assert_string_equal(buf_str(&seen.text), "I{}|");
    buf_free(&seen.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects),
        cmocka_unit_test(lists),
        cmocka_unit_test(no_list_is_taken_for_an_empty_one),
        cmocka_unit_test(broken_objects),
        cmocka_unit_test(a_zero_byte_is_refused),
        cmocka_unit_test(cap_is_per_piece),
        cmocka_unit_test(an_item_over_the_cap_fails_the_list),
        cmocka_unit_test(the_callback_may_end_it),
    };

    return cmocka_run_group_tests_name("jsonstream", tests, NULL, NULL);
}
