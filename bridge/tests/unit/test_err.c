// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void nobody_asks(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, -EIO, "x"), -EIO);
    assert_int_equal(err_context(NULL, -EIO, "x"), -EIO);
}

static void context_goes_in_front(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(err_set(&err, -EPROTO, "pod %s: bad quantity", "a"), -EPROTO);
    assert_int_equal(err_context(&err, -EPROTO, "list %d", 2), -EPROTO);
    assert_string_equal(err.text, "list 2: pod a: bad quantity");
}

static void long_texts_are_cut(void **state)
{
    char big[2 * TG_ERR_TEXT_MAX];
    struct err err;

    (void)state;
    memset(big, 'b', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_int_equal(err_set(&err, -EIO, "%s", big), -EIO);
    assert_int_equal(strlen(err.text), TG_ERR_TEXT_MAX - 1);
    assert_int_equal(err_context(&err, -EIO, "node a"), -EIO);
    assert_int_equal(strlen(err.text), TG_ERR_TEXT_MAX - 1);
    assert_memory_equal(err.text, "node a: bbb", 11);
    assert_int_equal(err_context(&err, -EIO, "%s", big), -EIO);
    assert_int_equal(strlen(err.text), TG_ERR_TEXT_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_asks),
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(long_texts_are_cut),
    };

    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
