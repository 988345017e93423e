// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/events.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "codec/k8s_obj.h"
#include "io/timer.h"

#define QUEUE_MAX          1024 /* waiting; a storm says the same of each node anyway */
#define PARALLEL_MAX       4
#define TRIES_MAX          4
#define RETRY_MS           1000 /* doubled with each try */
#define RETRY_AFTER_MAX_MS 30000
#define TIMEOUT_MS         5000
#define MESSAGE_MAX                                                                      \
    1024 /* bytes; what kubectl still shows well, and events.k8s.io's own limit */
#define NAME_PREFIX_MAX 200 /* of an object name's 253 */
#define PATH            "/api/v1/namespaces/default/events"

struct event {
    struct events *owner;
    struct event *next;
    struct kube_request *request; /* under way when not NULL */
    char *body;
    int tries;
    int64_t not_before;
};

struct events {
    struct kube *kube;
    sd_event *event;
    char *identity;
    struct event *first; /* in the order they were posted, those under way too */
    struct event **end;
    size_t n;
    size_t under_way;
    sd_event_source *timer;
    uint32_t counter; /* makes names of the same millisecond differ */
    uint64_t dropped;
    int64_t complained_at;
};

static void event_free(struct event *v)
{
    kube_cancel(v->request);
    free(v->body);
    free(v);
}

static void unlink_event(struct events *e, struct event *v)
{
    struct event **p = &e->first;

    while (*p != v)
        p = &(*p)->next;
    *p = v->next;
    if (e->end == &v->next)
        e->end = p;
    e->n--;
}

static void drop(struct events *e, const char *why)
{
    int64_t now = clock_mono_ms();

    e->dropped++;
    if (!e->complained_at || now - e->complained_at >= 60000) {
        log_warn("an Event was dropped", LOG_STR("error", why),
                 LOG_NUM("dropped", (int64_t)e->dropped));
        e->complained_at = now;
    }
}

/* ---- the object -------------------------------------------------------------------- */

static void add_str(cJSON *obj, const char *key, const char *value)
{
    if (!cJSON_AddStringToObject(obj, key, value))
        abort();
}

static cJSON *add_obj(cJSON *obj, const char *key)
{
    cJSON *m = cJSON_AddObjectToObject(obj, key);

    if (!m)
        abort();
    return m;
}

/* NODE.HEXTIME.COUNTER, as an object name. */
static char *event_name(struct events *e, const char *node)
{
    size_t n = strnlen(node, NAME_PREFIX_MAX);

    while (n && (node[n - 1] == '-' || node[n - 1] == '.'))
        n--;
    return mem_printf("%.*s.%" PRIx64 ".%" PRIx32, (int)n, node,
                      (uint64_t)clock_wall_ms(), ++e->counter);
}

/* Not in the middle of a UTF-8 character. */
static char *cut(const char *text)
{
    size_t n = strnlen(text, MESSAGE_MAX + 1);

    if (n > MESSAGE_MAX) {
        n = MESSAGE_MAX;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    return mem_strndup(text, n);
}

static char *render(struct events *e, const char *node, const char *node_uid,
                    const char *type, const char *reason, const char *message)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = cJSON_CreateObject();
    _cleanup_(mem_freep) char *name = event_name(e, node);
    _cleanup_(mem_freep) char *now = k8s_time_format(clock_wall_ms(), false);
    _cleanup_(mem_freep) char *text = cut(message);
    cJSON *m;
    char *body;

    if (!obj)
        abort();
    add_str(obj, "apiVersion", "v1");
    add_str(obj, "kind", "Event");
    m = add_obj(obj, "metadata");
    add_str(m, "name", name);
    add_str(m, "namespace",
            "default"); /* where Events on objects without namespace live */
    m = add_obj(obj, "involvedObject");
    add_str(m, "apiVersion", "v1");
    add_str(m, "kind", "Node");
    add_str(m, "name", node);
    /* `kubectl describe node` asks for Events by the uid, and again by the name in its place,
     * as the kubelet writes it: the second serves for a Node that is gone. */
    add_str(m, "uid", node_uid ? node_uid : node);
    m = add_obj(obj, "source");
    add_str(m, "component", "tidegated");
    add_str(obj, "type", type);
    add_str(obj, "reason", reason);
    add_str(obj, "message", text);
    add_str(obj, "firstTimestamp", now);
    add_str(obj, "lastTimestamp", now);
    if (!cJSON_AddNumberToObject(obj, "count", 1))
        abort();
    add_str(obj, "reportingComponent", "tidegate.dev/bridge");
    add_str(obj, "reportingInstance", e->identity);
    body = cJSON_PrintUnformatted(obj);
    if (!body)
        abort();
    return body;
}

/* ---- sending ----------------------------------------------------------------------- */

static void send_next(struct events *e);

static bool worth_another_try(const struct kube_result *result)
{
    return result->code < 0 || result->status == 429 || result->status >= 500;
}

static void not_sent(struct event *v, const struct kube_result *result)
{
    struct events *e = v->owner;
    int64_t wait = (int64_t)RETRY_MS << (v->tries - 1);

    if (!worth_another_try(result) || v->tries >= TRIES_MAX) {
        drop(e, result->error);
        unlink_event(e, v);
        event_free(v);
        return;
    }
    if (wait < result->retry_after_ms)
        wait = result->retry_after_ms;
    v->not_before =
        clock_mono_ms() + (wait < RETRY_AFTER_MAX_MS ? wait : RETRY_AFTER_MAX_MS);
}

static void on_sent(const struct kube_result *result, void *userdata)
{
    struct event *v = userdata;
    struct events *e = v->owner;

    v->request = NULL;
    e->under_way--;
    /* 409: the first try did arrive. */
    if (result->code == 0 && (result->status < 300 || result->status == 409)) {
        unlink_event(e, v);
        event_free(v);
    } else {
        not_sent(v, result);
    }
    send_next(e);
}

static void send_event(struct event *v)
{
    struct kube_call call = {
        .method = "POST",
        .path = PATH,
        .body = v->body,
        .timeout_ms = TIMEOUT_MS,
        .on_done = on_sent,
        .userdata = v,
    };
    struct err err;
    int r;

    v->tries++;
    r = kube_start(v->owner->kube, &call, &v->request, &err);
    if (r < 0)
        not_sent(v, &(struct kube_result){.code = r, .error = err.text});
    else
        v->owner->under_way++;
}

static void send_next(struct events *e)
{
    int64_t now = clock_mono_ms(), soonest = INT64_MAX;

    for (struct event *v = e->first, *next; v && e->under_way < PARALLEL_MAX; v = next) {
        next = v->next;
        if (v->request)
            continue;
        if (v->not_before <= now)
            send_event(v);
        else if (v->not_before < soonest)
            soonest = v->not_before;
    }
    /* One whose request could not even begin is looked at then, too. */
    if (e->n > e->under_way && e->under_way < PARALLEL_MAX)
        timer_arm(e->timer, soonest < now + RETRY_MS ? soonest : now + RETRY_MS);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    (void)s;
    (void)usec;
    send_next(userdata);
    return 0;
}

void events_post(struct events *e, const char *node, const char *node_uid,
                 const char *type, const char *reason, const char *message)
{
    struct event *v;

    if (e->n >= QUEUE_MAX) {
        drop(e, "too many Events wait to be sent");
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->owner = e;
    v->body = render(e, node, node_uid, type, reason, message);
    *e->end = v;
    e->end = &v->next;
    e->n++;
    send_next(e);
}

int events_new(struct kube *k, sd_event *event, const char *identity, struct events **ret,
               struct err *err)
{
    _cleanup_(events_freep) struct events *e = mem_zalloc(sizeof(*e));
    int r;

    e->kube = k;
    e->event = sd_event_ref(event);
    e->identity =
        mem_strndup(identity, 128); /* reportingInstance may have so many bytes */
    e->end = &e->first;
    r = timer_new(event, on_timer, e, &e->timer, err);
    if (r < 0)
        return r;
    *ret = e;
    e = NULL;
    return 0;
}

void events_free(struct events *e)
{
    if (!e)
        return;
    while (e->first) {
        struct event *v = e->first;

        e->first = v->next;
        event_free(v);
    }
    sd_event_source_disable_unref(e->timer);
    sd_event_unref(e->event);
    free(e->identity);
    free(e);
}

uint64_t events_dropped(const struct events *e)
{
    return e->dropped;
}
