// SPDX-License-Identifier: GPL-2.0-or-later
/* Any sequence of events: no promise of walk.h is broken, and every state has its sentence. */
#include "tests/unit/walk.h"

#define EVENTS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct policy policy = POLICY_DEFAULT;
    uint8_t events[EVENTS_MAX];
    size_t n = size < EVENTS_MAX ? size : EVENTS_MAX;
    enum walk_broken what;

    if (!n)
        return 0;
    memcpy(events, data, n);
    what = walk(events, n, &policy, &n);
    if (what) {
        n = walk_shrink(events, n, &policy);
        fprintf(stderr, "broken (%d): ", what);
        walk_print(stderr, events, n);
        abort();
    }
    return 0;
}
