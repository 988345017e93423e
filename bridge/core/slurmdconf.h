/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What slurmd is started with as --conf: the node's line, the pool's feature, and what a person has set for
 * the pool (SLURMD_CONF), which wins over the same key of the line. Pure.
 */
#ifndef TG_CORE_SLURMDCONF_H
#define TG_CORE_SLURMDCONF_H

#include "base/err.h"
#include "core/model.h"

struct slurmdconf {
    const struct node_line *line;
    const char *pool;   /* the feature that marks the pool's nodes; always there */
    const char *person; /* "Weight=5 RealMemory=32000"; NULL or "": nothing */
    bool gres;          /* also the line's devices; else jobs do not see them */
    const char
        *drained; /* registers a new record drained, with this reason; NULL: free */
};

/*
 * Keys are compared without case, as Slurm does. A person's CPUs=, Boards=, Sockets... stand in place of the
 * line's whole shape, and features are added up. -EINVAL with a sentence when the person's text is no
 * KEY=VALUE words, or gives no number where one has to be. The caller frees *ret.
 */
int slurmdconf_text(const struct slurmdconf *c, char **ret, struct err *err) _must_use_;

/* The line as Slurm will have it: with what the person has set. The caller clears *ret. */
int slurmdconf_line(const struct slurmdconf *c, struct node_line *ret, struct err *err)
    _must_use_;

#endif
