// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/reflect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/fake_http.h"

#define LIST(version, items)                                                             \
    "{\"kind\":\"NodeList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":"    \
    "\"" version "\"},\"items\":[" items "]}\n"
#define OBJ(name, version)                                                               \
    "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"u\",\"resourceVersion\":\"" version  \
    "\"}}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define BOOKMARK(version)                                                                \
    EVENT("BOOKMARK",                                                                    \
          "{\"kind\":\"Node\",\"metadata\":{\"resourceVersion\":\"" version "\"}}")
#define GONE                                                                             \
    EVENT("ERROR", "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\","           \
                   "\"message\":\"too old\"}")

#define ANY_LIST "GET /api/v1/nodes HTTP"
#define WATCH(from)                                                                      \
    "GET /api/v1/nodes?watch=1&allowWatchBookmarks=true&resourceVersion=" from "&"

/* A watch that stays open, so that the script ends in peace. */
#define STAND(from) {.want = WATCH(from), .status = 200, .end = FAKE_HOLD}

struct rig {
    sd_event *event;
    struct fake_http *http;
    struct kube *kube;
    struct reflect *reflect;
    struct buf seen;
};

static void note(enum reflect_kind kind, const cJSON *obj, void *userdata)
{
    static const char *const words[] = {
        [REFLECT_LIST_BEGIN] = "begin", [REFLECT_PUT] = "+",
        [REFLECT_DELETE] = "-",         [REFLECT_LIST_END] = "end",
        [REFLECT_LOST] = "LOST",        [REFLECT_FRESH] = "FRESH",
    };
    const cJSON *name = cJSON_GetObjectItem(cJSON_GetObjectItem(obj, "metadata"), "name");
    struct rig *g = userdata;

    assert_int_equal(obj != NULL, kind == REFLECT_PUT || kind == REFLECT_DELETE);
    assert_int_equal(buf_printf(&g->seen, "%s%s%s", g->seen.len ? " " : "", words[kind],
                                obj ? name->valuestring : ""),
                     0);
}

static void up_with(struct rig *g, const struct fake_reply *script,
                    struct reflect_config config)
{
    *g = (struct rig){.seen = BUF_INIT(4096)};
    log_set_level(LOG_LEVEL_ERROR);
    assert_true(sd_event_new(&g->event) >= 0);
    g->http = fake_http_new(script);
    assert_int_equal(kube_new(g->event,
                              &(struct kube_config){.server = fake_http_url(g->http)},
                              &g->kube, NULL),
                     0);
    config.what = "nodes";
    config.path = "/api/v1/nodes";
    config.cb = note;
    config.userdata = g;
    assert_int_equal(reflect_new(g->kube, g->event, &config, &g->reflect, NULL), 0);
    assert_int_equal(reflect_heard_at(g->reflect), 0);
}

static void up(struct rig *g, const struct fake_reply *script)
{
    up_with(g, script, (struct reflect_config){0});
}

static void down(struct rig *g)
{
    reflect_free(g->reflect);
    kube_free(g->kube);
    fake_http_free(g->http);
    sd_event_unref(g->event);
    buf_free(&g->seen);
}

static void turn(struct rig *g, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end)
        assert_true(sd_event_run(g->event, 10000) >= 0);
}

/* Waits for this to be all that was seen, and for so many requests to have been made. */
static void expect(struct rig *g, const char *seen, int requests)
{
    int64_t end = clock_mono_ms() + 8000;

    while (clock_mono_ms() < end && fake_http_count(g->http) != -1 &&
           (strcmp(buf_str(&g->seen), seen) != 0 || fake_http_count(g->http) != requests))
        assert_true(sd_event_run(g->event, 10000) >= 0);
    turn(g, 50); /* and no more than that */
    assert_string_equal(buf_str(&g->seen), seen);
    assert_int_equal(fake_http_count(g->http), requests);
}

static void list_and_watch(struct reflect_config config, size_t split)
{
    const struct fake_reply script[] = {
        {.want = ANY_LIST,
         .status = 200,
         .body = LIST("7", OBJ("a", "1") "," OBJ("b", "2")),
         .split = split},
        {.want = WATCH("7"),
         .status = 200,
         .body = EVENT("MODIFIED", OBJ("a", "8")) EVENT("ADDED", OBJ("c", "9"))
             BOOKMARK("11") EVENT("DELETED", OBJ("b", "12")),
         .split = split,
         .end = FAKE_HOLD},
        {0},
    };
    struct rig g;

    up_with(&g, script, config);
    expect(&g, "begin +a +b end +a +c -b", 2);
    assert_true(clock_mono_ms() - reflect_heard_at(g.reflect) < 5000);
    down(&g);
}

static void bytes_may_be_split_anywhere(void **state)
{
    (void)state;
    list_and_watch((struct reflect_config){0}, 0);
    list_and_watch((struct reflect_config){0}, 1);
    list_and_watch((struct reflect_config){0}, 7);
}

static void the_query_goes_along(void **state)
{
    static const struct fake_reply script[] = {
        {.want = "/nodes?labelSelector=a%3Db HTTP", .status = 200, .body = LIST("7", "")},
        {.want = "resourceVersion=7&timeoutSeconds=2", .status = 200, .end = FAKE_HOLD},
        {0},
    };
    struct rig g;

    (void)state;
    up_with(&g, script, (struct reflect_config){.query = "labelSelector=a%3Db"});
    expect(&g, "begin end", 2);
    assert_non_null(strstr(fake_http_request(g.http, 1), "&labelSelector=a%3Db HTTP"));
    down(&g);
}

static void a_watch_that_ends_is_carried_on(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = LIST("7", OBJ("a", "1"))},
        {.want = WATCH("7"), .status = 200, .body = BOOKMARK("9")},
        {.want = WATCH("9"),
         .status = 200,
         .body = EVENT("MODIFIED", OBJ("a", "10")),
         .end = FAKE_CUT},
        /* Cut off inside an event: that event comes again. */
        {.want = WATCH("10"),
         .status = 200,
         .body = "{\"type\":\"MODIFIED\",\"obj",
         .end = FAKE_HALF_CLOSE},
        {.want = WATCH("10"),
         .status = 200,
         .body = EVENT("MODIFIED", OBJ("a", "11")),
         .end = FAKE_RESET},
        {.want = "?watch=1&", .status = 200, .end = FAKE_HOLD},
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    /* Never LOST: each next watch stood at once. */
    expect(&g, "begin +a end +a +a", 6);
    down(&g);
}

static void gone_is_listed_anew(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = LIST("7", OBJ("a", "1"))},
        {.want = WATCH("7"), .status = 410, .body = "{\"message\":\"too old\"}"},
        {.want = ANY_LIST, .status = 200, .body = LIST("20", OBJ("b", "1"))},
        {.want = WATCH("20"), .status = 200, .body = GONE, .end = FAKE_HOLD},
        {.want = ANY_LIST, .status = 200, .body = LIST("30", "")},
        STAND("30"),
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    expect(&g, "begin +a end LOST begin +b end LOST begin end", 6);
    down(&g);
}

static void too_old_behind_a_200_is_not_fresh(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = LIST("7", "")},
        {.want = WATCH("7"), .status = 500},
        {.want = WATCH("7"), .status = 200, .body = GONE, .body_delay_ms = 200},
        {.want = ANY_LIST, .status = 200, .body = LIST("30", "")},
        STAND("30"),
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    expect(&g, "begin end LOST begin end", 5);
    down(&g);
}

static void a_refused_watch_is_lost_and_comes_back(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = LIST("7", "")},
        {.want = WATCH("7"), .status = 429, .headers = "Retry-After: 1\r\n"},
        {.want = WATCH("7"), .status = 503},
        STAND("7"),
        {0},
    };
    struct rig g;
    int64_t begun = clock_mono_ms();

    (void)state;
    up(&g, script);
    expect(&g, "begin end LOST FRESH", 4);
    assert_true(clock_mono_ms() - begun >= 1000);
    down(&g);
}

static void a_refused_list_is_tried_again(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 500},
        {.want = ANY_LIST, .status = 429, .headers = "Retry-After: 1\r\n"},
        {.want = ANY_LIST, .status = 403, .body = "{\"message\":\"no\"}"},
        {.want = ANY_LIST, .status = 200, .body = LIST("7", "")},
        STAND("7"),
        {0},
    };
    struct rig g;
    int64_t begun = clock_mono_ms();

    (void)state;
    up(&g, script);
    expect(&g, "LOST begin end", 5);
    assert_true(clock_mono_ms() - begun >= 1000);
    down(&g);
}

static void half_a_list_says_nothing_of_the_rest(void **state)
{
    static const char half[] =
        "{\"kind\":\"NodeList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[" OBJ(
            "a", "1") ",";
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = half, .end = FAKE_CUT},
        {.want = ANY_LIST, .status = 200, .body = half}, /* ends well as HTTP */
        {.want = ANY_LIST, .status = 200, .body = "{\"kind\":\"Status\"}"},
        {.want = ANY_LIST,
         .status = 200,
         .body = "{\"kind\":\"NodeList\",\"metadata\":{\"resourceVersion\":\"7\","
                 "\"continue\":\"x\"},"
                 "\"items\":[]}"},
        {.want = ANY_LIST, .status = 200, .body = "{\"kind\":\"NodeList\",\"items\":[]}"},
        {.want = ANY_LIST, .status = 200, .body = LIST("8", OBJ("a", "1"))},
        STAND("8"),
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    expect(&g,
           "begin +a LOST begin +a LOST begin LOST begin LOST begin LOST begin +a end",
           7);
    down(&g);
}

static void silence_is_not_waited_out(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = "{", .end = FAKE_HOLD},
        {.want = ANY_LIST, .status = 200, .body = LIST("7", "")},
        {.want = WATCH("7"), .status = 200, .body = BOOKMARK("9"), .end = FAKE_HOLD},
        {.want = WATCH("9"),
         .status = 200,
         .end = FAKE_HOLD},                     /* stands, so all is well */
        {.want = WATCH("9"), .end = FAKE_HOLD}, /* does not */
        {.want = WATCH("9"),
         .status = 200,
         .body = BOOKMARK("9"),
         .split = 2,
         .end = FAKE_HOLD},
        {.want = "?watch=1&", .status = 200, .end = FAKE_HOLD, .repeat = true},
        {0},
    };
    struct rig g;

    (void)state;
    up_with(&g, script, (struct reflect_config){.idle_ms = 700});
    expect(&g, "begin LOST begin end", 4);
    expect(&g, "begin LOST begin end LOST FRESH", 6);
    down(&g);
}

static void a_watch_that_does_not_stand_soon_is_lost(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST, .status = 200, .body = LIST("7", "")},
        {.want = WATCH("7"), .status = 200, .delay_ms = 4000, .end = FAKE_HOLD},
        {0},
    };
    int64_t listed;
    struct rig g;

    (void)state;
    up(&g, script);
    expect(&g, "begin end", 2);
    listed = clock_mono_ms();
    expect(&g, "begin end LOST", 2);
    assert_true(clock_mono_ms() - listed >=
                1000); /* not at once, but long before it stands */
    expect(&g, "begin end LOST FRESH", 2);
    down(&g);
}

static void what_cannot_be_read_is_not_gone(void **state)
{
    static const struct fake_reply script[] = {
        /* One that names itself is there; one that does not makes the list none. */
        {.want = ANY_LIST,
         .status = 200,
         .body = LIST(
             "7",
             OBJ("a", "1") ",{\"metadata\":{\"name\":\"b\",\"x\":tru}}," OBJ("c", "1"))},
        {.want = WATCH("7"),
         .status = 200,
         .body = "{\"type\":\"MODIFIED\",\"object\":{x}}\n",
         .end = FAKE_HOLD},
        {.want = ANY_LIST,
         .status = 200,
         .body = LIST("8", OBJ("a", "1") ",{\"x\":tru}")},
        {.want = ANY_LIST,
         .status = 200,
         .body = LIST("9", OBJ("a", "1") ",{\"spec\":{}}")},
        {.want = ANY_LIST, .status = 200, .body = LIST("10", OBJ("a", "1"))},
        STAND("10"),
        {0},
    };
    struct rig g;

    (void)state;
    up(&g, script);
    expect(&g, "begin +a +b +c end LOST begin +a LOST begin +a LOST begin +a end", 6);
    down(&g);
}

static void an_object_over_the_cap_is_no_list(void **state)
{
    static const struct fake_reply script[] = {
        {.want = ANY_LIST,
         .status = 200,
         .body = LIST("7", OBJ("a", "1") "," OBJ(
                               "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
                               "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                               "1"))},
        {.want = ANY_LIST, .status = 200, .body = LIST("8", OBJ("a", "1"))},
        {.want = WATCH("8"),
         .status = 200,
         .body = EVENT("ADDED",
                       OBJ("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
                           "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                           "9")),
         .end = FAKE_HOLD},
        {.want = ANY_LIST, .status = 200, .body = LIST("9", OBJ("a", "1"))},
        STAND("9"),
        {0},
    };
    struct rig g;

    (void)state;
    up_with(&g, script, (struct reflect_config){.object_cap = 120});
    expect(&g, "begin +a LOST begin +a end LOST begin +a end", 5);
    down(&g);
}

static void no_server_is_lost_once(void **state)
{
    struct rig g = {.seen = BUF_INIT(256)};
    struct reflect_config config = {
        .what = "nodes", .path = "/api/v1/nodes", .cb = note, .userdata = &g};

    (void)state;
    assert_true(sd_event_new(&g.event) >= 0);
    assert_int_equal(kube_new(g.event,
                              &(struct kube_config){.server = "http://127.0.0.1:1"},
                              &g.kube, NULL),
                     0);
    assert_int_equal(reflect_new(g.kube, g.event, &config, &g.reflect, NULL), 0);
    turn(&g, 700);
    assert_string_equal(buf_str(&g.seen), "LOST");
    assert_int_equal(reflect_heard_at(g.reflect), 0);
    reflect_free(g.reflect);
    kube_free(g.kube);
    sd_event_unref(g.event);
    buf_free(&g.seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_may_be_split_anywhere),
        cmocka_unit_test(the_query_goes_along),
        cmocka_unit_test(a_watch_that_ends_is_carried_on),
        cmocka_unit_test(gone_is_listed_anew),
        cmocka_unit_test(too_old_behind_a_200_is_not_fresh),
        cmocka_unit_test(a_refused_watch_is_lost_and_comes_back),
        cmocka_unit_test(a_refused_list_is_tried_again),
        cmocka_unit_test(half_a_list_says_nothing_of_the_rest),
        cmocka_unit_test(silence_is_not_waited_out),
        cmocka_unit_test(a_watch_that_does_not_stand_soon_is_lost),
        cmocka_unit_test(what_cannot_be_read_is_not_gone),
        cmocka_unit_test(an_object_over_the_cap_is_no_list),
        cmocka_unit_test(no_server_is_lost_once),
    };

    return cmocka_run_group_tests_name("io_reflect", tests, NULL, NULL);
}
