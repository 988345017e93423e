// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/leases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/fake_http.h"

#define GET "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"
/* Long ago by the clock of this machine, which plays no part. */
#define DATE "Date: Tue, 01 Dec 2020 11:21:30 GMT\r\n"
#define LEASE(renewed, fields)                                                           \
    "{\"kind\":\"Lease\",\"metadata\":{\"name\":\"w1\"" fields                           \
    "},\"spec\":{\"renewTime\":\"" renewed "\"}}"
#define WRITTEN(at)                                                                      \
    ",\"managedFields\":[{\"manager\":\"kubectl\",\"time\":\"2020-12-01T11:21:30Z\","    \
    "\"fieldsV1\":{\"f:metadata\":{}}},{\"manager\":\"kubelet\",\"time\":\"" at          \
    "\",\"fieldsV1\":{\"f:spec\":{\"f:renewTime\":{}}}}]"

struct rig {
    sd_event *event;
    struct fake_http *http;
    struct kube *kube;
    struct leases *leases;
    int changes;
};

static void on_change(void *userdata)
{
    struct rig *g = userdata;

    g->changes++;
}

static void up_with(struct rig *g, const struct fake_reply *script,
                    struct leases_config config)
{
    config.period_ms = config.period_ms ? config.period_ms : 50;
    config.on_change = on_change;
    config.userdata = g;
    *g = (struct rig){0};
    log_set_level(LOG_LEVEL_ERROR);
    assert_true(sd_event_new(&g->event) >= 0);
    g->http = fake_http_new(script);
    assert_int_equal(kube_new(g->event,
                              &(struct kube_config){.server = fake_http_url(g->http)},
                              &g->kube, NULL),
                     0);
    assert_int_equal(leases_new(g->kube, g->event, &config, &g->leases, NULL), 0);
}

static void up(struct rig *g, const struct fake_reply *script)
{
    static const char *const names[] = {"w1"};

    up_with(g, script, (struct leases_config){.stale_ms = 20000});
    leases_set_suspects(g->leases, names, 1);
    assert_int_equal(leases_get(g->leases, "w1").renewed, TRI_UNKNOWN);
}

static void down(struct rig *g)
{
    assert_int_not_equal(fake_http_count(g->http), -1);
    leases_free(g->leases);
    kube_free(g->kube);
    fake_http_free(g->http);
    sd_event_unref(g->event);
}

static void turn(struct rig *g)
{
    assert_true(sd_event_run(g->event, 10000) >= 0);
}

static void until(struct rig *g, enum tri want)
{
    int64_t end = clock_mono_ms() + 5000;

    while (leases_get(g->leases, "w1").renewed != want && clock_mono_ms() < end)
        turn(g);
    assert_int_equal(leases_get(g->leases, "w1").renewed, want);
}

/* The answers to `n` requests are in. */
static void until_answers(struct rig *g, int n)
{
    int64_t end = clock_mono_ms() + 5000;

    while (fake_http_count(g->http) <= n && clock_mono_ms() < end)
        turn(g);
    assert_true(fake_http_count(g->http) > n);
}

static void the_servers_clock_decides(void **state)
{
    static const struct fake_reply script[] = {
        /* 10 s by the server; the kubelet's clock is an hour late */
        {.want = GET "w1 ",
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:21:20.000000Z", WRITTEN("2020-12-01T11:21:20Z"))},
        /* 20 s, and the kubelet's is an hour early */
        {.want = GET "w1 ",
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:21:20.000000Z", WRITTEN("2020-12-01T11:21:10Z")),
         .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, TRI_YES);
    until(&g, TRI_NO);
    assert_int_equal(g.changes, 2);
    leases_set_suspects(g.leases, NULL, 0);
    assert_int_equal(leases_get(g.leases, "w1").renewed, TRI_UNKNOWN);
    down(&g);
}

static void a_wrong_clock_of_the_kubelet_does_not_matter(void **state)
{
    static const struct fake_reply script[] = {
        /* an hour old by its own word: that may be its clock */
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:21:20Z", "")},
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:21:20Z", "")},
        /* it is: this one renews */
        {.want = GET,
         .delay_ms = 300,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:21:30Z", ""),
         .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    until_answers(&g, 2);
    assert_int_equal(leases_get(g.leases, "w1").renewed, TRI_UNKNOWN);
    until(&g, TRI_YES);
    down(&g);
}

/* Without a word of the server's on when it was written down. */
static void what_does_not_change_is_stale(void **state)
{
    static const struct {
        const char *what, *headers, *body;
        int64_t after_ms; /* of 500 */
    } cases[] = {
        {"old by its own word", DATE, LEASE("2020-12-01T11:21:00Z", ""), 300},
        {"from the future", DATE, LEASE("2020-12-01T12:00:00Z", ""), 500},
        {"no Date", NULL, LEASE("2020-12-01T11:21:29Z", ""), 500},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(cases); i++) {
        static const char *const names[] = {"w1"};
        const struct fake_reply script[] = {{.want = GET,
                                             .status = 200,
                                             .headers = cases[i].headers,
                                             .body = cases[i].body,
                                             .repeat = true},
                                            {0}};
        int64_t begin;
        struct rig g;

        up_with(&g, script, (struct leases_config){.stale_ms = 500});
        leases_set_suspects(g.leases, names, 1);
        until_answers(&g, 1);
        begin = clock_mono_ms();
        assert_int_equal(leases_get(g.leases, "w1").renewed, TRI_UNKNOWN);
        until(&g, TRI_NO);
        /* the first answer came up to a period before */
        assert_true(clock_mono_ms() - begin >= cases[i].after_ms - 100);
        down(&g);
    }
}

static void one_that_stops_renewing_turns_stale(void **state)
{
    static const char *const names[] = {"w1"};
    static const struct fake_reply script[] = {
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:00:00Z", "")},
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T10:00:10Z", ""),
         .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up_with(&g, script, (struct leases_config){.stale_ms = 500});
    leases_set_suspects(g.leases, names, 1);
    until(&g, TRI_YES);
    until(&g, TRI_NO);
    assert_int_equal(g.changes, 2);
    down(&g);
}

/* A look-up that failed tells nothing, whatever was known before. */
static void what_failed_is_unknown(void **state)
{
    static const struct fake_reply good = {
        .want = GET,
        .status = 200,
        .headers = DATE,
        .body = LEASE("2020-12-01T11:21:20Z", WRITTEN("2020-12-01T11:21:20Z"))};
    static const struct fake_reply bad[] = {
        {.want = GET, .status = 404, .headers = DATE, .body = "{\"kind\":\"Status\"}"},
        {.want = GET, .status = 403, .headers = DATE, .body = "{}"},
        {.want = GET, .status = 500, .headers = DATE, .body = "x"},
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = "{\"kind\":\"Lease\"",
         .end = FAKE_CUT},
        {.want = GET, .status = 200, .headers = DATE, .body = "[]"},
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = "{\"kind\":\"Lease\",\"metadata\":{\"name\":\"w1\"},\"spec\":{}}"},
        {.want = GET, .status = 200, .headers = DATE, .body = LEASE("yesterday", "")},
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T11:21:20Z", WRITTEN("soon"))},
        {.want = GET, .status = 0, .end = FAKE_HOLD},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(bad); i++) {
        static const char *const names[] = {"w1"};
        struct fake_reply script[] = {good, bad[i], good, {0}};
        struct rig g;

        script[2].repeat = true;
        up_with(&g, script, (struct leases_config){.timeout_ms = 200});
        leases_set_suspects(g.leases, names, 1);
        until(&g, TRI_YES);
        until(&g, TRI_UNKNOWN);
        if (bad[i].end != FAKE_HOLD) /* of the fake server's thread, too */
            until(&g, TRI_YES);
        down(&g);
    }
}

/* More than have a place at once: all are answered, and again. */
static void many_wait_for_each_other(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET,
         .status = 200,
         .headers = DATE,
         .body = LEASE("2020-12-01T11:21:20Z", WRITTEN("2020-12-01T11:21:20Z")),
         .repeat = true},
        {0},
    };
    char text[40][8];
    const char *names[40];
    int64_t end;
    size_t known = 0;
    struct rig g;

    (void)state;
    for (size_t i = 0; i < 40; i++) {
        snprintf(text[i], sizeof(text[i]), "w%zu", i);
        names[i] = text[i];
    }
    up_with(&g, script, (struct leases_config){.period_ms = 1000});
    leases_set_suspects(g.leases, names, 40);
    end = clock_mono_ms() + 20000;
    while (known < 40 && clock_mono_ms() < end) {
        turn(&g);
        known = 0;
        for (size_t i = 0; i < 40; i++)
            known += leases_get(g.leases, names[i]).renewed == TRI_YES;
    }
    assert_int_equal(known, 40);
    leases_set_suspects(g.leases, names + 30, 10);
    assert_int_equal(leases_get(g.leases, "w0").renewed, TRI_UNKNOWN);
    assert_int_equal(leases_get(g.leases, "w39").renewed, TRI_YES);
    until_answers(&g, 45);
    down(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_servers_clock_decides),
        cmocka_unit_test(a_wrong_clock_of_the_kubelet_does_not_matter),
        cmocka_unit_test(what_does_not_change_is_stale),
        cmocka_unit_test(one_that_stops_renewing_turns_stale),
        cmocka_unit_test(what_failed_is_unknown),
        cmocka_unit_test(many_wait_for_each_other),
    };

    return cmocka_run_group_tests_name("io_leases", tests, NULL, NULL);
}
