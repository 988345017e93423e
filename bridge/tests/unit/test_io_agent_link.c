// SPDX-License-Identifier: GPL-2.0-or-later
/* io/agent_link against a bridge that is played here, frame by frame, over real TCP. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/agent_link.h"

#define PERIOD_MS 100
#define LIMIT_MS  15000

static const char *const greet_hex[] = {"sh", "-c", "od -An -v -tx1 | tr -d ' \\n'",
                                        NULL};
static const char *const greet_fails[] = {"sh", "-c", "echo munged is away >&2; exit 69",
                                          NULL};
static const char *const greet_hangs[] = {"sleep", "100", NULL};

struct fixture {
    sd_event *event;
    struct children *children;
    struct agent_link_config config;
    struct agent_link *link;
    char address[64];
    uint16_t port;
    int server, peer;
    struct buf in; /* from the agent, not looked at yet */
    struct agent_keys keys;
    uint64_t sent, taken;
    int changes, asks;
    struct agent_asked asked;
    uint32_t steps;
};

/* ---- what the link calls ------------------------------------------------------------ */

static void on_heartbeat(struct agent_heartbeat *ret, void *userdata)
{
    const struct fixture *f = userdata;

    *ret = (struct agent_heartbeat){.mono_ms = 7,
                                    .phase = AGENT_UP,
                                    .slurmd = SLURMD_RUNNING,
                                    .slurmd_pid = 12,
                                    .slurmd_restarts = 3,
                                    .steps = f->steps};
}

static struct check_fact check = {
    .name = "scratch", .text = "/scratch is full", .since = 5};

static void on_report(struct agent_report *ret, void *userdata)
{
    (void)userdata;
    *ret = (struct agent_report){.checks = &check, .n_checks = 1};
    ret->line = (struct node_line){.boards = 1,
                                   .sockets = 1,
                                   .cores = 2,
                                   .threads = 1,
                                   .cpus = 2,
                                   .memory_mib = 2000};
}

static void on_asked(const struct agent_asked *asked, void *userdata)
{
    struct fixture *f = userdata;

    f->asks++;
    f->asked = *asked;
}

static void on_change(void *userdata)
{
    ((struct fixture *)userdata)->changes++;
}

/* ---- the bridge --------------------------------------------------------------------- */

static void listen_at(struct fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(f->port)};
    socklen_t len = sizeof(a);
    int one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    f->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(f->server >= 0);
    assert_int_equal(setsockopt(f->server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)),
                     0);
    assert_int_equal(bind(f->server, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(f->server, 16), 0);
    assert_int_equal(getsockname(f->server, (struct sockaddr *)&a, &len), 0);
    f->port = ntohs(a.sin_port);
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    assert_true(sd_event_new(&f->event) >= 0);
    assert_int_equal(children_new(f->event, &f->children, NULL), 0);
    f->peer = -1;
    f->in = BUF_INIT(4 * AGENT_FRAME_MAX);
    listen_at(f);
    (void)snprintf(f->address, sizeof(f->address), "127.0.0.1:%u", f->port);
    f->config = (struct agent_link_config){
        .address = f->address,
        .greet = greet_hex,
        .node = "w1",
        .pod_uid = "pod-1",
        .boot_id = "boot-1",
        .instance = "0123456789abcdef0123456789abcdef",
        .heartbeat = on_heartbeat,
        .report = on_report,
        .asked = on_asked,
        .on_change = on_change,
        .userdata = f,
    };
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    agent_link_free(f->link);
    children_free(f->children);
    sd_event_unref(f->event);
    if (f->peer >= 0)
        (void)close(f->peer);
    if (f->server >= 0)
        (void)close(f->server);
    buf_free(&f->in);
    free(f);
    return 0;
}

static void begin(struct fixture *f)
{
    assert_int_equal(agent_link_new(f->event, f->children, &f->config, &f->link, NULL),
                     0);
}

/* One turn of the agent's loop. */
static void turn(struct fixture *f, int64_t limit)
{
    assert_true(clock_mono_ms() < limit);
    assert_true(sd_event_run(f->event, 10000) >= 0);
}

static void hang_up(struct fixture *f)
{
    if (f->peer >= 0)
        (void)close(f->peer);
    f->peer = -1;
}

/* Waits for the agent's next connection; returns how long that took. */
static int64_t take_call(struct fixture *f)
{
    int64_t began = clock_mono_ms();

    hang_up(f);
    buf_clear(&f->in);
    f->sent = f->taken = 0;
    while ((f->peer = accept4(f->server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
        assert_int_equal(errno, EAGAIN);
        turn(f, began + LIMIT_MS);
    }
    return clock_mono_ms() - began;
}

static void say_bytes(struct fixture *f, const void *data, size_t n)
{
    assert_int_equal(send(f->peer, data, n, MSG_NOSIGNAL), n);
}

static void say(struct fixture *f, struct agent_frame frame)
{
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);

    if (frame.type >= AGENT_ACCEPT && !frame.counter)
        frame.counter = ++f->sent;
    assert_int_equal(agent_frame_write(&frame, f->keys.to_agent, &b, NULL), 0);
    say_bytes(f, b.data, b.len);
    buf_free(&b);
}

/* The agent's next frame; its bytes leave f->in with the next call. */
static struct agent_frame hear(struct fixture *f, bool keyed)
{
    int64_t limit = clock_mono_ms() + LIMIT_MS;
    struct agent_frame frame;
    char part[4096];
    size_t used;

    for (;;) {
        ssize_t n;

        assert_int_equal(agent_frame_read((const uint8_t *)f->in.data, f->in.len,
                                          keyed ? f->keys.to_bridge : NULL, &frame, &used,
                                          NULL),
                         0);
        if (used)
            break;
        turn(f, limit);
        n = recv(f->peer, part, sizeof(part), MSG_DONTWAIT);
        assert_true(n > 0 || (n < 0 && errno == EAGAIN));
        if (n > 0)
            assert_int_equal(buf_add(&f->in, part, (size_t)n), 0);
    }
    if (frame.type == AGENT_GREETING) /* it borrows its text */
        frame.credential.text = mem_strndup(frame.credential.text, frame.credential.size);
    buf_drop(&f->in, used);
    if (keyed)
        assert_int_equal(frame.counter, ++f->taken);
    return frame;
}

/* The agent closes the connection. */
static void hear_end(struct fixture *f)
{
    int64_t limit = clock_mono_ms() + LIMIT_MS;
    char part[4096];
    ssize_t n;

    while ((n = recv(f->peer, part, sizeof(part), MSG_DONTWAIT)) != 0) {
        if (n < 0 && errno == ECONNRESET)
            break;
        turn(f, limit);
    }
    hang_up(f);
}

static void challenge(struct fixture *f)
{
    struct agent_frame c = {.type = AGENT_CHALLENGE};

    memset(c.challenge.nonce, 'n', sizeof(c.challenge.nonce));
    say(f, c);
}

static void unhex(const char *text, size_t n, struct buf *ret)
{
    for (size_t i = 0; i + 1 < n; i += 2) {
        unsigned byte;
        uint8_t b;

        assert_int_equal(sscanf(text + i, "%2x", &byte), 1);
        b = (uint8_t)byte;
        assert_int_equal(buf_add(ret, &b, 1), 0);
    }
}

static void take_greeting(struct fixture *f)
{
    struct agent_frame frame = hear(f, false);
    struct buf payload = BUF_INIT(AGENT_BODY_MAX);
    struct agent_greeting g;
    uint8_t nonce[AGENT_NONCE_SIZE];

    assert_int_equal(frame.type, AGENT_GREETING);
    unhex(frame.credential.text, frame.credential.size, &payload);
    assert_int_equal(agent_greeting_read(payload.data, payload.len, &g, NULL), 0);
    memset(nonce, 'n', sizeof(nonce));
    assert_memory_equal(g.nonce, nonce, sizeof(nonce));
    assert_string_equal(g.node, "w1");
    assert_string_equal(g.pod_uid, "pod-1");
    assert_string_equal(g.boot_id, "boot-1");
    assert_string_equal(g.instance, "0123456789abcdef0123456789abcdef");
    assert_int_equal(agent_keys_derive(g.key, &f->keys, NULL), 0);
    buf_free(&payload);
    free((char *)frame.credential.text);
}

static void accept_agent(struct fixture *f)
{
    say(f, (struct agent_frame){
               .type = AGENT_ACCEPT,
               .accept = {.period_ms = PERIOD_MS, .wall_ms = clock_wall_ms()}});
}

/* Up to and with the first heartbeat; returns its number. */
static uint64_t make_link(struct fixture *f)
{
    struct agent_frame frame;

    take_call(f);
    challenge(f);
    take_greeting(f);
    accept_agent(f);
    frame = hear(f, true);
    assert_int_equal(frame.type, AGENT_REPORT);
    agent_frame_clear(&frame);
    frame = hear(f, true);
    assert_int_equal(frame.type, AGENT_HEARTBEAT);
    assert_true(agent_link_stands(f->link));
    return frame.counter;
}

static void acknowledge(struct fixture *f, uint64_t counter, int64_t wall_ms)
{
    say(f, (struct agent_frame){.type = AGENT_ACK,
                                .ack = {.counter = counter, .wall_ms = wall_ms}});
}

/* ---- tests -------------------------------------------------------------------------- */

static void test_greeting_report_heartbeats(void **state)
{
    struct fixture *f = *state;
    struct agent_frame frame;
    int64_t offset = 0, limit = clock_mono_ms() + LIMIT_MS;

    begin(f);
    take_call(f);
    assert_false(agent_link_stands(f->link));
    challenge(f);
    take_greeting(f);
    accept_agent(f);
    frame = hear(f, true);
    assert_int_equal(frame.type, AGENT_REPORT);
    assert_int_equal(frame.report.line.cpus, 2);
    assert_int_equal(frame.report.n_checks, 1);
    assert_string_equal(frame.report.checks[0].text, "/scratch is full");
    agent_frame_clear(&frame);
    frame = hear(f, true);
    assert_int_equal(frame.type, AGENT_HEARTBEAT);
    assert_int_equal(frame.heartbeat.slurmd_restarts, 3);
    assert_false(agent_link_answered(f->link));
    assert_false(agent_link_clock_offset(f->link, &offset));
    /* a bridge whose clock is an hour behind */
    acknowledge(f, frame.counter, clock_wall_ms() - 3600000);
    while (!agent_link_answered(f->link))
        turn(f, limit);
    assert_true(agent_link_clock_offset(f->link, &offset));
    assert_in_range(-offset, 3600000 - 500, 3600000 + 500);
    for (int i = 0; i < 5; i++) {
        frame = hear(f, true);
        assert_int_equal(frame.type, AGENT_HEARTBEAT);
        acknowledge(f, frame.counter, clock_wall_ms());
    }
    assert_true(f->changes >= 2);
}

static void test_out_of_turn(void **state)
{
    struct fixture *f = *state;
    struct agent_frame frame;

    begin(f);
    agent_link_heartbeat(f->link); /* no link: nothing happens */
    agent_link_report(f->link);
    make_link(f);
    f->steps = 9;
    agent_link_heartbeat(f->link);
    assert_false(agent_link_answered(f->link));
    frame = hear(f, true);
    assert_int_equal(frame.type, AGENT_HEARTBEAT);
    assert_int_equal(frame.heartbeat.steps, 9);
    agent_link_report(f->link);
    frame = hear(f, true);
    assert_int_equal(frame.type, AGENT_REPORT);
    agent_frame_clear(&frame);
}

static void test_bytes_one_by_one(void **state)
{
    struct fixture *f = *state;
    struct agent_frame ask = {.type = AGENT_ASK,
                              .counter = 2,
                              .ask = {.what = AGENT_ASK_RUN_CHECKS, .arg = "scratch"}};
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);
    int64_t limit = clock_mono_ms() + LIMIT_MS;

    begin(f);
    make_link(f);
    assert_int_equal(agent_frame_write(&ask, f->keys.to_agent, &b, NULL), 0);
    for (size_t i = 0; i < b.len; i++) {
        assert_int_equal(f->asks, 0);
        say_bytes(f, b.data + i, 1);
        turn(f, limit);
    }
    while (!f->asks)
        turn(f, limit);
    assert_int_equal(f->asked.what, AGENT_ASK_RUN_CHECKS);
    assert_string_equal(f->asked.arg, "scratch");
    buf_free(&b);
}

/* The standby's Service address may lead to it several times in a row: soon again, later each time. */
static void test_retry_is_soon(void **state)
{
    struct fixture *f = *state;
    int64_t longest = 0;

    begin(f);
    for (int i = 0; i < 7; i++) {
        int64_t took = take_call(f);

        longest = took > longest ? took : longest;
        challenge(f);
        take_greeting(f);
        say(f, (struct agent_frame){
                   .type = AGENT_REFUSE,
                   .refuse = {.code = AGENT_REFUSE_RETRY, .text = "this bridge waits"}});
        hear_end(f);
    }
    assert_in_range(longest, 400, 2500);
    make_link(f);
}

static void test_refused_for_good_tries_on(void **state)
{
    struct fixture *f = *state;

    begin(f);
    for (int i = 0; i < 2; i++) {
        take_call(f);
        challenge(f);
        take_greeting(f);
        say(f, (struct agent_frame){.type = AGENT_REFUSE,
                                    .refuse = {.code = AGENT_REFUSE_IDENTITY,
                                               .text = "node w1 is not at 127.0.0.1"}});
        hear_end(f);
    }
    make_link(f);
}

static void test_replayed_frame_ends_it(void **state)
{
    struct fixture *f = *state;
    struct agent_frame ack = {.type = AGENT_ACK, .counter = 2};

    begin(f);
    ack.ack.counter = make_link(f);
    say(f, ack);
    say(f, ack);
    hear_end(f);
    assert_false(agent_link_stands(f->link));
    make_link(f);
}

static void test_forged_frame_ends_it(void **state)
{
    struct fixture *f = *state;
    struct agent_keys good;

    begin(f);
    make_link(f);
    good = f->keys;
    memset(&f->keys, 'x', sizeof(f->keys));
    say(f, (struct agent_frame){.type = AGENT_ASK, .ask = {.what = AGENT_ASK_STOP}});
    f->keys = good;
    hear_end(f);
    assert_int_equal(f->asks, 0);
    make_link(f);
}

/* The agent's own frame, sent back to it, is none of the bridge's. */
static void test_reflected_frame_ends_it(void **state)
{
    struct fixture *f = *state;
    struct agent_frame beat = {.type = AGENT_HEARTBEAT, .counter = 2};
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);

    begin(f);
    make_link(f);
    assert_int_equal(agent_frame_write(&beat, f->keys.to_bridge, &b, NULL), 0);
    say_bytes(f, b.data, b.len);
    hear_end(f);
    buf_free(&b);
}

static void test_nothing_is_asked_before_the_accept(void **state)
{
    struct fixture *f = *state;

    begin(f);
    take_call(f);
    challenge(f);
    take_greeting(f);
    say(f, (struct agent_frame){.type = AGENT_ASK, .ask = {.what = AGENT_ASK_STOP}});
    hear_end(f);
    assert_int_equal(f->asks, 0);
}

static void test_garbage_ends_it(void **state)
{
    struct fixture *f = *state;
    char garbage[5000];

    memset(garbage, 'x', sizeof(garbage));
    begin(f);
    take_call(f);
    say_bytes(f, garbage, sizeof(garbage));
    hear_end(f);
    make_link(f);
}

/* A bridge that has gone without a word, as behind a cut cable: it is looked for again. */
static void test_silence_ends_it(void **state)
{
    struct fixture *f = *state;
    int64_t began;

    begin(f);
    acknowledge(f, make_link(f), clock_wall_ms());
    began = clock_mono_ms();
    hear_end(f);
    assert_in_range(clock_mono_ms() - began, 3 * PERIOD_MS + 900, 3 * PERIOD_MS + 4000);
    make_link(f);
}

static void test_bridge_moves(void **state)
{
    struct fixture *f = *state;
    int64_t limit = clock_mono_ms() + LIMIT_MS;

    begin(f);
    acknowledge(f, make_link(f), clock_wall_ms());
    (void)close(f->server);
    hang_up(f);
    while (agent_link_stands(f->link))
        turn(f, limit);
    for (int i = 0; i < 50; i++) /* refused connections */
        turn(f, limit);
    listen_at(f);
    make_link(f);
}

/* munged hangs, or is away: the loop goes on, and so do the tries. */
static void test_no_credential(void **state)
{
    struct fixture *f = *state;
    int64_t began;

    f->config.greet = greet_fails;
    begin(f);
    take_call(f);
    challenge(f);
    hear_end(f);
    f->config.greet = greet_hangs;
    take_call(f);
    began = clock_mono_ms();
    challenge(f);
    hear_end(f); /* turns the loop all the time, and fails when a turn takes long */
    assert_in_range(clock_mono_ms() - began, 3900, 8000);
    f->config.greet = greet_hex;
    make_link(f);
}

static void test_freed_while_the_credential_is_made(void **state)
{
    struct fixture *f = *state;

    f->config.greet = greet_hangs;
    begin(f);
    take_call(f);
    challenge(f);
    for (int i = 0; i < 30; i++)
        turn(f, INT64_MAX);
    agent_link_free(f->link);
    f->link = NULL;
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {
        "",          "6821",        ":6821",         "host:6821",  "1.2.3.4",
        "1.2.3.4:",  "1.2.3.4:0",   "1.2.3.4:65536", "1.2.3.4:x",  "::1:6821",
        "[::1:6821", "[::1]x:6821", "1.2.3.4:-1",    "1.2.3.4: 1", "[1.2.3.4]:1"};
    struct fixture *f = *state;
    struct err err;

    for (size_t i = 0; i < TG_LEN(bad); i++) {
        f->config.address = bad[i];
        assert_int_equal(
            agent_link_new(f->event, f->children, &f->config, &f->link, &err), -EINVAL);
        assert_non_null(strstr(err.text, "expected ADDRESS:PORT in numbers"));
        assert_null(f->link);
    }
    f->config.address = "[::1]:6821";
    begin(f);
    agent_link_free(f->link);
    f->link = NULL;
    f->config.node = "";
    assert_int_equal(agent_link_new(f->event, f->children, &f->config, &f->link, &err),
                     -EINVAL);
    assert_string_equal(err.text, "the node's name is \"\", expected 1 to 63 characters");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_greeting_report_heartbeats),
        TEST(test_out_of_turn),
        TEST(test_bytes_one_by_one),
        TEST(test_retry_is_soon),
        TEST(test_refused_for_good_tries_on),
        TEST(test_replayed_frame_ends_it),
        TEST(test_forged_frame_ends_it),
        TEST(test_reflected_frame_ends_it),
        TEST(test_nothing_is_asked_before_the_accept),
        TEST(test_garbage_ends_it),
        TEST(test_silence_ends_it),
        TEST(test_bridge_moves),
        TEST(test_no_credential),
        TEST(test_freed_while_the_credential_is_made),
        TEST(test_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
