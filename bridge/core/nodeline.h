/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The node's line as Slurm wants it: from what the machine has (io/topology.h) and what the pod may
 * use of it (io/limits.h), minus a reserve. Pure.
 *
 * The number of CPUs comes first and is exact: what the pod may use, minus the reserve; a person finds the
 * figure of the pod's limits in Slurm. Slurm knows boards, sockets, cores and threads that are all alike, so
 * the shape is the one nearest to the machine's that has this many CPUs and that the machine can fill, or
 * plain CPUs (one socket, one thread a core) when there is none. slurmd takes any shape of a dynamic
 * node's line as it stands (measured; only RealMemory is compared with the machine).
 */
#ifndef TG_CORE_NODELINE_H
#define TG_CORE_NODELINE_H

#include "base/err.h"
#include "core/model.h"

#define NODELINE_CPUS_MAX 65533 /* Slurm counts them in 16 bits; the last two are marks */

struct machine_core {
    uint32_t socket; /* counted from 0 over those that have cores here */
    uint32_t cpus;   /* hardware threads that may be used; never 0 */
    uint32_t kind;   /* of a hybrid machine: the fastest kind has the highest number */
};

struct machine_device {
    char *gres;  /* "gpu" */
    char *model; /* as in Gres=gpu:MODEL:1: lower case, [a-z0-9._-] */
    char *file;  /* "/dev/nvidia0" */
    uint32_t *
        cores; /* the cores next to it, ascending indices into machine.cores; none: all are */
    size_t n_cores;
};

struct machine {
    struct machine_core *cores; /* by socket, then as hwloc numbers them */
    size_t n_cores;
    uint32_t sockets; /* with cores */
    uint64_t memory_mib;
    struct machine_device *devices; /* by file */
    size_t n_devices;
    bool rdma; /* a device that speaks InfiniBand verbs */
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

/*
 * -ENOSPC with a sentence when nothing is left for jobs, -ERANGE when it is more than Slurm can count.
 * Of a hybrid machine only the fastest cores count, as slurmd does it: a job is as slow as its slowest core.
 * A quota below one CPU counts as one, else such a pod could run nothing.
 */
int nodeline_make(const struct machine *m, const struct node_limits *l,
                  const struct node_reserve *r, struct node_line *ret, struct err *err)
    _must_use_;

/* "Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000"; the caller frees. */
char *nodeline_text(const struct node_line *l);

/*
 * What people call a device, from its maker's name of it: "NVIDIA H100 80GB HBM3" is h100, "AMD Instinct MI300X OAM"
 * mi300x, "NVIDIA GeForce RTX 4090" rtx_4090, "GH100 [H100 SXM5 80GB]" h100. NULL when nothing
 * of the name can stand in a Gres=; the caller frees.
 */
char *nodeline_model(const char *product);

/*
 * Lines for gres.conf: "Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-31", each with
 * "NodeName=NODE " in front when `node` is given; "" when there is no device. The caller frees. Cores= is
 * left out when the line is not the whole of the machine: its cores are then no particular ones.
 */
char *nodeline_gres_conf(const struct machine *m, const struct node_line *l,
                         const char *node);

#endif
