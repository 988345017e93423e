// SPDX-License-Identifier: GPL-2.0-or-later
/* The server on its event loop, asked by plain sockets: bytes split anywhere, rude
 * clients. */
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

#include "base/buf.h"
#include "base/clock.h"
#include "io/httpd.h"

#define BIG 3000000

struct fixture {
    sd_event *event;
    struct httpd *httpd;
    char path[256]; /* of the last request */
    int requests;
};

static void on_get(const char *path, struct httpd_reply *ret, void *userdata)
{
    struct fixture *f = userdata;

    f->requests++;
    (void)snprintf(f->path, sizeof(f->path), "%s", path);
    ret->status = strcmp(path, "/none") == 0 ? 404 : 200;
    ret->content_type = "application/json";
    if (strcmp(path, "/big") == 0) {
        ret->body = mem_zalloc(BIG + 1);
        memset(ret->body, 'x', BIG);
    } else {
        ret->body = mem_strdup("{\"a\":1}");
    }
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    assert_true(sd_event_new(&f->event) >= 0);
    assert_int_equal(httpd_new(f->event, "127.0.0.1:0", on_get, f, &f->httpd, NULL), 0);
    assert_int_not_equal(httpd_port(f->httpd), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    httpd_free(f->httpd);
    sd_event_unref(f->event);
    free(f);
    return 0;
}

static int dial(struct fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)httpd_port(f->httpd))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void say(int fd, const char *text, size_t n)
{
    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), n);
}

/* Reads until the server closes, running its loop meanwhile. */
static void hear(struct fixture *f, int fd, struct buf *ret)
{
    int64_t end = clock_mono_ms() + 10000;
    char part[65536];
    ssize_t n;

    for (;;) {
        assert_true(clock_mono_ms() < end);
        assert_true(sd_event_run(f->event, 10000) >= 0);
        n = recv(fd, part, sizeof(part), MSG_DONTWAIT);
        if (n > 0)
            assert_int_equal(buf_add(ret, part, (size_t)n), 0);
        else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            return;
    }
}

static void ask(struct fixture *f, const char *request, struct buf *ret)
{
    int fd = dial(f);

    say(fd, request, strlen(request));
    hear(f, fd, ret);
    (void)close(fd);
}

static void test_get(void **state)
{
    struct fixture *f = *state;
    struct buf b = BUF_INIT(65536);

    ask(f, "GET /v1/nodes/a%2Db?x=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        &b);
    assert_non_null(strstr(buf_str(&b), "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(buf_str(&b), "Content-Type: application/json\r\n"));
    assert_non_null(strstr(buf_str(&b), "\r\n\r\n{\"a\":1}"));
    assert_string_equal(f->path, "/v1/nodes/a-b");
    buf_clear(&b);
    ask(f, "GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    assert_non_null(strstr(buf_str(&b), "HTTP/1.1 404 "));
    buf_clear(&b);
    ask(f, "HEAD /v1/nodes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    assert_non_null(strstr(buf_str(&b), "Content-Length: 7\r\n"));
    assert_null(strstr(buf_str(&b), "{\"a\""));
    buf_free(&b);
}

static void test_other_methods(void **state)
{
    struct fixture *f = *state;
    struct buf b = BUF_INIT(65536);

    ask(f,
        "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: "
        "close\r\n\r\nabc",
        &b);
    assert_non_null(strstr(buf_str(&b), "HTTP/1.1 405 "));
    assert_non_null(strstr(buf_str(&b), "Allow: GET, HEAD\r\n"));
    assert_int_equal(f->requests, 0);
    buf_free(&b);
}

static void test_split_bytes(void **state)
{
    static const char request[] =
        "GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct fixture *f = *state;
    struct buf b = BUF_INIT(65536);
    int fd = dial(f);

    for (size_t i = 0; i < strlen(request); i++) {
        say(fd, request + i, 1);
        assert_true(sd_event_run(f->event, 1000) >= 0);
    }
    hear(f, fd, &b);
    assert_non_null(strstr(buf_str(&b), "{\"a\":1}"));
    (void)close(fd);
    buf_free(&b);
}

static void test_big(void **state)
{
    struct fixture *f = *state;
    struct buf b = BUF_INIT(BIG + 65536);

    ask(f, "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    assert_in_range(b.len, BIG, BIG + 1000);
    assert_int_equal(b.data[b.len - 1], 'x');
    buf_free(&b);
}

/* One connection that says nothing, one that leaves in the middle, headers without end.
 */
static void test_rude_clients(void **state)
{
    struct fixture *f = *state;
    struct buf b = BUF_INIT(65536);
    int silent = dial(f), gone = dial(f), endless = dial(f);
    char line[1024] = "X-A: ";

    say(gone, "GET /big HTTP/1.1\r\nHost", 23);
    (void)close(gone);
    memset(line + 5, 'a', sizeof(line) - 7);
    memcpy(line + sizeof(line) - 2, "\r\n", 2);
    say(endless, "GET / HTTP/1.1\r\n", 16);
    for (int i = 0; i < 40; i++)
        (void)send(endless, line, sizeof(line), MSG_NOSIGNAL);
    hear(f, endless, &b);
    assert_int_equal(f->requests, 0);
    buf_clear(&b);
    ask(f, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    assert_non_null(strstr(buf_str(&b), "200 OK"));
    (void)close(silent);
    (void)close(endless);
    buf_free(&b);
}

static void test_listen_addresses(void **state)
{
    static const char *const bad[] = {
        "",          "8080",         ":8080",         "host:8080", "1.2.3.4",
        "1.2.3.4:",  "1.2.3.4:x",    "1.2.3.4:65536", "::1:80",    "[::1:80",
        "[::1]x:80", "[1.2.3.4]:80", "1.2.3.4:-1",    "1.2.3.4: 1"};
    struct fixture *f = *state;
    struct httpd *h = NULL;
    struct err err;
    char taken[64];

    for (size_t i = 0; i < TG_LEN(bad); i++) {
        assert_int_equal(httpd_new(f->event, bad[i], on_get, f, &h, &err), -EINVAL);
        assert_non_null(strstr(err.text, "expected ADDRESS:PORT"));
        assert_null(h);
    }
    (void)snprintf(taken, sizeof(taken), "127.0.0.1:%u", httpd_port(f->httpd));
    assert_int_equal(httpd_new(f->event, taken, on_get, f, &h, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, taken));
    assert_int_equal(httpd_new(f->event, "[::1]:0", on_get, f, &h, &err), 0);
    httpd_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_get, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_methods, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_split_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_big, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rude_clients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_listen_addresses, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
