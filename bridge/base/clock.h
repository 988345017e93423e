/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Clocks, for io and app only: the core takes `now` as an argument. */
#ifndef TG_BASE_CLOCK_H
#define TG_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_mono_ms(void); /* CLOCK_BOOTTIME, ms: for time-outs and deadlines */
int64_t clock_wall_ms(void); /* ms since 1970: what Kubernetes and Slurm write down */

#endif
