// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/text.h"

#include <stdio.h>
#include <string.h>

bool text_is_ours(const char *reason)
{
    /* The grammar's other classes (health, update, fail) are a newer bridge's: what ends those drains
     * this one does not know, so it leaves them alone as it does a person's. */
    static const char *const classes[] = {"k8s: "};

    if (!reason || strncmp(reason, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
        return false;
    reason += strlen(TEXT_PREFIX);
    for (size_t i = 0; i < TG_LEN(classes); i++) {
        if (strncmp(reason, classes[i], strlen(classes[i])) == 0)
            return true;
    }
    return false;
}

/* What Kubernetes says of the node; fits behind "because the". */
static char *cause_text(enum cause c, const char *pool)
{
    switch (c) {
    case CAUSE_CORDONED:
        return mem_strdup("node is cordoned in Kubernetes");
    case CAUSE_LEFT_POOL:
        return mem_printf("node left pool %s in Kubernetes", pool ? pool : "(unknown)");
    case CAUSE_NOT_READY:
        return mem_strdup("node is NotReady in Kubernetes");
    case CAUSE_GONE:
        return mem_strdup("node is gone from Kubernetes");
    case CAUSE_NONE:
    case CAUSE_COUNT_:
        break;
    }
    return mem_strdup("nothing is wrong with the node");
}

char *text_reason(enum cause c, bool down, const char *pool)
{
    _cleanup_(mem_freep) char *what = cause_text(c, pool);

    return mem_printf(TEXT_PREFIX "k8s: %s%s", what,
                      down ? " and slurmd does not answer" : "");
}

static const char *slurm_state(const struct node_facts *f)
{
    return f->slurm && f->slurm->state ? f->slurm->state : "unknown";
}

static const char *slurm_reason(const struct node_facts *f)
{
    return f->slurm && f->slurm->reason ? f->slurm->reason : "";
}

static char *why_cause(const struct node_facts *f, const struct verdict *v,
                       const char *what)
{
    if (v->verb == VERB_DRAIN || v->verb == VERB_DOWN)
        return mem_printf("Tidegate is about to %s, because the %s.",
                          v->verb == VERB_DOWN ? "set it down" : "drain it", what);
    return mem_printf("Tidegate holds it in %s, because the %s.", slurm_state(f), what);
}

static char *why_person(const struct node_facts *f, const struct verdict *v,
                        const char *what)
{
    if (v->cause == CAUSE_NONE)
        return mem_printf(
            "A person holds it in %s with the reason \"%s\"; Tidegate leaves "
            "that as it is.",
            slurm_state(f), slurm_reason(f));
    return mem_printf(
        "A person holds it in %s with the reason \"%s\"; Tidegate leaves that "
        "as it is. It would drain the node by itself, because the %s.",
        slurm_state(f), slurm_reason(f), what);
}

char *text_why(const struct node_facts *f, const struct verdict *v)
{
    const char *pool = f->pool ? f->pool->name : NULL;
    _cleanup_(mem_freep) char *what = cause_text(v->cause, pool);

    switch (v->why) {
    case WHY_HEALTHY:
        return mem_printf("Nothing keeps it from jobs; Slurm has it as %s.",
                          slurm_state(f));
    case WHY_NOT_REGISTERED:
        return mem_printf(
            "Pool %s selects it, but no slurmd of that name has registered with "
            "slurmctld%s.",
            pool ? pool : "(none)",
            f->pod ? f->pod->ready ? "; its slurmd pod is ready"
                                   : "; its slurmd pod is not ready"
                   : "; it has no slurmd pod");
    case WHY_NOT_OURS:
        return mem_strdup("No pool knows it; Tidegate leaves it alone.");
    case WHY_TWO_POOLS:
        return mem_printf(
            "Two pools select it, %s and %s; Tidegate leaves it alone until "
            "only one does.",
            f->selected ? f->selected->name : "?", f->rival ? f->rival->name : "?");
    case WHY_CAUSE:
        return why_cause(f, v, what);
    case WHY_PERSON:
        return why_person(f, v, what);
    case WHY_OVERRULED:
        return mem_printf(
            "A person resumed it in spite of Tidegate's drain, so it stays in "
            "service although the %s.",
            what);
    case WHY_NOT_READY_YET:
        return mem_printf(
            "Slurm has it as %s, and Tidegate gives it back only when it is Ready in "
            "Kubernetes.",
            slurm_state(f));
    case WHY_HOLD_TIME:
        return mem_strdup(
            "It is fine again in Kubernetes, but has not been for long enough.");
    case WHY_SILENT:
        return mem_strdup(
            "It is fine again in Kubernetes, but its slurmd does not answer yet.");
    case WHY_INVALID_REG:
        return mem_strdup(
            "slurmctld refuses its registration (INVALID_REG): the node offers "
            "less than its record in Slurm says, and cannot be resumed.");
    case WHY_RESUMING:
        return mem_strdup("It is fine again; Tidegate is about to resume it.");
    case WHY_COUNT_:
        break;
    }
    return mem_strdup("");
}

static const char *cause_ends(enum cause c)
{
    switch (c) {
    case CAUSE_CORDONED:
        return "`kubectl uncordon` of the node ends it.";
    case CAUSE_LEFT_POOL:
        return "The node's pool label set again, or its record deleted in Slurm, ends "
               "it.";
    case CAUSE_NOT_READY:
        return "The node being Ready again for the hold time, with slurmd answering, "
               "ends it.";
    case CAUSE_GONE:
        return "The node joining Kubernetes again, or its record deleted in Slurm, ends "
               "it.";
    case CAUSE_NONE:
    case CAUSE_COUNT_:
        break;
    }
    return "";
}

char *text_ends(const struct node_facts *f, const struct verdict *v)
{
    switch (v->why) {
    case WHY_CAUSE:
        return mem_strdup(cause_ends(v->cause));
    case WHY_PERSON:
        return mem_printf("`scontrol update nodename=%s state=resume` ends it.", f->name);
    case WHY_OVERRULED:
        return mem_strdup("Once that has cleared, the next time counts again.");
    case WHY_NOT_READY_YET:
        return mem_strdup("The node being Ready for the hold time ends it.");
    case WHY_HOLD_TIME:
        return mem_strdup("Tidegate resumes it when the hold time is over.");
    case WHY_SILENT:
        return mem_strdup("Tidegate resumes it when slurmd answers.");
    case WHY_INVALID_REG:
        return mem_printf(
            "`scontrol delete nodename=%s` and a new slurmd pod make its record "
            "anew.",
            f->name);
    case WHY_NOT_REGISTERED:
        return mem_strdup("Its slurmd pod registering ends it; see the pod's log.");
    case WHY_TWO_POOLS:
        return mem_strdup("Selectors that do not overlap end it.");
    case WHY_HEALTHY:
    case WHY_NOT_OURS:
    case WHY_RESUMING:
    case WHY_COUNT_:
        break;
    }
    return mem_strdup("");
}

const char *text_event_reason(enum verb v)
{
    switch (v) {
    case VERB_DRAIN:
        return "SlurmDrained";
    case VERB_DOWN:
        return "SlurmDown";
    case VERB_RESUME:
        return "SlurmResumed";
    case VERB_NOTE:
    case VERB_NONE:
        break;
    }
    return "SlurmNoted";
}

const char *text_event_type(enum verb v, enum cause c)
{
    bool planned = v == VERB_DRAIN && (c == CAUSE_CORDONED || c == CAUSE_LEFT_POOL);

    return v == VERB_RESUME || planned ? "Normal" : "Warning";
}

char *text_event_message(enum verb v, const char *reason)
{
    switch (v) {
    case VERB_DRAIN:
        return mem_printf("Drained in Slurm: %s. Running jobs go on.",
                          reason ? reason : "");
    case VERB_DOWN:
        return mem_printf("Set down in Slurm, its jobs are requeued: %s.",
                          reason ? reason : "");
    case VERB_RESUME:
        return mem_strdup("Resumed in Slurm: it takes jobs again.");
    case VERB_NOTE:
    case VERB_NONE:
        break;
    }
    return mem_strdup("");
}
