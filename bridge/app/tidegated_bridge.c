// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rounds: read Slurm, join it with what Kubernetes said, decide, plan, act, and look again. An
 * event only says 'look again now'; whatever is missed is seen by the next round. One thing at a
 * time is asked of slurmctld, so that no decision rests on a snapshot from before our own change.
 */
#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "app/tidegated.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/text.h"

/* Slurm tells nobody of changes; 'nothing new' costs it 2-5 ms at 30,000 nodes. */
#define POLL_MS 1000
/* A poll that brings no news, after a round that wanted nothing, needs no round. So many of them may go
 * without: time alone may still change what nobody announces. */
#define SKIPS_MAX 4
/* Waits for this long after an event, so that a rack of them makes one round. */
#define GATHER_MS 2
/* After a round, news waits for this many times as long as that took: a fleet of thousands whose agents all
 * have something to say must not keep a core busy with rounds. */
#define REST_TIMES 4
struct bridge {
    sd_event *event;
    struct kube *kube;
    struct policy policy;
    struct watch *watch;
    struct lease *lease;
    struct events *events;
    struct ctld *ctld;
    struct probe *probe;
    struct leases *leases; /* of suspects' kubelets */
    struct roster *roster;
    struct qualifier *qualifier;
    struct pool_status *status;
    sd_event_source *timer;

    struct slurm_snapshot *slurm; /* the last that came, NULL before the first */
    bool slurm_fresh;
    char *slurm_error;
    int64_t slurm_back_at; /* when a load last came back */
    bool busy;             /* a load or a batch is under way */
    bool dirty; /* something happened since the round that is under way began */
    bool told;  /* woken by an event, not by the clock */
    bool news;  /* something happened since the last round began to decide */
    bool stopping;
    bool quiet;          /* the last round wanted nothing, and waits for nothing */
    unsigned skipped;    /* polls since then that made no round */
    int64_t rests_until; /* CLOCK_BOOTTIME ms: no round before that for news alone */
    struct plan plan;    /* the batch that is under way; its names are no longer good */
    struct refusals *refusals;
    struct bridge_counts counts;
};

static void round_begin(struct bridge *b);
static void round_decide(struct bridge *b);

static void wake_in(struct bridge *b, int64_t ms)
{
    (void)sd_event_source_set_time_relative(b->timer, (uint64_t)ms * 1000);
    (void)sd_event_source_set_enabled(b->timer, SD_EVENT_ONESHOT);
}

static int64_t gather_ms(const struct bridge *b)
{
    int64_t rest = b->rests_until - clock_mono_ms();

    return rest > GATHER_MS ? rest : GATHER_MS;
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

    b->told = b->news = true;
    if (b->busy)
        b->dirty = true;
    else if (!wakes_within(b,
                           gather_ms(b))) /* a storm of news must not put the round off */
        wake_in(b, gather_ms(b));
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

/* ---- deciding --------------------------------------------------------------------------------- */

void bridge_look(struct bridge *b, struct bridge_view *ret)
{
    int64_t now = clock_wall_ms();

    *ret = (struct bridge_view){
        .leader = lease_is_leader(b->lease),
        .kube_fresh = watch_fresh(b->watch),
        .kube_synced = watch_synced(b->watch),
        .slurm_fresh = b->slurm_fresh,
        .slurm_synced = b->slurm != NULL,
        .slurm_silent_ms = clock_mono_ms() - b->slurm_back_at,
        .slurm_error = b->slurm_error,
        .lease_holder = lease_holder(b->lease),
        .counts = &b->counts,
        .agents = roster_counts(b->roster),
        .events_dropped = events_dropped(b->events),
    };
    watch_join(b->watch, b->slurm, &ret->world);
    roster_fill(b->roster, &ret->world);
    qualifier_fill(b->qualifier, &ret->world);
    ret->verdicts = mem_calloc(ret->world.n, sizeof(*ret->verdicts));
    for (size_t i = 0; i < ret->world.n; i++) {
        struct node_facts *f = &ret->world.rows[i];

        f->probe = probe_get(b->probe, f->name);
        f->kubelet = leases_get(b->leases, f->name);
        ret->verdicts[i] = decide(f, &b->policy, now);
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
    _cleanup_(mem_freep) const char **names = mem_calloc(v->world.n, sizeof(*names));
    size_t n = 0, n_names = 0;

    for (size_t i = 0; i < v->world.n; i++) {
        const struct slurm_node *s = v->world.rows[i].slurm;

        if (!v->verdicts[i].suspect)
            continue;
        if (s && s->addr)
            targets[n++] = (struct probe_target){s->name, s->addr, s->port};
        if (v->world.rows[i].kube && roster_is_on(b->roster))
            names[n_names++] = v->world.rows[i].name;
    }
    probe_set_targets(b->probe, targets, n);
    leases_set_suspects(b->leases, names, n_names);
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
    const struct kube_node *node = watch_node(b->watch, name);
    _cleanup_(mem_freep) char *message =
        text_event_message(a->verb, a->verb == VERB_FEATURES ? a->features : a->reason);

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
             a->features ? (struct log_field)LOG_STR("features", a->features)
                         : (struct log_field)LOG_STR("reason", a->reason));
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

/* Something of ours is done: what has come of it? */
static void look_again(struct bridge *b)
{
    bool acting = b->plan.n || qualifier_is_busy(b->qualifier);

    if (!b->stopping)
        round_begin(b);
    else if (!acting)
        lease_release(b->lease, on_released, b);
}

static void on_qualified(void *userdata)
{
    struct bridge *b = userdata;

    if (b->busy)
        b->dirty = true;
    look_again(b);
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
            refusals_forget(b->refusals, o->name);
            b->counts.done[a->verb]++;
            post_event(b, o->name, a);
            if (a->verb == VERB_DELETE)
                roster_restart_slurmd(b->roster, o->name);
        } else if (o->code != -ESTALE && o->code != -ECANCELED) {
            /* those two only say that the world has moved on: the next round knows better */
            b->counts.failed[a->verb]++;
            refusals_note(b->refusals, o->name, o->error ? o->error : strerror(-o->code));
        }
    }
    for (size_t i = 0; i < b->plan.n; i++) {
        size_t count;
        _cleanup_(mem_freep) char *names = first_names(outcomes, n, i, &count);

        log_batch(&b->plan.actions[i], names, count);
    }
    plan_clear(&b->plan);
    b->busy = false;
    look_again(b);
}

/* Whether the round wants nothing, and nothing that it knows of hangs on time alone. */
static bool wants_nothing(const struct bridge_view *v)
{
    for (size_t i = 0; i < v->world.n; i++) {
        const struct verdict *d = &v->verdicts[i];

        if (d->verb != VERB_NONE || d->ask != ASK_NONE || d->qualify || d->suspect ||
            d->look_again_at || v->world.rows[i].qualify.state != QUALIFY_NONE)
            return false;
    }
    return true;
}

/* Returns whether a batch was sent. */
static bool act(struct bridge *b, struct bridge_view *v)
{
    int64_t mono = clock_mono_ms();

    refusals_trim(b->refusals, &v->world);
    for (size_t i = 0; i < v->world.n; i++) {
        if (v->verdicts[i].verb != VERB_NONE &&
            refusals_hold(b->refusals, v->world.rows[i].name, mono))
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
    const int64_t begin = clock_mono_ms();
    struct bridge_view v;
    bool sent = false;

    b->news = false;
    roster_set_leader(b->roster, lease_is_leader(b->lease));
    bridge_look(b, &v);
    b->counts.rounds++;
    b->skipped = 0;
    b->quiet = b->slurm_fresh && v.kube_fresh && wants_nothing(&v);
    if (b->slurm_fresh && v.kube_fresh && !b->stopping) {
        watch_suspects(b, &v);
        if (v.leader) {
            size_t n_pools;
            _cleanup_(mem_freep) const void **pools = watch_pools(b->watch, &n_pools);

            b->quiet &=
                pool_status_update(b->status, &v.world, v.verdicts,
                                   (const struct kube_pool *const *)pools, n_pools);
            roster_trim(b->roster, &v.world);
            roster_ask(b->roster, &v.world, v.verdicts);
            qualifier_act(b->qualifier, &v, lease_valid_until(b->lease));
            sent = act(b, &v);
        }
    }
    b->rests_until = clock_mono_ms() + REST_TIMES * (clock_mono_ms() - begin);
    if (!sent)
        wake_in(b, b->dirty ? gather_ms(b) : next_look_ms(&v));
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

static bool can_skip(const struct bridge *b, int code, const void *news)
{
    return code == 0 && !news && b->quiet && b->slurm_fresh && !b->news && !b->stopping &&
           b->skipped < SKIPS_MAX;
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
            /* what reading and joining took is several times what stays */
            (void)malloc_trim(0);
        }
        if (!b->slurm_fresh)
            log_info("slurmctld is read",
                     LOG_NUM("nodes", b->slurm ? (int64_t)b->slurm->n : 0));
        b->slurm_fresh = b->slurm != NULL;
        mem_set(&b->slurm_error, NULL);
    }
    if (can_skip(b, code, snapshot)) {
        b->skipped++;
        wake_in(b, POLL_MS);
    } else {
        round_decide(b);
    }
}

static void round_begin(struct bridge *b)
{
    if (b->busy)
        return;
    b->dirty = b->told = false;
    b->busy = true;
    qualifier_read(b->qualifier);
    (void)ctld_load(b->ctld, on_loaded, b);
}

/* ---- begin and end ---------------------------------------------------------------------------- */

static void on_leader(bool leader, void *userdata)
{
    struct bridge *b = userdata;

    /* at once, also without a round: agents go to the one that leads */
    roster_set_leader(b->roster, leader); /* the lease has logged it */
    on_change(b);
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
    b->refusals = refusals_new();
    r = sd_event_add_time_relative(event, &b->timer, CLOCK_BOOTTIME, 0, 0, on_timer, b);
    if (r < 0)
        return err_set(err, r, "cannot make a timer: %s", strerror(-r));
    r = sd_event_source_set_time_accuracy(b->timer, 1000);
    if (r < 0)
        return err_set(err, r, "cannot make a timer exact: %s", strerror(-r));
    r = ctld_new(event, &b->ctld, err);
    b->qualifier = qualifier_new(b->ctld, on_qualified, b);
    if (r == 0)
        r = probe_new(event, on_change, b, &b->probe, err);
    if (r == 0)
        r = events_new(kube, event, o->identity, &b->events, err);
    if (r == 0)
        r = leases_new(kube, event,
                       &(struct leases_config){.on_change = on_change, .userdata = b},
                       &b->leases, err);
    if (r == 0)
        r = lease_new(kube, event, &lease, &b->lease, err);
    if (r == 0)
        r = watch_new(kube, event, o, on_change, b, &b->watch, err);
    if (r == 0)
        r = roster_new(event, o, b->watch, on_change, b, &b->roster, err);
    if (r < 0)
        return r;
    b->policy.agents = roster_is_on(b->roster);
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
    if (!b->plan.n && !qualifier_is_busy(b->qualifier))
        lease_release(b->lease, on_released, b);
}

void bridge_free(struct bridge *b)
{
    if (!b)
        return;
    ctld_free(b->ctld);
    qualifier_free(b->qualifier);
    roster_free(b->roster);
    watch_free(b->watch);
    probe_free(b->probe);
    lease_free(b->lease);
    leases_free(b->leases);
    events_free(b->events);
    pool_status_free(b->status);
    sd_event_source_unref(b->timer);
    slurm_snapshot_free(b->slurm);
    plan_clear(&b->plan);
    refusals_free(b->refusals);
    free(b->slurm_error);
    free(b);
}
