// SPDX-License-Identifier: GPL-2.0-or-later
/* The node's line, measured by a child: hwloc's memory is not PID 1's, and it may hang. */
#include "app/tidegate-node_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/line_json.h"
#include "core/text.h"
#include "io/timer.h"

#define EACH_MS      60000
#define DEADLINE_MS  20000
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 10000

struct shape {
    struct shape_host host;
    sd_event_source *timer;
    struct node_line line; /* cpus 0: none yet */
    pid_t child;           /* 0: none */
    bool asked;
    int64_t delay_ms;
    char said[TG_ERR_TEXT_MAX]; /* the last failure, so that it is not said again */
};

const struct node_line *shape_line(const struct shape *s)
{
    return &s->line;
}

static void later(struct shape *s, int64_t ms)
{
    timer_arm(s->timer, clock_mono_ms() + ms);
}

/* Warnings of hwloc may stand around it. */
static const char *find_json(const char *output, size_t *ret_len)
{
    const char *at = strstr(output, "{\"");

    *ret_len = at ? strcspn(at, "\n") : 0;
    return at;
}

static bool same(const struct node_line *a, const struct node_line *b)
{
    return a->boards == b->boards && a->sockets == b->sockets && a->cores == b->cores &&
           a->threads == b->threads && a->cpus == b->cpus &&
           a->memory_mib == b->memory_mib && mem_same_str(a->gres, b->gres) &&
           mem_same_str(a->features, b->features);
}

/* Takes `measured`, and calls back when it matters. */
static int take(struct shape *s, const struct node_line *measured, struct err *err)
{
    struct slurmdconf c = {.line = measured,
                           .pool = s->host.env->pool,
                           .person = s->host.env->slurmd_conf,
                           .gres = s->host.env->gres,
                           .drained = s->host.env->agents ? TEXT_NEW_NODE : NULL};
    _cleanup_(mem_freep) char *conf = NULL;
    struct node_line line = {0};
    bool news;
    int r = slurmdconf_text(&c, &conf, err);

    if (r == 0)
        r = slurmdconf_line(&c, &line, err);
    if (r < 0)
        return r;
    news = s->asked || !same(&line, &s->line);
    node_line_clear(&s->line);
    s->line = line;
    s->asked = false;
    s->said[0] = '\0';
    s->delay_ms = RETRY_MIN_MS;
    later(s, EACH_MS);
    if (news) {
        log_info("this node has", LOG_STR("line", conf));
        s->host.on_line(&s->line, conf, s->host.userdata);
    }
    return 0;
}

static void failed(struct shape *s, bool hopeless, const char *text)
{
    bool first = !s->line.cpus;

    if (strcmp(s->said, text) != 0)
        log_error(first ? "what this node has is not known; slurmd waits for it"
                        : "what this node has could not be measured again",
                  LOG_STR("error", text));
    (void)snprintf(s->said, sizeof(s->said), "%s", text);
    later(s, first || s->asked ? s->delay_ms : EACH_MS);
    s->delay_ms = s->delay_ms * 2 < RETRY_MAX_MS ? s->delay_ms * 2 : RETRY_MAX_MS;
    if (first && hopeless)
        s->host.on_hopeless(s->host.userdata);
}

static void on_end(const struct child_end *end, void *userdata)
{
    struct shape *s = userdata;
    struct node_line measured = {0};
    struct err err;
    size_t len;
    const char *json = find_json(end->output, &len);
    int r;

    s->child = 0;
    if (end->timed_out || end->status != 0) {
        (void)err_set(&err, -EIO, "%s: %.400s", child_describe(end).text, end->output);
        err.text[strcspn(err.text, "\n")] = '\0';
        failed(s, WIFEXITED(end->status) && WEXITSTATUS(end->status) == EX_CONFIG,
               err.text);
        return;
    }
    r = line_json_read(json ? json : "", len, &measured, &err);
    if (r == 0)
        r = take(s, &measured, &err);
    if (r < 0)
        failed(s, r == -EINVAL, err.text);
    node_line_clear(&measured);
}

static void measure(struct shape *s)
{
    const char *argv[] = {s->host.program, "line", "--json", NULL};
    struct child_spec spec = {.argv = argv,
                              .capture = (size_t)2 * LINE_JSON_MAX,
                              .deadline_ms = DEADLINE_MS,
                              .on_end = on_end,
                              .userdata = s};
    struct err err;

    if (!s->child && child_start(s->host.children, &spec, &s->child, &err) < 0)
        failed(s, false, err.text);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    measure(userdata);
    return 0;
}

void shape_measure(struct shape *s, bool tell)
{
    s->asked |= tell;
    measure(s);
}

int shape_new(sd_event *event, const struct shape_host *host, struct shape **ret,
              struct err *err)
{
    struct shape *s = mem_zalloc(sizeof(*s));
    int r = timer_new(event, on_timer, s, &s->timer, err);

    if (r < 0) {
        free(s);
        return r;
    }
    s->host = *host;
    s->delay_ms = RETRY_MIN_MS;
    timer_arm(s->timer, 0);
    *ret = s;
    return 0;
}

void shape_free(struct shape *s)
{
    if (!s)
        return;
    if (s->child)
        child_forget(s->host.children, s->child);
    (void)sd_event_source_disable_unref(s->timer);
    node_line_clear(&s->line);
    free(s);
}
