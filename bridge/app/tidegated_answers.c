// SPDX-License-Identifier: GPL-2.0-or-later
/* What tidegated answers over HTTP. */
#include <string.h>

#include "app/tidegated.h"
#include "base/buf.h"
#include "codec/view.h"

#define METRICS_CAP 65536
/* libslurm gives up on a controller that is away after about 9 s a call; a worker that has not come
 * back for this long hangs. */
#define WORKER_STUCK_MS 120000

#define JSON            "application/json"
#define TEXT            "text/plain; charset=utf-8"
#define METRICS         "text/plain; version=0.0.4; charset=utf-8"

static void reply(struct httpd_reply *r, unsigned status, const char *type, char *body)
{
    *r = (struct httpd_reply){.status = status, .content_type = type, .body = body};
}

static void serve_health(const struct bridge_view *v, struct httpd_reply *r)
{
    if (v->slurm_silent_ms > WORKER_STUCK_MS)
        reply(r, 503, TEXT, mem_strdup("the thread that talks to slurmctld hangs\n"));
    else
        reply(r, 200, TEXT, mem_strdup("ok\n"));
}

/* Ready to answer questions: it says so itself when slurmctld is away. */
static void serve_ready(const struct bridge_view *v, struct httpd_reply *r)
{
    if (v->kube_synced)
        reply(r, 200, TEXT, mem_strdup("ok\n"));
    else
        reply(r, 503, TEXT, mem_strdup("Kubernetes has not been read yet\n"));
}

static int add_counts(struct buf *b, const struct bridge_view *v)
{
    static const enum verb verbs[] = {VERB_DRAIN, VERB_DOWN,     VERB_RESUME,
                                      VERB_NOTE,  VERB_FEATURES, VERB_DELETE};
    int r = buf_puts(
        b, "# HELP tidegate_actions_total Changes of nodes in Slurm that were made.\n"
           "# TYPE tidegate_actions_total counter\n");

    for (size_t i = 0; i < TG_LEN(verbs) && r == 0; i++)
        r = buf_printf(b, "tidegate_actions_total{verb=\"%s\"} %llu\n",
                       verb_name(verbs[i]),
                       (unsigned long long)v->counts->done[verbs[i]]);
    if (r == 0)
        r = buf_puts(
            b, "# HELP tidegate_action_failures_total Changes of nodes in Slurm that "
               "slurmctld refused.\n"
               "# TYPE tidegate_action_failures_total counter\n");
    for (size_t i = 0; i < TG_LEN(verbs) && r == 0; i++)
        r = buf_printf(b, "tidegate_action_failures_total{verb=\"%s\"} %llu\n",
                       verb_name(verbs[i]),
                       (unsigned long long)v->counts->failed[verbs[i]]);
    return r;
}

static int add_nodes(struct buf *b, const struct bridge_view *v)
{
    unsigned long long n[HOLDER_PERSON + 1] = {0};
    int r = buf_puts(
        b, "# HELP tidegate_nodes Nodes of the pools, by who keeps them from jobs.\n"
           "# TYPE tidegate_nodes gauge\n");

    for (size_t i = 0; i < v->world.n; i++)
        n[v->verdicts[i].holder]++;
    for (enum holder h = HOLDER_NOBODY; h <= HOLDER_PERSON && r == 0; h++)
        r = buf_printf(b, "tidegate_nodes{holder=\"%s\"} %llu\n", holder_name(h), n[h]);
    return r;
}

/* What /metrics calls an agent's state. */
enum agent_row {
    AGENT_ROW_NONE, /* not heard of since this replica leads */
    AGENT_ROW_LOST,
    AGENT_ROW_STARTING,
    AGENT_ROW_UP,
    AGENT_ROW_STOPPING,
    AGENT_ROW_COUNT_,
};

static enum agent_row agent_row(const struct agent_fact *a)
{
    if (!a || a->linked == TRI_UNKNOWN)
        return AGENT_ROW_NONE;
    if (a->linked == TRI_NO)
        return AGENT_ROW_LOST;
    switch (a->phase) {
    case AGENT_STARTING:
        return AGENT_ROW_STARTING;
    case AGENT_UP:
        return AGENT_ROW_UP;
    case AGENT_STOPPING:
    case AGENT_GIVING_UP:
        break;
    }
    return AGENT_ROW_STOPPING;
}

static int add_agents(struct buf *b, const struct bridge_view *v)
{
    static const char *const names[AGENT_ROW_COUNT_] = {
        [AGENT_ROW_NONE] = "none",         [AGENT_ROW_LOST] = "lost",
        [AGENT_ROW_STARTING] = "starting", [AGENT_ROW_UP] = "up",
        [AGENT_ROW_STOPPING] = "stopping",
    };
    unsigned long long n[AGENT_ROW_COUNT_] = {0};
    int r = buf_puts(b, "# HELP tidegate_agents Nodes of the pools, by what their agent "
                        "last said.\n"
                        "# TYPE tidegate_agents gauge\n");

    for (size_t i = 0; i < v->world.n; i++)
        n[agent_row(v->world.rows[i].agent)]++;
    for (size_t i = 0; i < AGENT_ROW_COUNT_ && r == 0; i++)
        r = buf_printf(b, "tidegate_agents{state=\"%s\"} %llu\n", names[i], n[i]);
    return r;
}

static int add_number(struct buf *b, const char *name, const char *type, const char *help,
                      unsigned long long value)
{
    return buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type,
                      name, value);
}

static int add_links(struct buf *b, const struct agents_counts *a)
{
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"tidegate_agent_links", "gauge", "Links of agents that stand.", a->links},
        {"tidegate_agent_links_accepted_total", "counter",
         "Agents that have proved who they are.", a->accepted},
        {"tidegate_agent_links_refused_total", "counter",
         "Agents that were refused, also for this replica does not lead.", a->refused},
        {"tidegate_agent_links_lost_total", "counter", "Links that were lost.", a->lost},
        {"tidegate_agent_strangers_total", "counter",
         "Connections that were closed at once: from no compute pod's address.",
         a->closed_at_once},
        {"tidegate_agent_frames_total", "counter", "Frames of agents that were read.",
         a->frames},
        {"tidegate_agent_bad_frames_total", "counter",
         "Frames that ended their connection: broken, forged or played back.",
         a->bad_frames},
    };
    int r = 0;

    for (size_t i = 0; i < TG_LEN(rows) && r == 0; i++)
        r = add_number(b, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    return r;
}

static void serve_metrics(const struct bridge_view *v, struct httpd_reply *r)
{
    struct buf b = BUF_INIT(METRICS_CAP);
    bool ok =
        add_nodes(&b, v) == 0 && add_agents(&b, v) == 0 &&
        add_links(&b, &v->agents) == 0 && add_counts(&b, v) == 0 &&
        add_number(&b, "tidegate_leader", "gauge", "1 when this replica acts.",
                   v->leader) == 0 &&
        add_number(&b, "tidegate_kubernetes_fresh", "gauge",
                   "1 while Kubernetes is watched.", v->kube_fresh) == 0 &&
        add_number(&b, "tidegate_slurm_fresh", "gauge",
                   "1 when slurmctld answered the last time.", v->slurm_fresh) == 0 &&
        add_number(&b, "tidegate_rounds_total", "counter", "Rounds of deciding.",
                   v->counts->rounds) == 0 &&
        add_number(&b, "tidegate_slurm_rpcs_total", "counter",
                   "Calls that changed something in Slurm.", v->counts->rpcs) == 0 &&
        add_number(&b, "tidegate_slurm_load_failures_total", "counter",
                   "Reads of slurmctld that failed.",
                   v->counts->slurm_load_failures) == 0 &&
        add_number(&b, "tidegate_events_dropped_total", "counter",
                   "Events that could not be written.", v->events_dropped) == 0;

    if (ok)
        reply(r, 200, METRICS, mem_strdup(buf_str(&b)));
    else
        reply(r, 500, TEXT, mem_strdup("the metrics are longer than their cap\n"));
    buf_free(&b);
}

static void serve_nodes(const struct bridge_view *v, const char *name,
                        struct httpd_reply *r)
{
    struct view_head head = {
        .leader = v->leader,
        .holder = v->lease_holder,
        .kube_fresh = v->kube_fresh,
        .slurm_fresh = v->slurm_fresh,
        .slurm_error = v->slurm_error,
    };
    const struct node_facts *f;

    if (!v->kube_synced) {
        reply(r, 503, JSON, view_error("the bridge has not read Kubernetes yet"));
    } else if (!v->slurm_synced) {
        _cleanup_(mem_freep) char *text =
            mem_printf("the bridge has not been able to read slurmctld yet%s%s",
                       v->slurm_error ? ": " : "", v->slurm_error ? v->slurm_error : "");

        reply(r, 503, JSON, view_error(text));
    } else if (!name) {
        reply(r, 200, JSON, view_nodes(&head, v->world.rows, v->verdicts, v->world.n));
    } else if ((f = world_find(&v->world, name))) {
        reply(r, 200, JSON, view_node(&head, f, &v->verdicts[f - v->world.rows]));
    } else {
        _cleanup_(mem_freep) char *text = mem_printf(
            "no pool has a node \"%s\"; `tidegate nodes` lists those there are", name);

        reply(r, 404, JSON, view_error(text));
    }
}

void answers_serve(const char *path, struct httpd_reply *ret, void *userdata)
{
    static const char nodes[] = "/v1/nodes";
    struct bridge_view v;

    bridge_look(userdata, &v);
    if (strcmp(path, "/healthz") == 0)
        serve_health(&v, ret);
    else if (strcmp(path, "/readyz") == 0)
        serve_ready(&v, ret);
    else if (strcmp(path, "/metrics") == 0)
        serve_metrics(&v, ret);
    else if (strcmp(path, nodes) == 0)
        serve_nodes(&v, NULL, ret);
    else if (strncmp(path, nodes, sizeof(nodes) - 1) == 0 &&
             path[sizeof(nodes) - 1] == '/')
        serve_nodes(&v, path + sizeof(nodes), ret);
    else
        reply(ret, 404, JSON,
              view_error("no such path; there are /v1/nodes, /v1/nodes/NAME, "
                         "/metrics, /healthz and /readyz"));
    bridge_view_clear(&v);
}
