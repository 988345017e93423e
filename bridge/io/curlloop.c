// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/curlloop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "io/timer.h"

#define IDLE_CONNECTIONS_MAX 8 /* kept open for the next request */

struct curlloop {
    sd_event *event;
    CURLM *multi;
    sd_event_source *timer; /* when libcurl wants to be called */
    sd_event_source *wake;
    struct curlloop_ops ops;
    void *userdata;
};

static void tell_ended(struct curlloop *c)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(c->multi, &left))) {
        if (m->msg == CURLMSG_DONE)
            c->ops.ended(m->easy_handle, m->data.result, c->userdata);
    }
}

static void act(struct curlloop *c, curl_socket_t fd, int what)
{
    int running;

    (void)curl_multi_socket_action(c->multi, fd, what, &running);
    tell_ended(c);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
    int what = 0;

    (void)s;
    /* An error is handed on as readable: libcurl then reads, and finds out which one it
     * is. */
    if (revents & (EPOLLIN | EPOLLERR | EPOLLHUP))
        what |= CURL_CSELECT_IN;
    if (revents & EPOLLOUT)
        what |= CURL_CSELECT_OUT;
    act(userdata, fd, what);
    return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    (void)s;
    (void)usec;
    act(userdata, CURL_SOCKET_TIMEOUT, 0);
    return 0;
}

static int on_wake(sd_event_source *s, void *userdata)
{
    struct curlloop *c = userdata;

    (void)s;
    c->ops.woken(c->userdata);
    return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *userdata,
                       void *socketp)
{
    struct curlloop *c = userdata;
    sd_event_source *s = socketp;
    uint32_t events = 0;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        sd_event_source_disable_unref(s);
        (void)curl_multi_assign(c->multi, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN)
        events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        events |= EPOLLOUT;
    if (s)
        return sd_event_source_set_io_events(s, events) < 0 ? -1 : 0;
    if (sd_event_add_io(c->event, &s, fd, events, on_io, c) < 0)
        return -1;
    (void)curl_multi_assign(c->multi, fd, s);
    return 0;
}

static int want_timer(CURLM *multi, long timeout_ms, void *userdata)
{
    struct curlloop *c = userdata;

    (void)multi;
    if (timeout_ms < 0)
        timer_stop(c->timer);
    else
        timer_arm(c->timer, clock_mono_ms() + timeout_ms);
    return 0;
}

int curlloop_new(sd_event *event, const struct curlloop_ops *ops, void *userdata,
                 struct curlloop **ret, struct err *err)
{
    _cleanup_(curlloop_freep) struct curlloop *c = mem_zalloc(sizeof(*c));
    int r;

    c->event = sd_event_ref(event);
    c->ops = *ops;
    c->userdata = userdata;
    r = timer_new(event, on_timer, c, &c->timer, err);
    if (r < 0)
        return r;
    r = sd_event_add_defer(event, &c->wake, on_wake, c);
    if (r < 0)
        return err_set(err, r, "cannot make an event source: %s", strerror(-r));
    (void)sd_event_source_set_enabled(c->wake, SD_EVENT_OFF);
    c->multi = curl_multi_init();
    if (!c->multi)
        return err_set(err, -ENOMEM, "cannot make a libcurl handle");
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS_MAX);
    *ret = c;
    c = NULL;
    return 0;
}

void curlloop_free(struct curlloop *c)
{
    if (!c)
        return;
    /* First, for it takes leave of its sockets through want_socket(). */
    if (c->multi)
        curl_multi_cleanup(c->multi);
    sd_event_source_disable_unref(c->timer);
    sd_event_source_disable_unref(c->wake);
    sd_event_unref(c->event);
    free(c);
}

int curlloop_add(struct curlloop *c, CURL *easy, struct err *err)
{
    CURLMcode code = curl_multi_add_handle(c->multi, easy);

    if (code != CURLM_OK)
        return err_set(err, -EIO, "libcurl: %s", curl_multi_strerror(code));
    return 0;
}

void curlloop_remove(struct curlloop *c, CURL *easy)
{
    (void)curl_multi_remove_handle(c->multi, easy);
}

void curlloop_wake(struct curlloop *c)
{
    (void)sd_event_source_set_enabled(c->wake, SD_EVENT_ONESHOT);
}
