// SPDX-License-Identifier: GPL-2.0-or-later
/* Any sequence of events at a node with an agent: no promise of walk_agents.h is broken. */
#include "tests/unit/walk_agents.h"

#define EVENTS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct policy policy = {.resume_hold_ms = AWALK_HOLD_MS,
                                         .down_confirm_ms = AWALK_CONFIRM_MS,
                                         .agents = true};
    uint8_t events[EVENTS_MAX];
    size_t n = size < EVENTS_MAX ? size : EVENTS_MAX;
    enum awalk_broken what;

    if (!n)
        return 0;
    memcpy(events, data, n);
    what = awalk(events, n, &policy, &n);
    if (what) {
        n = awalk_shrink(events, n, &policy);
        fprintf(stderr, "broken (%d): ", what);
        awalk_print(stderr, events, n);
        abort();
    }
    return 0;
}
