// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/lease.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "codec/k8s_obj.h"
#include "tests/unit/fake_http.h"

#define GET  "GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/bridge "
#define PUT  "PUT /apis/coordination.k8s.io/v1/namespaces/ns/leases/bridge "
#define POST "POST /apis/coordination.k8s.io/v1/namespaces/ns/leases "
#define LEASE(version, holder)                                                           \
    "{\"metadata\":{\"name\":\"bridge\",\"resourceVersion\":\"" version                  \
    "\",\"labels\":{\"kept\":\"yes\"}},\"spec\":{\"holderIdentity\":\"" holder           \
    "\",\"leaseDurationSeconds\":1,\"leaseTransitions\":3,"                              \
    "\"acquireTime\":\"2026-12-01T11:00:00.000000Z\"}}"

struct rig {
    sd_event *event;
    struct fake_http *http;
    struct kube *kube;
    struct lease *lease;
    int gained, lost, released;
};

static void on_change(bool leader, void *userdata)
{
    struct rig *g = userdata;

    if (leader)
        g->gained++;
    else
        g->lost++;
}

static void on_released(void *userdata)
{
    struct rig *g = userdata;

    g->released++;
}

static void up_with(struct rig *g, const struct fake_reply *script, int duration_s)
{
    struct lease_config config = {
        .namespace = "ns",
        .name = "bridge",
        .identity = "me",
        .duration_s = duration_s,
        .deadline_ms = duration_s * 700,
        .renew_ms = 200,
        .on_change = on_change,
        .userdata = g,
    };

    *g = (struct rig){0};
    log_set_level(LOG_LEVEL_ERROR);
    assert_true(sd_event_new(&g->event) >= 0);
    g->http = fake_http_new(script);
    assert_int_equal(kube_new(g->event,
                              &(struct kube_config){.server = fake_http_url(g->http)},
                              &g->kube, NULL),
                     0);
    assert_int_equal(lease_new(g->kube, g->event, &config, &g->lease, NULL), 0);
    assert_false(lease_is_leader(g->lease));
}

static void up(struct rig *g, const struct fake_reply *script)
{
    up_with(g, script, 1);
}

static void down(struct rig *g)
{
    assert_int_not_equal(fake_http_count(g->http), -1);
    lease_free(g->lease);
    kube_free(g->kube);
    fake_http_free(g->http);
    sd_event_unref(g->event);
}

/* Turns the loop until `*what` is `n`. */
static void until(struct rig *g, const int *what, int n)
{
    int64_t end = clock_mono_ms() + 5000;

    while (*what != n && clock_mono_ms() < end)
        assert_true(sd_event_run(g->event, 10000) >= 0);
    assert_int_equal(*what, n);
}

static void until_requests(struct rig *g, int n)
{
    int64_t end = clock_mono_ms() + 5000;

    while (fake_http_count(g->http) < n && clock_mono_ms() < end)
        assert_true(sd_event_run(g->event, 10000) >= 0);
    assert_true(fake_http_count(g->http) >= n);
}

static cJSON *body_of(struct rig *g, size_t request)
{
    const char *text = fake_http_request(g->http, request);
    cJSON *obj = NULL;

    assert_non_null(text);
    text = strstr(text, "\r\n\r\n") + 4;
    assert_int_equal(json_parse(text, strlen(text), &obj, NULL), 0);
    return obj;
}

static void expect_str(const cJSON *obj, const char *path, const char *expected)
{
    const char *s = NULL;

    assert_int_equal(json_opt_str(obj, path, &s, NULL), 0);
    assert_string_equal(s ? s : "(none)", expected);
}

static void expect_int(const cJSON *obj, const char *path, int64_t expected)
{
    int64_t n = -1;

    assert_int_equal(json_opt_int(obj, path, &n, NULL), 0);
    assert_int_equal(n, expected);
}

static void made_renewed_and_lost_on_time(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 404},
        {.want = POST, .status = 201, .body = LEASE("1", "me")},
        {.want = PUT, .status = 200, .body = LEASE("2", "me")},
        {.want = PUT, .end = FAKE_HOLD},
        {.want = GET, .end = FAKE_HOLD, .repeat = true},
        {0},
    };
    _cleanup_(cJSON_Deletep) cJSON *post = NULL, *put = NULL;
    const char *renewed;
    int64_t ms, valid;
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, &g.gained, 1);
    assert_true(lease_is_leader(g.lease));
    assert_string_equal(lease_holder(g.lease), "me");
    until_requests(&g, 4);
    valid = lease_valid_until(g.lease);
    assert_true(valid > clock_mono_ms() && valid <= clock_mono_ms() + 700);
    until(&g, &g.lost, 1);
    assert_true(clock_mono_ms() >= valid && clock_mono_ms() < valid + 2000);
    assert_false(lease_is_leader(g.lease));
    assert_int_equal(lease_valid_until(g.lease), 0);
    post = body_of(&g, 1);
    expect_str(post, "metadata.name", "bridge");
    expect_str(post, "metadata.namespace", "ns");
    expect_str(post, "spec.holderIdentity", "me");
    expect_int(post, "spec.leaseDurationSeconds", 1);
    expect_int(post, "spec.leaseTransitions", 0);
    put = body_of(&g, 2);
    expect_str(put, "metadata.resourceVersion", "1");
    expect_str(put, "metadata.labels.kept", "yes");
    expect_str(put, "spec.acquireTime", "2026-12-01T11:00:00.000000Z");
    expect_int(put, "spec.leaseTransitions", 3);
    assert_int_equal(json_get_str(put, "spec.renewTime", &renewed, NULL), 0);
    assert_int_equal(strlen(renewed), strlen("2026-12-01T11:00:00.000000Z"));
    assert_int_equal(k8s_time_parse(renewed, &ms, NULL), 0);
    assert_true(ms > clock_wall_ms() - 5000 && ms <= clock_wall_ms());
    down(&g);
}

static void our_own_is_taken_at_once(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 200, .body = LEASE("5", "me")},
        {.want = PUT, .status = 200, .body = LEASE("6", "me"), .repeat = true},
        {0},
    };
    struct rig g;
    int64_t begun = clock_mono_ms();

    (void)state;
    up_with(&g, script, 10);
    until(&g, &g.gained, 1);
    assert_true(clock_mono_ms() - begun < 5000);
    /* It stays ours for as long as it is renewed. */
    until_requests(&g, 8);
    assert_int_equal(g.lost, 0);
    assert_true(lease_is_leader(g.lease));
    down(&g);
}

static void a_paused_process_leads_no_more(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 200, .body = LEASE("5", "me")},
        {.want = PUT, .status = 200, .body = LEASE("6", "me"), .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, &g.gained, 1);
    while (clock_mono_ms() < lease_valid_until(g.lease))
        ; /* the loop does not turn */
    assert_false(lease_is_leader(g.lease));
    assert_int_equal(lease_valid_until(g.lease), 0);
    assert_int_equal(g.lost, 0);
    until(&g, &g.lost, 1);
    down(&g);
}

static void anothers_is_waited_for(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 200, .body = LEASE("5", "other"), .repeat = true},
        {.want = PUT, .status = 409, .body = "{\"message\":\"conflict\"}"},
        {.want = GET, .status = 200, .body = LEASE("6", "third"), .repeat = true},
        {.want = PUT, .status = 200, .body = LEASE("7", "me"), .repeat = true},
        {0},
    };
    _cleanup_(cJSON_Deletep) cJSON *put = NULL;
    int64_t begun = clock_mono_ms();
    struct rig g;
    size_t i = 0;

    (void)state;
    up(&g, script);
    until_requests(&g, 3);
    assert_string_equal(lease_holder(g.lease), "other");
    until(&g, &g.gained, 1);
    /* Twice the duration, each time from when the record was first seen. */
    assert_true(clock_mono_ms() - begun >= 2000);
    while (strncmp(fake_http_request(g.http, i), "PUT", 3) != 0)
        i++;
    put = body_of(&g, i);
    expect_str(put, "metadata.resourceVersion", "5");
    expect_int(put, "spec.leaseTransitions", 4);
    down(&g);
}

static void another_one_has_it_now(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 200, .body = LEASE("5", "me")},
        {.want = PUT, .status = 200, .body = LEASE("6", "me")},
        {.want = PUT, .status = 409},
        {.want = GET, .status = 200, .body = LEASE("9", "other"), .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, &g.lost, 1);
    assert_int_equal(fake_http_count(g.http), 4);
    assert_string_equal(lease_holder(g.lease), "other");
    down(&g);
}

static void errors_are_tried_again(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 500},
        {.want = GET, .status = 200, .body = "{\"metadata\":{}}"},
        {.want = GET, .end = FAKE_CUT},
        {.want = GET, .status = 200, .body = LEASE("5", "")},
        {.want = PUT, .status = 200, .body = LEASE("6", "somebody else")},
        {.want = GET, .status = 200, .body = LEASE("7", "me")},
        {.want = PUT, .status = 200, .body = LEASE("8", "me"), .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, &g.gained, 1);
    assert_int_equal(g.lost, 0);
    down(&g);
}

static void it_is_given_up(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 200, .body = LEASE("5", "me")},
        {.want = PUT, .status = 200, .body = LEASE("6", "me")},
        {.want = GET, .status = 200, .body = LEASE("6", "me")},
        {.want = PUT, .status = 409},
        {.want = GET, .status = 200, .body = LEASE("7", "me")},
        {.want = PUT, .status = 200, .body = LEASE("8", "")},
        {0},
    };
    _cleanup_(cJSON_Deletep) cJSON *put = NULL;
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, &g.gained, 1);
    lease_release(g.lease, on_released, &g);
    assert_int_equal(g.lost, 1);
    assert_int_equal(g.released, 0);
    assert_false(lease_is_leader(g.lease));
    until(&g, &g.released, 1);
    put = body_of(&g, 5);
    expect_str(put, "spec.holderIdentity", "");
    expect_str(put, "metadata.resourceVersion", "7");
    for (int64_t end = clock_mono_ms() + 400; clock_mono_ms() < end;)
        assert_true(sd_event_run(g.event, 10000) >= 0);
    assert_int_equal(fake_http_count(g.http), 6);
    assert_int_equal(g.released, 1);
    down(&g);
}

static void nothing_to_give_up(void **state)
{
    static const struct fake_reply script[] = {
        {.want = GET, .status = 200, .body = LEASE("5", "other"), .repeat = true}, {0}};
    struct rig g;

    (void)state;
    up(&g, script);
    until_requests(&g, 1);
    lease_release(g.lease, on_released, &g);
    assert_int_equal(g.released, 0);
    until(&g, &g.released, 1);
    assert_int_equal(g.gained + g.lost, 0);
    down(&g);
}

static void bad_settings(void **state)
{
    struct lease_config config = {.namespace = "ns",
                                  .name = "bridge",
                                  .identity = "me",
                                  .duration_s = 10,
                                  .deadline_ms = 10000,
                                  .on_change = on_change};
    struct lease *l = NULL;
    sd_event *event;
    struct err err;

    (void)state;
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(lease_new(NULL, event, &config, &l, &err), -EINVAL);
    config.duration_s = 0;
    config.identity = "";
    assert_int_equal(lease_new(NULL, event, &config, &l, &err), -EINVAL);
    assert_null(l);
    sd_event_unref(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_renewed_and_lost_on_time),
        cmocka_unit_test(our_own_is_taken_at_once),
        cmocka_unit_test(a_paused_process_leads_no_more),
        cmocka_unit_test(anothers_is_waited_for),
        cmocka_unit_test(another_one_has_it_now),
        cmocka_unit_test(errors_are_tried_again),
        cmocka_unit_test(it_is_given_up),
        cmocka_unit_test(nothing_to_give_up),
        cmocka_unit_test(bad_settings),
    };

    return cmocka_run_group_tests_name("io_lease", tests, NULL, NULL);
}
