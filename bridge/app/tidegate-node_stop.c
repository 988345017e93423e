// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The end in order: the bridge is told, no new work begins, job steps have until shortly before the end of the
 * grace period, then the bridge has what is left requeued, then slurmd ends, then munged, then this.
 */
#include "app/tidegate-node_run.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/timer.h"

#define TELL_MS 1000 /* for the answer of a bridge that is there */
#define LOOK_MS 200
/* Before the end, for the jobs to be requeued: a third of the grace period within these. */
#define REQUEUE_MIN_MS 5000
#define REQUEUE_MAX_MS 15000
#define DAEMONS_MS     2000 /* before the end: for slurmd and munged */
#define KILL_MS        600  /* before the end: for what has not ended then */
/* slurmctld is asked for jobs, and when it does not answer for so long, this node's own knowledge has to do. */
#define ASK_EACH_MS     1000
#define ASK_DEADLINE_MS 5000
#define ASK_IN_VAIN_MS  10000

/* ---- jobs without a process --------------------------------------------------------- */

/* "17\n23\n": the jobs that run here. What it says first is who may go on. Beside them stands what the libraries
 * have to say, which alone is no answer. */
static enum jobs_answer take_jobs(struct agent *a, const char *output)
{
    enum jobs_answer answer = JOBS_NONE;

    for (const char *line = output; *line;) {
        size_t digits = strspn(line, "0123456789"), n = strcspn(line, "\n");

        if (digits && digits == n && line[n]) {
            answer = JOBS_SOME;
            if (!a->ctld.listed)
                gate_let_in(a, (uint32_t)strtoul(line, NULL, 10));
        } else if (n && answer == JOBS_NONE) {
            answer = JOBS_UNKNOWN;
        }
        line += n + (line[n] != '\0');
    }
    return answer;
}

static void take_answer(struct agent *a, enum jobs_answer answer, const char *how,
                        const char *output)
{
    a->ctld.answer = answer;
    a->ctld.at = clock_mono_ms();
    if (answer == JOBS_NONE)
        a->n_jobs = 0; /* an epilog that never came is none of them */
    if (answer != JOBS_UNKNOWN) {
        a->ctld.unknown_since = 0;
    } else if (!a->ctld.unknown_since) {
        a->ctld.unknown_since = a->ctld.at;
        log_warn("slurmctld does not tell which jobs are here", LOG_STR("how", how),
                 LOG_STR("output", output));
    }
    a->ctld.listed = true;
    gate_ask_again(a);
}

static void on_asked(const struct child_end *end, void *userdata)
{
    struct agent *a = userdata;
    bool good = !end->timed_out && end->status == 0;

    a->ctld.child = 0;
    take_answer(a, good ? take_jobs(a, end->output) : JOBS_UNKNOWN,
                child_describe(end).text, end->output);
    stop_look(a);
}

/* An allocation may be here of which nothing has ever run on this node. */
static enum jobs_answer ask_ctld(struct agent *a)
{
    const char *argv[] = {"squeue", "-h", "-t",        "R,S,CF", "-o",
                          "%A",     "-w", a->env.node, NULL};
    struct child_spec spec = {.argv = argv,
                              .capture = 4096,
                              .deadline_ms = ASK_DEADLINE_MS,
                              .on_end = on_asked,
                              .userdata = a};
    struct err err;

    if (a->ctld.child)
        return JOBS_ASKING;
    if (a->ctld.answer != JOBS_ASKING && clock_mono_ms() - a->ctld.at < ASK_EACH_MS)
        return a->ctld.answer;
    a->ctld.answer = JOBS_ASKING;
    if (daemons_facts(a->daemons).slurmd == SLURMD_OFF)
        return JOBS_NONE; /* it has never been started, and nobody waits at the gate */
    if (child_start(a->children, &spec, &a->ctld.child, &err) == 0)
        return JOBS_ASKING;
    take_answer(a, JOBS_UNKNOWN, err.text, "");
    return JOBS_UNKNOWN;
}

/* Whether a job is here, or may be. */
static bool has_jobs(struct agent *a)
{
    enum jobs_answer answer;

    if (a->ctld.listed && agent_has_processes(a)) {
        a->ctld.answer = JOBS_ASKING; /* what was said before is old by now */
        return true;
    }
    answer = ask_ctld(a);
    if (answer == JOBS_UNKNOWN)
        return a->n_jobs || clock_mono_ms() - a->ctld.unknown_since < ASK_IN_VAIN_MS;
    return answer != JOBS_NONE;
}

/* ---- the stages --------------------------------------------------------------------- */

static void end_daemons(struct agent *a, bool cut_off, const char *why)
{
    a->stop = STOP_ENDING;
    a->cut_off = cut_off;
    timer_stop(a->stop_timer);
    log_info(why);
    daemons_stop(a->daemons, a->end_at - KILL_MS);
}

static void give_up(struct agent *a)
{
    a->stop = STOP_GIVING_UP;
    log_warn("the grace period is nearly over; the bridge has the jobs requeued",
             LOG_NUM("jobs", (int64_t)a->n_jobs), LOG_NUM("steps", agent_steps(a)));
    agent_set_phase(a, AGENT_GIVING_UP);
}

static void look(struct agent *a)
{
    int64_t now = clock_mono_ms();
    bool jobs;

    if (a->stop == STOP_TELLING && (!a->link || !agent_link_stands(a->link) ||
                                    agent_link_answered(a->link) || now >= a->tell_until))
        a->stop = STOP_WAITING;
    if (a->stop == STOP_TELLING)
        return;
    jobs = has_jobs(a);
    if (a->stop == STOP_WAITING && !jobs)
        return end_daemons(a, false,
                           "no job is here any more; stopping slurmd, then munged");
    if (a->stop == STOP_WAITING && now >= a->give_up_at)
        give_up(a);
    if (a->stop != STOP_GIVING_UP)
        return;
    if (!jobs)
        end_daemons(a, true, "the jobs are cut off; stopping slurmd, then munged");
    else if (now >= a->end_at - DAEMONS_MS)
        end_daemons(a, true,
                    "jobs still run and are cut off; stopping slurmd, then munged");
}

void stop_look(struct agent *a)
{
    if (a->stop == STOP_NOT || a->stop == STOP_ENDING)
        return;
    look(a);
    if (a->stop != STOP_ENDING)
        timer_arm(a->stop_timer, clock_mono_ms() + LOOK_MS);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    (void)s;
    (void)usec;
    stop_look(userdata);
    return 0;
}

int stop_prepare(struct agent *a, struct err *err)
{
    return timer_new(a->event, on_timer, a, &a->stop_timer, err);
}

void stop_begin(struct agent *a, const char *why)
{
    int64_t now = clock_mono_ms(), requeue = a->env.grace_ms / 3;

    if (a->stop != STOP_NOT) {
        log_info("stopping already", LOG_STR("asked_by", why));
        return;
    }
    requeue = requeue < REQUEUE_MIN_MS ? REQUEUE_MIN_MS : requeue;
    requeue = requeue > REQUEUE_MAX_MS ? REQUEUE_MAX_MS : requeue;
    a->stop = STOP_TELLING;
    a->tell_until = now + TELL_MS;
    a->end_at = now + a->env.grace_ms;
    a->give_up_at = a->end_at - requeue;
    log_info(
        "stopping: no new jobs; those that run have until the end of the grace period",
        LOG_STR("asked_by", why), LOG_NUM("grace_s", a->env.grace_ms / 1000),
        LOG_NUM("jobs", (int64_t)a->n_jobs), LOG_NUM("steps", agent_steps(a)));
    agent_set_phase(a, AGENT_STOPPING);
    stop_look(a);
}

void stop_done(void *agent)
{
    struct agent *a = agent;

    log_info("stopped", LOG_STR("jobs", a->cut_off ? "cut off" : "all ended"));
    (void)sd_event_exit(a->event, a->cut_off ? EX_TEMPFAIL : EX_OK);
}
