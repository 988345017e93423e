/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this process's pod may use, by the kernel: the cpus and NUMA nodes of /proc/self/status (which follow cpuset,
 * taskset and whatever else restricts them), CFS quota and memory limit of its control group, v1, v2 or both, and of
 * all groups above it that can be seen. With a cgroup namespace, where /proc/self/cgroup says "/", that
 * is the container's own group.
 */
#ifndef TG_IO_LIMITS_H
#define TG_IO_LIMITS_H

#include "core/nodeline.h"

struct pod_limits {
    struct node_limits limits;
    char *cpus; /* "0-3,8": what may be used; NULL: not known */
    char *mems; /* the same of NUMA nodes */
};
void pod_limits_clear(struct pod_limits *p);

/*
 * Reads ROOT/proc/self/{status,cgroup,mountinfo} and the control groups that are mounted below ROOT; root is "" for this
 * machine. What is not there limits nothing; what is there and cannot be read or understood is an error
 * (the errno of reading, or -EBADMSG): a node must not promise more than it has.
 */
int limits_read(const char *root, struct pod_limits *ret, struct err *err) _must_use_;

#endif
