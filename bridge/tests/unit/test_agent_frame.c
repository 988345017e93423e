// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codec/agent_frame.h"

static const uint8_t key[AGENT_KEY_SIZE] = "0123456789abcdef0123456789abcde";
static const uint8_t other_key[AGENT_KEY_SIZE] = "0123456789abcdef0123456789abcdX";

#define AT_VERSION 4
#define AT_TYPE    5
#define AT_ZERO    6
#define AT_SIZE    8
#define AT_COUNTER 12

static struct buf written(const struct agent_frame *f)
{
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);

    assert_int_equal(agent_frame_write(f, key, &b, NULL), 0);
    return b;
}

static int read_all(const struct buf *b, const uint8_t *with, struct agent_frame *ret)
{
    struct err err = {""};
    size_t used = 0;
    int r = agent_frame_read((const uint8_t *)b->data, b->len, with, ret, &used, &err);

    if (r == 0)
        assert_int_equal(used, b->len);
    else
        assert_int_not_equal(err.text[0], '\0');
    return r;
}

/* Written, and read as it was. */
static void again(const struct agent_frame *f, const uint8_t *with,
                  struct agent_frame *ret)
{
    struct buf b = written(f);

    assert_int_equal(read_all(&b, with, ret), 0);
    assert_int_equal(ret->type, f->type);
    assert_int_equal(ret->counter, f->counter);
    buf_free(&b);
}

static void test_frames_of_the_bridge(void **state)
{
    struct agent_frame f = {.type = AGENT_CHALLENGE}, g;

    (void)state;
    memset(f.challenge.nonce, 7, AGENT_NONCE_SIZE);
    again(&f, NULL, &g);
    assert_memory_equal(g.challenge.nonce, f.challenge.nonce, AGENT_NONCE_SIZE);
    f = (struct agent_frame){.type = AGENT_REFUSE,
                             .refuse = {AGENT_REFUSE_RETRY, "the other one leads"}};
    again(&f, NULL, &g);
    assert_int_equal(g.refuse.code, AGENT_REFUSE_RETRY);
    assert_string_equal(g.refuse.text, "the other one leads");
    again(&f, key, &g); /* also after the greeting */
    f = (struct agent_frame){
        .type = AGENT_ACCEPT, .counter = 1, .accept = {3000, 1764601200123}};
    again(&f, key, &g);
    assert_int_equal(g.accept.period_ms, 3000);
    assert_int_equal(g.accept.wall_ms, 1764601200123);
    f = (struct agent_frame){.type = AGENT_ACK, .counter = 9, .ack = {8, 1764601200124}};
    again(&f, key, &g);
    assert_int_equal(g.ack.counter, 8);
    assert_int_equal(g.ack.wall_ms, 1764601200124);
    f = (struct agent_frame){
        .type = AGENT_ASK, .counter = 2, .ask = {AGENT_ASK_RUN_CHECKS, "scratch"}};
    again(&f, key, &g);
    assert_int_equal(g.ask.what, AGENT_ASK_RUN_CHECKS);
    assert_string_equal(g.ask.arg, "scratch");
}

static void test_frames_of_the_agent(void **state)
{
    struct agent_frame f = {.type = AGENT_HEARTBEAT, .counter = UINT64_MAX}, g;
    struct buf b;

    (void)state;
    f.heartbeat = (struct agent_heartbeat){.mono_ms = 123456789012,
                                           .phase = AGENT_GIVING_UP,
                                           .slurmd = SLURMD_WAITING,
                                           .slurmd_pid = 77,
                                           .slurmd_restarts = 3,
                                           .steps = 4};
    again(&f, key, &g);
    assert_int_equal(g.heartbeat.mono_ms, 123456789012);
    assert_int_equal(g.heartbeat.phase, AGENT_GIVING_UP);
    assert_int_equal(g.heartbeat.slurmd, SLURMD_WAITING);
    assert_int_equal(g.heartbeat.slurmd_pid, 77);
    assert_int_equal(g.heartbeat.slurmd_restarts, 3);
    assert_int_equal(g.heartbeat.steps, 4);
    f = (struct agent_frame){.type = AGENT_GREETING,
                             .credential = {"MUNGE:AwQ:", strlen("MUNGE:AwQ:")}};
    b = written(&f);
    assert_int_equal(read_all(&b, NULL, &g), 0);
    assert_int_equal(g.credential.size, strlen("MUNGE:AwQ:"));
    assert_memory_equal(g.credential.text, "MUNGE:AwQ:", g.credential.size);
    buf_free(&b);
}

static void test_a_report(void **state)
{
    struct check_fact checks[] = {{"scratch", "/scratch is full", 5},
                                  {"clock", "caf\xc3\xa9\n", 6}};
    struct agent_frame f = {.type = AGENT_REPORT, .counter = 2}, g;

    (void)state;
    f.report = (struct agent_report){
        .line = {1, 2, 32, 2, 128, 512000, (char *)"gpu:h100:8", NULL},
        .checks = checks,
        .n_checks = 2,
    };
    again(&f, key, &g);
    assert_int_equal(g.report.line.boards, 1);
    assert_int_equal(g.report.line.sockets, 2);
    assert_int_equal(g.report.line.cores, 32);
    assert_int_equal(g.report.line.threads, 2);
    assert_int_equal(g.report.line.cpus, 128);
    assert_int_equal(g.report.line.memory_mib, 512000);
    assert_string_equal(g.report.line.gres, "gpu:h100:8");
    assert_null(g.report.line.features);
    assert_int_equal(g.report.n_checks, 2);
    assert_string_equal(g.report.checks[0].name, "scratch");
    assert_string_equal(g.report.checks[0].text, "/scratch is full");
    assert_int_equal(g.report.checks[0].since, 5);
    assert_string_equal(g.report.checks[1].text, "caf???");
    agent_frame_clear(&g);
}

/* The longest there is; a frame of it passes, one more check or a longer line is told of. */
static void test_the_longest_report(void **state)
{
    enum { LONG = 1000 };
    char text[LONG + 1], line[AGENT_LINE_TEXT_MAX + 2] = "";
    struct check_fact checks[AGENT_CHECKS_MAX + 1];
    struct agent_frame f = {.type = AGENT_REPORT, .counter = 2}, g;
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);
    struct err err;

    (void)state;
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    memset(line, 'y', AGENT_LINE_TEXT_MAX);
    for (size_t i = 0; i < TG_LEN(checks); i++)
        checks[i] = (struct check_fact){text, text, INT64_MAX};
    f.report = (struct agent_report){
        .line = {.gres = line, .features = line}, .checks = checks, .n_checks = 64};
    again(&f, key, &g);
    assert_int_equal(g.report.n_checks, 64);
    assert_int_equal(strlen(g.report.checks[63].name), AGENT_CHECK_NAME_MAX);
    assert_int_equal(strlen(g.report.checks[63].text), AGENT_CHECK_TEXT_MAX);
    agent_frame_clear(&g);
    f.report.n_checks = 65;
    assert_int_equal(agent_frame_write(&f, key, &b, &err), -EMSGSIZE);
    assert_non_null(strstr(err.text, "at most 64"));
    f.report.n_checks = 0;
    line[AGENT_LINE_TEXT_MAX] = 'y';
    assert_int_equal(agent_frame_write(&f, key, &b, &err), -EMSGSIZE);
    assert_non_null(strstr(err.text, "256"));
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

/* Every beginning of a frame asks for more; what follows a frame is left for the next read. */
static void test_pieces(void **state)
{
    struct agent_frame f = {.type = AGENT_HEARTBEAT, .counter = 1}, g;
    struct buf b = written(&f);
    size_t whole = b.len, used;

    (void)state;
    buf_free(&b);
    b = BUF_INIT((size_t)2 * AGENT_FRAME_MAX);
    assert_int_equal(agent_frame_write(&f, key, &b, NULL), 0);
    f.counter = 2;
    assert_int_equal(agent_frame_write(&f, key, &b, NULL), 0);
    for (size_t n = 0; n < whole; n++) {
        assert_int_equal(
            agent_frame_read((const uint8_t *)b.data, n, key, &g, &used, NULL), 0);
        assert_int_equal(used, 0);
    }
    assert_int_equal(
        agent_frame_read((const uint8_t *)b.data, b.len, key, &g, &used, NULL), 0);
    assert_int_equal(used, whole);
    assert_int_equal(g.counter, 1);
    buf_free(&b);
}

/* Any bit that is turned over on the way. */
static void test_every_bit_counts(void **state)
{
    struct agent_frame f = {.type = AGENT_HEARTBEAT, .counter = 1}, g;
    struct buf b = written(&f);

    (void)state;
    for (size_t i = 0; i < b.len * 8; i++) {
        size_t used;
        int r;

        b.data[i / 8] = (char)(b.data[i / 8] ^ (1 << (i % 8)));
        r = agent_frame_read((const uint8_t *)b.data, b.len, key, &g, &used, NULL);
        assert_true(r < 0 ||
                    used == 0); /* a greater size waits for more that never comes */
        b.data[i / 8] = (char)(b.data[i / 8] ^ (1 << (i % 8)));
    }
    buf_free(&b);
}

static void test_wrong_keys(void **state)
{
    struct agent_frame f = {.type = AGENT_HEARTBEAT, .counter = 1}, g;
    struct buf b = written(&f);
    struct agent_keys keys, others;

    (void)state;
    assert_int_equal(read_all(&b, other_key, &g), -EBADMSG);
    assert_int_equal(read_all(&b, NULL, &g), -EBADMSG);
    assert_int_equal(agent_frame_write(&f, NULL, &b, NULL), -EINVAL);
    buf_free(&b);
    f = (struct agent_frame){.type = AGENT_CHALLENGE};
    b = written(&f);
    assert_int_equal(read_all(&b, key, &g), -EBADMSG);
    buf_free(&b);
    assert_int_equal(agent_keys_derive(key, &keys, NULL), 0);
    assert_int_equal(agent_keys_derive(other_key, &others, NULL), 0);
    assert_memory_not_equal(keys.to_agent, keys.to_bridge, AGENT_KEY_SIZE);
    assert_memory_not_equal(keys.to_agent, key, AGENT_KEY_SIZE);
    assert_memory_not_equal(keys.to_agent, others.to_agent, AGENT_KEY_SIZE);
}

/* A frame with this byte set to that value. */
static int with_byte(const struct agent_frame *f, size_t at, uint8_t value)
{
    struct buf b = written(f);
    struct agent_frame g;
    size_t used;
    int r;

    b.data[at] = (char)value;
    r = agent_frame_read((const uint8_t *)b.data, b.len, NULL, &g, &used, NULL);
    if (r == 0 && used)
        agent_frame_clear(&g);
    buf_free(&b);
    return r;
}

static void test_headers(void **state)
{
    const struct agent_frame f = {.type = AGENT_REFUSE,
                                  .refuse = {AGENT_REFUSE_BUSY, "x"}};
    uint8_t header[AGENT_HEADER_SIZE] = {'T', 'G',           'N',
                                         'F', AGENT_VERSION, AGENT_GREETING};
    struct agent_frame g;
    size_t used;

    (void)state;
    assert_int_equal(with_byte(&f, 0, 'T'), 0);
    assert_int_equal(with_byte(&f, 3, 'X'), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_VERSION, AGENT_VERSION + 1), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_TYPE, 0), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_TYPE, AGENT_ASK + 1), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_ZERO, 1), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_ZERO + 1, 1), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_COUNTER, 1), -EBADMSG);
    assert_int_equal(with_byte(&f, AT_SIZE, 1), -EMSGSIZE); /* 16 MiB and 4 */
    header[AT_SIZE + 2] = AGENT_CREDENTIAL_MAX >> 8;
    assert_int_equal(agent_frame_read(header, sizeof(header), NULL, &g, &used, NULL), 0);
    assert_int_equal(used, 0);
    header[AT_SIZE + 3] = 1;
    assert_int_equal(agent_frame_read(header, sizeof(header), NULL, &g, &used, NULL),
                     -EMSGSIZE);
}

static void test_bodies(void **state)
{
    const struct agent_frame refuse = {.type = AGENT_REFUSE,
                                       .refuse = {AGENT_REFUSE_BUSY, "why"}};
    const struct agent_frame greeting = {.type = AGENT_GREETING,
                                         .credential = {"abc", 3}};
    const struct agent_frame nothing = {.type = AGENT_GREETING};
    size_t body = AGENT_HEADER_SIZE;
    struct agent_frame g;
    struct buf b;

    (void)state;
    assert_int_equal(with_byte(&refuse, body, 0), -EBADMSG);
    assert_int_equal(with_byte(&refuse, body, AGENT_REFUSE_IDENTITY + 1), -EBADMSG);
    assert_int_equal(with_byte(&refuse, body + 2, 2), -EBADMSG); /* a byte is left */
    assert_int_equal(with_byte(&refuse, body + 2, 4), -EBADMSG); /* a byte is missing */
    assert_int_equal(with_byte(&refuse, body + 1, 1), -EBADMSG); /* 256 bytes and more */
    assert_int_equal(with_byte(&refuse, body + 3, '\n'), -EBADMSG);
    assert_int_equal(with_byte(&refuse, body + 3, 0), -EBADMSG);
    assert_int_equal(with_byte(&refuse, body + 3, 0xe4), -EBADMSG);
    assert_int_equal(with_byte(&greeting, body + 1, 0), -EBADMSG);
    b = written(&nothing);
    assert_int_equal(read_all(&b, NULL, &g), -EBADMSG);
    buf_free(&b);
}

/* Values that are no such thing, under a good MAC: a peer that has the key is not trusted either. */
static void test_values(void **state)
{
    const struct agent_frame bad[] = {
        {.type = AGENT_ACCEPT, .accept = {.period_ms = 0}},
        {.type = AGENT_ACCEPT, .accept = {.period_ms = AGENT_PERIOD_MAX_MS + 1}},
        {.type = AGENT_ACCEPT, .accept = {.period_ms = 3000, .wall_ms = -1}},
        {.type = AGENT_HEARTBEAT, .heartbeat = {.phase = AGENT_GIVING_UP + 1}},
        {.type = AGENT_HEARTBEAT, .heartbeat = {.slurmd = SLURMD_WAITING + 1}},
        {.type = AGENT_ACK, .ack = {.wall_ms = INT64_MIN}},
        {.type = AGENT_ASK, .ask = {.what = 0}},
        {.type = AGENT_ASK, .ask = {.what = AGENT_ASK_STOP + 1}},
        {.type = AGENT_REPORT,
         .report = {.checks = &(struct check_fact){NULL, (char *)"x", 1}, .n_checks = 1}},
        {.type = AGENT_REPORT,
         .report = {.checks = &(struct check_fact){(char *)"x", NULL, 1}, .n_checks = 1}},
        {.type = AGENT_REPORT,
         .report = {.checks = &(struct check_fact){(char *)"x", (char *)"x", -1},
                    .n_checks = 1}},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(bad); i++) {
        struct buf b = written(&bad[i]);
        struct agent_frame g;

        assert_int_equal(read_all(&b, key, &g), -EBADMSG);
        buf_free(&b);
    }
}

static struct agent_greeting a_greeting(void)
{
    struct agent_greeting g = {.node = "w1",
                               .pod_uid = "0b5f2f0c-1",
                               .boot_id = "b1",
                               .instance = "00112233445566778899aabbccddeeff"};

    memset(g.nonce, 1, sizeof(g.nonce));
    memset(g.key, 2, sizeof(g.key));
    return g;
}

static void test_a_greeting(void **state)
{
    struct agent_greeting g = a_greeting(), h;
    struct buf b = BUF_INIT(4096);

    (void)state;
    assert_int_equal(agent_greeting_write(&g, &b, NULL), 0);
    assert_int_equal(agent_greeting_read(b.data, b.len, &h, NULL), 0);
    assert_memory_equal(h.nonce, g.nonce, sizeof(g.nonce));
    assert_memory_equal(h.key, g.key, sizeof(g.key));
    assert_string_equal(h.node, g.node);
    assert_string_equal(h.pod_uid, g.pod_uid);
    assert_string_equal(h.boot_id, g.boot_id);
    assert_string_equal(h.instance, g.instance);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(agent_greeting_read(b.data, n, &h, NULL), -EBADMSG);
    assert_int_equal(buf_add(&b, "x", 1), 0);
    assert_int_equal(agent_greeting_read(b.data, b.len, &h, NULL), -EBADMSG);
    buf_free(&b);
    b = BUF_INIT(100);
    assert_int_equal(agent_greeting_write(&g, &b, NULL), -EMSGSIZE);
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

static void test_greetings_that_are_none(void **state)
{
    struct agent_greeting g = a_greeting(), h;
    struct buf b = BUF_INIT(4096);
    struct err err;

    (void)state;
    g.node[0] = '\0';
    assert_int_equal(agent_greeting_write(&g, &b, NULL), 0);
    assert_int_equal(agent_greeting_read(b.data, b.len, &h, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "node"));
    buf_clear(&b);
    g = a_greeting();
    assert_int_equal(agent_greeting_write(&g, &b, NULL), 0);
    b.data[b.len - 1] = '\x1b';
    assert_int_equal(agent_greeting_read(b.data, b.len, &h, NULL), -EBADMSG);
    b.data[4] = AGENT_VERSION + 1;
    assert_int_equal(agent_greeting_read(b.data, b.len, &h, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "same release"));
    assert_int_equal(agent_greeting_read("hello", 5, &h, &err), -EBADMSG);
    assert_int_equal(agent_greeting_read(NULL, 0, &h, &err), -EBADMSG);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_of_the_bridge),
        cmocka_unit_test(test_frames_of_the_agent),
        cmocka_unit_test(test_a_report),
        cmocka_unit_test(test_the_longest_report),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_wrong_keys),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_a_greeting),
        cmocka_unit_test(test_greetings_that_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
