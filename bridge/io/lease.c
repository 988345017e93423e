// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/lease.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "codec/k8s_obj.h"
#include "io/timer.h"

#define DURATION_S_DEFAULT  15
#define DEADLINE_MS_DEFAULT 10000
#define RENEW_MS_DEFAULT    2000
#define CONFLICT_MS         100 /* before reading what somebody else has written */
#define RETRY_AFTER_MAX_MS  5000
#define RELEASE_MS          1500 /* for each of the two requests that giving up takes */
#define COMPLAIN_EVERY_MS   60000
#define BODY_CAP            (64 << 10)

struct lease {
    struct kube *kube;
    sd_event *event;
    char *namespace;
    char *name;
    char *identity;
    int duration_s;
    int64_t deadline_ms;
    int64_t renew_ms;
    void (*on_change)(bool leader, void *userdata);
    void *userdata;

    struct kube_request *request;
    sd_event_source *next;     /* the next try */
    sd_event_source *deadline; /* the end of our term */
    int64_t sent_at; /* when the request began: what it grants counts from there */

    cJSON *object; /* the Lease as last read, with all that others keep in it, or NULL */
    char *holder;
    char *seen_version; /* resourceVersion of the record that was seen to change ... */
    int64_t seen_at;    /* ... at this time of ours */
    int64_t term_ms;    /* how long that record keeps others away */
    bool leader;        /* as told by on_change */
    int64_t valid_until;
    int64_t complained_at;

    bool releasing;
    bool give_up; /* there may be something to give up */
    void (*released)(void *userdata);
    void *released_userdata;
};

static void next_try(struct lease *l, int64_t ms)
{
    /* Random, so that two that wait for the same moment do not meet again and again. */
    int64_t wait = ms - ms / 5 + arc4random_uniform((uint32_t)(ms * 2 / 5) + 1);

    timer_arm(l->next, clock_mono_ms() + wait);
}

static void set_leader(struct lease *l, bool leader, const char *why)
{
    if (!leader) {
        l->valid_until = 0;
        timer_stop(l->deadline);
    }
    if (l->leader == leader)
        return;
    l->leader = leader;
    log_info(leader ? "leading" : "not leading any more", LOG_STR("lease", l->name),
             LOG_STR("holder", lease_holder(l)), LOG_STR("why", why));
    l->on_change(leader, l->userdata);
}

/* The end: nothing is tried any more. */
static void released(struct lease *l)
{
    void (*done)(void *userdata) = l->released;

    l->released = NULL;
    if (done)
        done(l->released_userdata);
}

/* Something did not work. */
static void failed(struct lease *l, const char *why, int64_t retry_after_ms)
{
    if (l->releasing) {
        released(l);
        return;
    }
    if (!l->complained_at || clock_mono_ms() - l->complained_at >= COMPLAIN_EVERY_MS) {
        log_warn("cannot keep up with the lease, trying again", LOG_STR("lease", l->name),
                 LOG_STR("error", why));
        l->complained_at = clock_mono_ms();
    }
    if (retry_after_ms > RETRY_AFTER_MAX_MS)
        retry_after_ms = RETRY_AFTER_MAX_MS;
    next_try(l, retry_after_ms > l->renew_ms / 2 ? retry_after_ms : l->renew_ms / 2);
}

/* ---- the record -------------------------------------------------------------------- */

/* Takes the object over as what the Lease is now. */
static int take_object(struct lease *l, const char *text, size_t len, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    const char *version = NULL, *holder = NULL;
    int64_t duration_s = 0;
    int r = json_parse(text, len, &obj, err);

    if (r == 0)
        r = json_get_str(obj, "metadata.resourceVersion", &version, err);
    if (r == 0)
        r = json_opt_str(obj, "spec.holderIdentity", &holder, err);
    if (r == 0)
        r = json_opt_int(obj, "spec.leaseDurationSeconds", &duration_s, err);
    if (r < 0)
        return err_context(err, r, "lease %s/%s", l->namespace, l->name);
    if (!l->seen_version || !version || strcmp(l->seen_version, version) != 0) {
        l->seen_at = clock_mono_ms();
        mem_set(&l->seen_version, version);
    }
    mem_set(&l->holder, holder ? holder : "");
    /* The longer of its holder's word and ours; a day at most, so that nonsense ends. */
    if (duration_s < l->duration_s || duration_s > 86400)
        duration_s = l->duration_s;
    l->term_ms = duration_s * 1000;
    cJSON_Delete(l->object);
    l->object = obj;
    obj = NULL;
    return 0;
}

static void forget_object(struct lease *l)
{
    cJSON_Delete(l->object);
    l->object = NULL;
}

static bool is_ours(const struct lease *l)
{
    return strcmp(lease_holder(l), l->identity) == 0;
}

static void put(cJSON *obj, const char *key, cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(obj, key);
    if (!value || !cJSON_AddItemToObject(obj, key, value))
        abort();
}

static cJSON *object_at(cJSON *obj, const char *key)
{
    cJSON *m = cJSON_GetObjectItemCaseSensitive(obj, key);

    if (!cJSON_IsObject(m)) {
        m = cJSON_CreateObject();
        put(obj, key, m);
    }
    return m;
}

/* The Lease with us as its holder, or with nobody; what else is in it stays. The caller
 * frees. */
static char *render(const struct lease *l, bool give_up)
{
    _cleanup_(cJSON_Deletep) cJSON *obj =
        l->object ? cJSON_Duplicate(l->object, true) : cJSON_CreateObject();
    _cleanup_(mem_freep) char *now = k8s_time_format(clock_wall_ms(), true);
    int64_t transitions = 0;
    cJSON *meta, *spec;
    char *text;

    if (!obj)
        abort();
    put(obj, "apiVersion", cJSON_CreateString("coordination.k8s.io/v1"));
    put(obj, "kind", cJSON_CreateString("Lease"));
    meta = object_at(obj, "metadata");
    put(meta, "name", cJSON_CreateString(l->name));
    put(meta, "namespace", cJSON_CreateString(l->namespace));
    spec = object_at(obj, "spec");
    if (json_opt_int(spec, "leaseTransitions", &transitions, NULL) < 0 || transitions < 0)
        transitions = 0;
    if (!give_up && !is_ours(l)) {
        put(spec, "acquireTime", cJSON_CreateString(now));
        transitions += l->object ? 1 : 0;
    }
    put(spec, "holderIdentity", cJSON_CreateString(give_up ? "" : l->identity));
    put(spec, "leaseDurationSeconds", cJSON_CreateNumber(give_up ? 1 : l->duration_s));
    put(spec, "leaseTransitions", cJSON_CreateNumber((double)transitions));
    put(spec, "renewTime", cJSON_CreateString(now));
    text = cJSON_PrintUnformatted(obj);
    if (!text)
        abort();
    return text;
}

/* ---- requests ---------------------------------------------------------------------- */

static void request(struct lease *l, const char *method, const char *path,
                    const char *body, kube_done_cb done)
{
    struct kube_call call = {
        .method = method,
        .path = path,
        .body = body,
        .timeout_ms = l->releasing ? RELEASE_MS : l->deadline_ms / 2,
        .body_cap = BODY_CAP,
        .on_done = done,
        .userdata = l,
    };
    struct err err;

    l->sent_at = clock_mono_ms();
    if (kube_start(l->kube, &call, &l->request, &err) < 0)
        failed(l, err.text, 0);
}

/* Of POST and PUT alike. */
static void on_written(const struct kube_result *result, void *userdata)
{
    struct lease *l = userdata;
    struct err err;

    l->request = NULL;
    if (l->releasing && result->code == 0 && result->status < 300) {
        released(l);
        return;
    }
    if (result->code == 0 && (result->status == 409 || result->status == 404)) {
        forget_object(l);
        next_try(l, CONFLICT_MS);
        return;
    }
    if (result->code < 0 || result->status >= 300) {
        forget_object(l); /* it may have been written all the same */
        failed(l, result->error, result->retry_after_ms);
        return;
    }
    if (take_object(l, result->body, result->body_len, &err) < 0 || !is_ours(l)) {
        forget_object(l);
        failed(l, "the lease was answered with something else than what was written", 0);
        return;
    }
    l->complained_at = 0;
    /* Nobody can have seen the change before it was sent, so none may take it before
     * sent_at + duration_s, which lies behind our deadline. */
    l->valid_until = l->sent_at + l->deadline_ms;
    timer_arm(l->deadline, l->valid_until);
    set_leader(l, true, "the lease is ours");
    next_try(l, l->renew_ms);
}

static void write_lease(struct lease *l)
{
    _cleanup_(mem_freep) char *body = render(l, l->releasing);
    _cleanup_(mem_freep) char *path =
        mem_printf("/apis/coordination.k8s.io/v1/namespaces/%s/leases%s%s", l->namespace,
                   l->object ? "/" : "", l->object ? l->name : "");

    request(l, l->object ? "PUT" : "POST", path, body, on_written);
}

static bool may_take(const struct lease *l)
{
    return is_ours(l) || !*lease_holder(l) || clock_mono_ms() >= l->seen_at + l->term_ms;
}

static void on_read(const struct kube_result *result, void *userdata)
{
    struct lease *l = userdata;
    struct err err;

    l->request = NULL;
    if (result->code == 0 && result->status == 404) {
        forget_object(l);
        mem_set(&l->holder, NULL);
        mem_set(&l->seen_version, NULL);
        if (l->releasing)
            released(l);
        else
            write_lease(l);
        return;
    }
    if (result->code < 0 || result->status >= 300) {
        failed(l, result->error, result->retry_after_ms);
        return;
    }
    if (take_object(l, result->body, result->body_len, &err) < 0) {
        failed(l, err.text, 0);
        return;
    }
    l->complained_at = 0;
    if (l->releasing && !is_ours(l)) {
        released(l);
        return;
    }
    if (!is_ours(l))
        set_leader(l, false, "another one holds the lease");
    if (may_take(l))
        write_lease(l);
    else
        next_try(l, l->renew_ms);
}

static void read_lease(struct lease *l)
{
    _cleanup_(mem_freep) char *path = mem_printf(
        "/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", l->namespace, l->name);

    request(l, "GET", path, NULL, on_read);
}

static int on_next(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct lease *l = userdata;

    (void)s;
    (void)usec;
    if (l->releasing && !l->give_up) {
        released(l);
    } else if (l->leader && l->object) {
        write_lease(l); /* as we have just written it; if not, the server says so */
    } else {
        read_lease(l);
    }
    return 0;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct lease *l = userdata;

    (void)s;
    (void)usec;
    if (!lease_is_leader(l))
        set_leader(l, false, "the lease could not be renewed in time");
    else
        timer_arm(l->deadline, l->valid_until);
    return 0;
}

/* ---- what the rest sees ------------------------------------------------------------ */

int lease_new(struct kube *k, sd_event *event, const struct lease_config *config,
              struct lease **ret, struct err *err)
{
    _cleanup_(lease_freep) struct lease *l = mem_zalloc(sizeof(*l));
    int r;

    l->kube = k;
    l->event = sd_event_ref(event);
    l->namespace = mem_strdup(config->namespace);
    l->name = mem_strdup(config->name);
    l->identity = mem_strdup(config->identity);
    l->duration_s = config->duration_s ? config->duration_s : DURATION_S_DEFAULT;
    l->deadline_ms = config->deadline_ms ? config->deadline_ms : DEADLINE_MS_DEFAULT;
    l->renew_ms = config->renew_ms ? config->renew_ms : RENEW_MS_DEFAULT;
    l->on_change = config->on_change;
    l->userdata = config->userdata;
    if (!*l->identity)
        return err_set(err, -EINVAL,
                       "lease %s: an empty identity, expected one of our own", l->name);
    if (l->deadline_ms >= (int64_t)l->duration_s * 1000 || l->renew_ms >= l->deadline_ms)
        return err_set(err, -EINVAL,
                       "lease %s: renew every %lld ms, deadline %lld ms, duration %d s: "
                       "expected each to be shorter than the next",
                       l->name, (long long)l->renew_ms, (long long)l->deadline_ms,
                       l->duration_s);
    r = timer_new(event, on_next, l, &l->next, err);
    if (r == 0)
        r = timer_new(event, on_deadline, l, &l->deadline, err);
    if (r < 0)
        return r;
    timer_arm(l->next, 0);
    *ret = l;
    l = NULL;
    return 0;
}

void lease_free(struct lease *l)
{
    if (!l)
        return;
    kube_cancel(l->request);
    sd_event_source_disable_unref(l->next);
    sd_event_source_disable_unref(l->deadline);
    sd_event_unref(l->event);
    cJSON_Delete(l->object);
    free(l->namespace);
    free(l->name);
    free(l->identity);
    free(l->holder);
    free(l->seen_version);
    free(l);
}

bool lease_is_leader(const struct lease *l)
{
    return l->leader && clock_mono_ms() < l->valid_until;
}

int64_t lease_valid_until(const struct lease *l)
{
    return lease_is_leader(l) ? l->valid_until : 0;
}

const char *lease_holder(const struct lease *l)
{
    return l->holder ? l->holder : "";
}

void lease_release(struct lease *l, void (*done)(void *userdata), void *userdata)
{
    kube_cancel(l->request);
    l->request = NULL;
    l->releasing = true;
    l->give_up = l->leader;
    l->released = done;
    l->released_userdata = userdata;
    set_leader(l, false, "giving it up");
    /* What was cancelled may have been written or not, so it is read first; and `done` is
     * never called from inside this call. */
    timer_arm(l->next, 0);
}
