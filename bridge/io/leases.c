// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/leases.h"

#include <string.h>
#include <uthash.h>

#include "base/clock.h"
#include "codec/json.h"
#include "codec/k8s_obj.h"
#include "io/timer.h"

#define PERIOD_MS_DEFAULT  2000
#define TIMEOUT_MS_DEFAULT 3000
#define MAX_AT_ONCE        16
#define BODY_CAP           (64 << 10)

struct suspect {
    struct leases *owner;
    char *name;
    struct kube_request *request; /* NULL: none under way */
    int64_t due;                  /* of the next look; CLOCK_BOOTTIME, as all here */
    bool kept;                    /* used in leases_set_suspects() only */
    /* what was learnt */
    enum tri renews;
    int64_t since;      /* when that was first seen without another between */
    int64_t heard_at;   /* of the last look that went well; 0: none */
    int64_t renewed_at; /* the Lease's own renewTime */
    int64_t same_since; /* the first look that found this renewTime */
    bool seen_to_renew; /* an earlier look found another one */
    UT_hash_handle hh;
};

struct leases {
    struct kube *kube;
    sd_event_source *timer;
    struct leases_config config;
    struct suspect *suspects;
    size_t under_way;
    int64_t wakes_at; /* of the timer; INT64_MAX: off */
};

static void suspect_free(struct leases *l, struct suspect *s)
{
    HASH_DEL(l->suspects, s);
    if (s->request) {
        kube_cancel(s->request);
        l->under_way--;
    }
    free(s->name);
    free(s);
}

static struct suspect *find(const struct leases *l, const char *name)
{
    struct suspect *s;

    HASH_FIND_STR(l->suspects, name, s);
    return s;
}

static void wake_by(struct leases *l, int64_t at)
{
    if (at >= l->wakes_at)
        return;
    l->wakes_at = at;
    timer_arm(l->timer, at);
}

/* ---- judging ------------------------------------------------------------------------- */

/* An answer that is older says nothing about now. */
static int64_t old_ms(const struct leases *l)
{
    return l->config.stale_ms / 2;
}

/* By what one answer says; `date_ms`: when, by the API server's clock. */
static enum tri judge(const struct suspect *s, const struct k8s_renewal *r,
                      int64_t date_ms)
{
    int64_t stale_ms = s->owner->config.stale_ms;
    int64_t watched = s->heard_at - s->same_since;
    int64_t written = r->written_at ? r->written_at : r->renewed_at;
    int64_t age = date_ms - written;

    if (watched >= stale_ms)
        return TRI_NO;
    if (s->seen_to_renew)
        return TRI_YES;
    if (!date_ms || age < -stale_ms / 4) /* a wrong clock */
        return TRI_UNKNOWN;              /* until it was watched for long enough */
    if (age < stale_ms)
        return TRI_YES;
    /* Where only the kubelet's own clock is to be had, its age alone proves nothing; a living kubelet
     * would have been seen to renew within this long. */
    return r->written_at || watched >= stale_ms * 6 / 10 ? TRI_NO : TRI_UNKNOWN;
}

static enum tri learn(struct suspect *s, const struct kube_result *result)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    struct k8s_renewal r;
    int64_t now = clock_mono_ms();

    if (result->code < 0 || result->status != 200 ||
        json_parse(result->body, result->body_len, &obj, NULL) < 0 ||
        k8s_lease_parse(obj, &r, NULL) < 0)
        return TRI_UNKNOWN;
    if (!s->heard_at || r.renewed_at != s->renewed_at) {
        /* of a change between two looks that lie far apart nobody knows when it was */
        s->seen_to_renew = s->heard_at && now - s->heard_at <= old_ms(s->owner);
        s->same_since = now;
    }
    s->heard_at = now;
    s->renewed_at = r.renewed_at;
    return judge(s, &r, result->date_ms);
}

/* ---- asking -------------------------------------------------------------------------- */

static void on_answer(const struct kube_result *result, void *userdata)
{
    struct suspect *s = userdata;
    struct leases *l = s->owner;
    enum tri renews;

    s->request = NULL;
    /* where all places were taken another one may wait for this */
    wake_by(l, l->under_way-- == MAX_AT_ONCE ? clock_mono_ms() : s->due);
    renews = learn(s, result);
    if (renews == s->renews)
        return;
    s->renews = renews;
    s->since = clock_mono_ms();
    l->config.on_change(l->config.userdata); /* may replace the suspects */
}

static void ask(struct leases *l, struct suspect *s)
{
    _cleanup_(mem_freep) char *name = kube_escape(s->name);
    _cleanup_(mem_freep) char *path = mem_printf(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/%s", name);
    struct kube_call call = {.method = "GET",
                             .path = path,
                             .timeout_ms = l->config.timeout_ms,
                             .body_cap = BODY_CAP,
                             .on_done = on_answer,
                             .userdata = s};

    s->due = clock_mono_ms() + l->config.period_ms;
    if (kube_start(l->kube, &call, &s->request, NULL) == 0)
        l->under_way++;
    else
        s->renews = TRI_UNKNOWN;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct leases *l = userdata;
    int64_t now = clock_mono_ms(), next = INT64_MAX;
    struct suspect *s, *after;

    (void)source;
    (void)usec;
    l->wakes_at = INT64_MAX;
    HASH_ITER(hh, l->suspects, s, after)
    {
        if (s->request)
            continue; /* its end wakes for the next */
        if (s->due <= now && l->under_way < MAX_AT_ONCE) {
            /* to the end of the line, so that all get their turn */
            HASH_DEL(l->suspects, s);
            HASH_ADD_KEYPTR(hh, l->suspects, s->name, strlen(s->name), s);
            ask(l, s);
        }
        /* one that is due but has no place is woken by the end of another */
        if (s->due > now && s->due < next)
            next = s->due;
    }
    wake_by(l, next);
    return 0;
}

/* ---- the whole ----------------------------------------------------------------------- */

void leases_set_suspects(struct leases *l, const char *const *names, size_t n)
{
    struct suspect *s, *next;
    bool more = false;

    for (size_t i = 0; i < n; i++) {
        s = find(l, names[i]);
        if (!s) {
            s = mem_zalloc(sizeof(*s));
            s->owner = l;
            s->name = mem_strdup(names[i]);
            HASH_ADD_KEYPTR(hh, l->suspects, s->name, strlen(s->name), s);
            more = true;
        }
        s->kept = true;
    }
    HASH_ITER(hh, l->suspects, s, next)
    {
        if (!s->kept)
            suspect_free(l, s);
        else
            s->kept = false;
    }
    if (more)
        wake_by(l, clock_mono_ms());
}

struct lease_fact leases_get(const struct leases *l, const char *name)
{
    const struct suspect *s = find(l, name);
    int64_t now = clock_mono_ms();

    if (!s || s->renews == TRI_UNKNOWN || now - s->heard_at > old_ms(l))
        return (struct lease_fact){.renewed = TRI_UNKNOWN};
    return (struct lease_fact){.renewed = s->renews,
                               .since = clock_wall_ms() - (now - s->since)};
}

int leases_new(struct kube *k, sd_event *event, const struct leases_config *config,
               struct leases **ret, struct err *err)
{
    _cleanup_(leases_freep) struct leases *l = mem_zalloc(sizeof(*l));
    int r;

    l->kube = k;
    l->config = *config;
    if (!config->stale_ms)
        l->config.stale_ms = KUBELET_STALE_MS;
    if (!config->period_ms)
        l->config.period_ms = PERIOD_MS_DEFAULT;
    if (!config->timeout_ms)
        l->config.timeout_ms = TIMEOUT_MS_DEFAULT;
    l->wakes_at = INT64_MAX;
    r = timer_new(event, on_timer, l, &l->timer, err);
    if (r < 0)
        return r;
    *ret = l;
    l = NULL;
    return 0;
}

void leases_free(struct leases *l)
{
    struct suspect *s, *next;

    if (!l)
        return;
    HASH_ITER(hh, l->suspects, s, next)
    suspect_free(l, s);
    (void)sd_event_source_disable_unref(l->timer);
    free(l);
}
