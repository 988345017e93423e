// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/reflect.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "codec/jsonstream.h"
#include "io/timer.h"

#define OBJECT_CAP_DEFAULT (2 << 20)
#define IDLE_MS_DEFAULT    90000
#define LIST_IDLE_MS       30000
#define LIST_TIMEOUT_MS    120000
#define WATCH_MIN_S                                                                      \
    240 /* asked of the server: random, so that watches do not end together */
#define WATCH_SPREAD_S 60
#define WATCH_LATE_S   30    /* our own deadline lies so much behind the server's */
#define GRACE_MS       2000  /* a watch that has ended may take so long to stand again */
#define OPEN_MS        10000 /* and one that is lost, to answer */
/* 'Too old' comes behind the 200, as the first event, and so does what was missed. */
#define SETTLE_MS          500
#define BACKOFF_MIN_MS     100
#define BACKOFF_MAX_MS     5000
#define RETRY_AFTER_MAX_MS 60000
#define COMPLAIN_EVERY_MS  60000
#define NAME_MAX_BYTES     253

enum step { LIST, WATCH };

struct reflect {
    struct kube *kube;
    sd_event *event;
    char *what;
    char *path;
    char *query;
    size_t object_cap;
    int64_t idle_ms;
    reflect_cb cb;
    void *userdata;

    enum step step;
    struct kube_request *request;
    struct jsonstream *stream;
    sd_event_source *retry;  /* begins `step` */
    sd_event_source *grace;  /* ends the patience with a watch that does not stand */
    sd_event_source *settle; /* a watch has stood for SETTLE_MS */
    int64_t backoff_ms;
    int64_t heard_at;

    char *version; /* resourceVersion to watch from */
    bool fresh;
    bool told_lost;
    bool list_open; /* LIST_BEGIN has been said, LIST_END not */
    char *list_version;
    size_t listed;
    int64_t begun_at;
    bool opened;  /* the watch has answered 200 */
    bool settled; /* and has stood for a while */
    bool relist;  /* an event may be lost: no watch can carry on */

    int64_t complained_at;
    char *bad_name; /* the object that was complained of last */
};

static void begin(struct reflect *r);

static void tell(struct reflect *r, enum reflect_kind kind, const cJSON *obj)
{
    r->cb(kind, obj, r->userdata);
}

static void set_fresh(struct reflect *r, enum reflect_kind how)
{
    r->fresh = true;
    r->told_lost = false;
    tell(r, how, NULL);
}

static void lost(struct reflect *r, const char *why)
{
    bool news = r->fresh || r->list_open || !r->told_lost;
    int64_t now = clock_mono_ms();

    if (r->fresh || !r->complained_at || now - r->complained_at >= COMPLAIN_EVERY_MS) {
        log_warn("no longer up to date with Kubernetes, trying again",
                 LOG_STR("what", r->what), LOG_STR("error", why));
        r->complained_at = now;
    }
    r->fresh = r->list_open = false;
    r->told_lost = true;
    if (news)
        tell(r, REFLECT_LOST, NULL);
}

static void again(struct reflect *r, enum step step, int64_t at_least_ms)
{
    int64_t base = r->backoff_ms ? r->backoff_ms : BACKOFF_MIN_MS;
    int64_t wait = base / 2 + arc4random_uniform((uint32_t)base / 2 + 1);

    r->backoff_ms = base * 2 < BACKOFF_MAX_MS ? base * 2 : BACKOFF_MAX_MS;
    if (at_least_ms > RETRY_AFTER_MAX_MS)
        at_least_ms = RETRY_AFTER_MAX_MS;
    if (wait < at_least_ms)
        wait = at_least_ms;
    r->step = step;
    timer_arm(r->retry, clock_mono_ms() + wait);
}

static int feed(const char *data, size_t n, void *userdata, struct err *err)
{
    struct reflect *r = userdata;

    r->heard_at = clock_mono_ms();
    return jsonstream_feed(r->stream, data, n, err);
}

static void new_stream(struct reflect *r, enum jsonstream_mode mode, jsonstream_cb cb)
{
    jsonstream_free(r->stream);
    r->stream = jsonstream_new(mode, r->object_cap, cb, r);
}

/* The end of a request, as one code: also that of a stream which was cut off. */
static int outcome(struct reflect *r, const struct kube_result *result, struct err *err)
{
    r->request = NULL;
    if (result->code < 0 || result->status >= 300)
        return err_set(err, result->code < 0 ? result->code : -EIO, "%s", result->error);
    return jsonstream_finish(r->stream, err);
}

/* ---- list -------------------------------------------------------------------------- */

/* The name of an object that is no valid JSON, where the API server writes it; NULL: not
 * to be had. */
static char *guess_name(const char *text)
{
    static const char before[] = "{\"metadata\":{\"name\":\"";
    const char *p = text + sizeof(before) - 1;
    size_t n;

    if (strncmp(text, before, sizeof(before) - 1) != 0)
        return NULL;
    n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789.-");
    return n > 0 && n <= NAME_MAX_BYTES && p[n] == '"' ? mem_strndup(p, n) : NULL;
}

static int list_bad_item(struct reflect *r, const char *text, struct err *err)
{
    _cleanup_(mem_freep) char *name = guess_name(text);
    _cleanup_(cJSON_Deletep) cJSON *stub = NULL;
    cJSON *meta;

    /* Left out of the list it would be taken for gone, so such a list is not one. */
    if (!name)
        return err_context(err, -EBADMSG, "an item whose name cannot be told");
    if (!r->bad_name || strcmp(r->bad_name, name) != 0) {
        log_warn("an object is left as it was last known", LOG_STR("what", r->what),
                 LOG_STR("name", name), LOG_STR("error", err->text));
        mem_set(&r->bad_name, name);
    }
    stub = cJSON_CreateObject();
    meta = cJSON_AddObjectToObject(stub, "metadata");
    if (!meta || !cJSON_AddStringToObject(meta, "name", name))
        abort();
    r->listed++;
    tell(r, REFLECT_PUT, stub);
    return 0;
}

static int list_envelope(struct reflect *r, const cJSON *obj, struct err *err)
{
    const char *kind = NULL, *version = NULL, *more = NULL;
    int code = json_get_str(obj, "kind", &kind, err);
    size_t n = kind ? strlen(kind) : 0;

    if (code == 0 && (n < 4 || strcmp(kind + n - 4, "List") != 0))
        code = err_set(err, -EBADMSG, "kind: '%s', expected a list", kind);
    if (code == 0)
        code = json_get_str(obj, "metadata.resourceVersion", &version, err);
    if (code == 0)
        code = json_opt_str(obj, "metadata.continue", &more, err);
    if (code == 0 && more && *more)
        code = err_set(err, -EBADMSG, "metadata.continue: only a part of the list came");
    if (code == 0)
        mem_set(&r->list_version, version);
    return code;
}

static int on_list_piece(enum jsonstream_piece kind, const char *text, size_t len,
                         void *userdata, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    struct reflect *r = userdata;
    const char *name;
    int code = json_parse(text, len, &obj, err);

    if (kind == JSONSTREAM_ENVELOPE)
        return code < 0 ? code : list_envelope(r, obj, err);
    if (code == 0)
        code = json_get_str(obj, "metadata.name", &name, err);
    if (code < 0)
        return list_bad_item(r, text, err);
    r->listed++;
    tell(r, REFLECT_PUT, obj);
    return 0;
}

static void on_list_open(void *userdata)
{
    struct reflect *r = userdata;

    r->heard_at = clock_mono_ms();
    r->list_open = true;
    tell(r, REFLECT_LIST_BEGIN, NULL);
}

static void on_list_done(const struct kube_result *result, void *userdata)
{
    struct reflect *r = userdata;
    struct err err;
    int code = outcome(r, result, &err);

    if (code < 0) {
        lost(r, err.text);
        again(r, LIST, result->retry_after_ms);
        return;
    }
    log_info("listed", LOG_STR("what", r->what), LOG_NUM("objects", (int64_t)r->listed),
             LOG_NUM("ms", clock_mono_ms() - r->begun_at));
    mem_set(&r->version, r->list_version);
    r->list_open = false;
    r->relist = false;
    set_fresh(r, REFLECT_LIST_END);
    r->step = WATCH;
    timer_arm(r->grace, clock_mono_ms() + GRACE_MS);
    begin(r);
}

/* ---- watch ------------------------------------------------------------------------- */

static int watch_error(struct reflect *r, const cJSON *obj, struct err *err)
{
    const char *message = NULL;
    int64_t status = 0;

    r->relist = true;
    if (json_opt_str(obj, "message", &message, err) < 0 ||
        json_opt_int(obj, "code", &status, err) < 0)
        return -EBADMSG;
    return err_set(err, -ESTALE, "the watch was ended with status %lld: %s",
                   (long long)status, message ? message : "no message");
}

static int watch_event(struct reflect *r, const cJSON *event, struct err *err)
{
    const char *type = NULL, *version = NULL, *name;
    const cJSON *obj = NULL;
    int code = json_get_str(event, "type", &type, err);

    if (code == 0)
        code = json_get_obj(event, "object", &obj, err);
    if (code == 0 && strcmp(type, "ERROR") == 0)
        return watch_error(r, obj, err);
    if (code == 0)
        code = json_get_str(obj, "metadata.resourceVersion", &version, err);
    if (code == 0 && strcmp(type, "BOOKMARK") != 0)
        code = json_get_str(obj, "metadata.name", &name, err);
    if (code < 0)
        return code;
    if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0)
        tell(r, REFLECT_PUT, obj);
    else if (strcmp(type, "DELETED") == 0)
        tell(r, REFLECT_DELETE, obj);
    else if (strcmp(type, "BOOKMARK") != 0)
        return err_set(err, -EBADMSG, "type: '%s' is no known type of event", type);
    mem_set(&r->version, version);
    return 0;
}

static int on_watch_piece(enum jsonstream_piece kind, const char *text, size_t len,
                          void *userdata, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *event = NULL;
    struct reflect *r = userdata;
    int code = json_parse(text, len, &event, err);

    (void)kind;
    if (code == 0)
        code = watch_event(r, event, err);
    return code;
}

static void on_watch_open(void *userdata)
{
    struct reflect *r = userdata;

    r->heard_at = clock_mono_ms();
    r->opened = true;
    timer_stop(r->grace);
    timer_arm(r->settle, r->heard_at + SETTLE_MS);
}

static int on_settle(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct reflect *r = userdata;

    (void)s;
    (void)usec;
    r->settled = true;
    r->backoff_ms = 0;
    if (!r->fresh) {
        log_info("up to date with Kubernetes again", LOG_STR("what", r->what));
        set_fresh(r, REFLECT_FRESH);
    }
    return 0;
}

static int on_grace(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct reflect *r = userdata;

    (void)s;
    (void)usec;
    if (r->fresh) {
        lost(r, "the watch did not stand again within 2 s");
        timer_arm(r->grace, clock_mono_ms() + OPEN_MS);
    } else if (r->request) {
        kube_cancel(r->request);
        r->request = NULL;
        lost(r, "the watch was not answered within 10 s");
        again(r, WATCH, 0);
    }
    return 0;
}

static void on_watch_done(const struct kube_result *result, void *userdata)
{
    struct reflect *r = userdata;
    struct err err = {""};

    if (outcome(r, result, &err) == 0)
        err_set(&err, 0, "the server ended the watch");
    timer_stop(r->settle);
    /* An event that was not understood will not come again; one that was cut off will. */
    if (r->relist || result->status == 410 || result->code == -EBADMSG ||
        result->code == -EMSGSIZE) {
        lost(r, err.text);
        again(r, LIST, 0);
    } else if (result->status >= 300) {
        lost(r, err.text);
        again(r, result->status == 429 || result->status >= 500 ? WATCH : LIST,
              result->retry_after_ms);
    } else if (r->opened) {
        /* Ended as asked, broken, or silent for too long (bookmarks are not promised): not
         * lost if the next one stands soon. */
        timer_arm(r->grace, clock_mono_ms() + GRACE_MS);
        r->step = WATCH;
        if (r->settled)
            begin(r);
        else
            again(r, WATCH, 0);
    } else {
        lost(r, err.text);
        again(r, WATCH, 0);
    }
}

/* ---- both -------------------------------------------------------------------------- */

static int start_list(struct reflect *r, struct err *err)
{
    _cleanup_(mem_freep) char *path =
        mem_printf("%s%s%s", r->path, r->query ? "?" : "", r->query ? r->query : "");
    struct kube_call call = {
        .method = "GET",
        .path = path,
        .timeout_ms = LIST_TIMEOUT_MS,
        .idle_ms = r->idle_ms < LIST_IDLE_MS ? r->idle_ms : LIST_IDLE_MS,
        .on_open = on_list_open,
        .on_data = feed,
        .on_done = on_list_done,
        .userdata = r,
    };

    new_stream(r, JSONSTREAM_LIST, on_list_piece);
    mem_set(&r->list_version, NULL);
    r->listed = 0;
    r->begun_at = clock_mono_ms();
    timer_stop(r->grace);
    return kube_start(r->kube, &call, &r->request, err);
}

static int start_watch(struct reflect *r, struct err *err)
{
    uint32_t timeout_s = WATCH_MIN_S + arc4random_uniform(WATCH_SPREAD_S + 1);
    _cleanup_(mem_freep) char *version = kube_escape(r->version);
    _cleanup_(mem_freep) char *path = mem_printf(
        "%s?watch=1&allowWatchBookmarks=true&resourceVersion=%s&timeoutSeconds=%u%s%s",
        r->path, version, timeout_s, r->query ? "&" : "", r->query ? r->query : "");
    struct kube_call call = {
        .method = "GET",
        .path = path,
        .timeout_ms = ((int64_t)timeout_s + WATCH_LATE_S) * 1000,
        .idle_ms = r->idle_ms,
        .on_open = on_watch_open,
        .on_data = feed,
        .on_done = on_watch_done,
        .userdata = r,
    };

    new_stream(r, JSONSTREAM_OBJECTS, on_watch_piece);
    r->opened = r->settled = false;
    if (!r->fresh)
        timer_arm(r->grace, clock_mono_ms() + OPEN_MS);
    return kube_start(r->kube, &call, &r->request, err);
}

static void begin(struct reflect *r)
{
    struct err err;

    timer_stop(r->retry);
    if ((r->step == LIST ? start_list(r, &err) : start_watch(r, &err)) < 0) {
        lost(r, err.text);
        again(r, r->step, 0);
    }
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata)
{
    (void)s;
    (void)usec;
    begin(userdata);
    return 0;
}

int reflect_new(struct kube *k, sd_event *event, const struct reflect_config *config,
                struct reflect **ret, struct err *err)
{
    _cleanup_(reflect_freep) struct reflect *r = mem_zalloc(sizeof(*r));
    int code;

    r->kube = k;
    r->event = sd_event_ref(event);
    r->what = mem_strdup(config->what);
    r->path = mem_strdup(config->path);
    r->query = mem_strdup(config->query);
    r->object_cap = config->object_cap ? config->object_cap : OBJECT_CAP_DEFAULT;
    r->idle_ms = config->idle_ms ? config->idle_ms : IDLE_MS_DEFAULT;
    r->cb = config->cb;
    r->userdata = config->userdata;
    code = timer_new(event, on_retry, r, &r->retry, err);
    if (code == 0)
        code = timer_new(event, on_grace, r, &r->grace, err);
    if (code == 0)
        code = timer_new(event, on_settle, r, &r->settle, err);
    if (code < 0)
        return code;
    r->step = LIST;
    timer_arm(r->retry,
              0); /* not from inside this call, for the caller has nothing yet */
    *ret = r;
    r = NULL;
    return 0;
}

void reflect_free(struct reflect *r)
{
    if (!r)
        return;
    kube_cancel(r->request);
    jsonstream_free(r->stream);
    sd_event_source_disable_unref(r->retry);
    sd_event_source_disable_unref(r->grace);
    sd_event_source_disable_unref(r->settle);
    sd_event_unref(r->event);
    free(r->what);
    free(r->path);
    free(r->query);
    free(r->version);
    free(r->list_version);
    free(r->bad_name);
    free(r);
}

int64_t reflect_heard_at(const struct reflect *r)
{
    return r->heard_at;
}
