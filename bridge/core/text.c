// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/text.h"

#include <stdio.h>
#include <string.h>

#include "core/causes.h"

bool text_is_ours(const char *reason)
{
    static const char *const classes[] = {"k8s: ", "health: ", "update: ", "fail: "};

    if (!reason || strncmp(reason, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
        return false;
    reason += strlen(TEXT_PREFIX);
    for (size_t i = 0; i < TG_LEN(classes); i++) {
        if (strncmp(reason, classes[i], strlen(classes[i])) == 0)
            return true;
    }
    return false;
}

/* How our reason for a cause begins, behind the prefix. */
bool text_names(const char *reason, enum cause c)
{
    static const char *const begin[CAUSE_COUNT_] = {
        [CAUSE_CORDONED] = "k8s: node is cordoned",
        [CAUSE_LEFT_POOL] = "k8s: node left pool ",
        [CAUSE_NOT_READY] = "k8s: node is NotReady",
        [CAUSE_GONE] = "k8s: node is gone",
        [CAUSE_SLURMD] = "fail: slurmd does not answer",
        [CAUSE_STOPPING] = "update: the slurmd pod is being stopped",
        [CAUSE_HEALTH] = "health: ", /* in the checks' own words */
        [CAUSE_UNPROVED] = "health: PMIx probe failed",
        [CAUSE_LINE] = "update: the node has ",
    };
    const size_t prefix = strlen(TEXT_PREFIX);

    if (!begin[c] || !text_is_ours(reason) ||
        strncmp(reason + prefix, begin[c], strlen(begin[c])) != 0)
        return false;
    return c != CAUSE_HEALTH ||
           !(strncmp(reason, TEXT_NEW_NODE, strlen(TEXT_NEW_NODE)) == 0 ||
             text_names(reason, CAUSE_UNPROVED));
}

/* The sentence of the first check that the verdict is about: of the episode, or what nobody overruled. */
static const char *check_text(const struct node_facts *f, const struct verdict *v)
{
    const uint64_t masks[] = {v->ledger.checks, ~v->ledger.overruled_checks, UINT64_MAX};

    for (size_t m = 0; m < TG_LEN(masks); m++) {
        for (size_t i = 0; f->agent && i < f->agent->n_checks; i++) {
            const struct check_fact *c = &f->agent->checks[i];

            if ((check_bit(c->name) & masks[m]) && c->text && *c->text)
                return c->text;
        }
    }
    return "a health check of the node fails";
}

static char *unproved_text(const struct node_facts *f)
{
    return mem_printf("PMIx probe failed: %s",
                      f->qualify.state == QUALIFY_FAILED && f->qualify.text
                          ? f->qualify.text
                          : "the node has not proved itself since its last start");
}

static char *line_text(const struct node_facts *f)
{
    const struct node_line *l = f->agent ? &f->agent->line : NULL;

    if (!l || !l->cpus || !f->slurm)
        return mem_strdup("the node has other resources than its record in Slurm");
    return mem_printf("the node has %u cpus (%ux%ux%u) and %llu MiB, its record %u "
                      "(%ux%ux%u) and %llu MiB",
                      l->cpus, l->sockets, l->cores, l->threads,
                      (unsigned long long)l->memory_mib, f->slurm->cpus,
                      f->slurm->sockets, f->slurm->cores, f->slurm->threads,
                      (unsigned long long)f->slurm->memory_mib);
}

/* What is wrong, as it stands in the reason. */
static char *cause_text(const struct node_facts *f, const struct verdict *v)
{
    switch (v->cause) {
    case CAUSE_CORDONED:
        return mem_strdup("node is cordoned in Kubernetes");
    case CAUSE_LEFT_POOL:
        return mem_printf("node left pool %s in Kubernetes",
                          f->pool ? f->pool->name : "(unknown)");
    case CAUSE_NOT_READY:
        return mem_strdup("node is NotReady in Kubernetes");
    case CAUSE_GONE:
        return mem_strdup("node is gone from Kubernetes");
    case CAUSE_SLURMD:
        return mem_strdup("slurmd does not answer");
    case CAUSE_STOPPING:
        return mem_strdup("the slurmd pod is being stopped");
    case CAUSE_HEALTH:
        return mem_strdup(check_text(f, v));
    case CAUSE_UNPROVED:
        return unproved_text(f);
    case CAUSE_LINE:
        return line_text(f);
    case CAUSE_NONE:
    case CAUSE_COUNT_:
        break;
    }
    return mem_strdup("nothing is wrong with the node");
}

/* What DOWN has behind it. */
static const char *down_text(const struct node_facts *f, enum cause c)
{
    switch (c) {
    case CAUSE_SLURMD:
        return ", and its pod is not ready either";
    case CAUSE_STOPPING:
        return f->agent && f->agent->linked == TRI_YES
                   ? ", and the time for its jobs is up"
                   : " and slurmd does not answer";
    case CAUSE_CORDONED:
    case CAUSE_LEFT_POOL:
    case CAUSE_NOT_READY:
    case CAUSE_GONE:
    case CAUSE_HEALTH:
    case CAUSE_UNPROVED:
    case CAUSE_LINE:
    case CAUSE_NONE:
    case CAUSE_COUNT_:
        break;
    }
    return " and slurmd does not answer";
}

/* Other bytes than printable ASCII become '?', white space a blank; no longer than TEXT_REASON_MAX. */
static void make_clean(char *text)
{
    size_t n = strnlen(text, TEXT_REASON_MAX + 1);

    if (n > TEXT_REASON_MAX) {
        n = TEXT_REASON_MAX - strlen("...");
        while (n > TEXT_REASON_MAX / 2 && text[n] != ' ')
            n--;
        while (n && text[n - 1] == ' ')
            n--;
        memcpy(text + n, "...", sizeof("..."));
    }
    for (char *p = text; *p; p++) {
        if (*p == '\t' || *p == '\n' || *p == '\r')
            *p = ' ';
        else if (*p < ' ' || *p > '~')
            *p = '?';
    }
    for (n = strlen(text); n && text[n - 1] == ' '; n--)
        text[n - 1] = '\0';
}

char *text_reason_for(const struct node_facts *f, const struct verdict *v)
{
    _cleanup_(mem_freep) char *what = cause_text(f, v);
    char *text = mem_printf(TEXT_PREFIX "%s: %s%s", cause_class(v->cause), what,
                            v->down ? down_text(f, v->cause) : "");

    make_clean(text);
    return text;
}

char *text_reason(const struct node_facts *f, enum cause c, bool down)
{
    return text_reason_for(f, &(struct verdict){.cause = c, .down = down});
}

char *text_reason_of_check(const struct check_fact *c)
{
    char *text = mem_printf(TEXT_PREFIX "%s: %s", cause_class(CAUSE_HEALTH),
                            c->text ? c->text : "");

    make_clean(text);
    return text;
}

/* The same for a sentence; fits behind "because ". */
static char *because(const struct node_facts *f, const struct verdict *v)
{
    _cleanup_(mem_freep) char *what = cause_text(f, v);
    bool ours = v->cause != CAUSE_HEALTH && v->cause != CAUSE_UNPROVED;
    size_t n;

    make_clean(what);
    n = strlen(what);
    if (n && what[n - 1] == '.')
        what[n - 1] = '\0'; /* of a check's sentence */
    if (ours)
        return mem_printf("%s%s", strncmp(what, "node ", 5) == 0 ? "the " : "", what);
    return mem_printf("it is not healthy: %s", what);
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
        return mem_printf("Tidegate is about to %s, because %s.",
                          v->verb == VERB_DOWN ? "set it down" : "drain it", what);
    if (v->verb == VERB_DELETE)
        return mem_printf(
            "Tidegate is about to delete its record in Slurm, so that slurmd "
            "registers anew, because %s.",
            what);
    return mem_printf("Tidegate holds it in %s, because %s.", slurm_state(f), what);
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
        "as it is. It would drain the node by itself, because %s.",
        slurm_state(f), slurm_reason(f), what);
}

static bool pod_stops(const struct node_facts *f)
{
    return (f->agent && f->agent->phase >= AGENT_STOPPING) ||
           (f->pod && f->pod->terminating);
}

static char *why_no_agent(const struct node_facts *f)
{
    const struct agent_fact *a = f->agent;

    if (a && a->linked == TRI_YES && a->reported)
        return mem_strdup("The agent that reports from it is of another pod than the one "
                          "Kubernetes shows there.");
    return mem_printf(
        "It is fine in Kubernetes, but the agent in its slurmd pod (%s) has not "
        "reported to this bridge%s.",
        f->pod ? f->pod->name ? f->pod->name : "unnamed" : "there is none",
        a && a->linked == TRI_NO ? ": the link was lost" : "");
}

char *text_why(const struct node_facts *f, const struct verdict *v)
{
    _cleanup_(mem_freep) char *what = because(f, v);

    switch (v->why) {
    case WHY_HEALTHY:
        return mem_printf("Nothing keeps it from jobs; Slurm has it as %s.",
                          slurm_state(f));
    case WHY_NOT_REGISTERED:
        return mem_printf(
            "Pool %s selects it, but no slurmd of that name has registered with "
            "slurmctld%s.",
            f->pool ? f->pool->name : "(none)",
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
            "service although %s.",
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
    case WHY_NO_AGENT:
        return why_no_agent(f);
    case WHY_STARTING:
        if (pod_stops(f))
            return mem_strdup(
                "Its slurmd pod is being stopped; Tidegate gives the node back "
                "when the next one is up.");
        return mem_strdup("Its agent is there, but the checks of its start have not all "
                          "passed yet.");
    case WHY_QUALIFYING:
        return mem_strdup("It proves itself by a PMIx job in a reservation of its own, "
                          "before it takes other jobs.");
    case WHY_NO_LEDGER:
        return mem_strdup(
            "Its pool wants it to prove itself before it takes jobs, but its Extra "
            "holds a text that is not Tidegate's, so nothing could note that.");
    case WHY_COUNT_:
        break;
    }
    return mem_strdup("");
}

static char *cause_ends(enum cause c, const char *node)
{
    switch (c) {
    case CAUSE_CORDONED:
        return mem_strdup("`kubectl uncordon` of the node ends it.");
    case CAUSE_LEFT_POOL:
        return mem_strdup("The node's pool label set again, or its record deleted in "
                          "Slurm, ends it.");
    case CAUSE_NOT_READY:
        return mem_strdup("The node being Ready again for the hold time, with slurmd "
                          "answering, ends it.");
    case CAUSE_GONE:
        return mem_strdup("The node joining Kubernetes again, or its record deleted in "
                          "Slurm, ends it.");
    case CAUSE_SLURMD:
        return mem_strdup("slurmd answering, with its agent's word that all is well, "
                          "ends it; see the log of its slurmd pod.");
    case CAUSE_STOPPING:
        return mem_strdup("The new pod's agent reporting, with slurmd running, ends it.");
    case CAUSE_HEALTH:
        return mem_printf("Its checks passing again end it, each by its own condition; "
                          "`scontrol update nodename=%s state=resume` overrules those "
                          "that fail now.",
                          node);
    case CAUSE_UNPROVED:
        return mem_printf(
            "A new start of its slurmd pod ends it, after which it proves "
            "itself again; `scontrol update nodename=%s state=resume` takes "
            "it as it is.",
            node);
    case CAUSE_LINE:
        return mem_strdup("Its last job ending: then its record is deleted, and slurmd "
                          "registers anew.");
    case CAUSE_NONE:
    case CAUSE_COUNT_:
        break;
    }
    return mem_strdup("");
}

char *text_ends(const struct node_facts *f, const struct verdict *v)
{
    switch (v->why) {
    case WHY_CAUSE:
        return cause_ends(v->cause, f->name);
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
    case WHY_NO_AGENT:
        return mem_strdup("Its agent reporting ends it; see the log of its slurmd pod.");
    case WHY_STARTING:
        return mem_strdup(pod_stops(f) ? "The new pod's agent reporting ends it."
                                       : "Tidegate resumes it when they have.");
    case WHY_QUALIFYING:
        return mem_strdup(
            "The job's end decides: resumed for all when it has passed, else "
            "drained with what went wrong.");
    case WHY_NO_LEDGER:
        return mem_printf("`scontrol update nodename=%s extra=` lets Tidegate go on; "
                          "`scontrol update nodename=%s state=resume` takes it as it is.",
                          f->name, f->name);
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
    case VERB_FEATURES:
        return "SlurmFeatures";
    case VERB_DELETE:
        return "SlurmRecordDeleted";
    case VERB_NOTE:
    case VERB_NONE:
        break;
    }
    return "SlurmNoted";
}

const char *text_event_type(enum verb v, enum cause c)
{
    bool planned = c == CAUSE_CORDONED || c == CAUSE_LEFT_POOL || c == CAUSE_STOPPING ||
                   c == CAUSE_LINE;
    bool harm = v == VERB_DOWN || (v == VERB_DRAIN && !planned);

    return harm ? "Warning" : "Normal";
}

char *text_event_message(enum verb v, const char *detail)
{
    switch (v) {
    case VERB_DRAIN:
        return mem_printf("Drained in Slurm: %s. Running jobs go on.",
                          detail ? detail : "");
    case VERB_DOWN:
        return mem_printf("Set down in Slurm, its jobs are requeued: %s.",
                          detail ? detail : "");
    case VERB_RESUME:
        return detail ? mem_printf("Resumed in Slurm %s.", detail)
                      : mem_strdup("Resumed in Slurm: it takes jobs again.");
    case VERB_FEATURES:
        return mem_printf("Its features in Slurm are now %s.", detail ? detail : "none");
    case VERB_DELETE:
        return mem_strdup(
            "Its record in Slurm was deleted, so that slurmd registers anew "
            "with what the node has now.");
    case VERB_NOTE:
    case VERB_NONE:
        break;
    }
    return mem_strdup("");
}
