// SPDX-License-Identifier: GPL-2.0-or-later
/* The bridge's side of the agents' links, with a real munged and agents made of raw frames. What
 * attackers try is in tests/component/agents.bats as well, against a program of its own. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/agents_priv.h" /* for what would take twelve hours */
#include "tests/unit/munged.h"

#define PERIOD_MS 400 /* a link is lost after three: also on a machine that is busy */

static struct munged munged;

struct fixture {
    sd_event *event;
    struct agents *agents;
    unsigned changes;
    struct kube_pod pods[3]; /* at 127.0.0.2, .3, .4 */
};

/* An agent, or who poses as one. */
struct peer {
    struct fixture *f;
    int fd;
    uint8_t nonce[AGENT_NONCE_SIZE];
    uint8_t key[AGENT_KEY_SIZE];
    struct agent_keys keys;
    bool keyed;
    uint64_t sent;
    bool quiet; /* a heartbeat that says the same as the last one is not answered */
    struct agent_heartbeat last;
    struct buf in;
    struct buf credential; /* that it sent */
};

static const struct kube_pod *pod_of(const char *addr, void *userdata)
{
    struct fixture *f = userdata;

    for (size_t i = 0; i < TG_LEN(f->pods); i++) {
        if (f->pods[i].ip && strcmp(f->pods[i].ip, addr) == 0)
            return &f->pods[i];
    }
    return NULL;
}

static void on_change(void *userdata)
{
    ((struct fixture *)userdata)->changes++;
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    struct agents_config config = {.listen = "127.0.0.1:0",
                                   .period_ms = PERIOD_MS,
                                   .max_links = 2,
                                   .munge_socket = munged.socket,
                                   .pod_of = pod_of,
                                   .on_change = on_change,
                                   .userdata = f};

    assert_true(sd_event_new(&f->event) >= 0);
    for (size_t i = 0; i < TG_LEN(f->pods); i++) {
        f->pods[i] = (struct kube_pod){.name = mem_printf("pod-%zu", i + 1),
                                       .uid = mem_printf("uid-%zu", i + 1),
                                       .node = mem_printf("w%zu", i + 1),
                                       .ip = mem_printf("127.0.0.%zu", i + 2)};
    }
    assert_int_equal(agents_new(f->event, &config, &f->agents, NULL), 0);
    agents_set_leader(f->agents, true);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    agents_free(f->agents);
    sd_event_unref(f->event);
    for (size_t i = 0; i < TG_LEN(f->pods); i++)
        kube_pod_clear(&f->pods[i]);
    free(f);
    return 0;
}

static void turn(struct fixture *f)
{
    assert_true(sd_event_run(f->event, 2000) >= 0);
}

static void run_for(struct fixture *f, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end)
        turn(f);
}

/* ---- the peer ---------------------------------------------------------------------- */

static struct peer come_from(struct fixture *f, const char *addr)
{
    struct peer p = {.f = f,
                     .in = BUF_INIT(4 * AGENT_FRAME_MAX),
                     .credential = BUF_INIT(AGENT_CREDENTIAL_MAX)};
    struct sockaddr_in a = {.sin_family = AF_INET};

    p.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(p.fd >= 0);
    assert_int_equal(inet_pton(AF_INET, addr, &a.sin_addr), 1);
    assert_int_equal(bind(p.fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &a.sin_addr), 1);
    a.sin_port = htons((uint16_t)agents_port(f->agents));
    assert_int_equal(connect(p.fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(fcntl(p.fd, F_SETFL, O_NONBLOCK), 0);
    return p;
}

static void leave(struct peer *p)
{
    (void)close(p->fd);
    buf_free(&p->in);
    buf_free(&p->credential);
}

/* The type of the next frame, 0 when the bridge has closed the connection. */
static int hear(struct peer *p, struct agent_frame *ret)
{
    int64_t end = clock_mono_ms() + 8000;

    for (;;) {
        uint8_t piece[4096];
        size_t used;
        ssize_t n;

        assert_int_equal(agent_frame_read((uint8_t *)p->in.data, p->in.len,
                                          p->keyed ? p->keys.to_agent : NULL, ret, &used,
                                          NULL),
                         0);
        if (used) {
            buf_drop(&p->in, used);
            return (int)ret->type;
        }
        n = recv(p->fd, piece, sizeof(piece), 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return 0;
        if (n > 0)
            assert_int_equal(buf_add(&p->in, piece, (size_t)n), 0);
        assert_true(clock_mono_ms() < end);
        turn(p->f);
    }
}

static void send_bytes(struct peer *p, const void *data, size_t n)
{
    assert_int_equal(send(p->fd, data, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void send_frame(struct peer *p, const struct agent_frame *f, const uint8_t *key)
{
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);

    assert_int_equal(agent_frame_write(f, key, &b, NULL), 0);
    send_bytes(p, b.data, b.len);
    buf_free(&b);
}

static void challenged(struct peer *p)
{
    struct agent_frame f;

    assert_int_equal(hear(p, &f), AGENT_CHALLENGE);
    memcpy(p->nonce, f.challenge.nonce, sizeof(p->nonce));
}

static void make_credential(struct peer *p, const char *node, const char *pod_uid,
                            const char *instance, const char *munge_socket)
{
    struct agent_greeting g = {0};
    struct buf payload = BUF_INIT(CRED_PAYLOAD_MAX);

    memcpy(g.nonce, p->nonce, sizeof(g.nonce));
    assert_int_equal(getentropy(p->key, sizeof(p->key)), 0);
    memcpy(g.key, p->key, sizeof(g.key));
    (void)snprintf(g.node, sizeof(g.node), "%s", node);
    (void)snprintf(g.pod_uid, sizeof(g.pod_uid), "%s", pod_uid);
    (void)snprintf(g.boot_id, sizeof(g.boot_id), "boot");
    (void)snprintf(g.instance, sizeof(g.instance), "%s", instance);
    assert_int_equal(agent_greeting_write(&g, &payload, NULL), 0);
    buf_clear(&p->credential);
    assert_int_equal(cred_encode(munge_socket, geteuid(), payload.data, payload.len,
                                 &p->credential, NULL),
                     0);
    buf_free(&payload);
}

static void send_greeting(struct peer *p, const struct buf *credential)
{
    struct agent_frame f = {.type = AGENT_GREETING,
                            .credential = {credential->data, credential->len}};

    send_frame(p, &f, NULL);
}

static void greet(struct peer *p, const char *node, const char *pod_uid)
{
    challenged(p);
    make_credential(p, node, pod_uid, "i1", munged.socket);
    send_greeting(p, &p->credential);
}

static void accepted(struct peer *p)
{
    struct agent_frame f;

    assert_int_equal(agent_keys_derive(p->key, &p->keys, NULL), 0);
    p->keyed = true;
    assert_int_equal(hear(p, &f), AGENT_ACCEPT);
    assert_int_equal(f.counter, 1);
    assert_int_equal(f.accept.period_ms, PERIOD_MS);
    assert_in_range(f.accept.wall_ms, clock_wall_ms() - 10000, clock_wall_ms() + 1000);
}

static void refused(struct peer *p, enum agent_refusal code, const char *text)
{
    struct agent_frame f;

    assert_int_equal(hear(p, &f), AGENT_REFUSE);
    assert_int_equal(f.refuse.code, code);
    if (!strstr(f.refuse.text, text))
        fail_msg("\"%s\" does not say \"%s\"", f.refuse.text, text);
    assert_int_equal(hear(p, &f), 0);
    leave(p);
}

/* Until it is answered: the second, when it tells nothing new. */
static void beat_with(struct peer *p, struct agent_heartbeat h)
{
    struct agent_frame f = {
        .type = AGENT_HEARTBEAT, .counter = ++p->sent, .heartbeat = h};

    if (p->quiet && h.phase == p->last.phase && h.slurmd == p->last.slurmd &&
        !h.steps == !p->last.steps) {
        send_frame(p, &f, p->keys.to_bridge);
        f.counter = ++p->sent;
    }
    send_frame(p, &f, p->keys.to_bridge);
    assert_int_equal(hear(p, &f), AGENT_ACK);
    assert_int_equal(f.ack.counter, p->sent);
    p->quiet = true;
    p->last = h;
}

static void beat(struct peer *p)
{
    beat_with(p, (struct agent_heartbeat){.phase = AGENT_UP, .slurmd = SLURMD_RUNNING});
}

static struct peer linked_from(struct fixture *f, const char *addr, const char *node,
                               const char *pod_uid)
{
    struct peer p = come_from(f, addr);

    greet(&p, node, pod_uid);
    accepted(&p);
    beat(&p);
    return p;
}

static struct peer linked(struct fixture *f)
{
    return linked_from(f, "127.0.0.2", "w1", "uid-1");
}

/* After something that it may not send the bridge closes, without a word. */
static void thrown_out(struct peer *p)
{
    struct agent_frame f;

    assert_int_equal(hear(p, &f), 0);
    leave(p);
}

static enum tri is_linked(const struct fixture *f, const char *node)
{
    const struct agent_fact *fact = agents_get(f->agents, node);

    return fact ? fact->linked : TRI_UNKNOWN;
}

/* ---- links ------------------------------------------------------------------------- */

static void test_an_agent_is_known(void **state)
{
    struct check_fact check = {(char *)"scratch", (char *)"/scratch is full", 5};
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");
    struct agent_frame report = {.type = AGENT_REPORT};
    const struct agent_fact *fact;
    int64_t before = clock_wall_ms();

    assert_null(agents_get(f->agents, "w1"));
    greet(&p, "w1", "uid-1");
    accepted(&p);
    assert_null(agents_get(f->agents, "w1")); /* it has said nothing yet */
    report.counter = ++p.sent;
    report.report =
        (struct agent_report){.line = {1, 1, 4, 2, 8, 16000, NULL, (char *)"rdma"},
                              .checks = &check,
                              .n_checks = 1};
    send_frame(&p, &report, p.keys.to_bridge);
    beat_with(&p, (struct agent_heartbeat){.phase = AGENT_UP,
                                           .slurmd = SLURMD_RUNNING,
                                           .slurmd_restarts = 2,
                                           .steps = 3});
    fact = agents_get(f->agents, "w1");
    assert_int_equal(fact->linked, TRI_YES);
    assert_in_range(fact->since, before, clock_wall_ms());
    assert_string_equal(fact->pod_uid, "uid-1");
    assert_string_equal(fact->boot_id, "boot");
    assert_string_equal(fact->instance, "i1");
    assert_int_equal(fact->phase, AGENT_UP);
    assert_int_equal(fact->slurmd, SLURMD_RUNNING);
    assert_int_equal(fact->slurmd_restarts, 2);
    assert_int_equal(fact->steps, 3);
    assert_true(fact->reported);
    assert_int_equal(fact->line.cpus, 8);
    assert_string_equal(fact->line.features, "rdma");
    assert_int_equal(fact->n_checks, 1);
    assert_string_equal(fact->checks[0].text, "/scratch is full");
    assert_int_equal(f->changes, 1);
    assert_int_equal(agents_counts(f->agents).links, 1);
    assert_int_equal(agents_counts(f->agents).accepted, 1);
    assert_int_equal(agents_counts(f->agents).frames, 2);
    leave(&p);
}

static void test_only_what_matters_is_told(void **state)
{
    struct agent_heartbeat h = {.phase = AGENT_UP, .slurmd = SLURMD_RUNNING, .steps = 1};
    struct fixture *f = *state;
    struct peer p = linked(f);
    struct agent_frame report = {.type = AGENT_REPORT};
    unsigned before;

    beat_with(&p, h);
    before = f->changes;
    h.steps = 7;
    h.mono_ms = 99;
    h.slurmd_pid = 12;
    beat_with(&p, h);
    assert_int_equal(f->changes, before);
    assert_int_equal(agents_get(f->agents, "w1")->steps, 7);
    h.steps = 0;
    beat_with(&p, h);
    assert_int_equal(f->changes, ++before);
    h.phase = AGENT_STOPPING;
    beat_with(&p, h);
    assert_int_equal(f->changes, ++before);
    h.slurmd = SLURMD_WAITING;
    beat_with(&p, h);
    assert_int_equal(f->changes, ++before);
    for (int i = 0; i < 3; i++) {
        report.counter = ++p.sent;
        report.report.line.cpus = i < 2 ? 4 : 5; /* the second says nothing new */
        send_frame(&p, &report, p.keys.to_bridge);
        beat_with(&p, h);
        before += i != 1;
        assert_int_equal(f->changes, before);
    }
    leave(&p);
}

static void test_a_link_that_is_closed(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    unsigned before = f->changes;

    leave(&p);
    while (is_linked(f, "w1") == TRI_YES)
        turn(f);
    assert_int_equal(is_linked(f, "w1"), TRI_NO);
    assert_int_equal(agents_get(f->agents, "w1")->slurmd, SLURMD_RUNNING); /* is kept */
    assert_string_equal(agents_get(f->agents, "w1")->pod_uid, "uid-1");
    run_for(f, 20);
    assert_int_equal(f->changes, before + 1);
    assert_int_equal(agents_counts(f->agents).lost, 1);
    assert_int_equal(agents_counts(f->agents).links, 0);
}

static void test_three_missing_heartbeats(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    int64_t begin = clock_mono_ms();

    while (is_linked(f, "w1") == TRI_YES)
        turn(f);
    assert_in_range(clock_mono_ms() - begin, 3 * PERIOD_MS - 5, 3 * PERIOD_MS + 2000);
    thrown_out(&p);
    p = linked(f);
    assert_int_equal(is_linked(f, "w1"), TRI_YES);
    for (int i = 0; i < 4; i++) {
        run_for(f, PERIOD_MS);
        beat(&p);
    }
    assert_int_equal(agents_counts(f->agents).lost, 1);
    leave(&p);
}

/* A link that never says anything is none: the older facts stand, as lost. */
static void test_accepted_and_silent(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");

    greet(&p, "w1", "uid-1");
    accepted(&p);
    thrown_out(&p);
    assert_null(agents_get(f->agents, "w1"));
    assert_int_equal(f->changes, 0);
}

static void test_a_restarted_agent_replaces_the_old_link(void **state)
{
    struct fixture *f = *state;
    struct peer old = linked(f), new = come_from(f, "127.0.0.2");

    challenged(&new);
    make_credential(&new, "w1", "uid-1", "i2", munged.socket);
    send_greeting(&new, &new.credential);
    accepted(&new);
    thrown_out(&old);
    assert_int_equal(is_linked(f, "w1"), TRI_YES);
    assert_string_equal(agents_get(f->agents, "w1")->instance, "i1");
    beat(&new);
    assert_string_equal(agents_get(f->agents, "w1")->instance, "i2");
    assert_int_equal(agents_counts(f->agents).links, 1);
    assert_int_equal(agents_counts(f->agents).lost, 0);
    leave(&new);
}

/* Line and checks of before stand until the new link has reported. */
static void test_reported_is_of_this_link(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    struct agent_frame report = {.type = AGENT_REPORT, .counter = ++p.sent};

    report.report.line.cpus = 4;
    send_frame(&p, &report, p.keys.to_bridge);
    beat(&p);
    assert_true(agents_get(f->agents, "w1")->reported);
    leave(&p);
    p = linked(f);
    assert_false(agents_get(f->agents, "w1")->reported);
    assert_int_equal(agents_get(f->agents, "w1")->line.cpus, 4);
    report.counter = ++p.sent;
    send_frame(&p, &report, p.keys.to_bridge);
    beat(&p);
    assert_true(agents_get(f->agents, "w1")->reported);
    leave(&p);
}

/* Two pods of one node: the one that is going away does not push the other out. */
static void test_two_pods_of_a_node(void **state)
{
    struct fixture *f = *state;
    struct peer old, new;

    mem_set(&f->pods[1].node, "w1");
    old = linked(f);
    new = linked_from(f, "127.0.0.3", "w1", "uid-2");
    thrown_out(&old);
    f->pods[0].terminating = true;
    old = come_from(f, "127.0.0.2");
    greet(&old, "w1", "uid-1");
    refused(&old, AGENT_REFUSE_BUSY, "is going away");
    beat(&new);
    assert_string_equal(agents_get(f->agents, "w1")->pod_uid, "uid-2");
    leave(&new);
    while (is_linked(f, "w1") == TRI_YES)
        turn(f);
    old = linked(f); /* nobody else is there: it has a word to say until its end */
    leave(&old);
}

static void too_old(struct peer *p)
{
    struct agent_frame h = {
        .type = AGENT_HEARTBEAT, .counter = ++p->sent, .heartbeat = p->last};

    TAILQ_FIRST(&p->f->agents->conns[STEP_LINKED])->link->ends_at = clock_mono_ms() - 1;
    send_frame(p, &h, p->keys.to_bridge);
    refused(p, AGENT_REFUSE_RETRY, "begin a new one");
}

/* Ended by the bridge, without a word of loss when it comes back in time. */
static void test_a_session_that_is_too_old(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    unsigned before = f->changes;

    too_old(&p);
    assert_int_equal(is_linked(f, "w1"), TRI_YES);
    assert_int_equal(f->changes, before);
    p = linked(f);
    for (int i = 0; i < 4; i++) {
        run_for(f, PERIOD_MS);
        beat(&p);
        assert_int_equal(is_linked(f, "w1"), TRI_YES);
    }
    before = f->changes;
    too_old(&p);
    run_for(f, 4 * PERIOD_MS); /* it does not come back */
    assert_int_equal(is_linked(f, "w1"), TRI_NO);
    assert_int_equal(f->changes, before + 1);
    assert_int_equal(agents_counts(f->agents).lost, 0);
}

static void test_no_descriptor_is_left(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f), q = come_from(f, "127.0.0.3");
    struct rlimit old, none;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    run_for(f, PERIOD_MS);
    beat(&p);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    challenged(&q);
    beat(&p);
    leave(&p);
    leave(&q);
}

static void test_asking(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    struct agent_frame g;
    struct err err;

    assert_int_equal(agents_ask(f->agents, "w1", AGENT_ASK_RUN_CHECKS, "scratch", NULL),
                     0);
    assert_int_equal(hear(&p, &g), AGENT_ASK);
    assert_int_equal(g.counter, 3); /* ACCEPT, ACK */
    assert_int_equal(g.ask.what, AGENT_ASK_RUN_CHECKS);
    assert_string_equal(g.ask.arg, "scratch");
    assert_int_equal(agents_ask(f->agents, "w2", AGENT_ASK_STOP, NULL, &err), -ENOTCONN);
    assert_non_null(strstr(err.text, "w2"));
    leave(&p);
    while (is_linked(f, "w1") == TRI_YES)
        turn(f);
    assert_int_equal(agents_ask(f->agents, "w1", AGENT_ASK_STOP, NULL, NULL), -ENOTCONN);
}

static bool keep_w2(const char *node, void *userdata)
{
    (void)userdata;
    return strcmp(node, "w2") == 0;
}

static void test_trim(void **state)
{
    struct fixture *f = *state;
    struct peer one = linked(f), two = linked_from(f, "127.0.0.3", "w2", "uid-2");

    agents_trim(f->agents, keep_w2, NULL);
    assert_null(agents_get(f->agents, "w1"));
    assert_int_equal(is_linked(f, "w2"), TRI_YES);
    thrown_out(&one);
    beat(&two);
    leave(&two);
}

static void test_who_leads(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f), waiting = come_from(f, "127.0.0.3");
    unsigned before = f->changes;

    challenged(&waiting);
    agents_set_leader(f->agents, false);
    assert_null(agents_get(f->agents, "w1"));
    refused(&p, AGENT_REFUSE_RETRY, "does not lead");
    refused(&waiting, AGENT_REFUSE_RETRY, "does not lead");
    p = come_from(f, "127.0.0.2");
    refused(&p, AGENT_REFUSE_RETRY, "does not lead");
    assert_int_equal(f->changes, before);
    agents_set_leader(f->agents, true);
    p = linked(f);
    leave(&p);
}

/* ---- attacks ------------------------------------------------------------------------ */

static void test_an_address_that_is_no_pods(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.9");

    thrown_out(&p);
    assert_int_equal(agents_counts(f->agents).closed_at_once, 1);
    assert_int_equal(agents_counts(f->agents).refused, 0);
}

static void test_replayed_greeting(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f), q = come_from(f, "127.0.0.2");

    challenged(&q);
    send_greeting(&q, &p.credential);
    refused(&q, AGENT_REFUSE_IDENTITY, "used before");
    /* one that munge has not seen yet, made for another challenge */
    q = come_from(f, "127.0.0.2");
    challenged(&q);
    q.nonce[0] ^= 1;
    make_credential(&q, "w1", "uid-1", "i1", munged.socket);
    send_greeting(&q, &q.credential);
    refused(&q, AGENT_REFUSE_IDENTITY, "challenge of another connection");
    beat(&p);
    leave(&p);
}

static void test_posing_as_another(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");

    greet(&p, "w2", "uid-2");
    refused(&p, AGENT_REFUSE_IDENTITY, "it says to be on node w2");
    p = come_from(f, "127.0.0.2");
    greet(&p, "w1", "uid-2");
    refused(&p, AGENT_REFUSE_IDENTITY, "it says to be pod uid-2");
    p = come_from(f, "127.0.0.3");
    greet(&p, "w1", "uid-1");
    refused(&p, AGENT_REFUSE_IDENTITY, "it says to be on node w1");
    p = come_from(f, "127.0.0.2");
    challenged(&p);
    mem_set(&f->pods[0].ip, "127.0.0.77"); /* it has gone meanwhile */
    make_credential(&p, "w1", "uid-1", "i1", munged.socket);
    send_greeting(&p, &p.credential);
    refused(&p, AGENT_REFUSE_IDENTITY, "no compute pod any more");
    assert_null(agents_get(f->agents, "w1"));
}

/* A user's process beside the agent has the address and munge, but not its uid. */
static void test_wrong_uid(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");
    uid_t reader = geteuid();
    struct agent_greeting g = {
        .node = "w1", .pod_uid = "uid-1", .boot_id = "b", .instance = "i"};
    int pipe_fds[2];
    char text[AGENT_CREDENTIAL_MAX];
    ssize_t n;

    assert_int_equal(reader, 0); /* run it in the toolbox, as root */
    challenged(&p);
    memcpy(g.nonce, p.nonce, sizeof(g.nonce));
    assert_int_equal(pipe(pipe_fds), 0);
    if (fork() == 0) {
        struct buf payload = BUF_INIT(CRED_PAYLOAD_MAX),
                   b = BUF_INIT(AGENT_CREDENTIAL_MAX);

        if (setuid(1000) == 0 && agent_greeting_write(&g, &payload, NULL) == 0 &&
            cred_encode(munged.socket, reader, payload.data, payload.len, &b, NULL) ==
                0 &&
            write(pipe_fds[1], b.data, b.len) == (ssize_t)b.len)
            _exit(0);
        _exit(1);
    }
    assert_true(wait(NULL) > 0);
    n = read(pipe_fds[0], text, sizeof(text));
    assert_true(n > 0);
    assert_int_equal(buf_add(&p.credential, text, (size_t)n), 0);
    send_greeting(&p, &p.credential);
    refused(&p, AGENT_REFUSE_IDENTITY, "made by uid 1000");
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

static void test_stale_key(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");
    struct munged old;

    munged_start(&old);
    challenged(&p);
    make_credential(&p, "w1", "uid-1", "i1", old.socket);
    munged_stop(&old);
    send_greeting(&p, &p.credential);
    refused(&p, AGENT_REFUSE_IDENTITY, "not made with the munge key");
}

static struct agent_frame a_heartbeat(uint64_t counter)
{
    return (struct agent_frame){.type = AGENT_HEARTBEAT, .counter = counter};
}

static void test_replayed_frame(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    struct agent_frame h = a_heartbeat(1);

    send_frame(&p, &h, p.keys.to_bridge); /* number 1 came already */
    thrown_out(&p);
    assert_int_equal(is_linked(f, "w1"), TRI_NO);
    assert_int_equal(agents_counts(f->agents).bad_frames, 1);
    p = linked(f);
    h.counter = 3; /* 2 is missing */
    send_frame(&p, &h, p.keys.to_bridge);
    thrown_out(&p);
}

static void test_frames_without_the_key(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f), q;
    uint8_t wrong[AGENT_KEY_SIZE] = {1};
    struct agent_frame h = a_heartbeat(2), g = {.type = AGENT_GREETING};

    send_frame(&p, &h, wrong);
    thrown_out(&p);
    p = linked(f);
    g.credential.text = p.credential.data;
    g.credential.size = p.credential.len;
    send_frame(&p, &g, NULL); /* has no MAC */
    thrown_out(&p);
    /* one of the bridge's own, sent back to it */
    p = linked(f);
    h = (struct agent_frame){.type = AGENT_ACK, .counter = 2};
    send_frame(&p, &h, p.keys.to_agent);
    thrown_out(&p);
    p = linked(f);
    send_frame(&p, &h, p.keys.to_bridge); /* right key, but not an agent's to send */
    thrown_out(&p);
    /* before the greeting */
    q = come_from(f, "127.0.0.2");
    challenged(&q);
    h = a_heartbeat(1);
    send_frame(&q, &h, wrong);
    refused(&q, AGENT_REFUSE_IDENTITY, "before the greeting");
    assert_int_equal(agents_counts(f->agents).bad_frames, 5);
}

static void test_oversized(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");
    uint8_t header[AGENT_HEADER_SIZE] = {
        'T', 'G', 'N', 'F', AGENT_VERSION, AGENT_GREETING, 0, 0, 0x7f, 0xff};

    challenged(&p);
    send_bytes(&p, header,
               sizeof(header)); /* nothing of the body: the header is enough */
    refused(&p, AGENT_REFUSE_IDENTITY, "are allowed");
    p = linked(f);
    header[5] = AGENT_REPORT;
    send_bytes(&p, header, sizeof(header));
    thrown_out(&p);
    p = come_from(f, "127.0.0.2");
    challenged(&p);
    send_bytes(&p, "GET / HTTP/1.1\r\nHost: bridge\r\n\r\n", 33);
    refused(&p, AGENT_REFUSE_IDENTITY, "does not speak the protocol");
}

static void test_more_than_the_greeting(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");
    struct agent_frame g = {.type = AGENT_GREETING, .credential = {"MUNGE:x:", 8}};
    struct buf b = BUF_INIT(AGENT_FRAME_MAX);

    challenged(&p);
    assert_int_equal(agent_frame_write(&g, NULL, &b, NULL), 0);
    assert_int_equal(agent_frame_write(&g, NULL, &b, NULL), 0);
    send_bytes(&p, b.data, b.len);
    refused(&p, AGENT_REFUSE_IDENTITY, "before its greeting is answered");
    buf_free(&b);
}

static void test_too_many_of_one_address(void **state)
{
    struct fixture *f = *state;
    struct peer p[AGENTS_WAITING_PER_ADDRESS], last;
    struct agents_counts counts;

    for (size_t i = 0; i < TG_LEN(p); i++) {
        p[i] = come_from(f, "127.0.0.2");
        challenged(&p[i]);
    }
    last = linked(f); /* one of them made room */
    counts = agents_counts(f->agents);
    assert_int_equal(counts.refused, 1);
    assert_int_equal(counts.accepted, 1);
    for (size_t i = 0; i < TG_LEN(p); i++)
        leave(&p[i]);
    leave(&last);
}

static void test_too_many_links(void **state)
{
    struct fixture *f = *state;
    struct peer one = linked(f), two = linked_from(f, "127.0.0.3", "w2", "uid-2"), three;

    three = come_from(f, "127.0.0.4");
    greet(&three, "w3", "uid-3");
    refused(&three, AGENT_REFUSE_BUSY, "as many agents are linked");
    three = linked(f); /* in the place of one */
    leave(&one);
    leave(&two);
    leave(&three);
}

static void test_too_many_frames(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f);
    struct agent_frame g;

    for (uint64_t i = 2; i < 300; i++) {
        struct agent_frame h = a_heartbeat(i);

        send_frame(&p, &h, p.keys.to_bridge);
    }
    while (hear(&p, &g) == AGENT_ACK)
        ;
    assert_in_range(agents_counts(f->agents).frames, 20, 70);
    assert_int_equal(is_linked(f, "w1"), TRI_NO);
    leave(&p);
}

/* A munged that hangs: links that stand go on, who greets is told in time, and the end waits for
 * nobody. */
static void test_munged_hangs(void **state)
{
    struct fixture *f = *state;
    struct peer p = linked(f), q = come_from(f, "127.0.0.3"),
                r = come_from(f, "127.0.0.4");
    int64_t begin = clock_mono_ms();

    challenged(&q);
    challenged(&r);
    make_credential(&q, "w2", "uid-2", "i1", munged.socket);
    make_credential(&r, "w3", "uid-3", "i1", munged.socket);
    assert_int_equal(kill(munged.pid, SIGSTOP), 0);
    send_greeting(&q, &q.credential);
    send_greeting(&r, &r.credential);
    while (clock_mono_ms() - begin < 4500) {
        run_for(f, PERIOD_MS);
        beat(&p);
    }
    assert_int_equal(is_linked(f, "w1"), TRI_YES);
    refused(&q, AGENT_REFUSE_BUSY, "munged did not answer");
    refused(&r, AGENT_REFUSE_BUSY, "munged did not answer");
    begin = clock_mono_ms();
    agents_free(f->agents);
    f->agents = NULL;
    assert_true(clock_mono_ms() - begin < 500);
    assert_int_equal(kill(munged.pid, SIGCONT), 0);
    (void)usleep(
        2500000); /* the thread ends by itself: libmunge tries again within 2 s */
    leave(&p);
}

static void test_a_slow_writer(void **state)
{
    struct fixture *f = *state;
    struct peer p = come_from(f, "127.0.0.2");
    const char begin[] = "TGNF\1\3";
    int64_t from = clock_mono_ms();
    struct agent_frame g;

    challenged(&p);
    for (size_t i = 0; i < 6; i++) {
        if (send(p.fd, begin + i, 1, MSG_NOSIGNAL) < 0)
            break;
        run_for(f, 900);
    }
    assert_int_equal(hear(&p, &g), AGENT_REFUSE);
    assert_non_null(strstr(g.refuse.text, "no whole greeting"));
    assert_in_range(clock_mono_ms() - from, 5000, 8000);
    leave(&p);
}

static void test_bad_config(void **state)
{
    struct fixture *f = *state;
    struct agents_config config = {.listen = "127.0.0.1:0", .pod_of = pod_of};
    struct agents *a = NULL;
    struct err err;

    assert_int_equal(agents_new(f->event, &config, &a, &err), -EINVAL);
    config.period_ms = 3000;
    config.listen = "localhost";
    assert_int_equal(agents_new(f->event, &config, &a, &err), -EINVAL);
    assert_non_null(strstr(err.text, "localhost"));
    assert_null(a);
}

static int start_munged(void **state)
{
    (void)state;
    log_set_level(LOG_LEVEL_ERROR);
    munged_start(&munged);
    return 0;
}

static int stop_munged(void **state)
{
    (void)state;
    munged_stop(&munged);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_agent_is_known),
        TEST(test_only_what_matters_is_told),
        TEST(test_a_link_that_is_closed),
        TEST(test_three_missing_heartbeats),
        TEST(test_accepted_and_silent),
        TEST(test_a_restarted_agent_replaces_the_old_link),
        TEST(test_reported_is_of_this_link),
        TEST(test_two_pods_of_a_node),
        TEST(test_a_session_that_is_too_old),
        TEST(test_no_descriptor_is_left),
        TEST(test_asking),
        TEST(test_trim),
        TEST(test_who_leads),
        TEST(test_an_address_that_is_no_pods),
        TEST(test_replayed_greeting),
        TEST(test_posing_as_another),
        TEST(test_wrong_uid),
        TEST(test_stale_key),
        TEST(test_replayed_frame),
        TEST(test_frames_without_the_key),
        TEST(test_oversized),
        TEST(test_more_than_the_greeting),
        TEST(test_too_many_of_one_address),
        TEST(test_too_many_links),
        TEST(test_too_many_frames),
        TEST(test_munged_hangs),
        TEST(test_a_slow_writer),
        TEST(test_bad_config),
    };

    return cmocka_run_group_tests(tests, start_munged, stop_munged);
}
