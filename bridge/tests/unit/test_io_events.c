// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "tests/unit/fake_http.h"

#define POST "POST /api/v1/namespaces/default/events HTTP"

struct rig {
    sd_event *event;
    struct fake_http *http;
    struct kube *kube;
    struct events *events;
};

static void up(struct rig *g, const struct fake_reply *script)
{
    log_set_level(LOG_LEVEL_ERROR);
    assert_true(sd_event_new(&g->event) >= 0);
    g->http = fake_http_new(script);
    assert_int_equal(kube_new(g->event,
                              &(struct kube_config){.server = fake_http_url(g->http)},
                              &g->kube, NULL),
                     0);
    assert_int_equal(events_new(g->kube, g->event, "bridge-0_u", &g->events, NULL), 0);
}

static void down(struct rig *g)
{
    assert_int_not_equal(fake_http_count(g->http), -1);
    events_free(g->events);
    kube_free(g->kube);
    fake_http_free(g->http);
    sd_event_unref(g->event);
}

static void turn(struct rig *g, int requests, uint64_t dropped)
{
    int64_t end = clock_mono_ms() + 5000;

    while (
        (fake_http_count(g->http) != requests || events_dropped(g->events) != dropped) &&
        clock_mono_ms() < end)
        assert_true(sd_event_run(g->event, 10000) >= 0);
    for (end = clock_mono_ms() + 100; clock_mono_ms() < end;)
        assert_true(sd_event_run(g->event, 10000) >= 0);
    assert_int_equal(fake_http_count(g->http), requests);
    assert_int_equal(events_dropped(g->events), dropped);
}

static const char *sent(struct rig *g, size_t request, const char *path, cJSON **obj)
{
    const char *text = strstr(fake_http_request(g->http, request), "\r\n\r\n") + 4, *s;

    cJSON_Delete(*obj);
    *obj = NULL;
    assert_int_equal(json_parse(text, strlen(text), obj, NULL), 0);
    assert_int_equal(json_get_str(*obj, path, &s, NULL), 0);
    return s;
}

static void what_is_sent(void **state)
{
    static const struct fake_reply script[] = {
        {.want = POST, .status = 201, .repeat = true}, {0}};
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    _cleanup_(mem_freep) char *first = NULL;
    char big[2000];
    struct rig g;

    (void)state;
    up(&g, script);
    memset(big, 'm', sizeof(big) - 1);
    memcpy(big + 1023, "\xc3\xa4", 2); /* over the edge */
    big[sizeof(big) - 1] = '\0';
    events_post(g.events, "worker-2", "uid-7", "Normal", "SlurmDrained",
                "tidegate/k8s: x");
    turn(&g, 1, 0);
    events_post(g.events, "worker-2", NULL, "Warning", "SlurmDown", big);
    turn(&g, 2, 0);
    assert_string_equal(sent(&g, 0, "involvedObject.uid", &obj), "uid-7");
    assert_string_equal(sent(&g, 0, "involvedObject.kind", &obj), "Node");
    assert_string_equal(sent(&g, 0, "involvedObject.name", &obj), "worker-2");
    assert_string_equal(sent(&g, 0, "metadata.namespace", &obj), "default");
    assert_string_equal(sent(&g, 0, "reason", &obj), "SlurmDrained");
    assert_string_equal(sent(&g, 0, "message", &obj), "tidegate/k8s: x");
    assert_string_equal(sent(&g, 0, "type", &obj), "Normal");
    assert_string_equal(sent(&g, 0, "source.component", &obj), "tidegated");
    assert_string_equal(sent(&g, 0, "reportingComponent", &obj), "tidegate.dev/bridge");
    assert_string_equal(sent(&g, 0, "reportingInstance", &obj), "bridge-0_u");
    first = mem_strdup(sent(&g, 0, "firstTimestamp", &obj));
    assert_string_equal(first, sent(&g, 0, "lastTimestamp", &obj));
    free(first);
    first = mem_strdup(sent(&g, 0, "metadata.name", &obj));
    assert_memory_equal(first, "worker-2.", 9);
    assert_string_not_equal(first, sent(&g, 1, "metadata.name", &obj));
    assert_string_equal(sent(&g, 1, "involvedObject.uid", &obj), "worker-2");
    assert_int_equal(strlen(sent(&g, 1, "message", &obj)), 1023);
    down(&g);
}

static void refused_for_good_is_dropped(void **state)
{
    static const struct fake_reply script[] = {
        {.want = POST, .status = 403}, {.want = POST, .status = 409}, {0}};
    struct rig g;

    (void)state;
    up(&g, script);
    events_post(g.events, "a", NULL, "Normal", "R", "m");
    turn(&g, 1, 1);
    events_post(g.events, "a", NULL, "Normal", "R", "m");
    turn(&g, 2, 1); /* 409: it is there already */
    down(&g);
}

static void tried_again_under_the_same_name(void **state)
{
    static const struct fake_reply script[] = {
        {.want = POST, .end = FAKE_CUT}, {.want = POST, .status = 201}, {0}};
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    _cleanup_(mem_freep) char *first = NULL;
    struct rig g;

    (void)state;
    up(&g, script);
    events_post(g.events, "a", NULL, "Normal", "R", "m");
    turn(&g, 2, 0);
    first = mem_strdup(sent(&g, 0, "metadata.name", &obj));
    assert_string_equal(first, sent(&g, 1, "metadata.name", &obj));
    down(&g);
}

static void a_storm_is_capped(void **state)
{
    static const struct fake_reply script[] = {
        {.want = POST, .end = FAKE_HOLD, .repeat = true}, {0}};
    struct rig g;

    (void)state;
    up(&g, script);
    for (int i = 0; i < 1030; i++)
        events_post(g.events, "a", NULL, "Normal", "R", "m");
    turn(&g, 4, 6); /* four under way, 1020 wait, the rest is let go */
    down(&g);
}

static void a_queue_is_worked_off(void **state)
{
    static const struct fake_reply script[] = {
        {.want = POST, .status = 201, .repeat = true}, {0}};
    struct rig g;

    (void)state;
    up(&g, script);
    for (int i = 0; i < 30; i++)
        events_post(g.events, "a", NULL, "Normal", "R", "m");
    turn(&g, 30, 0);
    down(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent),
        cmocka_unit_test(refused_for_good_is_dropped),
        cmocka_unit_test(tried_again_under_the_same_name),
        cmocka_unit_test(a_storm_is_capped),
        cmocka_unit_test(a_queue_is_worked_off),
    };

    return cmocka_run_group_tests_name("io_events", tests, NULL, NULL);
}
