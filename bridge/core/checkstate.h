/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When a check's runs hold a node, and when they let it go: N of M, and an explicit clear condition. Pure. */
#ifndef TG_CORE_CHECKSTATE_H
#define TG_CORE_CHECKSTATE_H

#include <stdbool.h>
#include <stdint.h>

#define CHECK_RUNS_MAX 16 /* that are remembered, and so the largest M */

enum check_clear { CLEAR_RUNS, CLEAR_BOOT, CLEAR_PERSON };

struct check_rule {
    unsigned fail_times; /* 1 to fail_of */
    unsigned fail_of;    /* 1 to CHECK_RUNS_MAX */
    enum check_clear clear;
    unsigned clear_times; /* of CLEAR_RUNS: 1 to CHECK_RUNS_MAX */
};

/* What is kept of a check, also over a restart of the pod. All zero: a check that never failed. */
struct check_state {
    bool holds;       /* it keeps the node from jobs */
    int64_t since;    /* wall clock, ms: when it began to */
    uint32_t history; /* bit 0: the last run failed */
    unsigned runs;    /* in history, at most CHECK_RUNS_MAX */
    char boot_id[64]; /* of the last run that failed while it holds */
};

/* One run has ended. Returns whether `holds` has changed. With CLEAR_BOOT a good run under another
 * boot id than that of the last failure ends it. */
bool check_state_add(struct check_state *s, const struct check_rule *rule, bool failed,
                     const char *boot_id, int64_t now);
/* A person has resumed the node in spite of it. Returns whether `holds` has changed. */
bool check_state_released(struct check_state *s, const struct check_rule *rule);
/* It holds, or a failure within its last M runs may still come to that: run it again, whatever its moments. */
bool check_state_unsettled(const struct check_state *s, const struct check_rule *rule);

#endif
