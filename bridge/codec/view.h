/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the bridge tells of the nodes, as JSON for the CLI: see docs/man/tidegated.8. */
#ifndef TG_CODEC_VIEW_H
#define TG_CODEC_VIEW_H

#include "core/decide.h"

/* The state of both sides that stands in front of every answer. Borrowed. */
struct view_head {
    bool leader;
    const char *holder; /* of the Lease */
    bool kube_fresh;
    bool slurm_fresh;
    const char *slurm_error; /* NULL: none */
};

/* {"leader",...,"nodes":[...]}; the caller frees. */
char *view_nodes(const struct view_head *h, const struct node_facts *facts,
                 const struct verdict *verdicts, size_t n);
/* {"leader",...,"node":{...}} */
char *view_node(const struct view_head *h, const struct node_facts *f,
                const struct verdict *v);
/* {"error": text} */
char *view_error(const char *text);

/* Node state in kubectl's words: "Ready", "NotReady,SchedulingDisabled", "Unknown", "Gone". */
const char *view_kube_state(const struct kube_node *k);

#endif
