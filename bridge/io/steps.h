/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The job steps that run on this node: the slurmstepds that slurmd has left to their PID 1. */
#ifndef TG_IO_STEPS_H
#define TG_IO_STEPS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Those that are children of `parent` and no zombies; one look through `proc` ("/proc"). What is started
 * meanwhile may be missed. On failure nothing is known: that is not 'none'. */
int steps_count(const char *proc, pid_t parent, uint32_t *ret, struct err *err)
    _must_use_;

#endif
