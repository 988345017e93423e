// SPDX-License-Identifier: GPL-2.0-or-later
/* Answers as a person reads them. Text from outside goes through termtext. */
#include <stdio.h>
#include <string.h>

#include "app/tidegate.h"
#include "base/clock.h"
#include "base/mem.h"
#include "codec/json.h"
#include "codec/k8s_obj.h"
#include "codec/termtext.h"

/* A member's text, safe to print; "" when there is none. */
static char *text(const cJSON *obj, const char *path)
{
    const char *s = NULL;

    if (json_opt_str(obj, path, &s, NULL) < 0)
        s = NULL;
    return termtext_escape(s);
}

static char *cell(char *s)
{
    if (*s)
        return s;
    free(s);
    return mem_strdup("-");
}

static bool get_bool(const cJSON *obj, const char *path)
{
    bool b = false;

    return json_opt_bool(obj, path, &b, NULL) == 0 && b;
}

static int64_t get_int(const cJSON *obj, const char *path)
{
    int64_t n = 0;

    return json_opt_int(obj, path, &n, NULL) == 0 ? n : 0;
}

static int64_t get_jobs(const cJSON *node)
{
    return get_int(node, "slurm.jobs");
}

/* How long ago `since` was; "" when it is not known. */
static char *age(const cJSON *node)
{
    _cleanup_(mem_freep) char *since = text(node, "since");
    int64_t at;

    if (!*since || k8s_time_parse(since, &at, NULL) < 0)
        return mem_strdup("");
    return termtext_span(clock_wall_ms() - at);
}

/* ---- the table -------------------------------------------------------------------------------- */

#define COLUMNS 9

static const char *const titles[COLUMNS] = {
    "NODE", "POOL", "KUBERNETES", "AGENT", "SLURM", "JOBS", "HELD BY", "SINCE", "REASON"};

/* "up", "lost", ...; "" when it was never heard of. */
static char *agent_state(const cJSON *node)
{
    _cleanup_(mem_freep) char *linked = text(node, "agent.linked");

    if (strcmp(linked, "no") == 0)
        return mem_strdup("lost");
    return text(node, "agent.phase");
}

static void fill_row(const cJSON *node, char *row[COLUMNS])
{
    char *holder = text(node, "holder");

    if (strcmp(holder, "nobody") == 0)
        *holder = '\0';
    row[0] = cell(text(node, "name"));
    row[1] = cell(text(node, "pool"));
    row[2] = cell(text(node, "kubernetes.state"));
    row[3] = cell(agent_state(node));
    row[4] = cell(text(node, "slurm.state"));
    row[5] = mem_printf("%lld", (long long)get_jobs(node));
    row[6] = cell(holder);
    row[7] = cell(age(node));
    row[8] = cell(text(node, "slurm.reason"));
}

static void print_row(const char *const row[COLUMNS], const size_t widths[COLUMNS])
{
    for (size_t i = 0; i < COLUMNS; i++) {
        size_t pad = i + 1 < COLUMNS ? widths[i] - termtext_width(row[i]) + 2 : 0;

        (void)printf("%s%*s", row[i], (int)pad, "");
    }
    (void)printf("\n");
}

void show_nodes(const cJSON *answer)
{
    const cJSON *nodes = json_member(answer, "nodes"), *node;
    size_t n = (size_t)cJSON_GetArraySize(nodes), at = 0;
    char *(*rows)[COLUMNS] = mem_calloc(n, sizeof(*rows));
    size_t widths[COLUMNS];

    for (size_t i = 0; i < COLUMNS; i++)
        widths[i] = strlen(titles[i]);
    cJSON_ArrayForEach(node, nodes)
    {
        fill_row(node, rows[at]);
        for (size_t i = 0; i < COLUMNS; i++) {
            size_t width = termtext_width(rows[at][i]);

            widths[i] = width > widths[i] ? width : widths[i];
        }
        at++;
    }
    if (n)
        print_row(titles, widths);
    else
        (void)fprintf(stderr, "No nodes: no pool selects one.\n");
    for (size_t i = 0; i < n; i++) {
        print_row((const char *const *)rows[i], widths);
        for (size_t k = 0; k < COLUMNS; k++)
            free(rows[i][k]);
    }
    free(rows);
}

/* ---- one node --------------------------------------------------------------------------------- */

static void line(const char *title, const char *value)
{
    (void)printf("  %-12s %s\n", title, value);
}

static void show_holder(const cJSON *node)
{
    _cleanup_(mem_freep) char *holder = text(node, "holder");
    _cleanup_(mem_freep) char *since = text(node, "since");
    _cleanup_(mem_freep) char *span = age(node);
    _cleanup_(mem_freep) char *all = NULL;

    all = *span ? mem_printf("%s, for %s (since %s)", holder, span, since)
                : mem_printf("%s", holder);
    line("Held by:", all);
}

static void show_overruled(const cJSON *node)
{
    const cJSON *list = json_member(node, "overruled"), *item;
    char *all = mem_strdup("");

    cJSON_ArrayForEach(item, list)
    {
        _cleanup_(mem_freep) char *one = termtext_escape(cJSON_GetStringValue(item));
        char *longer = mem_printf("%s%s%s", all, *all ? ", " : "", one);

        free(all);
        all = longer;
    }
    if (*all)
        line("Overruled:", all);
    free(all);
}

static void show_if_any(const cJSON *node, const char *title, const char *path)
{
    _cleanup_(mem_freep) char *s = text(node, path);

    if (*s)
        line(title, s);
}

static void show_slurm(const cJSON *node)
{
    _cleanup_(mem_freep) char *state = text(node, "slurm.state");
    _cleanup_(mem_freep) char *slurmd = text(node, "slurmd");
    _cleanup_(mem_freep) char *extra = text(node, "slurm.extra");
    _cleanup_(mem_freep) char *all = NULL;
    int64_t jobs = get_jobs(node);

    all = mem_printf("%s, %lld job%s", state, (long long)jobs, jobs == 1 ? "" : "s");
    line("Slurm:", all);
    if (strcmp(slurmd, "yes") == 0)
        line("slurmd:", "answers");
    else if (strcmp(slurmd, "no") == 0)
        line("slurmd:", "does not answer");
    show_if_any(node, "Reason:", "slurm.reason");
    if (strcmp(extra, "foreign") == 0)
        line("Note:",
             "Extra of this node in Slurm was written by somebody else; Tidegate leaves "
             "it and remembers less of the node");
}

static void show_checks(const cJSON *agent)
{
    const cJSON *check;

    cJSON_ArrayForEach(check, json_member(agent, "checks"))
    {
        _cleanup_(mem_freep) char *name = text(check, "name");
        _cleanup_(mem_freep) char *words = text(check, "text");
        _cleanup_(mem_freep) char *span = age(check);
        _cleanup_(mem_freep) char *all =
            mem_printf("%s%s%s: %s", name, *span ? ", for " : "", span, words);

        line("Check fails:", all);
    }
}

/* What its agent has said last; nothing where there is none. */
static void show_agent(const cJSON *node)
{
    const cJSON *agent = json_member(node, "agent");
    _cleanup_(mem_freep) char *state = agent_state(node);
    _cleanup_(mem_freep) char *phase = text(node, "agent.phase");
    _cleanup_(mem_freep) char *slurmd = text(node, "agent.slurmd");
    _cleanup_(mem_freep) char *all = NULL;
    int64_t steps = get_int(node, "agent.steps"),
            restarts = get_int(node, "agent.restarts");

    if (!agent)
        return;
    all = mem_printf("%s%s, slurmd %s, %lld step%s%s",
                     strcmp(state, "lost") == 0 ? "its link is lost; it was " : "", phase,
                     slurmd, (long long)steps, steps == 1 ? "" : "s",
                     restarts ? ", slurmd was started again" : "");
    line("Agent:", all);
    show_checks(agent);
}

void show_node(const cJSON *answer)
{
    const cJSON *node = json_member(answer, "node");
    _cleanup_(mem_freep) char *name = text(node, "name");
    _cleanup_(mem_freep) char *pool = text(node, "pool");
    _cleanup_(mem_freep) char *cause = text(node, "cause");
    _cleanup_(mem_freep) char *why = text(node, "why");
    _cleanup_(mem_freep) char *ends = text(node, "ends");

    (void)printf("%s (%s%s)\n", name, *pool ? "pool " : "in no pool", pool);
    show_if_any(node, "Kubernetes:", "kubernetes.state");
    show_if_any(node, "slurmd pod:", "kubernetes.pod");
    show_agent(node);
    show_slurm(node);
    show_holder(node);
    if (*cause && strcmp(cause, "none") != 0)
        line("Cause:", cause);
    show_overruled(node);
    (void)printf("\n%s%s%s\n", why, *ends ? "\n" : "", ends);
}

/* ---- for both --------------------------------------------------------------------------------- */

void show_json(const cJSON *answer)
{
    _cleanup_(mem_freep) char *json = cJSON_Print(answer);
    _cleanup_(mem_freep) char *safe = NULL;

    if (!json)
        abort();
    safe = termtext_escape_json(json);
    (void)printf("%s\n", safe);
}

bool show_freshness(const cJSON *answer)
{
    _cleanup_(mem_freep) char *error = text(answer, "slurm.error");
    bool fresh = get_bool(answer, "slurm.fresh");

    if (!fresh)
        (void)fprintf(
            stderr,
            "tidegate: slurmctld cannot be read%s%s; its part is as it was last read\n",
            *error ? ": " : "", error);
    if (!get_bool(answer, "leader"))
        (void)fprintf(
            stderr,
            "tidegate: the bridge that leads has not answered; this is from another one, "
            "which does not hear the nodes' agents\n");
    if (!get_bool(answer, "kubernetes.fresh"))
        (void)fprintf(stderr,
                      "tidegate: the bridge has lost sight of Kubernetes; its part is as "
                      "it was last read\n");
    return fresh;
}
