// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/k8s_obj.h"
#include "tests/unit/fake_http.h"

#define POD(name, ip, more)                                                              \
    "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"u\",\"resourceVersion\":\"7\"" more  \
    "},\"status\":{\"podIP\":\"" ip "\"}}"
#define GOING         ",\"deletionTimestamp\":\"2026-12-01T11:21:00Z\""
#define EVENT(t, pod) "{\"type\":\"" t "\",\"object\":" pod "}"
#define LIST(version, items)                                                             \
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"" version                 \
    "\"},\"items\":[" items "]}"

static int parse(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_pod_parse(obj, ret, err);
}

static void clear(void *v)
{
    kube_pod_clear(v);
}

static bool same(const void *x, const void *y)
{
    const struct kube_pod *a = x, *b = y;

    return mem_same_str(a->ip, b->ip) && a->terminating == b->terminating;
}

static const char *address(const void *v)
{
    return ((const struct kube_pod *)v)->ip;
}

static bool stays_rather(const void *x, const void *y)
{
    const struct kube_pod *a = x, *b = y;

    return b->terminating && !a->terminating;
}

static const struct cache_type pods = {
    "pods", sizeof(struct kube_pod), parse, clear, same, address};

struct rig {
    sd_event *event;
    struct fake_http *http;
    struct kube *kube;
    struct cache *cache;
};

static void on_change(void *userdata)
{
    (void)userdata;
}

static void up(struct rig *g, const struct fake_reply *script)
{
    log_set_level(LOG_LEVEL_ERROR);
    assert_true(sd_event_new(&g->event) >= 0);
    g->http = fake_http_new(script);
    assert_int_equal(kube_new(g->event,
                              &(struct kube_config){.server = fake_http_url(g->http)},
                              &g->kube, NULL),
                     0);
    assert_int_equal(
        cache_new(g->kube, g->event, &pods, "/pods", NULL, on_change, g, &g->cache, NULL),
        0);
}

static void down(struct rig *g)
{
    cache_free(g->cache);
    kube_free(g->kube);
    fake_http_free(g->http);
    sd_event_unref(g->event);
}

static const char *at(const struct rig *g, const char *ip)
{
    const struct kube_pod *p = cache_find_alias(g->cache, ip, stays_rather);

    return p ? p->name : "(none)";
}

static void until(struct rig *g, const char *ip, const char *name)
{
    int64_t end = clock_mono_ms() + 5000;

    while (strcmp(at(g, ip), name) != 0 && clock_mono_ms() < end)
        assert_true(sd_event_run(g->event, 10000) >= 0);
    assert_string_equal(at(g, ip), name);
}

static void the_second_name_follows(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "GET /pods ",
         .status = 200,
         .body = LIST("5", POD("a", "10.0.0.1", "") "," POD("b", "10.0.0.2",
                                                            "") "," POD("new", "", ""))},
        {.want = "watch=",
         .status = 200,
         .body =
             /* an address moves on, while the one that had it is still there */
         EVENT("MODIFIED", POD("a", "10.0.0.1", GOING))
             EVENT("MODIFIED", POD("new", "10.0.0.1", ""))
                 EVENT("MODIFIED", POD("b", "10.0.0.3", ""))},
        {.want = "watch=",
         .status = 200,
         .body = EVENT("DELETED", POD("new", "10.0.0.1", "")),
         .end = FAKE_HOLD},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    assert_string_equal(at(&g, "10.0.0.1"), "(none)");
    until(&g, "10.0.0.1", "a");
    until(&g, "10.0.0.3", "b");
    assert_string_equal(at(&g, "10.0.0.2"), "(none)");
    assert_string_equal(at(&g, ""), "(none)");
    until(&g, "10.0.0.1", "new");
    until(&g, "10.0.0.1", "a");
    down(&g);
}

static void a_new_list_forgets(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "GET /pods ",
         .status = 200,
         .body = LIST("5", POD("a", "10.0.0.1", "") "," POD("b", "10.0.0.1", ""))},
        {.want = "watch=", .status = 410},
        {.want = "GET /pods ",
         .status = 200,
         .body = LIST("9", POD("c", "10.0.0.2", ""))},
        {.want = "watch=", .status = 200, .end = FAKE_HOLD},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    until(&g, "10.0.0.2", "c");
    assert_string_equal(at(&g, "10.0.0.1"), "(none)");
    assert_int_equal(cache_count(g.cache), 1);
    down(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_name_follows),
        cmocka_unit_test(a_new_list_forgets),
    };

    return cmocka_run_group_tests_name("io_cache", tests, NULL, NULL);
}
