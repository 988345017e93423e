// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/fake_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

#define REQUESTS_MAX    64
#define CONNECTIONS_MAX 64

struct fake_http {
    const struct fake_reply *script;
    char *url;
    int listener;
    pthread_t acceptor;

    pthread_mutex_t lock; /* of what follows */
    size_t next;          /* into script */
    bool unexpected;
    bool closing;
    char *requests[REQUESTS_MAX];
    size_t n_requests;
    int fds[CONNECTIONS_MAX];
    pthread_t threads[CONNECTIONS_MAX];
    size_t n_connections;
};

struct connection {
    struct fake_http *server;
    int fd;
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fake_http: %s: %s\n", what, strerror(errno));
        abort();
    }
}

static void nap(int ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};

    nanosleep(&ts, NULL);
}

static bool send_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);

        if (sent < 0)
            return false;
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Reads one request with its body into b; false when the client has gone. */
static bool read_request(int fd, struct buf *b)
{
    const char *end, *length;
    size_t want = 0;
    char c[4096];

    for (;;) {
        ssize_t n;

        end = strstr(buf_str(b), "\r\n\r\n");
        if (end) {
            length = strcasestr(buf_str(b), "\r\ncontent-length:");
            want = (size_t)(end + 4 - b->data) +
                   (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
            if (b->len >= want)
                return true;
        }
        n = recv(fd, c, sizeof(c), 0);
        if (n <= 0)
            return false;
        must(buf_add(b, c, (size_t)n) == 0, "request too large");
    }
}

static const struct fake_reply *take_reply(struct fake_http *f, const char *request)
{
    _cleanup_(mem_freep) char *line = mem_strndup(request, strcspn(request, "\r"));
    const struct fake_reply *reply = NULL;

    pthread_mutex_lock(&f->lock);
    must(f->n_requests < REQUESTS_MAX, "too many requests");
    f->requests[f->n_requests++] = mem_strdup(request);
    if (f->script[f->next].repeat && !strstr(line, f->script[f->next].want))
        f->next++;
    if (f->script[f->next].want && strstr(line, f->script[f->next].want)) {
        reply = &f->script[f->next];
        f->next += reply->repeat ? 0 : 1;
    } else {
        f->unexpected = true;
        fprintf(stderr, "# fake_http: not in the script at step %zu: %s\n", f->next,
                line);
    }
    pthread_mutex_unlock(&f->lock);
    return reply;
}

/* In chunks of `split` bytes, so that the client sees them one by one. */
static bool send_body(int fd, const struct fake_reply *r)
{
    size_t len = r->body ? strlen(r->body) : 0, step = r->split ? r->split : len;
    char head[32];

    for (size_t at = 0; at < len; at += step) {
        size_t n = len - at < step ? len - at : step;

        snprintf(head, sizeof(head), "%zx\r\n", n);
        if (!send_all(fd, head, strlen(head)) || !send_all(fd, r->body + at, n) ||
            !send_all(fd, "\r\n", 2))
            return false;
        if (r->split) {
            struct timespec ts = {.tv_nsec = 100000};

            nanosleep(&ts, NULL);
        }
    }
    return true;
}

/* Until the client leaves or the test is over. */
static void hold(int fd)
{
    char c[256];

    while (recv(fd, c, sizeof(c), 0) > 0)
        ;
}

/* True when the connection can take another request. */
static bool answer(int fd, const struct fake_reply *r)
{
    const struct linger now = {.l_onoff = 1};
    _cleanup_(mem_freep) char *head =
        mem_printf("HTTP/1.1 %d Scripted\r\nContent-Type: application/json\r\n"
                   "Transfer-Encoding: chunked\r\n%s\r\n",
                   r->status, r->headers ? r->headers : "");

    nap(r->delay_ms);
    if (r->status && !send_all(fd, head, strlen(head)))
        return false;
    nap(r->body_delay_ms);
    if (!send_body(fd, r))
        return false;
    switch (r->end) {
    case FAKE_END:
        return send_all(fd, "0\r\n\r\n", 5);
    case FAKE_CUT:
        break;
    case FAKE_RESET:
        nap(50); /* an RST takes along what the client has not read yet */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        break;
    case FAKE_HALF_CLOSE:
        shutdown(fd, SHUT_WR);
        hold(fd);
        break;
    case FAKE_HOLD:
        hold(fd);
        break;
    }
    return false;
}

static void *serve(void *arg)
{
    struct connection c = *(struct connection *)arg;
    struct fake_http *f = c.server;
    const struct fake_reply *r;
    bool more = true;

    free(arg);
    while (more) {
        struct buf b = BUF_INIT(1 << 20);

        more = read_request(c.fd, &b);
        if (more) {
            r = take_reply(f, b.data);
            more = r && answer(c.fd, r);
        }
        buf_free(&b);
    }
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->n_connections; i++) {
        if (f->fds[i] == c.fd)
            f->fds[i] = -1;
    }
    close(c.fd);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct fake_http *f = arg;
    const int on = 1;
    int fd;

    while ((fd = accept(f->listener, NULL, NULL)) >= 0) {
        struct connection *c = mem_zalloc(sizeof(*c));

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        *c = (struct connection){.server = f, .fd = fd};
        pthread_mutex_lock(&f->lock);
        must(f->n_connections < CONNECTIONS_MAX, "too many connections");
        if (f->closing)
            shutdown(fd, SHUT_RDWR);
        f->fds[f->n_connections] = fd;
        must(pthread_create(&f->threads[f->n_connections++], NULL, serve, c) == 0,
             "thread");
        pthread_mutex_unlock(&f->lock);
    }
    return NULL;
}

struct fake_http *fake_http_new(const struct fake_reply *script)
{
    struct fake_http *f = mem_zalloc(sizeof(*f));
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);

    f->script = script;
    pthread_mutex_init(&f->lock, NULL);
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(f->listener >= 0, "socket");
    must(bind(f->listener, (struct sockaddr *)&a, sizeof(a)) == 0, "bind");
    must(listen(f->listener, 16) == 0, "listen");
    must(getsockname(f->listener, (struct sockaddr *)&a, &len) == 0, "getsockname");
    f->url = mem_printf("http://127.0.0.1:%u", ntohs(a.sin_port));
    must(pthread_create(&f->acceptor, NULL, accept_all, f) == 0, "thread");
    return f;
}

void fake_http_free(struct fake_http *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    for (size_t i = 0; i < f->n_connections; i++) {
        if (f->fds[i] >= 0)
            shutdown(f->fds[i], SHUT_RDWR);
    }
    pthread_mutex_unlock(&f->lock);
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->acceptor, NULL);
    for (size_t i = 0; i < f->n_connections; i++)
        pthread_join(f->threads[i], NULL);
    close(f->listener);
    pthread_mutex_destroy(&f->lock);
    for (size_t i = 0; i < f->n_requests; i++)
        free(f->requests[i]);
    free(f->url);
    free(f);
}

const char *fake_http_url(const struct fake_http *f)
{
    return f->url;
}

int fake_http_count(struct fake_http *f)
{
    int n;

    pthread_mutex_lock(&f->lock);
    n = f->unexpected ? -1 : (int)f->n_requests;
    pthread_mutex_unlock(&f->lock);
    return n;
}

const char *fake_http_request(struct fake_http *f, size_t i)
{
    const char *s;

    pthread_mutex_lock(&f->lock);
    s = i < f->n_requests ? f->requests[i] : NULL;
    pthread_mutex_unlock(&f->lock);
    return s;
}
