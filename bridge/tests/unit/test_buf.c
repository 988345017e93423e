// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/buf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void empty_is_a_string(void **state)
{
    struct buf b = BUF_INIT(8);

    (void)state;
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(buf_add(&b, "", 0), 0);
    assert_string_equal(buf_str(&b), "");
    buf_free(&b);
}

static void cap_holds_to_the_byte(void **state)
{
    struct buf b = BUF_INIT(8);

    (void)state;
    assert_int_equal(buf_puts(&b, "12345678"), 0);
    assert_int_equal(buf_puts(&b, "9"), -EMSGSIZE);
    assert_int_equal(buf_printf(&b, "%d", 9), -EMSGSIZE);
    assert_int_equal(buf_add(&b, "x", SIZE_MAX), -EMSGSIZE);
    assert_int_equal(b.len, 8);
    assert_string_equal(buf_str(&b), "12345678");
    buf_free(&b);
}

static void printf_appends(void **state)
{
    struct buf b = BUF_INIT(4096);

    (void)state;
    for (int i = 0; i < 300; i++)
        assert_int_equal(buf_printf(&b, "%03d,", i), 0);
    assert_int_equal(b.len, 1200);
    assert_memory_equal(b.data + 1196, "299,", 5);
    buf_free(&b);
}

static void drop_takes_from_the_front(void **state)
{
    struct buf b = BUF_INIT(16);

    (void)state;
    buf_drop(&b, 0);
    assert_int_equal(buf_puts(&b, "abcdef"), 0);
    buf_drop(&b, 2);
    assert_string_equal(buf_str(&b), "cdef");
    buf_drop(&b, 4);
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

static void clear_and_free_keep_the_cap(void **state)
{
    struct buf b = BUF_INIT(4);

    (void)state;
    assert_int_equal(buf_puts(&b, "abcd"), 0);
    buf_clear(&b);
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(buf_puts(&b, "efgh"), 0);
    buf_free(&b);
    assert_int_equal(buf_puts(&b, "ijklm"), -EMSGSIZE);
    assert_int_equal(buf_puts(&b, "ijkl"), 0);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_is_a_string),
        cmocka_unit_test(cap_holds_to_the_byte),
        cmocka_unit_test(printf_appends),
        cmocka_unit_test(drop_takes_from_the_front),
        cmocka_unit_test(clear_and_free_keep_the_cap),
    };

    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
