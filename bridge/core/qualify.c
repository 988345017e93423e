// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/qualify.h"

#include <string.h>

#define PROBE_PREFIX "tidegate-pmix: "

/* ---- values ----------------------------------------------------------------------------------- */

static void job_clear(struct qualify_job *j)
{
    free(j->node);
    free(j->instance);
    free(j->partner);
    free(j->said);
    free(j->text);
}

void qualify_world_free(struct qualify_world *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_reservations; i++)
        free(w->reservations[i].node);
    for (size_t i = 0; i < w->n_jobs; i++)
        job_clear(&w->jobs[i]);
    free(w->reservations);
    free(w->jobs);
    free(w->others);
    free(w);
}

const char *qualify_verb_name(enum qualify_verb v)
{
    static const char *const names[] = {
        [QUALIFY_RESERVE] = "reserve",
        [QUALIFY_SUBMIT] = "submit",
        [QUALIFY_CANCEL] = "cancel",
        [QUALIFY_RELEASE] = "release",
    };

    return names[v];
}

static char *what_went_wrong(const struct qualify_job *j)
{
    const size_t prefix = strlen(PROBE_PREFIX);

    if (j->said && strncmp(j->said, PROBE_PREFIX, prefix) == 0)
        return mem_strdup(j->said + prefix);
    if (j->said)
        return mem_strdup(j->said);
    if (j->timed_out)
        return mem_printf("not done within %d minutes; look at slurmd's log",
                          QUALIFY_MINUTES);
    if (j->node_lost)
        return mem_strdup("one of its nodes was lost meanwhile");
    return mem_printf("exit status %u and no word; look at slurmd's log", j->exit_code);
}

static char *text_of(const struct qualify_job *j)
{
    _cleanup_(mem_freep) char *what = what_went_wrong(j);

    if (j->partner)
        return mem_printf("partner %s: %s", j->partner, what);
    return mem_printf("no partner was free: %s", what);
}

static int by_node(const void *a, const void *b)
{
    return strcmp(((const struct qualify_reservation *)a)->node,
                  ((const struct qualify_reservation *)b)->node);
}

static int by_node_and_id(const void *a, const void *b)
{
    const struct qualify_job *x = a, *y = b;
    int r = strcmp(x->node, y->node);

    return r ? r : (x->id > y->id) - (x->id < y->id);
}

void qualify_world_sort(struct qualify_world *w)
{
    if (w->n_reservations)
        qsort(w->reservations, w->n_reservations, sizeof(*w->reservations), by_node);
    if (w->n_jobs)
        qsort(w->jobs, w->n_jobs, sizeof(*w->jobs), by_node_and_id);
    for (size_t i = 0; i < w->n_jobs; i++) {
        if (w->jobs[i].state == QUALIFY_JOB_BAD && !w->jobs[i].text)
            w->jobs[i].text = text_of(&w->jobs[i]);
    }
}

static const struct qualify_reservation *reservation_of(const struct qualify_world *w,
                                                        const char *node)
{
    const struct qualify_reservation wanted = {.node = (char *)node};

    return w->n_reservations ? bsearch(&wanted, w->reservations, w->n_reservations,
                                       sizeof(wanted), by_node)
                             : NULL;
}

void qualify_world_forget(struct qualify_world *w, const char *node)
{
    for (size_t i = 0; i < w->n_reservations; i++) {
        struct qualify_reservation *r = &w->reservations[i];

        if (strcmp(r->node, node) != 0)
            continue;
        free(r->node);
        w->n_reservations--;
        memmove(r, r + 1, (w->n_reservations - i) * sizeof(*r));
        return;
    }
}

/* ---- what the jobs of a node say -------------------------------------------------------------- */

struct summary {
    const struct qualify_job *active;   /* waits or runs for this instance; the newest */
    const struct qualify_job *outdated; /* the same for another instance */
    const struct qualify_job *well;
    const struct qualify_job *bad; /* the newest */
    size_t n, n_bad;               /* of this instance */
    bool
        gave_up_partner; /* one that waited for a partner was cancelled after `bad`, or is the first */
};

static bool is_active(const struct qualify_job *j)
{
    return j->state == QUALIFY_JOB_WAITS || j->state == QUALIFY_JOB_RUNS;
}

static void count_job(struct summary *s, const struct qualify_job *j)
{
    s->n++;
    switch (j->state) {
    case QUALIFY_JOB_WAITS:
    case QUALIFY_JOB_RUNS:
        s->active = j;
        break;
    case QUALIFY_JOB_WELL:
        s->well = j;
        break;
    case QUALIFY_JOB_BAD:
        s->bad = j;
        s->n_bad++;
        s->gave_up_partner = false;
        break;
    case QUALIFY_JOB_CANCELLED:
        s->gave_up_partner |= j->wants_partner;
        break;
    }
}

static struct summary look_at_jobs(const struct qualify_world *w, const char *node,
                                   const char *instance)
{
    struct summary s = {0};

    for (size_t i = 0; i < w->n_jobs; i++) {
        const struct qualify_job *j = &w->jobs[i];

        if (strcmp(j->node, node) != 0)
            continue;
        if (instance && mem_same_str(j->instance, instance))
            count_job(&s, j);
        else if (is_active(j))
            s.outdated = j;
    }
    return s;
}

/*
 * Whether there is nothing more to try. A wire-up that failed between two nodes does not tell which of
 * them is at fault: another partner gives a second opinion, and when none can be had the node that comes
 * back is the one that is not believed.
 */
static bool has_failed(const struct summary *s)
{
    if (s->n >= QUALIFY_JOBS_MAX)
        return true;
    return s->bad && (s->n_bad > 1 || !s->bad->partner || s->gave_up_partner);
}

static const char *failed_text(const struct summary *s)
{
    return s->bad ? s->bad->text
                  : "its job was cancelled, or could not start, again and again; "
                    "RESUME the node to do without";
}

struct qualify_fact qualify_fact(const struct qualify_world *w,
                                 const struct node_facts *f)
{
    const char *instance = f->agent ? f->agent->instance : NULL;
    struct summary s;

    if (!w || !reservation_of(w, f->name))
        return (struct qualify_fact){.state = QUALIFY_NONE};
    s = look_at_jobs(w, f->name, instance);
    if (s.well)
        return (struct qualify_fact){.state = QUALIFY_PASSED, .instance = instance};
    if (s.active)
        return (struct qualify_fact){.state = QUALIFY_RUNNING, .instance = instance};
    if (has_failed(&s))
        return (struct qualify_fact){
            .state = QUALIFY_FAILED, .instance = instance, .text = failed_text(&s)};
    return (struct qualify_fact){.state = QUALIFY_RESERVED, .instance = instance};
}

/* ---- planning --------------------------------------------------------------------------------- */

struct planning {
    const struct node_facts *rows;
    size_t n_rows;
    const struct qualify_world *world;
    int64_t now;
    size_t slots; /* that are free */
    struct qualify_action *actions;
    size_t n;
};

static void add(struct planning *p, struct qualify_action a)
{
    p->actions = mem_resize(p->actions, p->n + 1, sizeof(*p->actions));
    p->actions[p->n++] = a;
}

/* Nobody keeps it from jobs, and slurmctld would start one there. */
static bool is_free(const struct node_facts *f)
{
    const struct slurm_node *s = f->slurm;

    return s &&
           (s->base == SLURM_BASE_IDLE || s->base == SLURM_BASE_MIXED ||
            s->base == SLURM_BASE_ALLOCATED) &&
           !s->drain && !s->fail && !s->not_responding && !s->invalid_reg &&
           !s->rebooting;
}

/* Whether it is worth waiting for a partner: an idle place on a node of the pool that is believed. */
static bool may_have_partner(const struct planning *p, const struct node_facts *f,
                             const char *not_with)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct node_facts *other = &p->rows[i];

        if (other->pool == f->pool && is_free(other) &&
            other->slurm->base != SLURM_BASE_ALLOCATED && !other->slurm->maint &&
            strcmp(other->name, f->name) != 0 &&
            !(not_with && strcmp(other->name, not_with) == 0) &&
            !reservation_of(p->world, other->name))
            return true;
    }
    return false;
}

static void next_job(struct planning *p, const struct node_facts *f,
                     const struct summary *s)
{
    const char *not_with = s->bad ? s->bad->partner : NULL;
    bool partner = !s->gave_up_partner && may_have_partner(p, f, not_with);

    if (!is_free(f))
        return;
    add(p, (struct qualify_action){
               .verb = QUALIFY_SUBMIT,
               .node = f->name,
               .instance = f->agent->instance,
               .partition = f->pool->partition,
               /* a second opinion is none without a partner */
               .wants_partner = partner || s->bad,
               .not_with = not_with,
           });
}

static void cancel(struct planning *p, const struct qualify_job *j)
{
    add(p,
        (struct qualify_action){.verb = QUALIFY_CANCEL, .node = j->node, .job = j->id});
}

/* A node that is to prove itself, under its reservation. */
static void go_on(struct planning *p, const struct node_facts *f)
{
    struct summary s = look_at_jobs(p->world, f->name, f->agent->instance);

    if (s.outdated)
        cancel(p, s.outdated);
    else if (s.well || (!s.active && has_failed(&s)))
        return; /* decide() says what comes of it */
    else if (!s.active)
        next_job(p, f, &s);
    else if (s.active->state == QUALIFY_JOB_WAITS && s.active->wants_partner &&
             p->now - s.active->submitted_at >= QUALIFY_PARTNER_MS)
        cancel(p, s.active);
}

/* What the partners of a node that passed have shown. */
static const char *suspicious_partner(const struct planning *p,
                                      const struct node_facts *f)
{
    const char *instance = f->agent ? f->agent->instance : NULL;
    struct summary s = look_at_jobs(p->world, f->name, instance);

    return s.well && s.bad ? s.bad->partner : NULL;
}

static void plan_node(struct planning *p, const struct node_facts *f, bool wanted)
{
    bool reserved = reservation_of(p->world, f->name);

    if (!wanted) {
        if (reserved)
            add(p, (struct qualify_action){.verb = QUALIFY_RELEASE,
                                           .node = f->name,
                                           .not_with = suspicious_partner(p, f)});
    } else if (!f->agent || !f->agent->instance || !f->pool || !f->slurm) {
        return;
    } else if (reserved) {
        go_on(p, f);
    } else if (p->slots) {
        p->slots--;
        add(p, (struct qualify_action){.verb = QUALIFY_RESERVE, .node = f->name});
    }
}

static int by_name(const void *name, const void *row)
{
    return strcmp(name, ((const struct node_facts *)row)->name);
}

/* Those of nodes that are no more, or are of no pool any more. */
static void release_strays(struct planning *p)
{
    for (size_t i = 0; i < p->world->n_reservations; i++) {
        const char *node = p->world->reservations[i].node;

        if (!p->n_rows || !bsearch(node, p->rows, p->n_rows, sizeof(*p->rows), by_name))
            add(p, (struct qualify_action){.verb = QUALIFY_RELEASE, .node = node});
    }
}

size_t qualify_plan(const struct node_facts *rows, const struct verdict *verdicts,
                    size_t n, const struct qualify_world *w, int64_t now,
                    struct qualify_action **ret)
{
    struct planning p = {
        .rows = rows, .n_rows = n, .world = w, .now = now, .slots = QUALIFY_AT_ONCE};

    for (size_t i = 0; i < w->n_reservations && p.slots; i++) {
        if (now - w->reservations[i].since < QUALIFY_SLOT_MS)
            p.slots--;
    }
    for (size_t i = 0; i < n; i++) {
        if (verdicts[i].verb == VERB_NONE)
            plan_node(&p, &rows[i], verdicts[i].qualify);
    }
    release_strays(&p);
    *ret = p.actions;
    return p.n;
}
