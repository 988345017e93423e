// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Many agents in one process, speaking the real protocol with real credentials:
 *
 *   agents_load ADDR:PORT N SECONDS READER_UID
 *
 * Agent i is node n<i> in the pod u<i> and comes from 127.1.0.0 + i, as agents_server expects. Says
 * {"linked":N,"ms":...} on stdout once all are linked, beats for SECONDS in the period that the bridge
 * asks for, and closes with {"agents":N,"heartbeats":...,"answered":...,"lost":...,"ack_ms":{...}}.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "codec/agent_frame.h"
#include "io/cred.h"

#define FIRST_ADDR  0x7f010000 /* 127.1.0.0 */
#define AT_ONCE_MAX 200 /* greetings under way, about what jitter makes of a fleet */
#define LINK_MS_MAX 120000
#define TICK_MS     5
#define DELAYS_MAX  1000000

struct agent {
    int fd;
    bool linked;
    bool lost;
    uint64_t sent;
    int64_t beat_at; /* us, of the last heartbeat */
    struct agent_keys keys;
    struct buf in;
};

struct load {
    struct sockaddr_in server;
    uid_t reader;
    int epoll;
    struct agent *agents;
    size_t n, begun, linked, lost;
    uint32_t period_ms;
    uint64_t heartbeats, answered;
    uint32_t *delays; /* us */
    size_t n_delays;
    struct buf frame;
};

static int64_t now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "agents_load: %s: %s\n", what, why);
    exit(70);
}

static void send_frame(struct load *l, struct agent *a, struct agent_frame *f,
                       const uint8_t *key)
{
    struct err err;

    f->counter = key ? ++a->sent : 0;
    buf_clear(&l->frame);
    if (agent_frame_write(f, key, &l->frame, &err) < 0)
        die("a frame", err.text);
    if (send(a->fd, l->frame.data, l->frame.len, MSG_NOSIGNAL) != (ssize_t)l->frame.len)
        a->lost = true; /* recv() tells it next */
}

static void begin(struct load *l, size_t i)
{
    struct agent *a = &l->agents[i];
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};

    from.sin_addr.s_addr = htonl((uint32_t)(FIRST_ADDR + i));
    a->in = BUF_INIT(2 * AGENT_FRAME_MAX);
    a->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (a->fd < 0 || bind(a->fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
        connect(a->fd, (struct sockaddr *)&l->server, sizeof(l->server)) < 0 ||
        fcntl(a->fd, F_SETFL, O_NONBLOCK) < 0 ||
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, a->fd, &e) < 0)
        die("connecting", strerror(errno));
    l->begun++;
}

static void greet(struct load *l, size_t i, const struct agent_challenge *c)
{
    struct agent *a = &l->agents[i];
    struct agent_frame f = {.type = AGENT_GREETING};
    struct buf payload = BUF_INIT(CRED_PAYLOAD_MAX),
               text = BUF_INIT(AGENT_CREDENTIAL_MAX);
    struct agent_greeting g = {.boot_id = "3a1f4f9e-5d1b-4b8e-9c59-6f0a7a1d9d11",
                               .instance = "00112233445566778899aabbccddeeff"};
    struct err err;

    memcpy(g.nonce, c->nonce, sizeof(g.nonce));
    if (getentropy(g.key, sizeof(g.key)) < 0)
        die("a key", strerror(errno));
    (void)snprintf(g.node, sizeof(g.node), "n%zu", i);
    (void)snprintf(g.pod_uid, sizeof(g.pod_uid), "u%zu", i);
    if (agent_greeting_write(&g, &payload, &err) < 0 ||
        cred_encode(NULL, l->reader, payload.data, payload.len, &text, &err) < 0 ||
        agent_keys_derive(g.key, &a->keys, &err) < 0)
        die("a greeting", err.text);
    f.credential.text = text.data;
    f.credential.size = text.len;
    send_frame(l, a, &f, NULL);
    a->linked = true; /* as far as the reader goes: it has a key */
    buf_free(&payload);
    buf_free(&text);
}

static void beat(struct load *l, struct agent *a)
{
    struct agent_frame f = {.type = AGENT_HEARTBEAT};

    f.heartbeat = (struct agent_heartbeat){
        .phase = AGENT_UP, .slurmd = SLURMD_RUNNING, .slurmd_pid = 1, .steps = 4};
    a->beat_at = now_us();
    send_frame(l, a, &f, a->keys.to_bridge);
    l->heartbeats++;
}

static void report(struct load *l, struct agent *a)
{
    struct agent_frame f = {.type = AGENT_REPORT};

    f.report.line = (struct node_line){1, 2, 32, 2, 128, 512000, NULL, (char *)"rdma"};
    send_frame(l, a, &f, a->keys.to_bridge);
}

static void answered(struct load *l, struct agent *a)
{
    l->answered++;
    if (l->n_delays < DELAYS_MAX)
        l->delays[l->n_delays++] = (uint32_t)(now_us() - a->beat_at);
}

static void take(struct load *l, size_t i, const struct agent_frame *f)
{
    struct agent *a = &l->agents[i];

    switch (f->type) {
    case AGENT_CHALLENGE:
        greet(l, i, &f->challenge);
        break;
    case AGENT_ACCEPT:
        l->period_ms = f->accept.period_ms;
        l->linked++;
        report(l, a);
        beat(l, a);
        break;
    case AGENT_ACK:
        answered(l, a);
        break;
    case AGENT_REFUSE:
        die("refused", f->refuse.text);
        break;
    default:
        die("the bridge", "a frame that was not expected");
    }
}

static void ready(struct load *l, size_t i)
{
    struct agent *a = &l->agents[i];
    char piece[4096];
    ssize_t n = recv(a->fd, piece, sizeof(piece), 0);
    struct agent_frame f;
    struct err err;
    size_t used;

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || buf_add(&a->in, piece, (size_t)n) < 0) {
        (void)close(a->fd);
        a->lost = true;
        l->lost++;
        return;
    }
    for (;;) {
        if (agent_frame_read((uint8_t *)a->in.data, a->in.len,
                             a->linked ? a->keys.to_agent : NULL, &f, &used, &err) < 0)
            die("the bridge", err.text);
        if (!used)
            break;
        take(l, i, &f);
        buf_drop(&a->in, used);
    }
    if (!a->in.len)
        buf_free(&a->in);
}

static void serve(struct load *l, int timeout_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(l->epoll, events, TG_LEN(events), timeout_ms);

    for (int i = 0; i < n; i++)
        ready(l, events[i].data.u64);
}

static void link_all(struct load *l)
{
    int64_t from = now_us();

    while (l->linked < l->n) {
        while (l->begun < l->n && l->begun - l->linked < AT_ONCE_MAX)
            begin(l, l->begun);
        serve(l, 10);
        if (l->lost || now_us() - from > LINK_MS_MAX * INT64_C(1000))
            die("linking", "not all were linked in time");
    }
    printf("{\"linked\":%zu,\"ms\":%" PRId64 "}\n", l->n, (now_us() - from) / 1000);
    (void)fflush(stdout);
}

/* Each beats once a period, one after the other. */
static void beat_all(struct load *l, int64_t seconds)
{
    int64_t period = l->period_ms * INT64_C(1000), from = now_us();
    uint64_t done = 0;

    while (now_us() - from < seconds * 1000000) {
        uint64_t due = (uint64_t)((now_us() - from) * (int64_t)l->n / period);

        for (; done < due; done++) {
            if (!l->agents[done % l->n].lost)
                beat(l, &l->agents[done % l->n]);
        }
        serve(l, TICK_MS);
    }
    from = now_us();
    while (now_us() - from < 500000) /* the last answers */
        serve(l, TICK_MS);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void print_end(struct load *l)
{
    size_t n = l->n_delays;

    qsort(l->delays, n, sizeof(*l->delays), by_size);
    printf(
        "{\"agents\":%zu,\"period_ms\":%u,\"heartbeats\":%" PRIu64
        ",\"answered\":%" PRIu64
        ",\"lost\":%zu,\"ack_ms\":{\"n\":%zu,\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f}}\n",
        l->n, l->period_ms, l->heartbeats, l->answered, l->lost, n,
        n ? l->delays[n / 2] / 1000.0 : 0, n ? l->delays[n - 1 - n / 100] / 1000.0 : 0,
        n ? l->delays[n - 1] / 1000.0 : 0);
}

int main(int argc, char **argv)
{
    struct load l = {.server = {.sin_family = AF_INET},
                     .frame = BUF_INIT(AGENT_FRAME_MAX)};
    struct rlimit files;
    char *colon;

    if (argc != 5 || !(colon = strrchr(argv[1], ':'))) {
        (void)fprintf(stderr, "usage: agents_load ADDR:PORT N SECONDS READER_UID\n");
        return 64;
    }
    *colon = '\0';
    if (inet_pton(AF_INET, argv[1], &l.server.sin_addr) != 1)
        die(argv[1], "expected an address in numbers");
    l.server.sin_port = htons((uint16_t)atoi(colon + 1));
    l.n = strtoul(argv[2], NULL, 10);
    l.reader = (uid_t)strtoul(argv[4], NULL, 10);
    l.agents = mem_calloc(l.n, sizeof(*l.agents));
    l.delays = mem_calloc(DELAYS_MAX, sizeof(*l.delays));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    link_all(&l);
    beat_all(&l, atoi(argv[3]));
    print_end(&l);
    return 0;
}
