/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One node's record in slurmctld 24.11 (ReturnToService=1, slurmd -b, no slurmdbd), as far as the
 * bridge can see it: how it takes our actions and what it does by itself. Each rule was measured on
 * the real one. sim_look() gives the record as io/ctld.c hands it to the core.
 */
#ifndef TG_TESTS_SIM_H
#define TG_TESTS_SIM_H

#include <errno.h>
#include <string.h>

#include "codec/ledger.h"
#include "core/model.h"

#define SIM_SLURM_UID 64030u
#define SIM_ROOT      0u

#define SIM_SILENT    "Not responding"
#define SIM_REBOOTED  "Node unexpectedly rebooted"
#define SIM_SUFFIX    " : " SIM_SILENT

struct sim {
    enum slurm_base base;
    bool drain;
    bool fail;
    bool not_responding;
    bool invalid_reg;
    bool rebooting;
    bool registered; /* since it was last resumed: only then is a new boot 'unexpected' */
    char *reason;    /* as scontrol shows it */
    uint32_t reason_uid;
    int64_t reason_at;
    char *extra;
    char *features; /* NULL: "hpc" */
    uint32_t jobs;
    bool deleted;                           /* the record is gone */
    uint32_t cpus, sockets, cores, threads; /* of the record */
    uint64_t memory_mib;
};

static inline void sim_clear(struct sim *s)
{
    free(s->reason);
    free(s->extra);
    free(s->features);
    *s = (struct sim){0};
}

static inline bool sim_is_free(const struct sim *s)
{
    return !s->drain && !s->fail && s->base != SLURM_BASE_DOWN;
}

static inline bool sim_is_blank(const char *text)
{
    return !text || strspn(text, " ") == strlen(text);
}

static inline void sim_say(struct sim *s, const char *text, uint32_t uid, int64_t now)
{
    mem_set(&s->reason, text);
    s->reason_uid = uid;
    s->reason_at = now;
}

static inline void sim_resume(struct sim *s)
{
    s->drain = s->fail = s->rebooting = false;
    if (s->base == SLURM_BASE_DOWN)
        s->base = SLURM_BASE_IDLE;
    s->not_responding = true; /* until it registers, within a second */
    s->registered = false;
}

/*
 * slurm_update_node() with one name. Extra is written first, then the reason, then the state: when
 * the state is refused the other two stand all the same.
 */
static inline int sim_apply(struct sim *s, const struct action *a, int64_t now)
{
    const char *reason = a->verb == VERB_RESUME ? REASON_BLANK : a->reason;

    if (a->write_extra) {
        free(s->extra);
        s->extra = ledger_render(&a->ledger, a->extra_other);
    }
    if (reason && (!s->reason || strcmp(s->reason, reason) != 0))
        sim_say(s, reason, SIM_SLURM_UID, now);
    switch (a->verb) {
    case VERB_NONE:
    case VERB_NOTE:
        return 0;
    case VERB_FEATURES:
        mem_set(&s->features, a->features);
        return a->features ? 0 : -EINVAL;
    case VERB_DELETE:
        if (s->jobs)
            return -EBUSY;
        s->deleted = true; /* and all that stood in it */
        return 0;
    case VERB_DRAIN:
        s->drain = true;
        return reason ? 0 : -EINVAL;
    case VERB_DOWN:
        s->base = SLURM_BASE_DOWN; /* a DRAIN stays beside it */
        return reason ? 0 : -EINVAL;
    case VERB_RESUME:
        if (sim_is_free(s) || s->invalid_reg)
            return -EPERM; /* 2028 */
        sim_resume(s);
        return 0;
    }
    return -EINVAL;
}

/* SlurmdTimeout is over: the text is put behind what stands there, and whoever said that is lost. */
static inline void sim_times_out(struct sim *s, int64_t now)
{
    s->not_responding = true;
    if (s->base == SLURM_BASE_DOWN)
        return;
    s->base = SLURM_BASE_DOWN;
    if (s->reason) {
        _cleanup_(mem_freep) char *both = mem_printf("%s" SIM_SUFFIX, s->reason);

        sim_say(s, both, SIM_SLURM_UID, now);
    } else {
        sim_say(s, SIM_SILENT, SIM_SLURM_UID, now);
    }
}

/* slurmd registers: the one that ran before, or (`anew`) a restarted one, which says so by -b. */
static inline void sim_registers(struct sim *s, bool anew, int64_t now)
{
    bool silent = s->reason && strcmp(s->reason, SIM_SILENT) == 0;
    bool unexpected = anew && s->registered && !s->drain && !s->fail;

    s->not_responding = false;
    s->registered = true;
    if (unexpected && (s->base != SLURM_BASE_DOWN || silent)) {
        s->base = SLURM_BASE_DOWN;
        if (!s->reason || silent)
            sim_say(s, SIM_REBOOTED, SIM_SLURM_UID, now);
        /* else under whatever text was left there, with its uid */
    } else if (s->base == SLURM_BASE_DOWN && silent) {
        s->base = SLURM_BASE_IDLE;
        if (!s->drain && !s->fail)
            sim_say(s, NULL, SIM_ROOT, 0);
    }
}

/* A drain of slurmctld's own, such as 'Kill task failed'. */
static inline void sim_drains_itself(struct sim *s, const char *text, int64_t now)
{
    s->drain = true;
    if (!s->reason || strncmp(s->reason, SIM_SILENT, strlen(SIM_SILENT)) == 0)
        sim_say(s, text, SIM_SLURM_UID, now);
}

/* What io/ctld.c makes of the reason: slurmctld's suffix is no part of the word of whoever wrote it. */
static inline char *sim_reason(const struct sim *s)
{
    size_t n = s->reason ? strlen(s->reason) : 0, tail = strlen(SIM_SUFFIX);
    bool kept = s->drain || s->fail;
    _cleanup_(mem_freep) char *rest = NULL;

    if (sim_is_free(s) && n && strcmp(s->reason, REASON_BLANK) == 0)
        return NULL;
    if (!sim_is_free(s) && s->reason_uid == SIM_SLURM_UID && n >= tail &&
        strcmp(s->reason + n - tail, SIM_SUFFIX) == 0) {
        if (!kept)
            return mem_strdup(
                SIM_SILENT); /* the rest was left over on a node that was up */
        n -= tail;
    }
    rest = mem_strndup(s->reason ? s->reason : "", n);
    return sim_is_blank(rest) ? NULL : mem_strdup(rest);
}

static inline char *sim_state(const struct sim *s)
{
    static const char *const bases[] = {"UNKNOWN",   "DOWN",  "IDLE",
                                        "ALLOCATED", "MIXED", "FUTURE"};

    return mem_printf("%s%s%s%s%s%s", bases[s->base], s->drain ? "+DRAIN" : "",
                      s->fail ? "+FAIL" : "", s->not_responding ? "+NOT_RESPONDING" : "",
                      s->invalid_reg ? "+INVALID_REG" : "",
                      s->rebooting ? "+REBOOT" : "");
}

/* The caller clears ret. */
static inline void sim_look(const struct sim *s, const char *name, struct slurm_node *ret)
{
    *ret = (struct slurm_node){
        .name = mem_strdup(name),
        .base = s->base,
        .drain = s->drain,
        .fail = s->fail,
        .not_responding = s->not_responding,
        .invalid_reg = s->invalid_reg,
        .rebooting = s->rebooting,
        .dynamic = true,
        .state = sim_state(s),
        .reason = sim_reason(s),
        .features = mem_strdup(s->features ? s->features : "hpc"),
        .jobs = s->jobs,
        .cpus = s->cpus,
        .sockets = s->sockets,
        .cores = s->cores,
        .threads = s->threads,
        .memory_mib = s->memory_mib,
    };
    if (ret->reason) {
        ret->reason_uid = s->reason_uid;
        ret->reason_at = s->reason_at;
    }
    ledger_parse(s->extra, &ret->extra_state, &ret->ledger, &ret->extra_other);
}

#endif
