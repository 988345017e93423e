/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The facts that the core decides on: plain values, filled in by codec and io, read by core and
 * app. Strings are owned by the value and freed by its x_clear(); NULL stands for 'not given'.
 * Times are ms since 1970 unless a name says otherwise; 0 stands for 'not known'.
 */
#ifndef TG_CORE_MODEL_H
#define TG_CORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* Fail closed: what could not be looked up is UNKNOWN, never NO. */
enum tri { TRI_UNKNOWN, TRI_NO, TRI_YES };

struct label {
    char *key;
    char *value;
};

struct labels {
    struct label *items;
    size_t n;
};

void labels_clear(struct labels *l);
void labels_add(struct labels *l, const char *key, const char *value);
const char *labels_get(const struct labels *l, const char *key); /* NULL: no such key */
/* True when every pair of `selector` stands in `l`. An empty selector matches nothing. */
bool labels_match(const struct labels *selector, const struct labels *l);

/* A Kubernetes Node, as far as the bridge looks at it. */
struct kube_node {
    char *name;
    char *uid;
    char *boot_id; /* status.nodeInfo.bootID: another one after a restart */
    struct labels labels;
    bool unschedulable; /* cordoned */
    enum tri ready; /* condition Ready: True YES; False and Unknown NO; absent UNKNOWN */
    int64_t ready_since; /* lastTransitionTime of Ready */
};

/* A pod of ours that runs slurmd. */
struct kube_pod {
    char *name;
    char *uid;
    char *node; /* spec.nodeName; NULL while not scheduled */
    char *ip;   /* status.podIP; NULL while it has none */
    bool ready;
    bool terminating; /* deletionTimestamp is set */
};

/* A Pool object (pools.tidegate.dev). */
struct kube_pool {
    char *name;
    char *uid;
    int64_t generation;
    struct labels selector; /* spec.nodeSelector */
    char *partition;
    char *feature; /* marks the pool's nodes in Slurm */
    char **
        feature_labels; /* node labels that become features: a key, or a prefix that ends in '/' */
    size_t n_feature_labels;
    bool
        qualify; /* a node that comes (back) proves itself by PMIx before it takes jobs */
};

void kube_node_clear(struct kube_node *n);
void kube_pod_clear(struct kube_pod *p);
void kube_pool_clear(struct kube_pool *p);

/* What Slurm is told of a node's resources. */
struct node_line {
    uint32_t boards; /* always 1: no machine of today is told with more */
    uint32_t sockets;
    uint32_t cores;   /* of a socket */
    uint32_t threads; /* of a core */
    uint32_t cpus;    /* sockets x cores x threads */
    uint64_t memory_mib;
    char *gres;     /* "gpu:h100:8", NULL: none */
    char *features; /* beside the pool's: "rdma", NULL: none */
};
void node_line_clear(struct node_line *l);

/* A health check that keeps its node from jobs. */
struct check_fact {
    char *name;
    char *text; /* a sentence: what is wrong and what to do */
    int64_t since;
};
void check_fact_clear(struct check_fact *c);

/* How far the node's agent is. */
enum agent_phase {
    AGENT_STARTING, /* the checks of the start have not all passed */
    AGENT_UP,
    AGENT_STOPPING, /* told to stop: no new work, what runs has until the end of the grace period */
    AGENT_GIVING_UP, /* the time is nearly up: what still runs is to be requeued now */
};

enum slurmd_state {
    SLURMD_OFF, /* not started yet, or stopped for good */
    SLURMD_RUNNING,
    SLURMD_WAITING, /* it has ended; steps may run on; it is started again after its backoff */
};

/* What a node's agent (tidegate-node) has said last over its authenticated link. */
struct agent_fact {
    enum tri
        linked;    /* YES: the link stands; NO: it was lost; UNKNOWN: nothing heard yet */
    int64_t since; /* when `linked` became so */
    char *pod_uid;
    char *boot_id;
    char *
        instance; /* of this start of the agent: another one after each start of the container */
    enum agent_phase phase;
    enum slurmd_state slurmd;
    uint32_t slurmd_restarts;
    uint32_t steps;
    struct node_line
        line; /* as slurmd was told: what SLURMD_CONF sets is in it, too. cpus
                              0: not told yet */
    struct check_fact *checks; /* those that keep the node from jobs */
    size_t n_checks;
    bool reported; /* line and checks have come since the link was made */
};
void agent_fact_clear(struct agent_fact *a);

/* The bit of a check's name in the ledger's masks: one of 64. */
uint64_t check_bit(const char *name);
/* The bits of all checks that keep the node from jobs. */
uint64_t agent_checks_mask(const struct agent_fact *a);

/* Why a node is, or would be, kept from Slurm's jobs. The rows of the policy table in decide.c. */
enum cause {
    CAUSE_NONE,
    CAUSE_CORDONED,
    CAUSE_LEFT_POOL,
    CAUSE_NOT_READY,
    CAUSE_GONE,
    CAUSE_SLURMD, /* slurmd is silent, and neither Kubernetes nor the node's agent says why */
    CAUSE_STOPPING, /* the slurmd pod is being stopped */
    CAUSE_HEALTH,   /* health checks fail */
    CAUSE_UNPROVED, /* the qualification of this start of the agent has failed */
    CAUSE_LINE,     /* the node has other resources than its record in Slurm */
    CAUSE_COUNT_,
};

const char *cause_name(enum cause c); /* "cordoned", ...; as written into the ledger */
enum cause cause_from_name(const char *name); /* CAUSE_NONE when not known */

#define INSTANCE_SIZE 40 /* of an agent's instance, with its end */

/* Cut, and with '-' for all but letters, digits, '.', '_' and '-'. NULL gives "". */
void instance_copy(char ret[INSTANCE_SIZE], const char *from);
/* Whether an agent's instance is the one of the ledger; "" and NULL are none. */
bool instance_is(const char *instance, const char kept[INSTANCE_SIZE]);

/* The bit of CAUSE_NONE: NOT_READY was overruled while the kubelet's Lease alone told of it. */
#define OVERRULED_LEASE UINT32_C(1)

/*
 * What the bridge must remember of a node over its own restart. It lives in the Slurm node's Extra,
 * as a JSON object under the key "tidegate"; see codec/ledger.h for the text.
 */
struct ledger {
    enum cause
        episode; /* the cause that we drained the node for and have not ended; or NONE */
    int64_t episode_at; /* when that was */
    uint32_t overruled; /* bit (1 << cause): a person resumed the node in spite of it; of
                           CAUSE_HEALTH the checks say it. Or OVERRULED_LEASE */
    uint64_t checks;    /* those that the episode HEALTH is for, by check_bit() */
    uint64_t overruled_checks; /* a person resumed the node in spite of these */
    char proved
        [INSTANCE_SIZE]; /* the agent's instance that passed its qualification; "" */
    char failed[INSTANCE_SIZE]; /* the one that did not pass */
    uint32_t
        line; /* print of the agent's line that the record, although made anew from it, does
                      not show; 0: none */
};

bool ledger_is_empty(const struct ledger *l);
bool ledger_equal(const struct ledger *a, const struct ledger *b);

enum extra_state {
    EXTRA_OURS,    /* empty, or a JSON object: the ledger can be kept there */
    EXTRA_FOREIGN, /* somebody wrote something else: never touched */
};

enum slurm_base {
    SLURM_BASE_UNKNOWN,
    SLURM_BASE_DOWN,
    SLURM_BASE_IDLE,
    SLURM_BASE_ALLOCATED,
    SLURM_BASE_MIXED,
    SLURM_BASE_OTHER, /* FUTURE, ERROR, ... */
};

/* A Slurm node, as slurmctld tells it. */
struct slurm_node {
    char *name;
    char *addr;    /* where slurmctld reaches slurmd */
    uint16_t port; /* slurmd's port */
    enum slurm_base base;
    bool drain;          /* flag DRAIN */
    bool fail;           /* flag FAIL */
    bool not_responding; /* flag NOT_RESPONDING */
    bool invalid_reg; /* flag INVALID_REG: slurmctld refuses RESUME until it is mended */
    bool maint;       /* in a maintenance reservation: not a drain */
    bool completing;
    bool
        rebooting; /* a reboot by Slurm is asked for or under way: its reason is in use */
    bool dynamic;  /* DYNAMIC_NORM: made by a slurmd that registered with -Z */
    char *state;   /* the whole state as sinfo writes it, e.g. "IDLE+DRAIN" */
    char *reason;  /* without Slurm's own suffix; NULL when empty */
    uint32_t reason_uid;
    int64_t reason_at;
    char *features; /* comma separated */
    enum extra_state extra_state;
    char *
        extra_other; /* the other keys of Extra as compact JSON object, NULL when there are none;
                          of EXTRA_FOREIGN the whole text */
    struct ledger ledger;
    int64_t boot_at;
    uint32_t sockets; /* the record's line; compare struct node_line */
    uint32_t cores;   /* of a socket */
    uint32_t threads; /* of a core */
    uint32_t cpus;
    uint64_t memory_mib;
    uint32_t alloc_cpus;
    uint32_t jobs; /* running or completing there */
    double
        job_share; /* the same, each counted as 1/(nodes it runs on): sums up to jobs */
};

void slurm_node_clear(struct slurm_node *n);

/* One whole answer of slurmctld. */
struct slurm_snapshot {
    struct slurm_node *nodes;
    size_t n;
    uint32_t slurm_uid; /* SlurmUser: whose word slurmctld's own texts are */
    int64_t taken_mono_ms;
};

void slurm_snapshot_free(struct slurm_snapshot *s);
TG_DEFINE_FREEP(struct slurm_snapshot, slurm_snapshot_free);

/* What is asked of slurmctld. */
enum verb {
    VERB_NONE,
    VERB_DRAIN,
    VERB_DOWN,
    VERB_RESUME,
    VERB_NOTE,     /* Extra, and the reason of a free node */
    VERB_FEATURES, /* a NOTE that sets the features, too: the available and the active ones */
    VERB_DELETE, /* of the record; slurmd must be started anew afterwards, or it stays away */
};
#define VERB_LAST VERB_DELETE

const char *verb_name(enum verb v);

/*
 * Stands for 'no reason' on a free node. Slurm without slurmdbd ignores an empty reason and keeps the old
 * text, which it then puts under a DOWN or drain of its own; this one, alone, it replaces.
 */
#define REASON_BLANK "Not responding"

/* The same change to one or more nodes: one RPC with a hostlist. */
struct action {
    enum verb verb;
    const char **names; /* borrowed from the facts */
    size_t n;
    char *
        reason; /* for DRAIN and DOWN; of a NOTE: NULL leaves the text, REASON_BLANK takes it away.
                     RESUME always takes it away; what stands here of it is for people alone */
    bool write_extra;     /* false: leave Extra alone (EXTRA_FOREIGN) */
    struct ledger ledger; /* as it is to stand; also when it cannot be written */
    char *extra_other;    /* kept beside the ledger */
    char *features;       /* of FEATURES: all of them, comma separated */
};

void action_clear(struct action *a);

#endif
