/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Parts of tidegated: options, what Kubernetes shows, the agents, the bridge (rounds), its HTTP answers, pool
 * status. */
#ifndef TG_APP_TIDEGATED_H
#define TG_APP_TIDEGATED_H

#include <systemd/sd-event.h>

#include "core/plan.h"
#include "core/world.h"
#include "io/agents.h"
#include "io/cache.h"
#include "io/ctld.h"
#include "io/events.h"
#include "io/httpd.h"
#include "io/kube.h"
#include "io/lease.h"
#include "io/leases.h"
#include "io/probe.h"

struct options {
    char *namespace;
    char *identity;
    char *lease;
    char *listen;
    char *pod_selector;
    char *kube_server;
    char *kube_ca;
    char *kube_token;
    char *kube_cert;
    char *kube_key;
    char *agents_listen; /* "none": nodes have no agents */
    int64_t agents_period_ms;
    char *apply; /* NULL: run the bridge */
    struct policy policy;
};

/* -EINVAL with a sentence; 1: --help or --version was answered, exit 0. */
int options_parse(int argc, char **argv, struct options *ret, struct err *err) _must_use_;
void options_clear(struct options *o);

/* What Kubernetes shows: the watches of Nodes, slurmd pods and pools. */
struct watch;
int watch_new(struct kube *kube, sd_event *event, const struct options *o,
              void (*on_change)(void *userdata), void *userdata, struct watch **ret,
              struct err *err) _must_use_;
void watch_free(struct watch *w);
TG_DEFINE_FREEP(struct watch, watch_free);
bool watch_fresh(const struct watch *w);  /* all three, and there is a Node */
bool watch_synced(const struct watch *w); /* all three were fresh at least once */
const struct kube_node *watch_node(const struct watch *w, const char *name);
/* The slurmd pod with this address; NULL: none. */
const struct kube_pod *watch_pod_at(const struct watch *w, const char *addr);
/* struct kube_pool; as cache_values() */
const void **watch_pools(const struct watch *w, size_t *ret_n);
void watch_join(const struct watch *w, const struct slurm_snapshot *slurm,
                struct world *ret);

/* Nodes whose last change slurmctld refused: they are left alone for a while, that doubles. */
struct refusals;
struct refusals *refusals_new(void);
void refusals_free(struct refusals *r);
void refusals_note(struct refusals *r, const char *name, const char *error);
void refusals_forget(struct refusals *r, const char *name);
bool refusals_hold(const struct refusals *r, const char *name, int64_t mono_ms);
/* Of nodes that are no more nothing is kept. */
void refusals_trim(struct refusals *r, const struct world *w);

/* The nodes' agents: their links, what each has said, what each is asked. */
struct roster;
int roster_new(sd_event *event, const struct options *o, const struct watch *w,
               void (*on_change)(void *userdata), void *userdata, struct roster **ret,
               struct err *err) _must_use_;
void roster_free(struct roster *r);
TG_DEFINE_FREEP(struct roster, roster_free);
bool roster_is_on(const struct roster *r); /* false: --agents-listen none */
/* A bridge that does not lead hears no agent. */
void roster_set_leader(struct roster *r, bool leader);
/* What each row's agent has said; good until the loop runs again. */
void roster_fill(const struct roster *r, struct world *w);
/* Asks what the verdicts want asked, each node once in ASK_AGAIN_MS. */
void roster_ask(struct roster *r, const struct world *w, const struct verdict *verdicts);
/* The record of this node has just been deleted. */
void roster_restart_slurmd(struct roster *r, const char *name);
/* Of nodes that are no more nothing is kept. */
void roster_trim(struct roster *r, const struct world *w);
struct agents_counts roster_counts(const struct roster *r);

/* The nodes that prove themselves before they take jobs (core/qualify.h). */
struct bridge_view;
struct qualifier;
/* on_done: a batch of it is done, and Slurm is to be read anew. */
struct qualifier *qualifier_new(struct ctld *ctld, void (*on_done)(void *userdata),
                                void *userdata);
void qualifier_free(struct qualifier *q);
/* Reads what Slurm shows of it; before the ctld_load() of the same round, so that it is there with it. */
void qualifier_read(struct qualifier *q);
void qualifier_fill(const struct qualifier *q, struct world *w); /* the rows' `qualify` */
/* Does what the verdicts ask for. Returns at once. */
void qualifier_act(struct qualifier *q, const struct bridge_view *v,
                   int64_t valid_until_ms);
bool qualifier_is_busy(const struct qualifier *q);

/* Counters for /metrics. */
struct bridge_counts {
    uint64_t rounds;
    uint64_t rpcs;
    uint64_t done[VERB_LAST + 1];
    uint64_t failed[VERB_LAST + 1];
    uint64_t slurm_load_failures;
};

struct bridge;

int bridge_new(sd_event *event, struct kube *kube, const struct options *o,
               struct bridge **ret, struct err *err) _must_use_;
void bridge_free(struct bridge *b);
TG_DEFINE_FREEP(struct bridge, bridge_free);
/* Gives the lease up and then ends the event loop. */
void bridge_stop(struct bridge *b);

/* The world as it is known now, joined and decided anew; borrowed from the caches. */
struct bridge_view {
    struct world world;
    struct verdict *verdicts;
    bool leader;
    bool kube_fresh;
    bool kube_synced;
    bool slurm_fresh;
    bool slurm_synced;
    int64_t slurm_silent_ms; /* since a load last came back in whatever way */
    const char *slurm_error;
    const char *lease_holder;
    const struct bridge_counts *counts;
    struct agents_counts agents; /* all 0 where nodes have no agents */
    uint64_t events_dropped;
};
void bridge_look(struct bridge *b, struct bridge_view *ret);
void bridge_view_clear(struct bridge_view *v);

/* httpd_cb with the bridge as userdata. */
void answers_serve(const char *path, struct httpd_reply *ret, void *userdata);

/* Writes the pools' status where it differs from what was last written. */
struct pool_status;
struct pool_status *pool_status_new(struct kube *kube, const char *namespace);
void pool_status_free(struct pool_status *s);
/* Returns whether all stands as it is. */
bool pool_status_update(struct pool_status *s, const struct world *w,
                        const struct verdict *verdicts,
                        const struct kube_pool *const *pools, size_t n_pools);

/* --apply: sends the custom resource definition in `file`; runs the loop until that is done. */
int apply_file(sd_event *event, struct kube *kube, const char *file, struct err *err)
    _must_use_;

#endif
