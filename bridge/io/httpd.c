// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/httpd.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/listen.h"

/* An answer can be megabytes long: few connections, from no one address all of them. */
#define CONNECTIONS_MAX         32
#define CONNECTIONS_PER_ADDRESS 8
#define CONNECTION_MEMORY       16384 /* bytes for request line and headers */
#define IDLE_S                  15
#define BACKLOG                 128

struct httpd {
    struct MHD_Daemon *daemon;
    sd_event_source *io;
    sd_event_source *timer;
    httpd_cb cb;
    void *userdata;
    unsigned port;
};

/* ---- answering --------------------------------------------------------------------- */

static enum MHD_Result reply(struct MHD_Connection *connection,
                             const struct httpd_reply *r)
{
    struct MHD_Response *response;
    enum MHD_Result result;

    response = MHD_create_response_from_buffer_with_free_callback(strlen(r->body),
                                                                  r->body, free);
    if (!response) {
        free(r->body);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  r->content_type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (r->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    result = MHD_queue_response(connection, r->status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
                                  const char *path, const char *method,
                                  const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    struct httpd *h = userdata;
    struct httpd_reply r = {.status = MHD_HTTP_METHOD_NOT_ALLOWED,
                            .content_type = "text/plain"};

    (void)version;
    (void)upload;
    if (!*state) { /* the headers are here; an answer may only come after the body */
        *state = h;
        return MHD_YES;
    }
    if (*upload_size) {
        *upload_size = 0; /* nobody reads it */
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 ||
        strcmp(method, MHD_HTTP_METHOD_HEAD) == 0)
        h->cb(path, &r, h->userdata);
    else
        r.body = mem_printf("method %s is not allowed here, only GET\n", method);
    return reply(connection, &r);
}

/* ---- the event loop ---------------------------------------------------------------- */

/* libmicrohttpd has its own epoll and no timer: it says when it wants to be called again.
 */
static void run(struct httpd *h)
{
    uint64_t ms;

    (void)MHD_run(h->daemon);
    if (MHD_get_timeout64(h->daemon, &ms) == MHD_YES) {
        (void)sd_event_source_set_time(h->timer, ((uint64_t)clock_mono_ms() + ms) * 1000);
        (void)sd_event_source_set_enabled(h->timer, SD_EVENT_ONESHOT);
    } else {
        (void)sd_event_source_set_enabled(h->timer, SD_EVENT_OFF);
    }
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    (void)source;
    (void)fd;
    (void)revents;
    run(userdata);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    run(userdata);
    return 0;
}

static int attach(struct httpd *h, sd_event *event, struct err *err)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int r;

    if (!info)
        return err_set(err, -ENOSYS, "libmicrohttpd was built without epoll");
    r = sd_event_add_io(event, &h->io, info->epoll_fd, EPOLLIN, on_io, h);
    if (r >= 0)
        r = sd_event_add_time(event, &h->timer, CLOCK_BOOTTIME, 0, 10000, on_timer, h);
    if (r < 0)
        return err_set(err, r, "cannot watch the HTTP server: %s", strerror(-r));
    return 0;
}

int httpd_new(sd_event *event, const char *listen, httpd_cb cb, void *userdata,
              struct httpd **ret, struct err *err)
{
    _cleanup_(httpd_freep) struct httpd *h = mem_zalloc(sizeof(*h));
    int fd, r;

    h->cb = cb;
    h->userdata = userdata;
    fd = listen_on(listen, BACKLOG, &h->port, err);
    if (fd < 0)
        return fd;
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_THREAD_SAFETY, 0, NULL, NULL, on_request, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_END);
    if (!h->daemon) {
        (void)close(fd);
        return err_set(err, -EIO, "cannot start the HTTP server on %s", listen);
    }
    r = attach(h, event, err);
    if (r < 0)
        return r;
    run(h);
    *ret = h;
    h = NULL;
    return 0;
}

void httpd_free(struct httpd *h)
{
    if (!h)
        return;
    (void)sd_event_source_disable_unref(h->io);
    (void)sd_event_source_disable_unref(h->timer);
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    free(h);
}

unsigned httpd_port(const struct httpd *h)
{
    return h->port;
}
