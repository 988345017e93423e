// SPDX-License-Identifier: GPL-2.0-or-later
/* The nodes' agents, as the rounds see them. Where nodes have none, all of this is empty. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <uthash.h>

#include "app/tidegated.h"
#include "base/clock.h"
#include "base/log.h"

#define MAX_LINKS ((rlim_t)65536) /* Slurm's MaxNodeCount goes no further */
/* Descriptors for all else: the API server, slurmctld, HTTP, probes. */
#define OTHER_FDS ((rlim_t)1024)

/* A node whose agent was asked for something. */
struct asked {
    char *name;
    int64_t at; /* CLOCK_BOOTTIME ms */
    UT_hash_handle hh;
};

struct roster {
    const struct watch *watch;
    struct agents *agents; /* NULL: nodes have no agents */
    struct asked *asked;
    void (*on_change)(void *userdata);
    void *userdata;
};

static void on_agent(void *userdata)
{
    struct roster *r = userdata;

    r->on_change(r->userdata);
}

static const struct kube_pod *pod_of(const char *addr, void *userdata)
{
    const struct roster *r = userdata;

    return watch_pod_at(r->watch, addr);
}

/* As many as there may be; half of the descriptors are for those that have not proved themselves yet. */
static size_t links_for_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return OTHER_FDS;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur > 2 * MAX_LINKS + OTHER_FDS)
        return MAX_LINKS;
    return limit.rlim_cur > 2 * OTHER_FDS ? (limit.rlim_cur - OTHER_FDS) / 2
                                          : limit.rlim_cur / 4;
}

int roster_new(sd_event *event, const struct options *o, const struct watch *w,
               void (*on_change)(void *userdata), void *userdata, struct roster **ret,
               struct err *err)
{
    _cleanup_(roster_freep) struct roster *r = mem_zalloc(sizeof(*r));
    struct agents_config config = {
        .listen = o->agents_listen,
        .period_ms = (uint32_t)o->agents_period_ms,
        .max_links = links_for_descriptors(),
        .pod_of = pod_of,
        .on_change = on_agent,
        .userdata = r,
    };

    r->watch = w;
    r->on_change = on_change;
    r->userdata = userdata;
    if (strcmp(o->agents_listen, "none") != 0) {
        int code = agents_new(event, &config, &r->agents, err);

        if (code < 0)
            return err_context(err, code, "--agents-listen %s", o->agents_listen);
    }
    *ret = r;
    r = NULL;
    return 0;
}

static void forget(struct roster *r, struct asked *a)
{
    HASH_DEL(r->asked, a);
    free(a->name);
    free(a);
}

void roster_free(struct roster *r)
{
    struct asked *a, *next;

    if (!r)
        return;
    agents_free(r->agents);
    HASH_ITER(hh, r->asked, a, next)
    forget(r, a);
    free(r);
}

bool roster_is_on(const struct roster *r)
{
    return r->agents;
}

void roster_set_leader(struct roster *r, bool leader)
{
    if (r->agents)
        agents_set_leader(r->agents, leader);
}

void roster_fill(const struct roster *r, struct world *w)
{
    for (size_t i = 0; i < w->n && r->agents; i++)
        w->rows[i].agent = agents_get(r->agents, w->rows[i].name);
}

/* Whether it is time to ask the node (again). */
static bool is_due(struct roster *r, const char *name)
{
    int64_t now = clock_mono_ms();
    struct asked *a;

    HASH_FIND_STR(r->asked, name, a);
    if (a && now - a->at < ASK_AGAIN_MS)
        return false;
    if (!a) {
        a = mem_zalloc(sizeof(*a));
        a->name = mem_strdup(name);
        HASH_ADD_KEYPTR(hh, r->asked, a->name, strlen(a->name), a);
    }
    a->at = now;
    return true;
}

void roster_restart_slurmd(struct roster *r, const char *name)
{
    struct err err = {0};

    if (!r->agents || !is_due(r, name))
        return;
    if (agents_ask(r->agents, name, AGENT_ASK_RESTART_SLURMD, NULL, &err) < 0)
        log_warn("the agent cannot be asked to start slurmd anew; it is tried again",
                 LOG_STR("node", name), LOG_STR("error", err.text));
    else
        log_info("the agent is asked to start slurmd anew", LOG_STR("node", name));
}

void roster_ask(struct roster *r, const struct world *w, const struct verdict *verdicts)
{
    for (size_t i = 0; i < w->n; i++) {
        /* with a DELETE: once that is done */
        if (verdicts[i].ask == ASK_RESTART_SLURMD && verdicts[i].verb != VERB_DELETE)
            roster_restart_slurmd(r, w->rows[i].name);
    }
}

struct known {
    const struct watch *watch;
    const struct world *world;
};

/* Not only rows: the agent on a Node that no pool selects would come again and again. */
static bool is_known(const char *node, void *userdata)
{
    const struct known *k = userdata;

    return watch_node(k->watch, node) || world_find(k->world, node);
}

void roster_trim(struct roster *r, const struct world *w)
{
    struct known known = {r->watch, w};
    struct asked *a, *next;

    if (r->agents)
        agents_trim(r->agents, is_known, &known);
    HASH_ITER(hh, r->asked, a, next)
    {
        if (!world_find(w, a->name))
            forget(r, a);
    }
}

struct agents_counts roster_counts(const struct roster *r)
{
    return r->agents ? agents_counts(r->agents) : (struct agents_counts){0};
}
