// SPDX-License-Identifier: GPL-2.0-or-later
/* The health checks, and the gate that jobs pass: what slurmd's prolog and epilog ask. */
#include "app/tidegate-node_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/text.h"
#include "io/timer.h"

#define CONF_EACH_MS 10000 /* a ConfigMap takes up to a minute anyway */

/* ---- the configuration -------------------------------------------------------------- */

static int read_all(int fd, struct buf *to, int64_t mark[3])
{
    struct stat st;
    char part[4096];
    ssize_t n;
    int r = 0;

    if (fstat(fd, &st) < 0)
        return -errno;
    mark[0] = (int64_t)st.st_ino;
    mark[1] = st.st_mtim.tv_sec;
    mark[2] = st.st_mtim.tv_nsec;
    while (r == 0 && (n = read(fd, part, sizeof(part))) != 0)
        r = n < 0 ? -errno : buf_add(to, part, (size_t)n);
    return r;
}

static int read_file(const char *path, struct buf *to, int64_t mark[3], struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : read_all(fd, to, mark);

    if (fd >= 0)
        (void)close(fd);
    return r < 0 ? err_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}

/* -ENOENT: there is no such file, and so no checks. */
static int read_conf(struct agent *a, struct checkconf **ret, struct err *err)
{
    _cleanup_(buf_free) struct buf text = BUF_INIT(CHECKCONF_MAX);
    int r = read_file(a->env.checks, &text, a->conf_mark, err);

    if (r < 0)
        return r;
    r = checkconf_parse(buf_str(&text), text.len, ret, err);
    return r < 0 ? err_context(err, r, "%s", a->env.checks) : 0;
}

/* What changes is taken without a restart. A file that is wrong or gone changes nothing. */
static int on_conf_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct agent *a = userdata;
    struct checkconf *conf = NULL;
    struct err err;
    struct stat st;

    (void)s;
    (void)usec;
    timer_arm(a->conf_timer, clock_mono_ms() + CONF_EACH_MS);
    if (stat(a->env.checks, &st) < 0 ||
        (a->conf_mark[0] == (int64_t)st.st_ino && a->conf_mark[1] == st.st_mtim.tv_sec &&
         a->conf_mark[2] == st.st_mtim.tv_nsec))
        return 0;
    if (read_conf(a, &conf, &err) < 0) {
        log_error("the checks have changed but are not right, so the old ones stay",
                  LOG_STR("error", err.text));
        return 0;
    }
    log_info("took other checks", LOG_NUM("checks", (int64_t)conf->n));
    checks_replace(a->checks, conf);
    return 0;
}

/* ---- what checks ask ---------------------------------------------------------------- */

static const char *const *check_environment(void *userdata)
{
    struct agent *a = userdata;
    const struct node_line *line = shape_line(a->shape);
    int64_t offset;
    size_t n = 0;

    if (a->link && agent_link_clock_offset(a->link, &offset)) {
        (void)snprintf(a->clock, sizeof(a->clock), "TIDEGATE_CLOCK_OFFSET_MS=%lld",
                       (long long)offset);
        a->check_env[n++] = a->clock;
    }
    if (line->cpus) {
        (void)snprintf(a->memory, sizeof(a->memory), "TIDEGATE_REAL_MEMORY_MIB=%llu",
                       (unsigned long long)line->memory_mib);
        a->check_env[n++] = a->memory;
    }
    a->check_env[n] = NULL;
    return a->check_env;
}

static bool is_idle(void *userdata)
{
    return !agent_has_jobs(userdata);
}

static void on_change(void *userdata)
{
    struct agent *a = userdata;
    size_t n;
    const struct check_fact *failing = checks_failing(a->checks, &n);

    if (n)
        log_warn("a check keeps this node from jobs", LOG_STR("check", failing[0].name),
                 LOG_STR("text", failing[0].text), LOG_NUM("failing", (int64_t)n));
    else
        log_info("no check keeps this node from jobs");
    if (a->link)
        agent_link_report(a->link);
}

static void on_start_done(const struct check_fact *failed, size_t n, void *userdata)
{
    struct agent *a = userdata;

    (void)failed; /* they hold the node by themselves */
    log_info("the checks of the start have run", LOG_NUM("failed", (int64_t)n));
    if (a->phase == AGENT_STARTING)
        agent_set_phase(a, AGENT_UP);
}

/* ---- prolog and epilog -------------------------------------------------------------- */

/* From its prolog until its epilog a job is here, whether a step of it runs or not. */

static bool is_here(const struct agent *a, uint32_t job)
{
    for (size_t i = 0; i < a->n_jobs; i++) {
        if (a->jobs[i] == job)
            return true;
    }
    return false;
}

void gate_let_in(struct agent *a, uint32_t job)
{
    if (is_here(a, job))
        return;
    a->jobs = mem_resize(a->jobs, a->n_jobs + 1, sizeof(*a->jobs));
    a->jobs[a->n_jobs++] = job;
}

static void has_ended(struct agent *a, uint32_t job)
{
    for (size_t i = 0; i < a->n_jobs; i++) {
        if (a->jobs[i] == job)
            a->jobs[i] = a->jobs[--a->n_jobs];
    }
    stop_look(a);
}

static void answer(struct agent *a, uint64_t id, const struct local_question *q,
                   const char *text)
{
    if (q->what == LOCAL_PROLOG && !text)
        gate_let_in(a, q->job);
    local_answer(a->local, id, !text, text);
}

/* Who asked; lives until the checks have run. */
struct asker {
    struct agent *agent;
    uint64_t id;
    struct local_question question;
    char job[48], uid[48];
    const char *env[3];
};

/*
 * No new work once it was told to stop, which may be while the checks run. A job that was here already goes on,
 * also with its first step on this node. Until it is known which ones these are, who asks waits.
 */
static bool refuse_stopping(struct agent *a, const struct local_question *q, uint64_t id)
{
    const struct node_facts facts = {.name = a->env.node};
    _cleanup_(mem_freep) char *text = NULL;

    if (q->what != LOCAL_PROLOG || a->stop == STOP_NOT || is_here(a, q->job))
        return false;
    if (!a->ctld.listed) {
        a->held = mem_resize(a->held, a->n_held + 1, sizeof(*a->held));
        a->held[a->n_held++] = (struct held_question){id, *q};
        return true;
    }
    text = text_reason(&facts, CAUSE_STOPPING, false);
    log_info("a job was refused, since this node is stopping", LOG_NUM("job", q->job));
    local_answer(a->local, id, false, text);
    return true;
}

static void on_checked(const struct check_fact *failed, size_t n, void *userdata)
{
    struct asker *k = userdata;
    /* as the bridge would write it, since the prolog drains the node with it */
    _cleanup_(mem_freep) char *text = n ? text_reason_of_check(&failed[0]) : NULL;

    if (!refuse_stopping(k->agent, &k->question, k->id))
        answer(k->agent, k->id, &k->question, text);
    free(k);
}

/* A person lets the node go in spite of a check. */
static void release(struct agent *a, uint64_t id, const char *check)
{
    struct err err = {"this node has no checks"};
    int r = a->checks ? checks_release(a->checks, check, &err) : -ENOENT;

    local_answer(a->local, id, r == 0, err.text);
}

static void on_question(uint64_t id, const struct local_question *q, void *userdata)
{
    struct agent *a = userdata;
    struct asker *k;

    if (q->what == LOCAL_RELEASE)
        return release(a, id, q->check);
    if (refuse_stopping(a, q, id))
        return;
    if (q->what == LOCAL_EPILOG)
        has_ended(a, q->job);
    if (!a->checks)
        return answer(a, id, q, NULL);
    k = mem_zalloc(sizeof(*k));
    *k = (struct asker){.agent = a, .id = id, .question = *q};
    (void)snprintf(k->job, sizeof(k->job), "SLURM_JOB_ID=%u", q->job);
    (void)snprintf(k->uid, sizeof(k->uid), "SLURM_JOB_UID=%u", q->uid);
    k->env[0] = k->job;
    k->env[1] = k->uid;
    checks_run(a->checks, q->what == LOCAL_PROLOG ? CHECK_PROLOG : CHECK_EPILOG, k->env,
               on_checked, k);
}

void gate_ask_again(struct agent *a)
{
    struct held_question *held = a->held;
    size_t n = a->n_held;

    a->held = NULL;
    a->n_held = 0;
    for (size_t i = 0; i < n; i++)
        on_question(held[i].id, &held[i].question, a);
    free(held);
}

/* ---- the outside -------------------------------------------------------------------- */

static const char *make_state_file(struct agent *a, char *path, size_t size)
{
    if (mkdir(a->env.state, 0700) < 0 && errno != EEXIST) {
        log_warn(
            "what the checks found is not kept over a restart: make the directory, or "
            "mount a volume there",
            LOG_STR("directory", a->env.state), LOG_STR("error", strerror(errno)));
        return NULL;
    }
    (void)snprintf(path, size, "%s/checks.json", a->env.state);
    return path;
}

static int make_checks(struct agent *a, struct err *err)
{
    struct checkconf *conf = NULL;
    char path[4096];
    struct checks_host host = {
        .environment = check_environment,
        .idle = is_idle,
        .on_change = on_change,
        .userdata = a,
    };
    int r = read_conf(a, &conf, err);

    if (r == -ENOENT) {
        log_info("there are no health checks", LOG_STR("file", a->env.checks));
        agent_set_phase(a, AGENT_UP);
        return 0;
    }
    if (r < 0)
        return r;
    host.state_file = make_state_file(a, path, sizeof(path));
    r = checks_new(a->event, a->children, conf, &host, &a->checks, err);
    if (r < 0)
        return r;
    r = timer_new(a->event, on_conf_timer, a, &a->conf_timer, err);
    if (r < 0)
        return r;
    timer_arm(a->conf_timer, clock_mono_ms() + CONF_EACH_MS);
    return 0;
}

void gate_begin(struct agent *a)
{
    if (!a->checks || a->checks_begun)
        return;
    a->checks_begun = true;
    checks_run(a->checks, CHECK_START, NULL, on_start_done, a);
    checks_begin(a->checks);
}

int gate_open(struct agent *a, struct err *err)
{
    int r = local_new(a->event, LOCAL_SOCKET, on_question, a, &a->local, err);

    return r < 0 ? r : make_checks(a, err);
}

void gate_close(struct agent *a)
{
    (void)sd_event_source_disable_unref(a->conf_timer);
    checks_free(a->checks);
    local_free(a->local);
    free(a->held);
    free(a->jobs);
}
