// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/agent_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/timer.h"

#define CONNECT_MS     3000
#define SPEAK_MS       10000 /* the bridge's CHALLENGE, and its answer to a greeting */
#define GREET_MS       4000 /* munged makes a credential in a few ms; the bridge waits 5 s */

#define RETRY_MIN_MS   50
#define RETRY_MAX_MS   2000 /* refused by a bridge that does not lead: the other one may */
#define FAILURE_MAX_MS 5000

/* An answer to a heartbeat that took longer says little about a clock. */
#define CLOCK_TRIP_MAX_MS 1000
/* While there is no link: a sentence that repeats the last one is not logged, and of others a few, then
 * seldom one. */
#define LOG_FEW     5
#define LOG_EACH_MS 60000
#define OUT_MAX     ((size_t)4 * AGENT_FRAME_MAX)
#define READ_SIZE   4096

enum state {
    WAITING,    /* for the next try */
    CONNECTING, /* TCP */
    CONNECTED,  /* the bridge speaks first */
    GREETING,   /* the child makes the credential */
    GREETED,    /* the bridge reads it */
    LINKED,
};

struct agent_link {
    sd_event *event;
    struct children *children;
    const struct agent_link_config *config;
    struct sockaddr_storage to;
    socklen_t to_len;
    struct agent_greeting greeting; /* nonce and key are of the try under way */

    enum state state;
    int fd; /* -1: none */
    sd_event_source *io;
    sd_event_source *timer; /* of the state: its deadline, or the next try */
    sd_event_source *beat;
    struct buf in, out;
    pid_t child;
    struct agent_keys keys;
    bool has_keys;
    uint64_t sent, taken; /* counters of the last frame each way */

    uint32_t period_ms;
    uint64_t beat_counter; /* of the last heartbeat */
    int64_t beat_at;       /* CLOCK_BOOTTIME, ms */
    bool answered;
    bool knows_clock;
    int64_t clock_offset_ms;

    int64_t delay_ms; /* before the next try */
    char said[TG_ERR_TEXT_MAX];
    int64_t said_at;
    unsigned said_times; /* since the link was lost */
};

/* ---- losing it ---------------------------------------------------------------------- */

static void close_link(struct agent_link *l)
{
    l->io = sd_event_source_disable_unref(l->io);
    if (l->fd >= 0)
        (void)close(l->fd);
    l->fd = -1;
    if (l->child) {
        child_forget(l->children, l->child);
        child_kill(l->children, l->child, SIGKILL, true);
    }
    l->child = 0;
    timer_stop(l->beat);
    timer_stop(l->timer);
    buf_free(&l->in);
    buf_free(&l->out);
    explicit_bzero(&l->keys, sizeof(l->keys));
    explicit_bzero(l->greeting.key, sizeof(l->greeting.key));
    l->has_keys = false;
    l->sent = l->taken = l->beat_counter = 0;
    l->answered = false;
}

/* Between half of it and all of it, so that a fleet does not come back in step. */
static int64_t jitter(int64_t ms)
{
    return ms / 2 + (int64_t)arc4random_uniform((uint32_t)ms / 2 + 1);
}

static void say(struct agent_link *l, bool was_linked, const char *text)
{
    int64_t now = clock_mono_ms();

    if (!was_linked && (strcmp(l->said, text) == 0 ||
                        (l->said_times >= LOG_FEW && now - l->said_at < LOG_EACH_MS)))
        return;
    l->said_times = was_linked ? 0 : l->said_times + 1;
    (void)snprintf(l->said, sizeof(l->said), "%s", text);
    l->said_at = now;
    log_warn(was_linked ? "lost the bridge; jobs go on, it is looked for"
                        : "the bridge cannot be reached yet; jobs go on",
             LOG_STR("bridge", l->config->address), LOG_STR("error", text));
}

/* This try, or this link, is over; the next one is at most max_ms away. `text` NULL: nothing to say. */
static void give_up(struct agent_link *l, int64_t max_ms, const char *text)
{
    bool was_linked = l->state == LINKED;

    close_link(l);
    if (text)
        say(l, was_linked, text);
    l->state = WAITING;
    timer_arm(l->timer,
              clock_mono_ms() + jitter(l->delay_ms < max_ms ? l->delay_ms : max_ms));
    l->delay_ms = l->delay_ms * 2 < max_ms ? l->delay_ms * 2 : max_ms;
    if (was_linked)
        l->config->on_change(l->config->userdata);
}

static void fail(struct agent_link *l, const char *fmt, ...) _printf_(2, 3);
static void fail(struct agent_link *l, const char *fmt, ...)
{
    char text[TG_ERR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    give_up(l, FAILURE_MAX_MS, text);
}

/* ---- sending ------------------------------------------------------------------------ */

static int watch(struct agent_link *l)
{
    uint32_t events = EPOLLIN;

    if (l->state == CONNECTING || l->out.len)
        events |= EPOLLOUT;
    return sd_event_source_set_io_events(l->io, events);
}

static void flush(struct agent_link *l)
{
    ssize_t n;

    if (!l->out.len)
        return;
    n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_drop(&l->out, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        return fail(l, "writing to it: %s", strerror(errno));
    (void)watch(l);
}

/* Gives the frame its number when it has a MAC. */
static void send_frame(struct agent_link *l, struct agent_frame *f)
{
    struct err err;

    f->counter = l->has_keys && f->type != AGENT_GREETING ? l->sent + 1 : 0;
    if (agent_frame_write(f, l->has_keys ? l->keys.to_bridge : NULL, &l->out, &err) < 0)
        return fail(l, "a frame of type %d could not be sent: %s", f->type, err.text);
    l->sent = f->counter;
    flush(l);
}

static void send_heartbeat(struct agent_link *l)
{
    struct agent_frame f = {.type = AGENT_HEARTBEAT};

    l->config->heartbeat(&f.heartbeat, l->config->userdata);
    l->beat_at = clock_mono_ms();
    l->answered = false;
    l->beat_counter = l->sent + 1;
    timer_arm(l->beat, l->beat_at + l->period_ms);
    send_frame(l, &f);
}

static void send_report(struct agent_link *l)
{
    struct agent_frame f = {.type = AGENT_REPORT};

    l->config->report(&f.report, l->config->userdata);
    send_frame(l, &f); /* what the report points to is the caller's */
}

void agent_link_heartbeat(struct agent_link *l)
{
    if (l->state == LINKED)
        send_heartbeat(l);
}

void agent_link_report(struct agent_link *l)
{
    if (l->state == LINKED)
        send_report(l);
}

static int on_beat(sd_event_source *s, uint64_t usec, void *userdata)
{
    (void)s;
    (void)usec;
    send_heartbeat(userdata);
    return 0;
}

/* ---- greeting ----------------------------------------------------------------------- */

static void on_credential(const struct child_end *end, void *userdata)
{
    struct agent_link *l = userdata;
    struct agent_frame f = {.type = AGENT_GREETING};
    struct err err;

    l->child = 0;
    if (end->timed_out || !WIFEXITED(end->status) || WEXITSTATUS(end->status) != 0)
        return fail(l, "no credential for it could be made: %s%s%.200s",
                    child_describe(end).text, end->size ? ": " : "", end->output);
    if (agent_keys_derive(l->greeting.key, &l->keys, &err) < 0)
        return fail(l, "no key for it could be made: %s", err.text);
    f.credential.text = end->output;
    f.credential.size = strcspn(end->output, "\n");
    l->state = GREETED;
    timer_arm(l->timer, clock_mono_ms() + SPEAK_MS);
    send_frame(l, &f);
    l->has_keys = l->state == GREETED;
}

static void greet(struct agent_link *l, const struct agent_challenge *challenge)
{
    struct buf payload = BUF_INIT(AGENT_BODY_MAX);
    struct child_spec spec = {
        .argv = l->config->greet,
        .capture = AGENT_BODY_MAX,
        .deadline_ms = GREET_MS,
        .on_end = on_credential,
        .userdata = l,
    };
    struct err err;

    memcpy(l->greeting.nonce, challenge->nonce, sizeof(l->greeting.nonce));
    if (getrandom(l->greeting.key, sizeof(l->greeting.key), 0) !=
        (ssize_t)sizeof(l->greeting.key))
        return fail(l, "no random key for it: %s", strerror(errno));
    if (agent_greeting_write(&l->greeting, &payload, &err) < 0)
        return fail(l, "no greeting for it: %s", err.text);
    spec.input = payload.data;
    spec.input_size = payload.len;
    l->state = GREETING;
    timer_stop(l->timer); /* the child has a deadline of its own */
    if (child_start(l->children, &spec, &l->child, &err) < 0)
        fail(l, "no credential for it could be made: %s", err.text);
    explicit_bzero(payload.data, payload.len);
    buf_free(&payload);
}

/* ---- what comes --------------------------------------------------------------------- */

static void arm_silence(struct agent_link *l)
{
    timer_arm(l->timer, clock_mono_ms() + 3 * (int64_t)l->period_ms + 1000);
}

static void on_accept(struct agent_link *l, const struct agent_accept *accept)
{
    l->state = LINKED;
    l->period_ms = accept->period_ms;
    l->said[0] = '\0';
    log_info("linked to the bridge", LOG_STR("bridge", l->config->address),
             LOG_NUM("period_ms", accept->period_ms));
    arm_silence(l);
    send_report(l);
    if (l->state == LINKED)
        send_heartbeat(l);
    if (l->state == LINKED)
        l->config->on_change(l->config->userdata);
}

static void on_refuse(struct agent_link *l, const struct agent_refuse *refuse)
{
    if (refuse->code == AGENT_REFUSE_RETRY)
        give_up(l, RETRY_MAX_MS, l->state == LINKED ? "it leads no longer" : NULL);
    else
        fail(l, "it refuses this agent: %s", refuse->text);
}

static void on_ack(struct agent_link *l, const struct agent_ack *ack)
{
    int64_t trip = clock_mono_ms() - l->beat_at;

    arm_silence(l);
    l->delay_ms = RETRY_MIN_MS;
    if (ack->counter != l->beat_counter)
        return; /* of an earlier one */
    l->answered = true;
    if (trip <= CLOCK_TRIP_MAX_MS) {
        l->knows_clock = true;
        l->clock_offset_ms = ack->wall_ms + trip / 2 - clock_wall_ms();
    }
    l->config->on_change(l->config->userdata);
}

static void on_frame(struct agent_link *l, const struct agent_frame *f)
{
    if (f->type == AGENT_REFUSE)
        return on_refuse(l, &f->refuse);
    if (f->type == AGENT_CHALLENGE && l->state == CONNECTED)
        return greet(l, &f->challenge);
    if (l->has_keys && f->counter != ++l->taken)
        return fail(l, "its frame has the number %llu, expected %llu",
                    (unsigned long long)f->counter, (unsigned long long)l->taken);
    if (f->type == AGENT_ACCEPT && l->state == GREETED)
        return on_accept(l, &f->accept);
    if (f->type == AGENT_ACK && l->state == LINKED)
        return on_ack(l, &f->ack);
    if (f->type == AGENT_ASK && l->state == LINKED)
        return l->config->asked(&f->ask, l->config->userdata);
    fail(l, "a frame of type %d came out of turn", f->type);
}

static void take_frames(struct agent_link *l)
{
    while (l->fd >= 0 && l->in.len) {
        struct agent_frame f;
        struct err err;
        size_t used;

        if (agent_frame_read((const uint8_t *)l->in.data, l->in.len,
                             l->has_keys ? l->keys.to_agent : NULL, &f, &used, &err) < 0)
            return fail(l, "what it sent is no frame: %s", err.text);
        if (!used)
            return;
        buf_drop(&l->in, used); /* none that is for an agent borrows from it */
        on_frame(l, &f);
        agent_frame_clear(&f);
    }
}

static void take_bytes(struct agent_link *l)
{
    char part[READ_SIZE];
    ssize_t n = recv(l->fd, part, sizeof(part), MSG_DONTWAIT);

    if (n == 0)
        return fail(l, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return fail(l, "reading from it: %s", strerror(errno));
    if (n < 0)
        return;
    if (buf_add(&l->in, part, (size_t)n) < 0)
        return fail(l, "it sent more than a frame can hold");
    take_frames(l);
}

/* ---- connecting --------------------------------------------------------------------- */

static void on_connected(struct agent_link *l)
{
    socklen_t len = sizeof(int);
    int error = 0;

    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error)
        return fail(l, "connecting to it: %s", strerror(error));
    l->state = CONNECTED;
    timer_arm(l->timer, clock_mono_ms() + SPEAK_MS);
    (void)watch(l);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
    struct agent_link *l = userdata;

    (void)s;
    (void)fd;
    if (l->state == CONNECTING)
        on_connected(l);
    else if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
        take_bytes(l);
    else
        flush(l);
    return 0;
}

static void try(struct agent_link *l)
{
    int one = 1, r;

    l->in = BUF_INIT(AGENT_FRAME_MAX + READ_SIZE);
    l->out = BUF_INIT(OUT_MAX);
    l->fd = socket(l->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return fail(l, "no socket for it: %s", strerror(errno));
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    l->state = CONNECTING;
    timer_arm(l->timer, clock_mono_ms() + CONNECT_MS);
    if (connect(l->fd, (struct sockaddr *)&l->to, l->to_len) < 0 && errno != EINPROGRESS)
        return fail(l, "connecting to it: %s", strerror(errno));
    r = sd_event_add_io(l->event, &l->io, l->fd, EPOLLIN | EPOLLOUT, on_io, l);
    if (r < 0)
        fail(l, "watching its socket: %s", strerror(-r));
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct agent_link *l = userdata;

    (void)s;
    (void)usec;
    switch (l->state) {
    case WAITING:
        try(l);
        break;
    case CONNECTING:
        fail(l, "connecting to it: no answer within %d s", CONNECT_MS / 1000);
        break;
    case CONNECTED:
    case GREETING:
    case GREETED:
        fail(l, "it accepts connections, but says nothing for %d s", SPEAK_MS / 1000);
        break;
    case LINKED:
        fail(l, "no answer to a heartbeat for %u ms", 3 * l->period_ms + 1000);
        break;
    }
    return 0;
}

/* ---- the outside -------------------------------------------------------------------- */

static int parse_address(struct agent_link *l, const char *text, struct err *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&l->to;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&l->to;
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN + 2] = "", *end;
    size_t n = colon ? (size_t)(colon - text) : 0;
    unsigned long port =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;

    if (n && n < sizeof(host) && port && port <= UINT16_MAX && !*end) {
        memcpy(host, text, n);
        if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
            v4->sin_family = AF_INET;
            v4->sin_port = htons((uint16_t)port);
            l->to_len = sizeof(*v4);
            return 0;
        }
        if (host[0] == '[' && host[n - 1] == ']') {
            host[n - 1] = '\0';
            if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1) {
                v6->sin6_family = AF_INET6;
                v6->sin6_port = htons((uint16_t)port);
                l->to_len = sizeof(*v6);
                return 0;
            }
        }
    }
    return err_set(
        err, -EINVAL,
        "the bridge's address is \"%s\", expected ADDRESS:PORT in numbers, such as "
        "10.96.0.9:6821 or [fd00::9]:6821",
        text);
}

static int copy(char *to, size_t size, const char *from, const char *what,
                struct err *err)
{
    if (!*from || (size_t)snprintf(to, size, "%s", from) >= size)
        return err_set(err, -EINVAL, "%s is \"%s\", expected 1 to %zu characters", what,
                       from, size - 1);
    return 0;
}

static int set_names(struct agent_link *l, const struct agent_link_config *c,
                     struct err *err)
{
    struct agent_greeting *g = &l->greeting;
    int r = copy(g->node, sizeof(g->node), c->node, "the node's name", err);

    if (r == 0)
        r = copy(g->pod_uid, sizeof(g->pod_uid), c->pod_uid, "the pod's uid", err);
    if (r == 0)
        r = copy(g->boot_id, sizeof(g->boot_id), c->boot_id, "the boot id", err);
    if (r == 0)
        r = copy(g->instance, sizeof(g->instance), c->instance, "the instance", err);
    return r;
}

int agent_link_new(sd_event *event, struct children *children,
                   const struct agent_link_config *config, struct agent_link **ret,
                   struct err *err)
{
    _cleanup_(agent_link_freep) struct agent_link *l = mem_zalloc(sizeof(*l));
    int r;

    l->event = event;
    l->children = children;
    l->config = config;
    l->fd = -1;
    l->delay_ms = RETRY_MIN_MS;
    r = timer_new(event, on_timer, l, &l->timer, err);
    if (r == 0)
        r = timer_new(event, on_beat, l, &l->beat, err);
    if (r == 0)
        r = parse_address(l, config->address, err);
    if (r == 0)
        r = set_names(l, config, err);
    if (r < 0)
        return r;
    timer_arm(l->timer, 0);
    *ret = l;
    l = NULL;
    return 0;
}

void agent_link_free(struct agent_link *l)
{
    if (!l)
        return;
    close_link(l);
    (void)sd_event_source_disable_unref(l->timer);
    (void)sd_event_source_disable_unref(l->beat);
    free(l);
}

bool agent_link_stands(const struct agent_link *l)
{
    return l->state == LINKED;
}

bool agent_link_answered(const struct agent_link *l)
{
    return l->state == LINKED && l->answered;
}

bool agent_link_clock_offset(const struct agent_link *l, int64_t *ret_ms)
{
    if (l->knows_clock)
        *ret_ms = l->clock_offset_ms;
    return l->knows_clock;
}
