/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The features of a node in Slurm: its pool's, those that its agent found (rdma) and those that its pool
 * wants from node labels. Of a label KEY or PREFIX/KEY with value V there comes KEY=V; of "true" or no
 * value KEY alone; of "false" none. Only [A-Za-z0-9._/=:-] can be asked for by `sbatch -C`: what has
 * other characters is left out.
 */
#ifndef TG_CORE_FEATURES_H
#define TG_CORE_FEATURES_H

#include "core/decide.h"

/*
 * All features, as they are to stand; NULL when those that stand there are right. Where the pool wants
 * features from labels and the agent has told its own, those are all that there may be; else what
 * others have set stays. The caller frees.
 */
char *features_wanted(const struct node_facts *f);

#endif
