/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What health checks there are, as JSON (the chart writes it from its values):
 *
 *   {"checks": [{"name": "scratch", "command": ["tidegate-node", "check", "space", "/scratch"],
 *                "moments": ["start", "period"], "period": 60, "deadline": 10,
 *                "fail": {"times": 2, "of": 3}, "clear": {"times": 2}}]}
 *
 * period and deadline are in seconds. A check holds a node once it failed `fail.times` times out of
 * its last `fail.of` runs, and lets go after `clear.times` good runs one after the other or, with
 * "clear": "person", only when a person has resumed the node or "clear": "boot": after another boot.
 */
#ifndef TG_CODEC_CHECKCONF_H
#define TG_CODEC_CHECKCONF_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/checkstate.h"

#define CHECKCONF_MAX 65536 /* bytes of the file */

enum check_moment {
    CHECK_START = 1, /* before the first slurmd of a container takes jobs */
    CHECK_PERIOD = 2,
    CHECK_IDLE = 4, /* by period too, but only while no job runs */
    CHECK_PROLOG = 8,
    CHECK_EPILOG = 16,
};

struct checkdef {
    char *name;       /* [a-z0-9-]{1,32} */
    char **command;   /* ended by NULL */
    unsigned moments; /* bits of enum check_moment */
    int64_t period_ms;
    int64_t deadline_ms;
    struct check_rule rule;
};

struct checkconf {
    struct checkdef *items;
    size_t n; /* at most AGENT_CHECKS_MAX */
};

int checkconf_parse(const char *text, size_t size, struct checkconf **ret,
                    struct err *err) _must_use_;
void checkconf_free(struct checkconf *c);
TG_DEFINE_FREEP(struct checkconf, checkconf_free);

#endif
