// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/view.h"

#include <cjson/cJSON.h>

#include "codec/k8s_obj.h"
#include "core/text.h"

const char *view_kube_state(const struct kube_node *k)
{
    if (!k)
        return "Gone";
    switch (k->ready) {
    case TRI_YES:
        return k->unschedulable ? "Ready,SchedulingDisabled" : "Ready";
    case TRI_NO:
        return k->unschedulable ? "NotReady,SchedulingDisabled" : "NotReady";
    case TRI_UNKNOWN:
        break;
    }
    return k->unschedulable ? "Unknown,SchedulingDisabled" : "Unknown";
}

static const char *tri_name(enum tri t)
{
    return t == TRI_YES ? "yes" : t == TRI_NO ? "no" : "unknown";
}

/* Out of memory ends the process, as everywhere. */
static cJSON *checked(cJSON *j)
{
    if (!j)
        abort();
    return j;
}

static void add_str(cJSON *o, const char *key, const char *value)
{
    (void)checked(cJSON_AddStringToObject(o, key, value ? value : ""));
}

static void add_bool(cJSON *o, const char *key, bool value)
{
    (void)checked(cJSON_AddBoolToObject(o, key, value));
}

static cJSON *head_json(const struct view_head *h)
{
    cJSON *o = checked(cJSON_CreateObject()), *part;

    add_bool(o, "leader", h->leader);
    add_str(o, "holder", h->holder);
    part = checked(cJSON_AddObjectToObject(o, "kubernetes"));
    add_bool(part, "fresh", h->kube_fresh);
    part = checked(cJSON_AddObjectToObject(o, "slurm"));
    add_bool(part, "fresh", h->slurm_fresh);
    add_str(part, "error", h->slurm_error);
    return o;
}

static void add_overruled(cJSON *o, const struct verdict *v)
{
    cJSON *list = checked(cJSON_AddArrayToObject(o, "overruled"));

    for (enum cause c = CAUSE_NONE + 1; c < CAUSE_COUNT_; c++) {
        if ((v->ledger.overruled & (UINT32_C(1) << c)) ||
            (c == CAUSE_HEALTH && v->ledger.overruled_checks))
            (void)cJSON_AddItemToArray(list, checked(cJSON_CreateString(cause_name(c))));
    }
}

static void add_since(cJSON *o, const struct node_facts *f, const struct verdict *v)
{
    _cleanup_(mem_freep) char *since = NULL;

    if (v->holder != HOLDER_NOBODY && f->slurm && f->slurm->reason_at)
        since = k8s_time_format(f->slurm->reason_at, false);
    add_str(o, "since", since);
}

static const char *phase_name(enum agent_phase p)
{
    static const char *const names[] = {[AGENT_STARTING] = "starting",
                                        [AGENT_UP] = "up",
                                        [AGENT_STOPPING] = "stopping",
                                        [AGENT_GIVING_UP] = "giving-up"};

    return (size_t)p < TG_LEN(names) ? names[p] : "unknown";
}

static const char *slurmd_name(enum slurmd_state s)
{
    static const char *const names[] = {
        [SLURMD_OFF] = "off", [SLURMD_RUNNING] = "running", [SLURMD_WAITING] = "waiting"};

    return (size_t)s < TG_LEN(names) ? names[s] : "unknown";
}

static void add_checks(cJSON *o, const struct agent_fact *a)
{
    cJSON *list = checked(cJSON_AddArrayToObject(o, "checks"));

    for (size_t i = 0; i < a->n_checks; i++) {
        _cleanup_(mem_freep) char *since =
            a->checks[i].since ? k8s_time_format(a->checks[i].since, false) : NULL;
        cJSON *check = checked(cJSON_CreateObject());

        add_str(check, "name", a->checks[i].name);
        add_str(check, "text", a->checks[i].text);
        add_str(check, "since", since);
        (void)cJSON_AddItemToArray(list, check);
    }
}

/* What its agent said last; null: never heard of. */
static void add_agent(cJSON *o, const struct agent_fact *a)
{
    cJSON *part;

    if (!a) {
        (void)checked(cJSON_AddNullToObject(o, "agent"));
        return;
    }
    part = checked(cJSON_AddObjectToObject(o, "agent"));
    add_str(part, "linked", tri_name(a->linked));
    add_str(part, "phase", phase_name(a->phase));
    add_str(part, "slurmd", slurmd_name(a->slurmd));
    (void)checked(cJSON_AddNumberToObject(part, "restarts", a->slurmd_restarts));
    (void)checked(cJSON_AddNumberToObject(part, "steps", a->steps));
    add_checks(part, a);
}

static cJSON *node_json(const struct node_facts *f, const struct verdict *v)
{
    _cleanup_(mem_freep) char *why = text_why(f, v);
    _cleanup_(mem_freep) char *ends = text_ends(f, v);
    cJSON *o = checked(cJSON_CreateObject()), *part;

    add_str(o, "name", f->name);
    add_str(o, "pool", f->pool ? f->pool->name : NULL);
    part = checked(cJSON_AddObjectToObject(o, "kubernetes"));
    add_str(part, "state", view_kube_state(f->kube));
    add_str(part, "pod", f->pod ? f->pod->name : NULL);
    part = checked(cJSON_AddObjectToObject(o, "slurm"));
    add_str(part, "state", f->slurm ? f->slurm->state : "none");
    add_str(part, "reason", f->slurm ? f->slurm->reason : NULL);
    (void)checked(cJSON_AddNumberToObject(part, "jobs", f->slurm ? f->slurm->jobs : 0));
    add_str(part, "extra",
            f->slurm && f->slurm->extra_state == EXTRA_FOREIGN ? "foreign" : "ours");
    add_str(o, "slurmd", tri_name(f->probe.answers));
    add_agent(o, f->agent);
    add_str(o, "holder", holder_name(v->holder));
    add_since(o, f, v);
    add_str(o, "cause", cause_name(v->cause));
    add_overruled(o, v);
    add_str(o, "why", why);
    add_str(o, "ends", ends);
    return o;
}

static char *render(cJSON *o)
{
    char *text = cJSON_PrintUnformatted(o);

    cJSON_Delete(o);
    if (!text)
        abort();
    return text;
}

char *view_nodes(const struct view_head *h, const struct node_facts *facts,
                 const struct verdict *verdicts, size_t n)
{
    cJSON *o = head_json(h);
    cJSON *list = checked(cJSON_AddArrayToObject(o, "nodes"));

    for (size_t i = 0; i < n; i++)
        (void)cJSON_AddItemToArray(list, node_json(&facts[i], &verdicts[i]));
    return render(o);
}

char *view_node(const struct view_head *h, const struct node_facts *f,
                const struct verdict *v)
{
    cJSON *o = head_json(h);

    (void)cJSON_AddItemToObject(o, "node", node_json(f, v));
    return render(o);
}

char *view_error(const char *text)
{
    cJSON *o = checked(cJSON_CreateObject());

    add_str(o, "error", text);
    return render(o);
}
