// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "codec/termtext.h"

static void assert_text(char *is, const char *want)
{
    assert_string_equal(is, want);
    free(is);
}

static void test_escape(void **state)
{
    (void)state;
    assert_text(termtext_escape(NULL), "");
    assert_text(termtext_escape("bad dimm, \"slot 3\""), "bad dimm, \"slot 3\"");
    assert_text(termtext_escape("r\xc3\xa4um \xe2\x82\xac \xf0\x9f\x98\x80"),
                "r\xc3\xa4um \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_text(termtext_escape("a\x1b[2Jb\r\n\t\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x09\\x7f");
    assert_text(termtext_escape("\xc2\x9b"
                                "31m"),
                "\\u009b31m");                                 /* CSI in one character */
    assert_text(termtext_escape("\x9b"), "\\x9b");             /* and as a bare byte */
    assert_text(termtext_escape("a\xe2\x80\xae"), "a\\u202e"); /* right to left */
    assert_text(termtext_escape("\xc0\x9b"), "\\xc0\\x9b");    /* too long a form */
    assert_text(termtext_escape("\xe2\x82"), "\\xe2\\x82");    /* cut */
    assert_text(termtext_escape("\xed\xa0\x80"), "\\xed\\xa0\\x80"); /* half a pair */
    assert_text(termtext_escape("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    assert_text(termtext_escape("\xff"), "\\xff");
}

static void test_escape_json(void **state)
{
    (void)state;
    assert_text(termtext_escape_json("{\n\t\"a\": \"\xc2\x9b\x7f\xff\xc3\xa4\"}"),
                "{\n\t\"a\": \"\\u009b\\u007f\\ufffd\xc3\xa4\"}");
}

static void test_width(void **state)
{
    (void)state;
    assert_int_equal(termtext_width(""), 0);
    assert_int_equal(termtext_width("abc"), 3);
    assert_int_equal(termtext_width("r\xc3\xa4um"), 4);
}

static void test_span(void **state)
{
    (void)state;
    assert_text(termtext_span(-5000), "0s");
    assert_text(termtext_span(999), "0s");
    assert_text(termtext_span(119999), "119s");
    assert_text(termtext_span(120000), "2m");
    assert_text(termtext_span(7199999), "119m");
    assert_text(termtext_span(7200000), "2h");
    assert_text(termtext_span(172799999), "47h");
    assert_text(termtext_span(172800000), "2d");
    assert_text(termtext_span(INT64_MAX), "106751991167d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_escape_json),
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_span),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
