// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Keeps munged and slurmd alive. Job steps outlive both: a slurmd that comes back finds them again, and without munged
 * they only cannot start new ones.
 */
#include "app/tidegate-node_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/timer.h"

#define DELAY_MIN_MS 1000
#define DELAY_MAX_MS 10000
#define SETTLED_MS   60000 /* a life of that long is no crash loop */
/* Who has ended by itself sooner, and has started no step, has never registered. */
#define BARELY_MS  10000
#define MUNGE_MS   20    /* between two looks whether munged answers */
#define PATIENT_MS 10000 /* then a sentence, and */
#define SLOW_MS    1000  /* a look each second */

enum daemon_state { OFF, RUNNING, DELAYED };

struct daemon {
    struct daemons *all;
    const char *name;
    int (*start)(struct daemon *d, struct err *err);
    enum daemon_state state;
    pid_t pid;
    int64_t started_at;
    int64_t delay_ms;
    bool asked; /* its end was asked for */
    uint32_t restarts;
    sd_event_source *timer; /* its next start */
};

struct daemons {
    struct daemons_host host;
    struct munge_user munge;
    struct daemon munged, slurmd;
    sd_event_source *wait; /* for munged */
    int64_t wait_since;
    char *conf;
    bool
        registered; /* a slurmd of this container may have: the next one says nothing of a new boot */
    bool stopping;
    sd_event_source *deadline;
    int64_t deadline_at;
};

/* ---- what both have ----------------------------------------------------------------- */

static void stop_next(struct daemons *all);

static void start(struct daemon *d)
{
    struct err err;

    d->started_at = clock_mono_ms();
    d->asked = false;
    if (d->start(d, &err) == 0) {
        d->state = RUNNING;
        log_info("started", LOG_STR("daemon", d->name), LOG_NUM("pid", d->pid));
    } else {
        d->state = DELAYED;
        log_error("cannot be started; tried again", LOG_STR("daemon", d->name),
                  LOG_NUM("delay_ms", d->delay_ms), LOG_STR("error", err.text));
        timer_arm(d->timer, d->started_at + d->delay_ms);
        d->delay_ms = d->delay_ms * 2 < DELAY_MAX_MS ? d->delay_ms * 2 : DELAY_MAX_MS;
    }
}

static int on_restart(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct daemon *d = userdata;

    (void)s;
    (void)usec;
    start(d);
    if (d == &d->all->slurmd)
        d->all->host.on_change(d->all->host.userdata);
    return 0;
}

static void log_end(const struct daemon *d, const struct child_end *end, int64_t delay_ms)
{
    log_warn(d == &d->all->slurmd ? "ended; job steps run on, it is started again"
                                  : "ended; jobs run on, it is started again",
             LOG_STR("daemon", d->name), LOG_STR("how", child_describe(end).text),
             LOG_NUM("delay_ms", delay_ms), LOG_NUM("restarts", d->restarts));
}

static void on_end(const struct child_end *end, void *userdata)
{
    struct daemon *d = userdata;
    struct daemons *all = d->all;
    int64_t now = clock_mono_ms(), lived = now - d->started_at, delay = 0;

    d->pid = 0;
    d->state = OFF;
    if (d == &all->slurmd && (d->asked || lived > BARELY_MS || !WIFEXITED(end->status)))
        all->registered = true;
    if (d->asked) {
        log_info("ended, as it was told to", LOG_STR("daemon", d->name),
                 LOG_STR("how", child_describe(end).text));
        if (all->stopping)
            return stop_next(all);
    } else {
        d->delay_ms = lived >= SETTLED_MS ? DELAY_MIN_MS : d->delay_ms;
        delay = d->delay_ms;
        d->delay_ms = delay * 2 < DELAY_MAX_MS ? delay * 2 : DELAY_MAX_MS;
        d->restarts++;
        log_end(d, end, delay);
    }
    d->state = DELAYED;
    timer_arm(d->timer, now + delay);
    if (d == &all->slurmd)
        all->host.on_change(all->host.userdata);
}

/* ---- munged ------------------------------------------------------------------------- */

static int start_munged(struct daemon *d, struct err *err)
{
    struct child_spec spec = {.argv = munge_argv,
                              .drop = true,
                              .uid = d->all->munge.uid,
                              .gid = d->all->munge.gid,
                              .on_end = on_end,
                              .userdata = d};
    int r = munge_prepare(&d->all->munge, err);

    return r < 0 ? r : child_start(d->all->host.children, &spec, &d->pid, err);
}

/* slurmd dies of a munged that does not answer: its first start waits. */
static int on_wait(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct daemons *all = userdata;
    int64_t now = clock_mono_ms(), waited = now - all->wait_since;

    (void)s;
    (void)usec;
    if (all->stopping || all->slurmd.state != OFF)
        return 0;
    if (!munge_answers()) {
        if (waited >= PATIENT_MS && waited < PATIENT_MS + SLOW_MS)
            log_warn("munged does not answer; slurmd waits for it, since nothing can be "
                     "authenticated without");
        timer_arm(all->wait, now + (waited < PATIENT_MS ? MUNGE_MS : SLOW_MS));
        return 0;
    }
    start(&all->slurmd);
    all->host.on_change(all->host.userdata);
    return 0;
}

/* ---- slurmd ------------------------------------------------------------------------- */

/*
 * -b tells slurmctld that this container is new, so that jobs of the last one are requeued and not
 * waited for. A slurmd started again in the same container leaves it out: its steps live on.
 *
 * slurmd looks up the name of whoever speaks to it, only to log it, and launches nothing meanwhile: 20 s
 * where DNS is dead. No attempts are an answer at once. Jobs do not inherit slurmd's environment.
 */
static int start_slurmd(struct daemon *d, struct err *err)
{
    static const char *const environment[] = {"RES_OPTIONS=attempts:0", NULL};
    const struct node_env *env = d->all->host.env;
    _cleanup_(mem_freep) char *server = mem_printf(
        strchr(env->controller, ':') ? "[%s]:6817" : "%s:6817", env->controller);
    const char *argv[] = {"slurmd",     "-D",
                          "-Z",         "-N",
                          env->node,    "--conf-server",
                          server,       "--conf",
                          d->all->conf, "--instance-id",
                          env->pod_uid, d->all->registered ? NULL : "-b",
                          NULL};
    struct child_spec spec = {
        .argv = argv, .setenv = environment, .on_end = on_end, .userdata = d};

    (void)mkdir("/var/spool/slurmd", 0755); /* what is wrong with it, slurmd says */
    return child_start(d->all->host.children, &spec, &d->pid, err);
}

void daemons_slurmd(struct daemons *d, const char *conf)
{
    bool first = !d->conf;

    mem_set(&d->conf, conf);
    if (!first || d->stopping)
        return;
    d->wait_since = clock_mono_ms();
    timer_arm(d->wait, 0);
}

void daemons_restart_slurmd(struct daemons *d)
{
    struct daemon *k = &d->slurmd;

    if (d->stopping || k->state == OFF)
        return;
    k->delay_ms = DELAY_MIN_MS;
    if (k->state == DELAYED) {
        timer_arm(k->timer, 0);
        return;
    }
    k->asked = true;
    child_kill(d->host.children, k->pid, SIGTERM, false);
}

/* ---- the end ------------------------------------------------------------------------ */

static bool stop_one(struct daemon *d)
{
    timer_stop(d->timer);
    if (d->state != RUNNING)
        return false;
    if (!d->asked)
        child_kill(d->all->host.children, d->pid, SIGTERM, false);
    d->asked = true;
    return true;
}

static void stop_next(struct daemons *all)
{
    if (stop_one(&all->slurmd) || stop_one(&all->munged))
        return;
    all->slurmd.state = all->munged.state = OFF;
    timer_stop(all->deadline);
    all->host.on_stopped(all->host.userdata);
}

/* Whoever is left is killed, one after the other, as it would have ended. */
static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct daemons *all = userdata;
    struct daemon *d = all->slurmd.state == RUNNING ? &all->slurmd : &all->munged;

    (void)s;
    (void)usec;
    log_warn("has not ended in time and is killed", LOG_STR("daemon", d->name));
    child_kill(all->host.children, d->pid, SIGKILL, false);
    timer_arm(all->deadline, clock_mono_ms() + 200);
    return 0;
}

void daemons_stop(struct daemons *d, int64_t deadline)
{
    if (d->stopping)
        return;
    d->stopping = true;
    timer_stop(d->wait);
    timer_arm(d->deadline, deadline);
    stop_next(d);
}

/* ---- the outside -------------------------------------------------------------------- */

struct daemons_facts daemons_facts(const struct daemons *d)
{
    static const enum slurmd_state states[] = {
        [OFF] = SLURMD_OFF, [RUNNING] = SLURMD_RUNNING, [DELAYED] = SLURMD_WAITING};

    return (struct daemons_facts){.slurmd = states[d->slurmd.state],
                                  .slurmd_pid = d->slurmd.pid,
                                  .restarts = d->slurmd.restarts};
}

static int daemon_init(struct daemon *d, sd_event *event, struct daemons *all,
                       const char *name, int (*start_it)(struct daemon *, struct err *),
                       struct err *err)
{
    *d = (struct daemon){
        .all = all, .name = name, .start = start_it, .delay_ms = DELAY_MIN_MS};
    return timer_new(event, on_restart, d, &d->timer, err);
}

int daemons_new(sd_event *event, const struct daemons_host *host, struct daemons **ret,
                struct err *err)
{
    _cleanup_(daemons_freep) struct daemons *d = mem_zalloc(sizeof(*d));
    int r = munge_find_user(&d->munge, err);

    d->host = *host;
    if (r == 0) /* a first time here, for its sentence */
        r = munge_prepare(&d->munge, err);
    if (r == 0)
        r = daemon_init(&d->munged, event, d, "munged", start_munged, err);
    if (r == 0)
        r = daemon_init(&d->slurmd, event, d, "slurmd", start_slurmd, err);
    if (r == 0)
        r = timer_new(event, on_wait, d, &d->wait, err);
    if (r == 0)
        r = timer_new(event, on_deadline, d, &d->deadline, err);
    if (r < 0)
        return r;
    start(&d->munged);
    *ret = d;
    d = NULL;
    return 0;
}

void daemons_free(struct daemons *d)
{
    if (!d)
        return;
    (void)sd_event_source_disable_unref(d->munged.timer);
    (void)sd_event_source_disable_unref(d->slurmd.timer);
    (void)sd_event_source_disable_unref(d->wait);
    (void)sd_event_source_disable_unref(d->deadline);
    free(d->conf);
    free(d);
}
