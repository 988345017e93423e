// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/kube.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "tests/unit/fake_http.h"

struct rig {
    sd_event *event;
    struct fake_http *http;
    struct kube *kube;
    struct kube_request *request;
    int done, opened;
    int code;
    long status;
    int64_t retry_after_ms;
    struct buf body; /* gathered by kube */
    struct buf data; /* streamed */
    char error[TG_ERR_TEXT_MAX];
    int data_code;
    bool cancel_in_data;
};

static void on_done(const struct kube_result *result, void *userdata)
{
    struct rig *g = userdata;

    g->done++;
    g->code = result->code;
    g->status = result->status;
    g->retry_after_ms = result->retry_after_ms;
    assert_int_equal(strlen(result->body), result->body_len);
    assert_int_equal(buf_puts(&g->body, result->body), 0);
    snprintf(g->error, sizeof(g->error), "%s", result->error ? result->error : "");
    kube_cancel(g->request); /* of itself: no effect */
    g->request = NULL;
}

static void on_open(void *userdata)
{
    struct rig *g = userdata;

    assert_int_equal(g->data.len, 0);
    g->opened++;
}

static int on_data(const char *data, size_t n, void *userdata, struct err *err)
{
    struct rig *g = userdata;

    assert_int_equal(buf_add(&g->data, data, n), 0);
    if (g->cancel_in_data)
        kube_cancel(g->request);
    return g->data_code < 0 ? err_set(err, g->data_code, "enough") : 0;
}

static void up(struct rig *g, const struct fake_reply *script, const char *token_file)
{
    struct kube_config config = {.token_file = token_file};
    struct err err;

    *g = (struct rig){.body = BUF_INIT(4096), .data = BUF_INIT(4096)};
    assert_true(sd_event_new(&g->event) >= 0);
    g->http = fake_http_new(script);
    config.server = fake_http_url(g->http);
    assert_int_equal(kube_new(g->event, &config, &g->kube, &err), 0);
}

static void down(struct rig *g)
{
    assert_int_not_equal(fake_http_count(g->http), -1);
    kube_free(g->kube);
    fake_http_free(g->http);
    sd_event_unref(g->event);
    buf_free(&g->body);
    buf_free(&g->data);
}

static void turn(struct rig *g, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;
    int done = g->done;

    while (g->done == done && clock_mono_ms() < end)
        assert_true(sd_event_run(g->event, 20000) >= 0);
}

static void call(struct rig *g, struct kube_call c)
{
    struct err err;

    c.method = c.method ? c.method : "GET";
    c.path = c.path ? c.path : "/x";
    c.on_open = on_open;
    c.on_done = on_done;
    c.userdata = g;
    assert_int_equal(kube_start(g->kube, &c, &g->request, &err), 0);
    assert_int_equal(g->done, 0);
    turn(g, 5000);
}

static void a_body_is_gathered(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "PATCH /a?b=%2F HTTP/1.1",
         .status = 201,
         .body = "{\"a\":1}",
         .split = 1},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script, NULL);
    call(&g, (struct kube_call){.method = "PATCH",
                                .path = "/a?b=%2F",
                                .body = "{}",
                                .content_type = "application/apply-patch+yaml"});
    assert_int_equal(g.code, 0);
    assert_int_equal(g.status, 201);
    assert_int_equal(g.opened, 1);
    assert_string_equal(buf_str(&g.body), "{\"a\":1}");
    assert_string_equal(g.error, "");
    assert_non_null(
        strstr(fake_http_request(g.http, 0), "application/apply-patch+yaml\r\n"));
    assert_non_null(strstr(fake_http_request(g.http, 0), "\r\n\r\n{}"));
    assert_null(strstr(fake_http_request(g.http, 0), "Authorization"));
    down(&g);
}

static void a_stream_is_handed_on(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x", .status = 200, .body = "abcdefgh", .split = 3}, {0}};
    struct rig g;

    (void)state;
    up(&g, script, NULL);
    call(&g, (struct kube_call){.on_data = on_data});
    assert_int_equal(g.code, 0);
    assert_string_equal(buf_str(&g.data), "abcdefgh");
    assert_string_equal(buf_str(&g.body), "");
    down(&g);
}

static void a_refusal_is_told_in_words(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x",
         .status = 429,
         .headers = "Retry-After: 7\r\n",
         .body = "{\"kind\":\"Status\",\"message\":\"too many requests\"}"},
        {.want = "/x", .status = 500, .body = "<html>"},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script, NULL);
    call(&g, (struct kube_call){.on_data = on_data});
    assert_int_equal(g.code, 0);
    assert_int_equal(g.status, 429);
    assert_int_equal(g.opened, 0);
    assert_int_equal(g.retry_after_ms, 7000);
    assert_string_equal(g.error, "GET /x: HTTP status 429: too many requests");
    assert_int_equal(g.data.len, 0);
    g.done = 0;
    buf_clear(&g.body);
    call(&g, (struct kube_call){.path = "/x?secret=1"});
    assert_int_equal(g.status, 500);
    assert_string_equal(g.error, "GET /x: HTTP status 500");
    assert_string_equal(buf_str(&g.body), "<html>");
    down(&g);
}

static void the_body_is_capped(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x", .status = 200, .body = "123456789", .end = FAKE_HOLD},
        {.want = "/x", .status = 404, .body = "123456789"},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script, NULL);
    call(&g, (struct kube_call){.body_cap = 8});
    assert_int_equal(g.code, -EMSGSIZE);
    assert_int_equal(g.status, 0);
    assert_string_equal(g.error, "GET /x: the answer is larger than 8 bytes");
    g.done = 0;
    call(&g, (struct kube_call){.body_cap = 8});
    assert_int_equal(g.code, 0);
    assert_int_equal(g.status, 404);
    down(&g);
}

static void broken_connections_are_errors(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x", .status = 200, .body = "abc", .end = FAKE_CUT},
        {.want = "/x",
         .status = 200,
         .body = "abc",
         .end = FAKE_RESET,
         .body_delay_ms = 50},
        {.want = "/x", .status = 200, .body = "abc", .end = FAKE_HALF_CLOSE},
        {.want = "/x", .status = 0, .end = FAKE_CUT},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script, NULL);
    for (int i = 0; i < 4; i++) {
        g.done = 0;
        call(&g, (struct kube_call){.on_data = on_data});
        assert_int_equal(g.done, 1);
        assert_int_equal(g.code, -EIO);
        assert_memory_equal(g.error, "GET /x: ", 8);
        assert_true(strlen(g.error) > 8);
        buf_clear(&g.data);
    }
    down(&g);
}

static void silence_has_an_end(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x", .status = 200, .body = "abc", .end = FAKE_HOLD},
        {.want = "/x",
         .status = 200,
         .body = "abcdefghijklmnopqrstuvwxyz",
         .split = 1,
         .end = FAKE_HOLD,
         .delay_ms = 150},
        {.want = "/x", .status = 200, .delay_ms = 400},
        {0},
    };
    struct rig g;
    int64_t begun;

    (void)state;
    up(&g, script, NULL);
    begun = clock_mono_ms();
    call(&g, (struct kube_call){.on_data = on_data, .idle_ms = 200});
    assert_int_equal(g.code, -ETIMEDOUT);
    assert_string_equal(g.error, "GET /x: not a byte came for 200 ms");
    assert_true(clock_mono_ms() - begun >= 200);
    assert_string_equal(buf_str(&g.data), "abc");
    g.done = 0;
    buf_clear(&g.data);
    call(&g, (struct kube_call){.on_data = on_data, .idle_ms = 400});
    assert_int_equal(g.code, -ETIMEDOUT);
    assert_int_equal(g.data.len, 26); /* the idle time began anew with each byte */
    g.done = 0;
    call(&g, (struct kube_call){.timeout_ms = 100});
    assert_int_equal(g.code, -ETIMEDOUT);
    assert_string_equal(g.error, "GET /x: not done within 100 ms");
    down(&g);
}

static void nobody_there(void **state)
{
    struct kube_config config = {.server = "http://127.0.0.1:1"};
    struct rig g = {.body = BUF_INIT(4096)};

    (void)state;
    assert_true(sd_event_new(&g.event) >= 0);
    assert_int_equal(kube_new(g.event, &config, &g.kube, NULL), 0);
    call(&g, (struct kube_call){0});
    assert_int_equal(g.code, -ECONNREFUSED);
    assert_int_equal(g.status, 0);
    assert_memory_equal(g.error, "GET /x: ", 8);
    kube_free(g.kube);
    sd_event_unref(g.event);
    buf_free(&g.body);
}

static void the_callback_may_end_it(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x", .status = 200, .body = "abc", .end = FAKE_HOLD},
        {.want = "/x", .status = 200, .body = "abc", .end = FAKE_HOLD},
        {.want = "/x", .status = 200, .body = "abc", .end = FAKE_HOLD},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script, NULL);
    g.data_code = -EBADMSG;
    call(&g, (struct kube_call){.on_data = on_data});
    assert_int_equal(g.code, -EBADMSG);
    assert_string_equal(g.error, "GET /x: enough");
    /* Cancelled from inside, and then while it runs: never a call back. */
    g.done = g.data_code = 0;
    g.cancel_in_data = true;
    buf_clear(&g.data);
    assert_int_equal(kube_start(g.kube,
                                &(struct kube_call){.method = "GET",
                                                    .path = "/x",
                                                    .on_data = on_data,
                                                    .on_done = on_done,
                                                    .userdata = &g},
                                &g.request, NULL),
                     0);
    turn(&g, 200);
    assert_int_equal(g.done, 0);
    assert_string_equal(buf_str(&g.data), "abc");
    assert_int_equal(kube_start(g.kube,
                                &(struct kube_call){.method = "GET",
                                                    .path = "/x",
                                                    .idle_ms = 50,
                                                    .on_done = on_done,
                                                    .userdata = &g},
                                &g.request, NULL),
                     0);
    kube_cancel(g.request);
    kube_cancel(NULL);
    turn(&g, 200);
    assert_int_equal(g.done, 0);
    /* And one is left to kube_free(). */
    g.cancel_in_data = false;
    assert_int_equal(kube_start(g.kube,
                                &(struct kube_call){.method = "GET",
                                                    .path = "/x",
                                                    .on_data = on_data,
                                                    .on_done = on_done,
                                                    .userdata = &g},
                                &g.request, NULL),
                     0);
    turn(&g, 200);
    assert_int_equal(g.done, 0);
    down(&g);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void the_token_is_read_each_time(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/x", .status = 200}, {.want = "/x", .status = 200}, {0}};
    static const char *const bad[] = {"", "\n", "a\nX-Evil: 1", "a b"};
    char path[] = "/tmp/tidegate-test-XXXXXX";
    int fd = mkstemp(path);
    struct kube_request *request;
    struct err err;
    struct rig g;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    up(&g, script, path);
    write_file(path, "first.token\n");
    call(&g, (struct kube_call){0});
    assert_non_null(strstr(fake_http_request(g.http, 0),
                           "\r\nAuthorization: Bearer first.token\r\n"));
    write_file(path, "second.token");
    g.done = 0;
    call(&g, (struct kube_call){0});
    assert_non_null(strstr(fake_http_request(g.http, 1),
                           "\r\nAuthorization: Bearer second.token\r\n"));
    for (size_t i = 0; i < TG_LEN(bad); i++) {
        write_file(path, bad[i]);
        assert_int_equal(
            kube_start(
                g.kube,
                &(struct kube_call){.method = "GET", .path = "/x", .on_done = on_done},
                &request, &err),
            -EINVAL);
        assert_non_null(strstr(err.text, path));
        assert_null(strstr(err.text, "Evil"));
    }
    unlink(path);
    assert_int_equal(
        kube_start(g.kube,
                   &(struct kube_call){.method = "GET", .path = "/x", .on_done = on_done},
                   &request, &err),
        -ENOENT);
    down(&g);
}

static void bad_settings_are_named(void **state)
{
    struct kube *k = NULL;
    sd_event *event;
    struct err err;

    (void)state;
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(
        kube_new(event, &(struct kube_config){.server = "host:6443"}, &k, &err), -EINVAL);
    assert_string_equal(err.text, "server 'host:6443': expected https://HOST:PORT");
    assert_int_equal(
        kube_new(event, &(struct kube_config){.server = "https://h/"}, &k, &err),
        -EINVAL);
    assert_int_equal(
        kube_new(event, &(struct kube_config){.server = "https://h", .ca_file = "/no/ca"},
                 &k, &err),
        -ENOENT);
    assert_string_equal(err.text, "CA file /no/ca: No such file or directory");
    assert_int_equal(
        kube_new(event,
                 &(struct kube_config){.server = "http://localhost.evil.example",
                                       .token_file = "/dev/null"},
                 &k, &err),
        -EINVAL);
    assert_null(k);
    sd_event_unref(event);
}

static void escapes(void **state)
{
    _cleanup_(mem_freep) char *s = kube_escape("a=b,c in (d)");

    (void)state;
    assert_string_equal(s, "a%3Db%2Cc%20in%20%28d%29");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_gathered),
        cmocka_unit_test(a_stream_is_handed_on),
        cmocka_unit_test(a_refusal_is_told_in_words),
        cmocka_unit_test(the_body_is_capped),
        cmocka_unit_test(broken_connections_are_errors),
        cmocka_unit_test(silence_has_an_end),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(the_callback_may_end_it),
        cmocka_unit_test(the_token_is_read_each_time),
        cmocka_unit_test(bad_settings_are_named),
        cmocka_unit_test(escapes),
    };

    return cmocka_run_group_tests_name("io_kube", tests, NULL, NULL);
}
