/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The node's line as Slurm wants it: from what the machine has (io/topology.h) and what the pod may
 * use of it (io/limits.h), minus a reserve. Pure.
 *
 * Slurm knows boards, sockets, cores and threads that are all alike; a machine where they are not (offline cpus,
 * hybrid cores, an odd cpuset, a CFS quota of 1.5) is told as the largest such shape that it can fill,
 * or as plain CPUs when there is none.
 */
#ifndef TG_CORE_NODELINE_H
#define TG_CORE_NODELINE_H

#include "base/err.h"
#include "core/model.h"

struct machine_core {
    uint32_t package; /* logical index */
    uint32_t numa;    /* logical index of the nearest NUMA node with memory */
    uint32_t cpus; /* hardware threads that may be used; cores with none do not appear */
    uint32_t kind; /* of a hybrid machine: 0 is the most efficient */
};

struct machine_device {
    char *gres;  /* "gpu" */
    char *model; /* as in Gres=gpu:MODEL:1: lower case, [a-z0-9._-] */
    char *file;  /* "/dev/nvidia0" */
    uint32_t package;
    uint32_t *cores; /* Slurm's indices of the cores next to it */
    size_t n_cores;
};

struct machine {
    struct machine_core *cores; /* by package, then as hwloc numbers them */
    size_t n_cores;
    uint32_t packages;
    uint32_t numas; /* with memory */
    uint64_t memory_mib;
    struct machine_device *devices;
    size_t n_devices;
    bool rdma; /* a device that speaks InfiniBand verbs */
    char *cpu_model;
};
void machine_clear(struct machine *m);

/* What the pod may use; 0 stands for 'no limit'. */
struct node_limits {
    uint64_t cpu_millis; /* CFS quota: 1500 is one and a half cpus */
    uint64_t memory_mib;
};

struct node_reserve {
    uint32_t cpus;       /* not for jobs */
    uint64_t memory_mib; /* not for jobs: slurmd, munged, the agent, page cache */
};

/* -ENOSPC with a sentence when nothing is left for jobs. */
int nodeline_make(const struct machine *m, const struct node_limits *l,
                  const struct node_reserve *r, struct node_line *ret, struct err *err)
    _must_use_;

/* "Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000"; the caller frees. */
char *nodeline_text(const struct node_line *l);
/* Lines for gres.conf: "Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-31"; "" when there is no
 * device; the caller frees. */
char *nodeline_gres_conf(const struct machine *m);

#endif
