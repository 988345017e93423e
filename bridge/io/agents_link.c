// SPDX-License-Identifier: GPL-2.0-or-later
/* One connection of an agent: its bytes, its frames, and how it ends. */
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/agents_priv.h"

/* Each of the two: from accept() to a whole GREETING, and from there to ACCEPT. An agent needs a few
 * ms for each. */
#define GREETING_MS 5000
#define MUNGE_MS    5000

/*
 * A munge key that was given away is worth nothing once it has been changed: no session that began
 * under the old one lasts longer than a working day. Agents begin anew by themselves; a random
 * part keeps those that came together from coming together again.
 */
#define SESSION_MS        (INT64_C(12) * 3600 * 1000)
#define SESSION_SPREAD_MS (3600 * 1000)

#define OUT_MAX           65536 /* an agent that reads nothing for so long is no longer there */
/* An agent sends one heartbeat a period, more only when something happens. */
#define FRAMES_PER_PERIOD 64

/* ---- its place in the lists --------------------------------------------------------- */

static void watch(struct conn *c)
{
    struct epoll_event e = {.data.ptr = c};

    /* While munge is asked nothing is read; what comes too early stays in the kernel. */
    e.events = c->step == STEP_MUNGE ? EPOLLRDHUP : EPOLLIN;
    if (c->wants_write)
        e.events |= EPOLLOUT;
    (void)epoll_ctl(c->agents->epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void move_to(struct conn *c, enum step step)
{
    struct agents *a = c->agents;

    TAILQ_REMOVE(&a->conns[c->step], c, entry);
    a->n_conns[c->step]--;
    c->step = step;
    TAILQ_INSERT_TAIL(&a->conns[step], c, entry);
    a->n_conns[step]++;
}

struct conn *conn_new(struct agents *a, int fd, const char *addr)
{
    struct conn *c = mem_zalloc(sizeof(*c));
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;

    c->agents = a;
    c->fd = fd;
    c->in = BUF_INIT(AGENT_HEADER_SIZE + AGENT_CREDENTIAL_MAX);
    c->out = BUF_INIT(OUT_MAX);
    (void)snprintf(c->addr, sizeof(c->addr), "%s", addr);
    c->deadline = a->now + GREETING_MS;
    TAILQ_INSERT_TAIL(&a->conns[STEP_GREETING], c, entry);
    a->n_conns[STEP_GREETING]++;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (getentropy(c->nonce, sizeof(c->nonce)) < 0 ||
        epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
        conn_close(c);
    return c;
}

static void link_free(struct link *l)
{
    if (!l)
        return;
    free(l->greeting);
    OPENSSL_cleanse(&l->keys, sizeof(l->keys));
    free(l);
}

void conn_close(struct conn *c)
{
    if (c->step == STEP_DEAD)
        return;
    if (c->job)
        decoder_cancel(c->agents->decoder, c->job);
    c->job = NULL;
    if (c->link && c->link->node->link == c)
        c->link->node->link = NULL;
    link_free(c->link);
    c->link = NULL;
    (void)close(c->fd);
    buf_free(&c->in);
    buf_free(&c->out);
    move_to(c, STEP_DEAD);
}

void conn_free(struct conn *c)
{
    conn_close(c);
    TAILQ_REMOVE(&c->agents->conns[STEP_DEAD], c, entry);
    c->agents->n_conns[STEP_DEAD]--;
    free(c);
}

/* ---- how it ends -------------------------------------------------------------------- */

/* As far as the socket takes it at once: it is closed next. */
static void send_refuse(struct conn *c, enum agent_refusal code, const char *why)
{
    struct agent_frame f = {.type = AGENT_REFUSE, .refuse = {.code = code}};
    struct buf *b = &c->agents->frame;

    (void)snprintf(f.refuse.text, sizeof(f.refuse.text), "%s", why);
    buf_clear(b);
    if (!c->out.len && agent_frame_write(&f, NULL, b, NULL) == 0)
        (void)send(c->fd, b->data, b->len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void conn_refuse(struct conn *c, enum agent_refusal code, enum say what, const char *why)
{
    struct agents *a = c->agents;

    if (c->step == STEP_DEAD)
        return;
    send_refuse(c, code, why);
    a->counts.refused++;
    agents_say(a, what, "an agent was refused", c->addr, NULL, why);
    conn_close(c);
}

void conn_dismiss(struct conn *c, const char *why)
{
    if (c->step == STEP_DEAD)
        return;
    send_refuse(c, AGENT_REFUSE_RETRY, why);
    conn_close(c);
}

void conn_lose(struct conn *c, const char *why)
{
    struct agents *a = c->agents;

    if (!c->link)
        return;
    a->counts.lost++;
    agents_say(a, SAY_LOST, "an agent's link is lost", c->addr, c->link->node->name, why);
    agents_lost(c);
    conn_close(c);
}

static void fail(struct conn *c, const char *why)
{
    if (c->step == STEP_LINKED)
        conn_lose(c, why);
    else if (c->step != STEP_DEAD)
        conn_refuse(c, AGENT_REFUSE_IDENTITY, SAY_FRAME, why);
}

/* The other side is gone, or the socket is broken: nobody is there to be told. */
static void gone(struct conn *c, const char *why)
{
    if (c->step == STEP_LINKED) {
        conn_lose(c, why);
    } else if (c->step != STEP_DEAD) {
        c->agents->counts.refused++;
        agents_say(c->agents, SAY_SILENT, "an agent left before it was accepted", c->addr,
                   NULL, why);
        conn_close(c);
    }
}

/* ---- sending ------------------------------------------------------------------------ */

static void flush(struct conn *c)
{
    bool waits;

    while (c->out.len) {
        ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return gone(c, strerror(errno));
        if (n < 0)
            break;
        buf_drop(&c->out, (size_t)n);
    }
    if (!c->out.len)
        buf_free(&c->out);
    waits = c->out.len;
    if (waits != c->wants_write) {
        c->wants_write = waits;
        watch(c);
    }
}

void conn_send(struct conn *c, struct agent_frame *f)
{
    struct buf *b = &c->agents->frame;
    ssize_t n = 0;
    struct err err;

    if (c->step == STEP_DEAD)
        return;
    buf_clear(b);
    f->counter = c->link ? c->link->sent + 1 : 0;
    if (agent_frame_write(f, c->link ? c->link->keys.to_agent : NULL, b, &err) < 0)
        return gone(c, err.text);
    if (c->link)
        c->link->sent++;
    if (!c->out.len)
        n = send(c->fd, b->data, b->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        n = 0; /* a broken socket tells flush(), too */
    if ((size_t)n == b->len)
        return;
    if (buf_add(&c->out, b->data + n, b->len - (size_t)n) < 0)
        return gone(c, "the agent does not read what it is sent");
    if (!c->wants_write)
        flush(c);
}

/* ---- from one step to the next ------------------------------------------------------- */

static void ask_munge(struct conn *c, const struct agent_frame *f)
{
    c->job =
        decoder_submit(c->agents->decoder, c, f->credential.text, f->credential.size);
    c->deadline = c->agents->now + MUNGE_MS;
    move_to(c, STEP_MUNGE);
    watch(c);
}

void conn_accept(struct conn *c, struct node *node, const struct agent_greeting *g)
{
    struct agent_frame f = {.type = AGENT_ACCEPT};
    struct agents *a = c->agents;
    struct link *l = mem_zalloc(sizeof(*l));
    struct err err;

    if (agent_keys_derive(g->key, &l->keys, &err) < 0) {
        link_free(l);
        return conn_refuse(c, AGENT_REFUSE_BUSY, SAY_BUSY, err.text);
    }
    l->node = node;
    l->greeting = mem_zalloc(sizeof(*l->greeting));
    *l->greeting = *g;
    OPENSSL_cleanse(l->greeting->key, sizeof(l->greeting->key));
    l->heard_at = l->window_at = a->now;
    l->ends_at = a->now + SESSION_MS - arc4random_uniform(SESSION_SPREAD_MS);
    if (node->link)
        conn_close(node->link);
    node->link = c;
    c->link = l;
    c->in.cap = AGENT_FRAME_MAX;
    move_to(c, STEP_LINKED);
    watch(c);
    a->counts.accepted++;
    agents_say(a, SAY_LINKED, "an agent is linked", c->addr, node->name, NULL);
    f.accept.period_ms = a->config.period_ms;
    f.accept.wall_ms = clock_wall_ms();
    conn_send(c, &f);
}

/* ---- receiving ----------------------------------------------------------------------- */

static bool too_many(struct link *l, int64_t now, int64_t period_ms)
{
    if (now - l->window_at >= period_ms) {
        l->window_at = now;
        l->window_frames = 0;
    }
    return ++l->window_frames > FRAMES_PER_PERIOD;
}

static void take_linked(struct conn *c, struct agent_frame *f)
{
    struct agents *a = c->agents;
    struct link *l = c->link;
    char text[128];

    if (f->counter != l->received + 1) {
        a->counts.bad_frames++;
        (void)snprintf(
            text, sizeof(text),
            "a frame has the number %llu, expected %llu: it was played again, or "
            "one is missing",
            (unsigned long long)f->counter, (unsigned long long)l->received + 1);
        return conn_lose(c, text);
    }
    l->received++;
    if (f->type != AGENT_HEARTBEAT && f->type != AGENT_REPORT) {
        a->counts.bad_frames++;
        (void)snprintf(text, sizeof(text), "a frame of type %d is not an agent's to send",
                       f->type);
        return conn_lose(c, text);
    }
    if (too_many(l, a->now, a->config.period_ms))
        return conn_lose(c, "the agent sends far more frames than it was told to");
    a->counts.frames++;
    agents_heard(c, f);
    if (c->step != STEP_LINKED || f->type != AGENT_HEARTBEAT)
        return;
    l->heard_at = a->now;
    move_to(c, STEP_LINKED); /* to the end */
}

/* A frame of `used` bytes, the first of c->in. */
static void take_frame(struct conn *c, struct agent_frame *f, size_t used)
{
    if (c->link) {
        take_linked(c, f);
    } else if (f->type != AGENT_GREETING) {
        c->agents->counts.bad_frames++;
        fail(c, "it does not begin with a greeting");
    } else if (used != c->in.len) {
        fail(c, "it sends more before its greeting is answered");
    } else {
        ask_munge(c, f);
    }
}

static void take_frames(struct conn *c)
{
    while (c->step != STEP_DEAD && c->in.len) {
        const uint8_t *key = c->link ? c->link->keys.to_bridge : NULL;
        struct agent_frame f;
        struct err err;
        size_t used;

        if (agent_frame_read((const uint8_t *)c->in.data, c->in.len, key, &f, &used,
                             &err) < 0) {
            c->agents->counts.bad_frames++;
            return fail(c, err.text);
        }
        if (!used)
            return;
        take_frame(c, &f, used);
        agent_frame_clear(&f);
        if (c->step != STEP_DEAD)
            buf_drop(&c->in, used);
    }
    if (!c->in.len)
        buf_free(&c->in);
}

static void take_bytes(struct conn *c)
{
    char piece[AGENT_FRAME_MAX];
    size_t room = c->in.cap - c->in.len;
    ssize_t n;

    n = recv(c->fd, piece, room < sizeof(piece) ? room : sizeof(piece), MSG_DONTWAIT);
    if (n == 0)
        return gone(c, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return gone(c, strerror(errno));
    if (n < 0)
        return;
    if (buf_add(&c->in, piece, (size_t)n) < 0)
        return fail(c, "it sends more than a frame can hold"); /* not with such a room */
    take_frames(c);
}

void conn_ready(struct conn *c, uint32_t events)
{
    if (c->step == STEP_DEAD)
        return;
    if (events & EPOLLOUT)
        flush(c);
    if (c->step == STEP_MUNGE && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        gone(c, "it closed the connection");
    else if (c->step != STEP_DEAD && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        take_bytes(c);
}
