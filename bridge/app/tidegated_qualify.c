// SPDX-License-Identifier: GPL-2.0-or-later
/* The nodes that prove themselves, as the rounds see them: what Slurm shows is read with each round, and all
 * else follows from it. */
#include <errno.h>
#include <string.h>

#include "app/tidegated.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/qualify.h"
#include "io/ctld_qualify.h"

struct qualifier {
    struct ctld *ctld;
    void (*on_done)(void *userdata);
    void *userdata;
    struct qualify_world *world; /* as it was read last; NULL: not known */
    struct refusals *refusals;
    bool wanted;  /* some pool asks for it */
    bool failing; /* the last read did; it was logged */
    bool busy;    /* a batch is under way */
    bool stale;   /* nothing was read since the last one */
};

struct qualifier *qualifier_new(struct ctld *ctld, void (*on_done)(void *userdata),
                                void *userdata)
{
    struct qualifier *q = mem_zalloc(sizeof(*q));

    q->ctld = ctld;
    q->on_done = on_done;
    q->userdata = userdata;
    q->refusals = refusals_new();
    q->wanted = true; /* what an earlier bridge has left behind */
    return q;
}

void qualifier_free(struct qualifier *q)
{
    if (!q)
        return;
    qualify_world_free(q->world);
    refusals_free(q->refusals);
    free(q);
}

bool qualifier_is_busy(const struct qualifier *q)
{
    return q->busy;
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void on_read(int code, struct qualify_world *world, const char *error,
                    void *userdata)
{
    struct qualifier *q = userdata;

    qualify_world_free(q->world);
    q->world = world;
    if (code == 0 && !q->busy)
        q->stale = false;
    /* that slurmctld is away is said by the rounds */
    if (code < 0 && code != -EHOSTDOWN && !q->failing)
        log_warn("cannot see which nodes prove themselves; those stay as they are",
                 LOG_STR("error", error));
    q->failing = code < 0 && code != -EHOSTDOWN;
}

void qualifier_read(struct qualifier *q)
{
    if (q->wanted || !q->world || q->world->n_reservations)
        ctld_qualify_load(q->ctld, on_read, q);
}

void qualifier_fill(const struct qualifier *q, struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->rows[i].qualify = qualify_fact(q->world, &w->rows[i]);
}

/* ---- acting ----------------------------------------------------------------------------------- */

static void note_outcome(struct qualifier *q, const struct ctld_qualify_outcome *o)
{
    const char *verb = qualify_verb_name(o->verb);

    if (o->code == 0) {
        refusals_forget(q->refusals, o->node);
        log_info("qualification", LOG_STR("verb", verb), LOG_STR("node", o->node),
                 LOG_NUM("job", o->job));
    } else if (o->code != -ESTALE && o->code != -ECANCELED && o->code != -EBUSY) {
        /* those only say: look again */
        refusals_note(q->refusals, o->node, o->error ? o->error : strerror(-o->code));
    }
}

static void on_batch(const struct ctld_qualify_outcome *outcomes, size_t n,
                     void *userdata)
{
    struct qualifier *q = userdata;

    q->busy = false;
    for (size_t i = 0; i < n; i++)
        note_outcome(q, &outcomes[i]);
    q->on_done(q->userdata);
}

static bool any_pool_wants(const struct world *w)
{
    for (size_t i = 0; i < w->n; i++) {
        if (w->rows[i].pool && w->rows[i].pool->qualify)
            return true;
    }
    return false;
}

void qualifier_act(struct qualifier *q, const struct bridge_view *v,
                   int64_t valid_until_ms)
{
    _cleanup_(mem_freep) struct qualify_action *actions = NULL;
    const int64_t mono = clock_mono_ms();
    size_t n, kept = 0;

    q->wanted = any_pool_wants(&v->world);
    if (!q->world || q->busy || q->stale)
        return;
    refusals_trim(q->refusals, &v->world);
    n = qualify_plan(v->world.rows, v->verdicts, v->world.n, q->world, clock_wall_ms(),
                     &actions);
    for (size_t i = 0; i < n; i++) {
        if (!refusals_hold(q->refusals, actions[i].node, mono))
            actions[kept++] = actions[i];
    }
    if (!kept)
        return;
    q->busy = q->stale = true;
    ctld_qualify_do(q->ctld, actions, kept, valid_until_ms, on_batch, q);
    for (size_t i = 0; i < kept; i++) {
        if (actions[i].verb != QUALIFY_RELEASE)
            continue;
        if (actions[i].not_with)
            log_warn("a PMIx probe failed with this partner and passed with another; "
                     "look at the partner",
                     LOG_STR("node", actions[i].node),
                     LOG_STR("partner", actions[i].not_with));
        qualify_world_forget(q->world, actions[i].node);
    }
}
