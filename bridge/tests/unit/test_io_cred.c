// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <munge.h>

#include "io/cred.h"
#include "tests/unit/munged.h"

static int set_up(void **state)
{
    struct munged *m = mem_zalloc(sizeof(*m));

    munged_start(m);
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    munged_stop(*state);
    free(*state);
    return 0;
}

static struct buf made_for(const struct munged *m, uid_t reader)
{
    struct buf b = BUF_INIT(8192);

    assert_int_equal(cred_encode(m->socket, reader, "hello\0you", 9, &b, NULL), 0);
    return b;
}

static int decode(const struct munged *m, const struct buf *b, const char *want_text)
{
    struct err err = {""};
    struct cred c;
    int r = cred_decode(m->socket, b->data, b->len, &c, &err);

    if (r == 0) {
        assert_int_equal(c.uid, geteuid());
        assert_int_equal(c.size, 9);
        assert_memory_equal(c.payload, "hello\0you", 9);
        cred_clear(&c);
        assert_null(c.payload);
    }
    assert_non_null(strstr(err.text, want_text));
    return r;
}

static void test_there_and_back_once(void **state)
{
    struct munged *m = *state;
    struct buf b = made_for(m, geteuid());

    assert_int_equal(decode(m, &b, ""), 0);
    assert_int_equal(decode(m, &b, "used before"), -EALREADY);
    buf_free(&b);
}

static void test_for_another_reader(void **state)
{
    struct buf b = made_for(*state, 4711);
    struct munged *m = *state;
    int r = decode(m, &b, "another reader");

    assert_int_equal(r, -EKEYREJECTED);
    buf_free(&b);
}

/* Made by munge itself, as somebody might who does not know how: readable on its way, or for all. */
static void test_not_secret_enough(void **state)
{
    struct munged *m = *state;

    for (int i = 0; i < 2; i++) {
        munge_ctx_t ctx = munge_ctx_create();
        struct buf b = BUF_INIT(8192);
        char *text;

        assert_int_equal(munge_ctx_set(ctx, MUNGE_OPT_SOCKET, m->socket), 0);
        if (i == 0)
            assert_int_equal(munge_ctx_set(ctx, MUNGE_OPT_CIPHER_TYPE, MUNGE_CIPHER_NONE),
                             0);
        assert_int_equal(munge_encode(&text, ctx, "hello\0you", 9), 0);
        assert_int_equal(buf_puts(&b, text), 0);
        assert_int_equal(decode(m, &b, i == 0 ? "not encrypted" : "not restricted"),
                         -EKEYREJECTED);
        free(text);
        buf_free(&b);
        munge_ctx_destroy(ctx);
    }
}

static void test_of_another_key(void **state)
{
    struct munged other;
    struct buf b;
    int r;

    munged_start(&other);
    b = made_for(&other, geteuid());
    munged_stop(&other);
    r = decode(*state, &b, "same key");
    assert_int_equal(r, -EKEYREJECTED);
    buf_free(&b);
}

static void test_no_credential(void **state)
{
    struct buf b = BUF_INIT(8192);
    struct munged *m = *state;

    assert_int_equal(buf_puts(&b, "MUNGE:AwQFAAC:"), 0);
    assert_int_equal(decode(m, &b, ""), -EKEYREJECTED);
    assert_int_equal(buf_add(&b, "\0x", 2), 0);
    assert_int_equal(decode(m, &b, "no text of munge"), -EKEYREJECTED);
    buf_free(&b);
}

static void test_sizes(void **state)
{
    static const char big[CRED_PAYLOAD_MAX + 1];
    struct munged *m = *state;
    struct buf b = BUF_INIT(100);

    assert_int_equal(cred_encode(m->socket, geteuid(), big, sizeof(big), &b, NULL),
                     -EMSGSIZE);
    assert_int_equal(cred_encode(m->socket, geteuid(), big, 9, &b, NULL), -EMSGSIZE);
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

static void test_no_munged(void **state)
{
    const struct munged nowhere = {.socket = "/tmp/tidegate-no-such-socket"};
    struct buf b = made_for(*state, geteuid()), to = BUF_INIT(8192);
    struct err err;

    assert_int_equal(cred_encode(nowhere.socket, 0, "x", 1, &to, &err), -EIO);
    assert_non_null(strstr(err.text, nowhere.socket));
    assert_int_equal(decode(&nowhere, &b, nowhere.socket), -EIO);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back_once),
        cmocka_unit_test(test_for_another_reader),
        cmocka_unit_test(test_not_secret_enough),
        cmocka_unit_test(test_of_another_key),
        cmocka_unit_test(test_no_credential),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_munged),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
