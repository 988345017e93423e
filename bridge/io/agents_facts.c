// SPDX-License-Identifier: GPL-2.0-or-later
/* What is known of a node: what its agent has said, and whether its link stands. */
#include <string.h>

#include "base/clock.h"
#include "io/agents_priv.h"

struct node *node_find(const struct agents *a, const char *name)
{
    struct node *n;

    HASH_FIND_STR(a->nodes, name, n);
    return n;
}

struct node *node_get(struct agents *a, const char *name)
{
    struct node *n = node_find(a, name);

    if (n)
        return n;
    n = mem_zalloc(sizeof(*n));
    n->name = mem_strdup(name);
    HASH_ADD_KEYPTR(hh, a->nodes, n->name, strlen(n->name), n);
    return n;
}

static void no_longer_renewing(struct agents *a, struct node *n)
{
    if (n->expires)
        TAILQ_REMOVE(&a->renewing, n, renewing);
    n->expires = 0;
}

void node_free(struct agents *a, struct node *n)
{
    if (n->link)
        conn_close(n->link);
    no_longer_renewing(a, n);
    HASH_DEL(a->nodes, n);
    agent_fact_clear(&n->fact);
    free(n->name);
    free(n);
}

static void set_linked(struct agents *a, struct node *n, enum tri linked)
{
    if (n->fact.linked == linked)
        return;
    n->fact.linked = linked;
    n->fact.since = clock_wall_ms();
    a->changed = true;
}

void agents_lost(struct conn *c)
{
    struct node *n = c->link->node;

    if (n->fact.linked == TRI_YES)
        set_linked(c->agents, n, TRI_NO);
}

/* The first heartbeat of a link: from now on the facts are those of this agent. */
static void begin_facts(struct agents *a, struct node *n, struct link *l)
{
    const struct agent_greeting *g = l->greeting;

    mem_set(&n->fact.pod_uid, g->pod_uid);
    mem_set(&n->fact.boot_id, g->boot_id);
    mem_set(&n->fact.instance, g->instance);
    free(l->greeting);
    l->greeting = NULL;
    n->fact.reported = l->reported;
    no_longer_renewing(a, n);
    set_linked(a, n, TRI_YES);
    a->changed = true;
}

static void answer(struct conn *c)
{
    struct agent_frame ack = {
        .type = AGENT_ACK,
        .ack = {.counter = c->link->received, .wall_ms = clock_wall_ms()}};

    c->link->owes_answer = false;
    conn_send(c, &ack);
}

/* Nothing is wrong with this one: it has three periods to come back before it counts as lost. */
static void renew(struct conn *c)
{
    struct agents *a = c->agents;
    struct node *n = c->link->node;

    n->expires = a->now + LOST_PERIODS * (int64_t)a->config.period_ms;
    TAILQ_INSERT_TAIL(&a->renewing, n, renewing);
    conn_dismiss(c, "this session has lasted long enough: begin a new one");
}

static void heard_heartbeat(struct conn *c, const struct agent_heartbeat *h)
{
    struct agents *a = c->agents;
    struct node *n = c->link->node;
    struct agent_fact *f = &n->fact;
    bool first = c->link->greeting;
    bool news = first || f->phase != h->phase || f->slurmd != h->slurmd ||
                f->slurmd_restarts != h->slurmd_restarts || !f->steps != !h->steps;

    if (first)
        begin_facts(a, n, c->link);
    a->changed |= news;
    f->phase = h->phase;
    f->slurmd = h->slurmd;
    f->slurmd_restarts = h->slurmd_restarts;
    f->steps = h->steps;
    /* An answer costs more than all else that is done here. */
    if (news || c->link->owes_answer)
        answer(c);
    else
        c->link->owes_answer = true;
    if (c->step == STEP_LINKED && a->now >= c->link->ends_at)
        renew(c);
}

static bool same_line(const struct node_line *a, const struct node_line *b)
{
    return a->boards == b->boards && a->sockets == b->sockets && a->cores == b->cores &&
           a->threads == b->threads && a->cpus == b->cpus &&
           a->memory_mib == b->memory_mib && mem_same_str(a->gres, b->gres) &&
           mem_same_str(a->features, b->features);
}

static bool same_checks(const struct agent_fact *f, const struct agent_report *r)
{
    if (f->n_checks != r->n_checks)
        return false;
    for (size_t i = 0; i < f->n_checks; i++) {
        const struct check_fact *x = &f->checks[i], *y = &r->checks[i];

        if (strcmp(x->name, y->name) != 0 || strcmp(x->text, y->text) != 0 ||
            x->since != y->since)
            return false;
    }
    return true;
}

/* Takes line and checks. */
static void heard_report(struct conn *c, struct agent_report *r)
{
    struct agent_fact *f = &c->link->node->fact;
    bool news =
        !c->link->reported || !same_line(&f->line, &r->line) || !same_checks(f, r);

    c->link->reported = true;
    if (!news)
        return;
    node_line_clear(&f->line);
    for (size_t i = 0; i < f->n_checks; i++)
        check_fact_clear(&f->checks[i]);
    free(f->checks);
    f->line = r->line;
    f->checks = r->checks;
    f->n_checks = r->n_checks;
    *r = (struct agent_report){0};
    if (!c->link->greeting) {
        f->reported = true;
        c->agents->changed = true;
    }
}

void agents_heard(struct conn *c, struct agent_frame *f)
{
    if (f->type == AGENT_HEARTBEAT)
        heard_heartbeat(c, &f->heartbeat);
    else
        heard_report(c, &f->report);
}

void agents_expire_renewing(struct agents *a)
{
    struct node *n;

    while ((n = TAILQ_FIRST(&a->renewing)) && n->expires <= a->now) {
        no_longer_renewing(a, n);
        set_linked(a, n, TRI_NO);
    }
}
