// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/checkstate.h"

#include <stdio.h>
#include <string.h>

/* The last `n` runs. */
static uint32_t last_runs(const struct check_state *s, unsigned n)
{
    return s->history & ((UINT32_C(1) << n) - 1);
}

static void begin_to_hold(struct check_state *s, const char *boot_id, int64_t now)
{
    s->holds = true;
    s->since = now;
    (void)snprintf(s->boot_id, sizeof(s->boot_id), "%s", boot_id);
}

/* What was before counts no more: an old failure must not help to hold the node anew. */
static void let_go(struct check_state *s)
{
    *s = (struct check_state){0};
}

static bool is_over(const struct check_state *s, const struct check_rule *rule,
                    bool failed, const char *boot_id)
{
    switch (rule->clear) {
    case CLEAR_RUNS:
        return last_runs(s, rule->clear_times) == 0;
    case CLEAR_BOOT:
        return !failed && strncmp(s->boot_id, boot_id, sizeof(s->boot_id) - 1) != 0;
    case CLEAR_PERSON:
        break;
    }
    return false;
}

bool check_state_add(struct check_state *s, const struct check_rule *rule, bool failed,
                     const char *boot_id, int64_t now)
{
    bool held = s->holds;

    s->history = ((s->history << 1) | failed) & ((UINT32_C(1) << CHECK_RUNS_MAX) - 1);
    if (s->runs < CHECK_RUNS_MAX)
        s->runs++;
    if (!held) {
        if (failed &&
            (unsigned)__builtin_popcount(last_runs(s, rule->fail_of)) >= rule->fail_times)
            begin_to_hold(s, boot_id, now);
    } else if (is_over(s, rule, failed, boot_id)) {
        let_go(s);
    } else if (failed) {
        /* It has come back after a boot: that boot has not cured it. */
        (void)snprintf(s->boot_id, sizeof(s->boot_id), "%s", boot_id);
    }
    return s->holds != held;
}

bool check_state_released(struct check_state *s, const struct check_rule *rule)
{
    if (!s->holds || rule->clear != CLEAR_PERSON)
        return false;
    let_go(s);
    return true;
}

bool check_state_unsettled(const struct check_state *s, const struct check_rule *rule)
{
    return s->holds || last_runs(s, rule->fail_of) != 0;
}
