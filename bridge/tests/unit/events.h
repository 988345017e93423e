/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sequences of events for random walks, whatever it is that walks: made, cut down to what is needed, printed. */
#ifndef TG_TESTS_EVENTS_H
#define TG_TESTS_EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/decide.h"

#ifdef __SANITIZE_ADDRESS__
#define EVENTS_WALKS 20000 /* there each takes ten times as long */
#else
#define EVENTS_WALKS 200000
#endif

static inline uint64_t events_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);

    return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

/* splitmix64 */
static inline uint64_t events_next(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 1 to `max` events of `kinds` kinds. */
static inline size_t events_make(uint64_t *seed, uint8_t *events, size_t max,
                                 size_t kinds)
{
    size_t n = 1 + events_next(seed) % max;

    for (size_t i = 0; i < n; i++)
        events[i] = (uint8_t)(events_next(seed) % kinds);
    return n;
}

/* Takes away every event that the break does not need; breaks() says what a walk breaks, 0: nothing.
 * Returns how many are left. */
static inline size_t events_shrink(uint8_t *events, size_t n, const struct policy *policy,
                                   int (*breaks)(const uint8_t *events, size_t n,
                                                 const struct policy *policy))
{
    int what = breaks(events, n, policy);

    for (size_t i = 0; what && i < n;) {
        uint8_t cut = events[i];

        memmove(events + i, events + i + 1, n - i - 1);
        if (breaks(events, n - 1, policy) == what) {
            n--;
            i = 0;
        } else {
            memmove(events + i + 1, events + i, n - i - 1);
            events[i++] = cut;
        }
    }
    return n;
}

static inline void events_print(FILE *f, const uint8_t *events, size_t n,
                                const char *const *names, size_t kinds)
{
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%s%s", i ? ", " : "", names[events[i] % kinds]);
    fprintf(f, "\n");
}

#endif
