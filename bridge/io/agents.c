// SPDX-License-Identifier: GPL-2.0-or-later
/* Who may come in, and what is known of whom. */
#include "io/agents.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/agents_priv.h"
#include "io/listen.h"
#include "io/timer.h"

#define BACKLOG      4096 /* a fleet that comes back at once; the kernel may cut it */
#define ACCEPT_BATCH 64   /* then those that are linked get their turn */
#define EVENT_BATCH  256
#define NO_FD_MS     100 /* until the next accept() when no descriptor was left */

/* With so many links each heartbeat would wake the process by itself, which costs more than to read it:
 * then all that has come is looked at together, so often. */
#define LOOK_LINKS 500
#define LOOK_MS    20

/* Of each kind of line in the log. */
#define SAY_WINDOW_MS 60000
#define SAY_MAX       20

static void settle(struct agents *a);

/* ---- the log ------------------------------------------------------------------------ */

void agents_say(struct agents *a, enum say what, const char *msg, const char *addr,
                const char *node, const char *why)
{
    struct limiter *l = &a->limits[what];
    struct log_field fields[6] = {LOG_STR("msg", msg)}, *f = &fields[1];

    if (!l->window_at || a->now - l->window_at >= SAY_WINDOW_MS) {
        l->window_at = a->now;
        l->said = 0;
    }
    if (l->said == SAY_MAX) {
        l->swallowed++;
        return;
    }
    l->said++;
    if (addr)
        *f++ = (struct log_field)LOG_STR("address", addr);
    if (node)
        *f++ = (struct log_field)LOG_STR("node", node);
    if (why)
        *f++ = (struct log_field)LOG_STR("reason", why);
    if (l->swallowed)
        *f = (struct log_field)LOG_NUM("not_said_before", (int64_t)l->swallowed);
    log_emit(what == SAY_LINKED || what == SAY_LOST ? LOG_LEVEL_INFO : LOG_LEVEL_WARN,
             fields);
    l->swallowed = 0;
}

/* ---- who it is ---------------------------------------------------------------------- */

static int check_who(const struct conn *c, const struct cred *cred,
                     struct agent_greeting *ret, struct err *err)
{
    const struct agents *a = c->agents;
    const struct kube_pod *pod;
    int r;

    if (cred->uid != 0)
        return err_set(err, -EPERM,
                       "its credential was made by uid %u, an agent runs as uid 0",
                       (unsigned)cred->uid);
    r = agent_greeting_read(cred->payload, cred->size, ret, err);
    if (r < 0)
        return r;
    if (CRYPTO_memcmp(ret->nonce, c->nonce, sizeof(ret->nonce)) != 0)
        return err_set(err, -EPERM,
                       "its greeting answers the challenge of another connection");
    pod = a->config.pod_of(c->addr, a->config.userdata);
    if (!pod)
        return err_set(err, -EPERM, "%s is the address of no compute pod any more",
                       c->addr);
    if (strcmp(pod->node ? pod->node : "", ret->node) != 0)
        return err_set(err, -EPERM,
                       "it says to be on node %s, the pod with the address %s is on %s",
                       ret->node, c->addr, pod->node ? pod->node : "none");
    if (strcmp(pod->uid ? pod->uid : "", ret->pod_uid) != 0)
        return err_set(err, -EPERM,
                       "it says to be pod %s, the pod with the address %s is %s",
                       ret->pod_uid, c->addr, pod->uid ? pod->uid : "none");
    return 0;
}

/* A pod that is going away does not push out the one that follows it on the node. */
static bool follows_another(const struct agents *a, const struct conn *c,
                            const struct node *n, const struct agent_greeting *g)
{
    const struct kube_pod *pod = a->config.pod_of(c->addr, a->config.userdata);
    const char *linked = n->fact.pod_uid;

    if (n->link && n->link->link->greeting)
        linked = n->link->link->greeting->pod_uid;
    return n->link && linked && strcmp(linked, g->pod_uid) != 0 && pod &&
           pod->terminating;
}

static void greeted(struct conn *c, const struct cred *cred)
{
    struct agents *a = c->agents;
    struct agent_greeting g;
    struct node *n;
    struct err err;

    if (check_who(c, cred, &g, &err) < 0)
        return conn_refuse(c, AGENT_REFUSE_IDENTITY, SAY_IDENTITY, err.text);
    n = node_get(a, g.node);
    if (follows_another(a, c, n, &g))
        conn_refuse(c, AGENT_REFUSE_BUSY, SAY_IDENTITY,
                    "its pod is going away, and another one of the node is linked");
    else if (!n->link && a->n_conns[STEP_LINKED] >= a->config.max_links)
        conn_refuse(c, AGENT_REFUSE_BUSY, SAY_BUSY,
                    "as many agents are linked as there may be");
    else
        conn_accept(c, n, &g);
    OPENSSL_cleanse(&g, sizeof(g));
}

static void on_decoded(struct decode_job *job, void *userdata)
{
    struct agents *a = userdata;
    struct conn *c = job->conn;

    a->now = clock_mono_ms();
    c->job = NULL;
    if (job->code == -EIO)
        conn_refuse(c, AGENT_REFUSE_BUSY, SAY_MUNGE, job->err.text);
    else if (job->code < 0)
        conn_refuse(c, AGENT_REFUSE_IDENTITY, SAY_MUNGE, job->err.text);
    else
        greeted(c, &job->cred);
    settle(a);
}

/* ---- who comes in -------------------------------------------------------------------- */

/* As in podIP; IPv4 that came to a socket of IPv6 as plain IPv4. */
static void write_address(const struct sockaddr_storage *from, char ret[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    const void *bytes = &v4->sin_addr;
    int family = AF_INET;

    if (from->ss_family == AF_INET6) {
        bytes = &v6->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
            bytes = &v6->sin6_addr.s6_addr[12];
        else
            family = AF_INET6;
    }
    if (!inet_ntop(family, bytes, ret, INET6_ADDRSTRLEN))
        ret[0] = '\0';
}

/* One of the silent connections of the address, each as likely: who opens them as fast as it can must
 * not be sure to push out the agent beside it. */
static struct conn *any_silent_of(const struct agents *a, const char *addr,
                                  unsigned *ret_waiting)
{
    struct conn *c, *victim = NULL;
    unsigned silent = 0, waiting = 0;

    for (c = TAILQ_FIRST(&a->conns[STEP_GREETING]); c; c = TAILQ_NEXT(c, entry)) {
        if (strcmp(c->addr, addr) == 0 && arc4random_uniform(++silent) == 0)
            victim = c;
    }
    for (c = TAILQ_FIRST(&a->conns[STEP_MUNGE]); c; c = TAILQ_NEXT(c, entry))
        waiting += strcmp(c->addr, addr) == 0;
    *ret_waiting = waiting + silent;
    return victim;
}

/* False: there is no room, and nobody silent to make it. */
static bool make_room(struct agents *a, const char *addr)
{
    unsigned waiting;
    struct conn *victim = any_silent_of(a, addr, &waiting);

    if (waiting >= AGENTS_WAITING_PER_ADDRESS) {
        if (!victim)
            return false;
        conn_refuse(victim, AGENT_REFUSE_BUSY, SAY_BUSY,
                    "too many connections of this address wait to be accepted");
    }
    if (a->n_conns[STEP_GREETING] + a->n_conns[STEP_MUNGE] < AGENTS_WAITING_MAX)
        return true;
    victim = TAILQ_FIRST(&a->conns[STEP_GREETING]);
    if (!victim)
        return false;
    conn_refuse(victim, AGENT_REFUSE_BUSY, SAY_BUSY,
                "too many connections wait to be accepted");
    return true;
}

static void challenge(struct conn *c)
{
    struct agent_frame f = {.type = AGENT_CHALLENGE};

    memcpy(f.challenge.nonce, c->nonce, sizeof(c->nonce));
    conn_send(c, &f);
}

static void come_in(struct agents *a, int fd, const struct sockaddr_storage *from)
{
    const struct linger at_once = {.l_onoff = 1};
    char addr[INET6_ADDRSTRLEN];
    struct conn *c;

    write_address(from, addr);
    if (!a->config.pod_of(addr, a->config.userdata)) {
        a->counts.closed_at_once++;
        agents_say(a, SAY_ADDRESS, "a connection was closed at once", addr, NULL,
                   "it is not the address of a compute pod");
        /* Reset: nothing is kept of it, not even by the kernel. */
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        (void)close(fd);
        return;
    }
    if (a->leader && !make_room(a, addr)) {
        a->counts.refused++;
        agents_say(a, SAY_BUSY, "an agent was refused", addr, NULL,
                   "too many greetings wait for munge");
        (void)close(fd);
        return;
    }
    c = conn_new(a, fd, addr);
    if (a->leader) {
        challenge(c);
    } else {
        a->counts.refused++;
        conn_dismiss(c, "this bridge does not lead");
    }
}

static void watch_listener(struct agents *a, bool on)
{
    struct epoll_event e = {.events = on ? EPOLLIN : 0, .data.ptr = a};

    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, a->listen_fd, &e);
}

/* Returns whether there may be more. */
static bool accept_some(struct agents *a)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd = accept4(a->listen_fd, (struct sockaddr *)&from, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            come_in(a, fd, &from);
        } else if (errno == EAGAIN) {
            return false;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                   errno == ENOMEM) {
            agents_say(a, SAY_BUSY, "no connection can be accepted for now", NULL, NULL,
                       strerror(errno));
            a->accepts_again = a->now + NO_FD_MS;
            watch_listener(a, false);
            return false;
        } /* else one that has gone already */
    }
    return true;
}

/* ---- the loop ------------------------------------------------------------------------ */

static void reap(struct agents *a)
{
    struct conn *c;

    while ((c = TAILQ_FIRST(&a->conns[STEP_DEAD])))
        conn_free(c);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Of all lists the first is the one whose time is over first. */
static int64_t next_deadline(const struct agents *a)
{
    const struct conn *greeting = TAILQ_FIRST(&a->conns[STEP_GREETING]);
    const struct conn *munge = TAILQ_FIRST(&a->conns[STEP_MUNGE]);
    const struct conn *linked = TAILQ_FIRST(&a->conns[STEP_LINKED]);
    const struct node *renewing = TAILQ_FIRST(&a->renewing);
    int64_t at = a->accepts_again ? a->accepts_again : INT64_MAX;

    if (a->look_at)
        at = sooner(at, a->look_at);
    if (greeting)
        at = sooner(at, greeting->deadline);
    if (munge)
        at = sooner(at, munge->deadline);
    if (linked)
        at = sooner(at,
                    linked->link->heard_at + LOST_PERIODS * (int64_t)a->config.period_ms);
    if (renewing)
        at = sooner(at, renewing->expires);
    return at;
}

/* The end of each turn: frees what has ended, arms the timer, tells of changes. */
static void settle(struct agents *a)
{
    int64_t at = next_deadline(a);

    reap(a);
    /* One that is set too early is set again when it fires: no heartbeat has to move it. */
    if (at < a->timer_at) {
        a->timer_at = at;
        timer_arm(a->timer, at);
    }
    if (a->changed) {
        a->changed = false;
        a->config.on_change(a->config.userdata);
    }
}

static void expire(struct agents *a)
{
    struct conn *c;

    while ((c = TAILQ_FIRST(&a->conns[STEP_GREETING])) && c->deadline <= a->now)
        conn_refuse(c, AGENT_REFUSE_BUSY, SAY_SILENT, "no whole greeting came in time");
    while ((c = TAILQ_FIRST(&a->conns[STEP_MUNGE])) && c->deadline <= a->now)
        conn_refuse(c, AGENT_REFUSE_BUSY, SAY_MUNGE,
                    "munged did not answer in time: look at munged beside the bridge");
    while ((c = TAILQ_FIRST(&a->conns[STEP_LINKED])) &&
           c->link->heard_at + LOST_PERIODS * (int64_t)a->config.period_ms <= a->now)
        conn_lose(c, "three heartbeats are missing");
    agents_expire_renewing(a);
    if (a->accepts_again && a->accepts_again <= a->now) {
        a->accepts_again = 0;
        watch_listener(a, true);
    }
}

/* Takes what has come, and says when to look again: when something comes (0), or at that time. */
static void look(struct agents *a)
{
    struct epoll_event events[EVENT_BATCH];
    int n = epoll_wait(a->epoll_fd, events, EVENT_BATCH, 0);
    bool more = n == EVENT_BATCH;

    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == a)
            more |= accept_some(a);
        else
            conn_ready(events[i].data.ptr, events[i].events);
    }
    if (more)
        a->look_at = a->now;
    else if (n > 0 && a->n_conns[STEP_LINKED] >= LOOK_LINKS)
        a->look_at = a->now + LOOK_MS;
    else
        a->look_at = 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct agents *a = userdata;

    (void)source;
    (void)usec;
    a->now = clock_mono_ms();
    a->timer_at = INT64_MAX;
    expire(a);
    if (a->look_at && a->look_at <= a->now) {
        look(a);
        if (!a->look_at)
            (void)sd_event_source_set_enabled(a->source, SD_EVENT_ON);
    }
    settle(a);
    return 0;
}

static int on_ready(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct agents *a = userdata;

    (void)fd;
    (void)revents;
    a->now = clock_mono_ms();
    look(a);
    if (a->look_at)
        (void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
    settle(a);
    return 0;
}

/* ---- for the bridge ------------------------------------------------------------------ */

void agents_set_leader(struct agents *a, bool leader)
{
    struct node *n, *next;
    struct conn *c;

    if (a->leader == leader)
        return;
    a->leader = leader;
    if (leader)
        return;
    a->now = clock_mono_ms();
    for (enum step s = STEP_GREETING; s <= STEP_LINKED; s++) {
        while ((c = TAILQ_FIRST(&a->conns[s])))
            conn_dismiss(c, "this bridge does not lead any more");
    }
    HASH_ITER(hh, a->nodes, n, next)
    node_free(a, n);
    a->changed = false;
}

const struct agent_fact *agents_get(const struct agents *a, const char *node)
{
    const struct node *n = node_find(a, node);

    return n && n->fact.linked != TRI_UNKNOWN ? &n->fact : NULL;
}

int agents_ask(struct agents *a, const char *node, enum agent_ask what, const char *arg,
               struct err *err)
{
    struct agent_frame f = {.type = AGENT_ASK, .ask = {.what = what}};
    struct node *n = node_find(a, node);

    if (!n || !n->link)
        return err_set(err, -ENOTCONN, "the agent of node %s is not linked", node);
    (void)snprintf(f.ask.arg, sizeof(f.ask.arg), "%s", arg ? arg : "");
    a->now = clock_mono_ms();
    conn_send(n->link, &f);
    if (n->link)
        return 0;
    a->timer_at = a->now; /* on_change() is told by the loop, not from here */
    timer_arm(a->timer, a->timer_at);
    return err_set(err, -ENOTCONN, "the link to the agent of node %s has just ended",
                   node);
}

void agents_trim(struct agents *a, bool (*keep)(const char *node, void *userdata),
                 void *userdata)
{
    struct node *n, *next;

    HASH_ITER(hh, a->nodes, n, next)
    {
        if (!keep(n->name, userdata))
            node_free(a, n);
    }
}

struct agents_counts agents_counts(const struct agents *a)
{
    struct agents_counts c = a->counts;

    c.links = a->n_conns[STEP_LINKED];
    return c;
}

unsigned agents_port(const struct agents *a)
{
    return a->port;
}

static int start(struct agents *a, sd_event *event, const char *address, struct err *err)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = a};
    int r;

    a->listen_fd = listen_on(address, BACKLOG, &a->port, err);
    if (a->listen_fd < 0)
        return a->listen_fd;
    a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (a->epoll_fd < 0 || epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->listen_fd, &e) < 0)
        return err_set(err, -errno, "cannot watch the agents' socket: %s",
                       strerror(errno));
    r = sd_event_add_io(event, &a->source, a->epoll_fd, EPOLLIN, on_ready, a);
    if (r < 0)
        return err_set(err, r, "cannot watch the agents' socket: %s", strerror(-r));
    r = timer_new(event, on_timer, a, &a->timer, err);
    if (r < 0)
        return r;
    return decoder_new(event, a->munge_socket, on_decoded, a, &a->decoder, err);
}

int agents_new(sd_event *event, const struct agents_config *config, struct agents **ret,
               struct err *err)
{
    _cleanup_(agents_freep) struct agents *a = mem_zalloc(sizeof(*a));
    int r;

    if (config->period_ms < AGENT_PERIOD_MIN_MS ||
        config->period_ms > AGENT_PERIOD_MAX_MS)
        return err_set(err, -EINVAL,
                       "a heartbeat each %u ms cannot be asked for, expected %d to %d ms",
                       (unsigned)config->period_ms, AGENT_PERIOD_MIN_MS,
                       AGENT_PERIOD_MAX_MS);
    a->config = *config;
    a->config.listen = NULL;
    a->munge_socket = mem_strdup(config->munge_socket);
    a->config.munge_socket = a->munge_socket;
    a->listen_fd = a->epoll_fd = -1;
    a->timer_at = INT64_MAX;
    a->frame = BUF_INIT(AGENT_FRAME_MAX);
    a->now = clock_mono_ms();
    for (size_t i = 0; i < STEP_COUNT_; i++)
        TAILQ_INIT(&a->conns[i]);
    TAILQ_INIT(&a->renewing);
    r = start(a, event, config->listen, err);
    if (r < 0)
        return r;
    *ret = a;
    a = NULL;
    return 0;
}

void agents_free(struct agents *a)
{
    struct node *n, *next;
    struct conn *c;

    if (!a)
        return;
    for (size_t i = 0; i < STEP_COUNT_; i++) {
        while ((c = TAILQ_FIRST(&a->conns[i])))
            conn_free(c);
    }
    HASH_ITER(hh, a->nodes, n, next)
    node_free(a, n);
    decoder_free(a->decoder);
    (void)sd_event_source_disable_unref(a->source);
    (void)sd_event_source_disable_unref(a->timer);
    if (a->epoll_fd >= 0)
        (void)close(a->epoll_fd);
    if (a->listen_fd >= 0)
        (void)close(a->listen_fd);
    buf_free(&a->frame);
    free(a->munge_socket);
    free(a);
}
