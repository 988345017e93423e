/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The job steps that run on this node: the slurmstepds that slurmd has left to their PID 1. */
#ifndef TG_IO_STEPS_H
#define TG_IO_STEPS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct steps {
    uint32_t running; /* slurmstepds that are children of PID 1 */
    uint32_t
        begun; /* other children of slurmd: a prolog, or a step that it has not let go yet */
};

/* One look through `proc` ("/proc"), without zombies; slurmd 0: there is none. What is started meanwhile may
 * be missed. On failure nothing is known: that is not 'none'. */
int steps_look(const char *proc, pid_t pid1, pid_t slurmd, struct steps *ret,
               struct err *err) _must_use_;

#endif
