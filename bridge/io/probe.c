// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define PERIOD_MS   1000
#define ANSWER_MS   2000
#define MAX_AT_ONCE 256
/* One lost packet is no silence. */
#define NO_IN_ROW 3
/* An answer that is older says nothing about now: this process has stood still. */
#define STALE_MS (PERIOD_MS + 2 * ANSWER_MS)
#define ACCURACY_MS                                                                      \
    10 /* of the timer; also keeps it from running for each of many answers */

struct target {
    struct probe *probe;
    char *name;
    char *addr;
    uint16_t port;
    struct sockaddr_storage to;
    socklen_t to_len; /* 0: not an address in numbers */
    enum tri answers;
    int64_t
        since; /* CLOCK_BOOTTIME ms: no step of the wall clock may confirm a silence */
    int64_t heard_at; /* the same, of the last answer */
    unsigned in_row;  /* how often this answer has come without another between */
    int fd;           /* -1: no connect under way */
    sd_event_source *io;
    int64_t due; /* CLOCK_BOOTTIME ms: of the next connect, or of the end of this one */
    bool kept;   /* used in probe_set_targets() only */
};

struct probe {
    sd_event *event;
    sd_event_source *timer;
    void (*on_change)(void *userdata);
    void *userdata;
    struct target **targets; /* sorted by name */
    size_t n;
    size_t under_way;
    size_t cursor;    /* where the next look for due targets begins, so that all get their
                         turn */
    int64_t wakes_at; /* CLOCK_BOOTTIME ms of the timer; INT64_MAX: off */
};

static void target_free(struct target *t)
{
    if (!t)
        return;
    if (t->fd >= 0) {
        t->probe->under_way--;
        (void)sd_event_source_disable_unref(t->io);
        (void)close(t->fd);
    }
    free(t->name);
    free(t->addr);
    free(t);
}

/* What the answers so far amount to. */
static enum tri answer_of(const struct target *t)
{
    return t->answers == TRI_NO && t->in_row < NO_IN_ROW ? TRI_UNKNOWN : t->answers;
}

/* Returns whether this amounts to something new. */
static bool learn(struct target *t, enum tri answers)
{
    enum tri before = answer_of(t);
    bool again = t->in_row && t->answers == answers;

    t->heard_at = clock_mono_ms();
    t->since = again ? t->since : t->heard_at;
    t->in_row = again ? t->in_row + 1 : 1;
    t->answers = answers;
    return answer_of(t) != before;
}

/*
 * What a failed connect says. Only what comes from the other side is a NO: a lack of
 * descriptors, ports, memory or of a route here says nothing about slurmd.
 */
static enum tri judge(int error)
{
    switch (error) {
    case 0:
        return TRI_YES;
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ETIMEDOUT:
        return TRI_NO;
    }
    return TRI_UNKNOWN;
}

/* The connect under way is over. */
static bool conclude(struct target *t, enum tri answers)
{
    int64_t soon =
        clock_mono_ms() + ACCURACY_MS; /* not before those that wait for a place */
    int64_t next = t->due - ANSWER_MS + PERIOD_MS;

    t->io = sd_event_source_disable_unref(t->io);
    (void)close(t->fd);
    t->fd = -1;
    t->probe->under_way--;
    t->due = next > soon ? next : soon;
    return learn(t, answers);
}

static void wake_by(struct probe *p, int64_t at)
{
    if (at >= p->wakes_at)
        return;
    p->wakes_at = at;
    (void)sd_event_source_set_time(p->timer, (uint64_t)at * 1000);
    (void)sd_event_source_set_enabled(p->timer, SD_EVENT_ONESHOT);
}

static enum tri ask_socket(int fd)
{
    socklen_t len = sizeof(int);
    int error = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    return judge(error);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct target *t = userdata;
    struct probe *p = t->probe;
    bool was_full = p->under_way == MAX_AT_ONCE;
    bool changed = conclude(t, ask_socket(fd));

    (void)source;
    (void)revents;
    wake_by(p, was_full ? clock_mono_ms() : t->due);
    if (changed)
        p->on_change(p->userdata); /* may replace the targets */
    return 0;
}

/* Its time is over. If it was this process that stood still, the answer may be there all
 * the same. */
static bool expire(struct target *t)
{
    struct pollfd fd = {.fd = t->fd, .events = POLLOUT};

    return conclude(t, poll(&fd, 1, 0) > 0 ? ask_socket(t->fd) : TRI_NO);
}

/* Begins a connect; returns whether that already told something new. */
static bool begin(struct target *t, int64_t now)
{
    int r;

    t->due = now + PERIOD_MS;
    if (!t->to_len)
        return learn(t, TRI_UNKNOWN);
    t->fd = socket(t->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->fd < 0)
        return learn(t, TRI_UNKNOWN);
    t->probe->under_way++;
    t->due = now + ANSWER_MS;
    if (connect(t->fd, (const struct sockaddr *)&t->to, t->to_len) == 0)
        return conclude(t, TRI_YES);
    if (errno != EINPROGRESS)
        return conclude(t, judge(errno));
    r = sd_event_add_io(t->probe->event, &t->io, t->fd, EPOLLOUT, on_io, t);
    return r < 0 ? conclude(t, TRI_UNKNOWN) : false;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct probe *p = userdata;
    int64_t now = clock_mono_ms(), next = INT64_MAX;
    bool changed = false;
    size_t first = p->cursor;

    (void)source;
    (void)usec;
    p->wakes_at = INT64_MAX;
    for (size_t i = 0; i < p->n; i++) {
        size_t at = (first + i) % p->n;
        struct target *t = p->targets[at];

        if (t->fd >= 0 && t->due <= now)
            changed |= expire(t);
        if (t->fd < 0 && t->due <= now && p->under_way < MAX_AT_ONCE) {
            changed |= begin(t, now);
            p->cursor = (at + 1) % p->n;
        }
        /* One that is due but has no place is woken by the end of another. */
        if (t->due > now && t->due < next)
            next = t->due;
    }
    wake_by(p, next);
    if (changed)
        p->on_change(p->userdata); /* may replace the targets */
    return 0;
}

static void read_address(struct target *t)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&t->to;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&t->to;

    if (!t->addr || !t->port)
        return;
    if (inet_pton(AF_INET, t->addr, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(t->port);
        t->to_len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, t->addr, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(t->port);
        t->to_len = sizeof(*v6);
    }
}

static struct target *target_new(struct probe *p, const struct probe_target *from)
{
    struct target *t = mem_zalloc(sizeof(*t));

    t->probe = p;
    t->name = mem_strdup(from->name);
    t->addr = mem_strdup(from->addr);
    t->port = from->port;
    t->fd = -1;
    read_address(t);
    return t;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct target *const *)a)->name, (*(struct target *const *)b)->name);
}

static struct target **find(const struct probe *p, const char *name)
{
    const struct target wanted = {.name = (char *)name}, *key = &wanted;

    return p->n ? bsearch(&key, p->targets, p->n, sizeof(*p->targets), by_name) : NULL;
}

static bool is_same(const struct target *t, const struct probe_target *other)
{
    return t->port == other->port &&
           strcmp(t->addr ? t->addr : "", other->addr ? other->addr : "") == 0;
}

void probe_set_targets(struct probe *p, const struct probe_target *targets, size_t n)
{
    struct target **list = mem_calloc(n, sizeof(*list));

    for (size_t i = 0; i < n; i++) {
        struct target **old = find(p, targets[i].name);

        if (old && !(*old)->kept && is_same(*old, &targets[i])) {
            (*old)->kept = true;
            list[i] = *old;
        } else {
            list[i] = target_new(p, &targets[i]);
        }
    }
    for (size_t i = 0; i < p->n; i++) {
        if (p->targets[i]->kept)
            p->targets[i]->kept = false;
        else
            target_free(p->targets[i]);
    }
    free(p->targets);
    if (n)
        qsort(list, n, sizeof(*list), by_name);
    p->targets = list;
    p->n = n;
    if (p->cursor >= n)
        p->cursor = 0;
    wake_by(p, n ? clock_mono_ms() : INT64_MAX);
}

struct probe_fact probe_get(const struct probe *p, const char *name)
{
    const struct probe_fact unknown = {.answers = TRI_UNKNOWN};
    struct target **found = find(p, name);
    const struct target *t = found ? *found : NULL;
    int64_t now = clock_mono_ms();
    /* many silent ones wait for a place */
    int64_t stale_ms = STALE_MS + (int64_t)(p->n / MAX_AT_ONCE) * ANSWER_MS;

    if (!t || answer_of(t) == TRI_UNKNOWN || now - t->heard_at > stale_ms)
        return unknown;
    return (struct probe_fact){.answers = t->answers,
                               .since = clock_wall_ms() - (now - t->since)};
}

int probe_new(sd_event *event, void (*on_change)(void *userdata), void *userdata,
              struct probe **ret, struct err *err)
{
    struct probe *p = mem_zalloc(sizeof(*p));
    int r;

    p->event = event;
    p->on_change = on_change;
    p->userdata = userdata;
    p->wakes_at = INT64_MAX;
    r = sd_event_add_time(event, &p->timer, CLOCK_BOOTTIME, 0,
                          ACCURACY_MS * UINT64_C(1000), on_timer, p);
    if (r < 0) {
        free(p);
        return err_set(err, r, "cannot make a timer for the probes: %s", strerror(-r));
    }
    (void)sd_event_source_set_enabled(p->timer, SD_EVENT_OFF);
    *ret = p;
    return 0;
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        target_free(p->targets[i]);
    free(p->targets);
    (void)sd_event_source_disable_unref(p->timer);
    free(p);
}
