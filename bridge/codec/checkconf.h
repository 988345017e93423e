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
 * "clear": "boot", after a good run under another boot, or "clear": "person", only when a person has
 * released it. All but name and command may be left out; the values above are then taken (and
 * fail.times for fail.of). A key that is not known is an error: it may be a misspelt one.
 */
#ifndef TG_CODEC_CHECKCONF_H
#define TG_CODEC_CHECKCONF_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/checkstate.h"

#define CHECKCONF_MAX          65536 /* bytes of the file */
#define CHECKCONF_CHECKS_MAX   64    /* as many as a report carries (AGENT_CHECKS_MAX) */
#define CHECKCONF_NAME_MAX     32
#define CHECKCONF_ARGS_MAX     32
#define CHECKCONF_PERIOD_MAX   86400 /* s */
#define CHECKCONF_DEADLINE_MAX 600   /* s */
#define CHECKCONF_PROLOG_MAX   8     /* s: the prolog waits 10 s for the agent */
#define CHECKCONF_PERIOD       60
#define CHECKCONF_DEADLINE     10 /* of a check of the prolog: CHECKCONF_PROLOG_MAX */

enum check_moment {
    CHECK_START = 1, /* before the first slurmd of a container takes jobs */
    CHECK_PERIOD = 2,
    CHECK_IDLE = 4, /* by period too, but only while no job runs */
    CHECK_PROLOG = 8,
    CHECK_EPILOG = 16,
};

struct checkdef {
    char *name;       /* [a-z0-9-]{1,32}, no two alike */
    char **command;   /* ended by NULL */
    unsigned moments; /* bits of enum check_moment */
    int64_t period_ms;
    int64_t deadline_ms;
    struct check_rule rule;
};
void checkdef_clear(struct checkdef *d);

struct checkconf {
    struct checkdef *items;
    size_t n; /* at most CHECKCONF_CHECKS_MAX */
};

/* -EMSGSIZE: larger than allowed; -EBADMSG: not as above, the sentence says which check and what. */
int checkconf_parse(const char *text, size_t size, struct checkconf **ret,
                    struct err *err) _must_use_;
void checkconf_free(struct checkconf *c);
TG_DEFINE_FREEP(struct checkconf, checkconf_free);

#endif
