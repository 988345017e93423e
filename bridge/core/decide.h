/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From facts to what is wanted of each node. Pure: no I/O, no clock, no log; `now` and policy are
 * arguments. Idempotent: when the action of a verdict has been done, deciding again gives none, but for two
 * things that have to wait for others: a record that is to be made anew, and FEATURES.
 */
#ifndef TG_CORE_DECIDE_H
#define TG_CORE_DECIDE_H

#include "core/model.h"

struct policy {
    int64_t resume_hold_ms; /* Ready must have stood this long before a node is resumed */
    int64_t down_confirm_ms; /* slurmd must have been silent this long before DOWN */
    /* Nodes have agents: nothing is resumed without its agent's word, and the causes that hang on
     * agents, pods and Leases count. False: the facts of these are left unread. */
    bool agents;
};

#define POLICY_DEFAULT ((struct policy){.resume_hold_ms = 5000, .down_confirm_ms = 5000})

/* What the TCP connects to a suspect's slurmd said. */
struct probe_fact {
    enum tri answers;
    int64_t since; /* when this answer was first heard without another between */
};

/* The kubelet's Lease in kube-node-lease; looked up for suspects only. */
struct lease_fact {
    enum tri
        renewed;   /* NO: not for KUBELET_STALE_MS; UNKNOWN: not looked up, or in vain */
    int64_t since; /* when this was first seen without another between */
};
#define KUBELET_STALE_MS 20000

/* How far the qualification of a node is, as its reservation and its job in Slurm tell. */
enum qualify_state {
    QUALIFY_NONE,     /* no reservation of ours */
    QUALIFY_RESERVED, /* ours stands over the node: a RESUME lets no other job in */
    QUALIFY_RUNNING,  /* the same, and its job is queued or runs */
    QUALIFY_PASSED,   /* the same, and its job has ended well */
    QUALIFY_FAILED,   /* the same, and its job has not */
};

struct qualify_fact {
    enum qualify_state state;
    const char *instance; /* the agent's that the job was started for; NULL: not known */
    const char *text;     /* of FAILED: a sentence, what went wrong */
};

/* All that is known of one node. The pointers are borrowed; NULL: there is no such thing. */
struct node_facts {
    const char *name;
    const struct kube_node *kube;
    const struct kube_pod *pod;
    const struct kube_pool
        *pool; /* the one whose feature it has in Slurm, else `selected` */
    const struct kube_pool *selected; /* the one that selects the Kubernetes node */
    const struct kube_pool *rival;    /* a second one that does as well: hands off */
    const struct slurm_node *slurm;
    const struct agent_fact *agent; /* NULL: never heard of since this bridge leads */
    struct probe_fact probe;
    struct lease_fact kubelet;
    struct qualify_fact qualify;
    uint32_t slurm_uid;
};

/* Whose word keeps the node from jobs. */
enum holder {
    HOLDER_NOBODY,
    HOLDER_TIDEGATE,
    HOLDER_SLURM,  /* a text of slurmctld's own that we may clear */
    HOLDER_PERSON, /* anything else: never cleared, never overwritten */
};

const char *holder_name(enum holder h);

/* Why the verdict is what it is; each has its sentence in text.h. */
enum why {
    WHY_HEALTHY,
    WHY_NOT_REGISTERED, /* in Kubernetes, not (yet) in Slurm */
    WHY_NOT_OURS,       /* in Slurm, but of no pool */
    WHY_TWO_POOLS,
    WHY_CAUSE,     /* a cause stands and the node is held for it */
    WHY_PERSON,    /* a person holds it */
    WHY_OVERRULED, /* a person resumed it in spite of the cause */
    WHY_NOT_READY_YET, /* no cause (that counts) stands, but Kubernetes does not call it Ready */
    WHY_HOLD_TIME,   /* fine again, not for long enough */
    WHY_SILENT,      /* fine in Kubernetes, but slurmd does not answer yet */
    WHY_INVALID_REG, /* slurmctld refuses the node's registration */
    WHY_RESUMING,
    WHY_NO_AGENT,   /* fine in Kubernetes, but its agent has not reported */
    WHY_STARTING,   /* its agent is there, but not up: it starts, or stops */
    WHY_QUALIFYING, /* it proves itself before it takes jobs */
    WHY_NO_LEDGER, /* it is to prove itself, but a foreign Extra leaves no place to note that */
    WHY_COUNT_,
};

/*
 * What the node's agent is to be asked. A level: said in each round for as long as it is wanted; whoever
 * asks leaves ASK_AGAIN_MS between two.
 */
enum ask {
    ASK_NONE,
    ASK_RESTART_SLURMD, /* its record is not there. With VERB_DELETE: once that is done */
};
#define ASK_AGAIN_MS 20000

struct verdict {
    enum verb verb;
    enum cause cause; /* the worst that stands, also when nothing is done about it */
    enum holder holder;
    enum why why;
    bool down;         /* the reason is to be the one for DOWN */
    bool blank_reason; /* NOTE: take away the text that an ended drain has left behind */
    bool write_extra;
    struct ledger ledger; /* as it is to stand afterwards */
    bool suspect;         /* ask slurmd by TCP, and for the kubelet's Lease */
    enum ask ask;
    /*
     * True: the node is to prove itself. A reservation of ours is to be made where there is none, is to
     * stay where there is one, and its job is to run once the node is free inside it. False: one that
     * stands over the node is to be deleted, its job to be cancelled.
     */
    bool qualify;
    int64_t look_again_at; /* 0: nothing here hangs on time alone */
};

struct verdict decide(const struct node_facts *f, const struct policy *p, int64_t now);

/* The holder by what Slurm shows; used by decide() and by the views. */
enum holder decide_holder(const struct slurm_node *s, uint32_t slurm_uid);

/* A node is the pool's in Slurm when it carries the pool's feature and registered by itself. */
bool decide_in_pool(const struct slurm_node *s, const struct kube_pool *pool);

#endif
