// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rounds: read Slurm, join it with what Kubernetes said, decide, plan, act, and look again. An
 * event only says 'look again now'; whatever is missed is seen by the next round. One thing at a
 * time is asked of slurmctld, so that no decision rests on a snapshot from before our own change.
 */
#include <errno.h>
#include <string.h>
#include <uthash.h>

#include "app/tidegated.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/k8s_obj.h"
#include "core/text.h"

/* Slurm tells nobody of changes; 'nothing new' costs it 2-5 ms at 30,000 nodes. */
#define POLL_MS 1000
/* Waits for this long after an event, so that a rack of them makes one round. */
#define GATHER_MS 2
/* A node that slurmctld refused is left alone for this long, doubled up to the maximum. */
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 60000

/* A node whose last change slurmctld refused. */
struct refusal {
    char *name;
    char *error;
    int64_t wait_ms;
    int64_t again_at; /* CLOCK_BOOTTIME */
    UT_hash_handle hh;
};

struct bridge {
    sd_event *event;
    struct kube *kube;
    struct policy policy;
    struct cache *nodes, *pods, *pools;
    struct lease *lease;
    struct events *events;
    struct ctld *ctld;
    struct probe *probe;
    struct pool_status *status;
    sd_event_source *timer;

    struct slurm_snapshot *slurm; /* the last that came, NULL before the first */
    bool slurm_fresh;
    char *slurm_error;
    int64_t slurm_back_at; /* when a load last came back */
    bool busy;             /* a load or a batch is under way */
    bool dirty; /* something happened since the round that is under way began */
    bool told;  /* woken by an event, not by the clock */
    bool stopping;
    struct plan plan; /* the batch that is under way; its names are no longer good */
    struct refusal *refusals;
    struct bridge_counts counts;
};

static void round_begin(struct bridge *b);
static void round_decide(struct bridge *b);

static void wake_in(struct bridge *b, int64_t ms)
{
    (void)sd_event_source_set_time_relative(b->timer, (uint64_t)ms * 1000);
    (void)sd_event_source_set_enabled(b->timer, SD_EVENT_ONESHOT);
}

/* Whether a round begins within `ms` anyway. */
static bool wakes_within(const struct bridge *b, int64_t ms)
{
    uint64_t at;

    return sd_event_source_get_enabled(b->timer, NULL) > 0 &&
           sd_event_source_get_time(b->timer, &at) >= 0 &&
           at <= (uint64_t)(clock_mono_ms() + ms) * 1000;
}

static void on_change(void *userdata)
{
    struct bridge *b = userdata;

    b->told = true;
    if (b->busy)
        b->dirty = true;
    else if (!wakes_within(b, GATHER_MS)) /* a storm of news must not put the round off */
        wake_in(b, GATHER_MS);
}

/*
 * News of Kubernetes is decided on with the Slurm that was read last, while that is as good as polling
 * ever makes it: reading a large cluster takes longer than all the rest. A node that has changed in
 * Slurm since is found out by ctld_apply() and not touched. Our own changes are always read back first.
 */
static bool can_decide_at_once(const struct bridge *b)
{
    return b->told && !b->busy && b->slurm_fresh &&
           clock_mono_ms() - b->slurm_back_at < POLL_MS;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct bridge *b = userdata;

    (void)s;
    (void)usec;
    if (can_decide_at_once(b)) {
        b->told = false;
        round_decide(b);
    } else {
        round_begin(b);
    }
    return 0;
}

/* ---- refusals --------------------------------------------------------------------------------- */

static void refusal_forget(struct bridge *b, struct refusal *f)
{
    HASH_DEL(b->refusals, f);
    free(f->name);
    free(f->error);
    free(f);
}

static void refusal_note(struct bridge *b, const char *name, const char *error)
{
    struct refusal *f;

    HASH_FIND_STR(b->refusals, name, f);
    if (!f) {
        f = mem_zalloc(sizeof(*f));
        f->name = mem_strdup(name);
        f->wait_ms = RETRY_MIN_MS;
        HASH_ADD_KEYPTR(hh, b->refusals, f->name, strlen(f->name), f);
    } else if (f->wait_ms < RETRY_MAX_MS) {
        f->wait_ms *= 2;
    }
    f->again_at = clock_mono_ms() + f->wait_ms;
    if (f->error && strcmp(f->error, error) == 0)
        return; /* said already */
    mem_set(&f->error, error);
    log_warn("slurmctld refused a change; it is tried again later", LOG_STR("node", name),
             LOG_STR("error", error));
}

/* Of nodes that are no more nothing is kept. */
static void refusals_trim(struct bridge *b, const struct world *w)
{
    struct refusal *f, *next;

    HASH_ITER(hh, b->refusals, f, next)
    {
        if (!world_find(w, f->name))
            refusal_forget(b, f);
    }
}

static bool refusal_holds(const struct bridge *b, const char *name, int64_t mono)
{
    const struct refusal *f;

    HASH_FIND_STR(b->refusals, name, f);
    return f && mono < f->again_at;
}

/* ---- deciding --------------------------------------------------------------------------------- */

static bool kube_fresh(const struct bridge *b)
{
    /* A cluster without a single Node cannot run us: such an answer is a failed look-up. */
    return cache_fresh(b->nodes) && cache_fresh(b->pods) && cache_fresh(b->pools) &&
           cache_count(b->nodes) > 0;
}

void bridge_look(struct bridge *b, struct bridge_view *ret)
{
    _cleanup_(mem_freep) const void **nodes = NULL, **pods = NULL, **pools = NULL;
    struct world_input in = {.slurm = b->slurm};
    int64_t now = clock_wall_ms();

    nodes = cache_values(b->nodes, &in.n_nodes);
    pods = cache_values(b->pods, &in.n_pods);
    pools = cache_values(b->pools, &in.n_pools);
    in.nodes = (const struct kube_node *const *)nodes;
    in.pods = (const struct kube_pod *const *)pods;
    in.pools = (const struct kube_pool *const *)pools;
    *ret = (struct bridge_view){
        .leader = lease_is_leader(b->lease),
        .kube_fresh = kube_fresh(b),
        .kube_synced =
            cache_synced(b->nodes) && cache_synced(b->pods) && cache_synced(b->pools),
        .slurm_fresh = b->slurm_fresh,
        .slurm_synced = b->slurm != NULL,
        .slurm_silent_ms = clock_mono_ms() - b->slurm_back_at,
        .slurm_error = b->slurm_error,
        .lease_holder = lease_holder(b->lease),
        .counts = &b->counts,
        .events_dropped = events_dropped(b->events),
    };
    world_join(&in, &ret->world);
    ret->verdicts = mem_calloc(ret->world.n, sizeof(*ret->verdicts));
    for (size_t i = 0; i < ret->world.n; i++) {
        ret->world.rows[i].probe = probe_get(b->probe, ret->world.rows[i].name);
        ret->verdicts[i] = decide(&ret->world.rows[i], &b->policy, now);
    }
}

void bridge_view_clear(struct bridge_view *v)
{
    world_clear(&v->world);
    free(v->verdicts);
    v->verdicts = NULL;
}

static void watch_suspects(struct bridge *b, const struct bridge_view *v)
{
    _cleanup_(mem_freep) struct probe_target *targets =
        mem_calloc(v->world.n, sizeof(*targets));
    size_t n = 0;

    for (size_t i = 0; i < v->world.n; i++) {
        const struct slurm_node *s = v->world.rows[i].slurm;

        if (s && s->addr && v->verdicts[i].suspect)
            targets[n++] = (struct probe_target){s->name, s->addr, s->port};
    }
    probe_set_targets(b->probe, targets, n);
}

static int64_t next_look_ms(const struct bridge_view *v)
{
    int64_t now = clock_wall_ms(), wait = POLL_MS;

    for (size_t i = 0; i < v->world.n; i++) {
        int64_t at = v->verdicts[i].look_again_at;

        if (at && at - now < wait)
            wait = at > now ? at - now + 1 : 1;
    }
    return wait;
}

/* ---- acting ----------------------------------------------------------------------------------- */

static void post_event(struct bridge *b, const char *name, const struct action *a)
{
    const struct kube_node *node = cache_get(b->nodes, name);
    _cleanup_(mem_freep) char *message = text_event_message(a->verb, a->reason);

    if (a->verb == VERB_NOTE)
        return; /* bookkeeping, no news for anybody */
    events_post(b->events, name, node ? node->uid : NULL,
                text_event_type(a->verb, a->ledger.episode), text_event_reason(a->verb),
                message);
}

static void log_batch(const struct action *a, const char *names, size_t n)
{
    if (!n || a->verb == VERB_NOTE)
        return;
    log_info("changed in Slurm", LOG_STR("verb", verb_name(a->verb)),
             LOG_NUM("count", (int64_t)n), LOG_STR("nodes", names),
             LOG_STR("reason", a->reason));
}

/* The first few names, for a log line that stays readable. */
static char *first_names(const struct ctld_outcome *o, size_t n, size_t action,
                         size_t *ret_n)
{
    char *names = mem_strdup("");

    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        char *longer;

        if (o[i].action != action || o[i].code < 0)
            continue;
        if ((*ret_n)++ > 10)
            continue;
        longer = *ret_n > 10 ? mem_printf("%s,...", names)
                             : mem_printf("%s%s%s", names, *names ? "," : "", o[i].name);
        free(names);
        names = longer;
    }
    return names;
}

static void on_released(void *userdata)
{
    struct bridge *b = userdata;

    (void)sd_event_exit(b->event, 0);
}

static void on_applied(const struct ctld_outcome *outcomes, size_t n, size_t rpcs,
                       void *userdata)
{
    struct bridge *b = userdata;

    b->counts.rpcs += rpcs;
    for (size_t i = 0; i < n; i++) {
        const struct ctld_outcome *o = &outcomes[i];
        const struct action *a = &b->plan.actions[o->action];

        if (o->code == 0) {
            struct refusal *f;

            HASH_FIND_STR(b->refusals, o->name, f);
            if (f)
                refusal_forget(b, f);
            b->counts.done[a->verb]++;
            post_event(b, o->name, a);
        } else if (o->code != -ESTALE && o->code != -ECANCELED) {
            /* those two only say that the world has moved on: the next round knows better */
            b->counts.failed[a->verb]++;
            refusal_note(b, o->name, o->error ? o->error : strerror(-o->code));
        }
    }
    for (size_t i = 0; i < b->plan.n; i++) {
        size_t count;
        _cleanup_(mem_freep) char *names = first_names(outcomes, n, i, &count);

        log_batch(&b->plan.actions[i], names, count);
    }
    plan_clear(&b->plan);
    b->busy = false;
    if (b->stopping)
        lease_release(b->lease, on_released, b);
    else
        round_begin(b); /* look at what has come of it */
}

/* Returns whether a batch was sent. */
static bool act(struct bridge *b, struct bridge_view *v)
{
    int64_t mono = clock_mono_ms();

    refusals_trim(b, &v->world);
    for (size_t i = 0; i < v->world.n; i++) {
        if (v->verdicts[i].verb != VERB_NONE &&
            refusal_holds(b, v->world.rows[i].name, mono))
            v->verdicts[i].verb = VERB_NONE;
    }
    plan_make(v->world.rows, v->verdicts, v->world.n, &b->plan);
    if (!b->plan.n)
        return false;
    b->busy = true;
    ctld_apply(b->ctld, b->plan.actions, b->plan.n, lease_valid_until(b->lease),
               on_applied, b);
    return true;
}

static void round_decide(struct bridge *b)
{
    struct bridge_view v;
    bool sent = false;

    bridge_look(b, &v);
    b->counts.rounds++;
    if (b->slurm_fresh && v.kube_fresh && !b->stopping) {
        watch_suspects(b, &v);
        if (v.leader) {
            size_t n_pools;
            _cleanup_(mem_freep) const void **pools = cache_values(b->pools, &n_pools);

            pool_status_update(b->status, &v.world, v.verdicts,
                               (const struct kube_pool *const *)pools, n_pools);
            sent = act(b, &v);
        }
    }
    if (!sent)
        wake_in(b, b->dirty ? GATHER_MS : next_look_ms(&v));
    bridge_view_clear(&v);
}

static void slurm_lost(struct bridge *b, const char *error)
{
    b->counts.slurm_load_failures++;
    if (b->slurm_fresh || !b->slurm_error)
        log_warn("slurmctld cannot be read; holding still", LOG_STR("error", error));
    b->slurm_fresh = false;
    mem_set(&b->slurm_error, error ? error : "unknown error");
}

static void on_loaded(int code, struct slurm_snapshot *snapshot, const char *error,
                      void *userdata)
{
    struct bridge *b = userdata;

    b->busy = false;
    b->slurm_back_at = clock_mono_ms();
    if (code < 0) {
        slurm_lost(b, error);
    } else {
        if (snapshot) {
            slurm_snapshot_free(b->slurm);
            b->slurm = snapshot;
        }
        if (!b->slurm_fresh)
            log_info("slurmctld is read",
                     LOG_NUM("nodes", b->slurm ? (int64_t)b->slurm->n : 0));
        b->slurm_fresh = b->slurm != NULL;
        mem_set(&b->slurm_error, NULL);
    }
    round_decide(b);
}

static void round_begin(struct bridge *b)
{
    if (b->busy)
        return;
    b->dirty = b->told = false;
    b->busy = true;
    (void)ctld_load(b->ctld, on_loaded, b);
}

/* ---- begin and end ---------------------------------------------------------------------------- */

/* Kubelets renew their Node's status all the time; most of it is no news here. */
static bool same_node(const void *x, const void *y)
{
    const struct kube_node *a = x, *b = y;

    if (a->unschedulable != b->unschedulable || a->ready != b->ready ||
        a->ready_since != b->ready_since || a->labels.n != b->labels.n ||
        !mem_same_str(a->uid, b->uid) || !mem_same_str(a->boot_id, b->boot_id))
        return false;
    for (size_t i = 0; i < a->labels.n; i++) {
        if (!mem_same_str(a->labels.items[i].key, b->labels.items[i].key) ||
            !mem_same_str(a->labels.items[i].value, b->labels.items[i].value))
            return false;
    }
    return true;
}

static bool same_pod(const void *x, const void *y)
{
    const struct kube_pod *a = x, *b = y;

    return a->ready == b->ready && a->terminating == b->terminating &&
           mem_same_str(a->uid, b->uid) && mem_same_str(a->node, b->node);
}

static int parse_node(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_node_parse(obj, ret, err);
}

static int parse_pod(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_pod_parse(obj, ret, err);
}

static int parse_pool(const cJSON *obj, void *ret, struct err *err)
{
    return k8s_pool_parse(obj, ret, err);
}

static void clear_node(void *v)
{
    kube_node_clear(v);
}

static void clear_pod(void *v)
{
    kube_pod_clear(v);
}

static void clear_pool(void *v)
{
    kube_pool_clear(v);
}

static const struct cache_type node_type = {"nodes", sizeof(struct kube_node), parse_node,
                                            clear_node, same_node};
static const struct cache_type pod_type = {"pods", sizeof(struct kube_pod), parse_pod,
                                           clear_pod, same_pod};
static const struct cache_type pool_type = {"pools", sizeof(struct kube_pool), parse_pool,
                                            clear_pool, NULL};

static int watch_kube(struct bridge *b, const struct options *o, struct err *err)
{
    _cleanup_(mem_freep) char *ns = kube_escape(o->namespace);
    _cleanup_(mem_freep) char *selector = kube_escape(o->pod_selector);
    _cleanup_(mem_freep) char *pods = mem_printf("/api/v1/namespaces/%s/pods", ns);
    _cleanup_(mem_freep) char *query = mem_printf("labelSelector=%s", selector);
    _cleanup_(mem_freep) char *pools =
        mem_printf("/apis/tidegate.dev/v1alpha1/namespaces/%s/pools", ns);
    int r = cache_new(b->kube, b->event, &node_type, "/api/v1/nodes", NULL, on_change, b,
                      &b->nodes, err);

    if (r == 0)
        r = cache_new(b->kube, b->event, &pod_type, pods, query, on_change, b, &b->pods,
                      err);
    if (r == 0)
        r = cache_new(b->kube, b->event, &pool_type, pools, NULL, on_change, b, &b->pools,
                      err);
    return r;
}

static void on_leader(bool leader, void *userdata)
{
    (void)leader; /* the lease has logged it */
    on_change(userdata);
}

int bridge_new(sd_event *event, struct kube *kube, const struct options *o,
               struct bridge **ret, struct err *err)
{
    _cleanup_(bridge_freep) struct bridge *b = mem_zalloc(sizeof(*b));
    struct lease_config lease = {.namespace = o->namespace,
                                 .name = o->lease,
                                 .identity = o->identity,
                                 .on_change = on_leader,
                                 .userdata = b};
    int r;

    b->event = event;
    b->kube = kube;
    b->policy = o->policy;
    b->slurm_back_at = clock_mono_ms();
    b->status = pool_status_new(kube, o->namespace);
    r = sd_event_add_time_relative(event, &b->timer, CLOCK_BOOTTIME, 0, 0, on_timer, b);
    if (r < 0)
        return err_set(err, r, "cannot make a timer: %s", strerror(-r));
    r = sd_event_source_set_time_accuracy(b->timer, 1000);
    if (r < 0)
        return err_set(err, r, "cannot make a timer exact: %s", strerror(-r));
    r = ctld_new(event, &b->ctld, err);
    if (r == 0)
        r = probe_new(event, on_change, b, &b->probe, err);
    if (r == 0)
        r = events_new(kube, event, o->identity, &b->events, err);
    if (r == 0)
        r = lease_new(kube, event, &lease, &b->lease, err);
    if (r == 0)
        r = watch_kube(b, o, err);
    if (r < 0)
        return r;
    *ret = b;
    b = NULL;
    return 0;
}

void bridge_stop(struct bridge *b)
{
    if (b->stopping)
        return;
    b->stopping = true;
    /* Whoever leads next must not act beside a batch of ours. */
    if (!b->plan.n)
        lease_release(b->lease, on_released, b);
}

void bridge_free(struct bridge *b)
{
    struct refusal *f, *next;

    if (!b)
        return;
    ctld_free(b->ctld);
    cache_free(b->nodes);
    cache_free(b->pods);
    cache_free(b->pools);
    probe_free(b->probe);
    lease_free(b->lease);
    events_free(b->events);
    pool_status_free(b->status);
    sd_event_source_unref(b->timer);
    slurm_snapshot_free(b->slurm);
    plan_clear(&b->plan);
    HASH_ITER(hh, b->refusals, f, next)
    refusal_forget(b, f);
    free(b->slurm_error);
    free(b);
}
