// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/ctld_qualify.h"

#include <errno.h>
#include <signal.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "io/ctld_priv.h"

#define JOB_MEMORY_MIB 128 /* of a node: shell, srun, two processes */
#define NODES_CAP      (1 << 20)

/*
 * The processes are two, also on a node alone. What they said is kept in the job, for its output is lost
 * with the pod; a probe that did not come to words leaves what srun said.
 */
static const char script[] =
    "#!/bin/sh\n"
    "said=$(timeout -k 5 %d srun --mpi=pmix --kill-on-bad-exit=1 --overcommit -n2 \\\n"
    "    tidegate-pmix --ranks 2 --bound %d 2>&1)\n"
    "status=$?\n"
    "for lines in '^tidegate-pmix: ' '^slurmstepd[^:]*: error: [^*]' '^srun: error: ' .\n"
    "do\n"
    "    line=$(printf '%%s\\n' \"$said\" | grep -m1 \"$lines\") && break\n"
    "done\n"
    "[ $status != 124 ] || line=\"srun was not done within %d s; are the ports of slurmd "
    "\\\n"
    "and srun open between the nodes? $line\"\n"
    "scontrol update jobid=\"$SLURM_JOB_ID\" admincomment=\"$line\"\n"
    "exit $status\n";

/* ---- reading ---------------------------------------------------------------------------------- */

/* The node of one of our reservations, NULL: it is another's. */
static const char *node_of(const char *reservation)
{
    const size_t prefix = strlen(QUALIFY_RESERVATION);

    return reservation && strncmp(reservation, QUALIFY_RESERVATION, prefix) == 0
               ? reservation + prefix
               : NULL;
}

static int add_others(struct buf *others, const reserve_info_t *r, time_t now)
{
    if (!r->node_list || !*r->node_list || r->start_time > now || r->end_time <= now)
        return 0;
    return buf_printf(others, "%s%s", others->len ? "," : "", r->node_list);
}

static int read_reservations(struct qualify_world *w, struct err *err)
{
    reserve_info_msg_t *msg = NULL;
    struct buf others = BUF_INIT(NODES_CAP);
    const time_t now = (time_t)(clock_wall_ms() / 1000);
    int r = 0;

    if (slurm_load_reservations(0, &msg))
        return ctld_error(errno, "cannot read the reservations", err);
    if (!msg)
        return err_set(err, -EIO, "cannot read the reservations: slurmctld sent no list");
    w->reservations = mem_calloc(msg->record_count, sizeof(*w->reservations));
    for (uint32_t i = 0; i < msg->record_count && r == 0; i++) {
        const reserve_info_t *in = &msg->reservation_array[i];
        const char *node = node_of(in->name);

        if (!node)
            r = add_others(&others, in, now);
        else
            w->reservations[w->n_reservations++] = (struct qualify_reservation){
                .node = mem_strdup(node), .since = (int64_t)in->start_time * 1000};
    }
    slurm_free_reservation_info_msg(msg);
    w->others = others.len ? mem_strdup(buf_str(&others)) : NULL;
    buf_free(&others);
    return r < 0 ? err_set(err, r, "the nodes in reservations make too long a list") : 0;
}

static enum qualify_job_state job_state(uint32_t base, bool started)
{
    switch (base) {
    case JOB_PENDING:
        return QUALIFY_JOB_WAITS;
    case JOB_RUNNING:
    case JOB_SUSPENDED:
        return QUALIFY_JOB_RUNS;
    case JOB_COMPLETE:
        return QUALIFY_JOB_WELL;
    case JOB_CANCELLED:
    case JOB_PREEMPTED:
        return QUALIFY_JOB_CANCELLED;
    }
    /* one that could not be started for want of a partner is kept as failed */
    return started ? QUALIFY_JOB_BAD : QUALIFY_JOB_CANCELLED;
}

static uint32_t exit_status(uint32_t status)
{
    if (WIFSIGNALED(status))
        return (uint32_t)(128 + WTERMSIG(status));
    return (uint32_t)WEXITSTATUS(status);
}

/* The other node that the job ran on. */
static char *partner_in(const char *nodes, const char *node)
{
    hostlist_t *list = nodes && *nodes ? slurm_hostlist_create(nodes) : NULL;
    char *partner = NULL, *name;

    if (!list)
        return NULL;
    while ((name = slurm_hostlist_shift(list))) {
        if (!partner && strcmp(name, node) != 0)
            partner = mem_strdup(name);
        free(name);
    }
    slurm_hostlist_destroy(list);
    return partner;
}

static void take_job(struct qualify_world *w, const slurm_job_info_t *in)
{
    const uint32_t base = in->job_state & JOB_STATE_BASE;
    const bool said = in->admin_comment && *in->admin_comment;
    const bool started = in->nodes && *in->nodes;

    if (!in->name || strcmp(in->name, QUALIFY_JOB) != 0 || !in->req_nodes ||
        !*in->req_nodes)
        return;
    w->jobs[w->n_jobs++] = (struct qualify_job){
        .id = in->job_id,
        .node = mem_strdup(in->req_nodes),
        .instance = mem_strdup(in->comment ? in->comment : ""),
        .partner = partner_in(in->nodes, in->req_nodes),
        .state = job_state(base, started),
        .wants_partner = in->num_nodes > 1 && !started,
        .timed_out = base == JOB_TIMEOUT,
        .node_lost = base == JOB_NODE_FAIL,
        .exit_code = exit_status(in->exit_code),
        .said = mem_strdup(said ? in->admin_comment : NULL),
        .submitted_at = (int64_t)in->submit_time * 1000,
    };
}

/* Slurm sends the jobs of one user: ours, who has hardly any other. */
static int read_jobs(struct qualify_world *w, uint32_t uid, struct err *err)
{
    job_info_msg_t *msg = NULL;

    if (slurm_load_job_user(&msg, uid, SHOW_ALL))
        return ctld_error(errno, "cannot read the jobs of SlurmUser", err);
    if (!msg)
        return err_set(err, -EIO, "cannot read the jobs: slurmctld sent no list");
    w->jobs = mem_calloc(msg->record_count, sizeof(*w->jobs));
    for (uint32_t i = 0; i < msg->record_count; i++)
        take_job(w, &msg->job_array[i]);
    slurm_free_job_info_msg(msg);
    return 0;
}

static int read_world(struct ctld_source *source, struct qualify_world **ret,
                      struct err *err)
{
    _cleanup_(qualify_world_freep) struct qualify_world *w = mem_zalloc(sizeof(*w));
    int r = ctld_source_uid(source, err);

    if (r == 0)
        r = read_reservations(w, err);
    if (r == 0 && w->n_reservations)
        r = read_jobs(w, source->slurm_uid, err);
    if (r < 0)
        return r;
    qualify_world_sort(w);
    *ret = w;
    w = NULL;
    return 0;
}

struct load {
    ctld_qualify_load_cb cb;
    void *userdata;
    struct qualify_world *world;
    int code;
    struct err err;
};

static void load_work(struct ctld_source *source, void *data)
{
    struct load *l = data;

    l->code = read_world(source, &l->world, &l->err);
}

static void load_done(void *data)
{
    struct load *l = data;
    struct qualify_world *world = l->world;

    l->world = NULL;
    l->cb(l->code, world, l->code < 0 ? l->err.text : NULL, l->userdata);
}

static void load_drop(void *data)
{
    struct load *l = data;

    qualify_world_free(l->world);
    free(l);
}

void ctld_qualify_load(struct ctld *c, ctld_qualify_load_cb cb, void *userdata)
{
    struct load *l = mem_zalloc(sizeof(*l));

    l->cb = cb;
    l->userdata = userdata;
    ctld_run(c, load_work, load_done, load_drop, l);
}

/* ---- changing --------------------------------------------------------------------------------- */

/* An action with texts of its own, and what came of it. */
struct change {
    struct qualify_action action;
    char *texts[4];
    uint32_t job;
    int code;
    struct err err;
};

struct batch {
    struct change *changes;
    size_t n;
    int64_t valid_until_ms;
    ctld_qualify_done_cb cb;
    void *userdata;
};

static const struct qualify_reservation *find_reservation(const struct qualify_world *w,
                                                          const char *node)
{
    for (size_t i = 0; i < w->n_reservations; i++) {
        if (strcmp(w->reservations[i].node, node) == 0)
            return &w->reservations[i];
    }
    return NULL;
}

static int reserve(const struct qualify_world *w, const char *node, struct err *err)
{
    _cleanup_(mem_freep) char *name = mem_printf(QUALIFY_RESERVATION "%s", node);
    char user[32], *made;
    resv_desc_msg_t msg;

    if (find_reservation(w, node))
        return 0;
    (void)snprintf(user, sizeof(user), "%u", (unsigned)getuid());
    slurm_init_resv_desc_msg(&msg);
    msg.name = name;
    msg.node_list = (char *)node;
    msg.users = user;
    msg.start_time = time(NULL);
    msg.duration = INFINITE;
    msg.flags = RESERVE_FLAG_MAINT | RESERVE_FLAG_IGN_JOBS | RESERVE_FLAG_FLEX;
    made = slurm_create_reservation(&msg);
    if (!made) {
        int slurm_errno = errno;
        _cleanup_(mem_freep) char *what = mem_printf("cannot make reservation %s", name);

        return slurm_errno == ESLURM_RESERVATION_NAME_DUP
                   ? 0
                   : ctld_error(slurm_errno, what, err);
    }
    free(made);
    return 0;
}

/* The nodes that must not be the partner: reserved ones, ours included, and one that is not believed. */
static char *not_these(const struct qualify_world *w, const struct qualify_action *a)
{
    hostlist_t *list = slurm_hostlist_create(w->others ? w->others : "");
    struct buf names = BUF_INIT(NODES_CAP);
    char *name;

    for (size_t i = 0; i < w->n_reservations; i++)
        (void)slurm_hostlist_push_host(list, w->reservations[i].node);
    if (a->not_with)
        (void)slurm_hostlist_push_host(list, a->not_with);
    while ((name = slurm_hostlist_shift(list))) {
        /* too many: a partner in a reservation of others is no harm */
        if (strcmp(name, a->node) != 0 &&
            buf_printf(&names, "%s%s", names.len ? "," : "", name) < 0)
            buf_clear(&names);
        free(name);
    }
    slurm_hostlist_destroy(list);
    return names.data;
}

static int submit(const struct qualify_world *w, const struct qualify_action *a,
                  uint32_t *ret_job, struct err *err)
{
    static char *environment[] = {
        (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        (char *)"LC_ALL=C.UTF-8"};
    _cleanup_(mem_freep) char *reservation =
        mem_printf(QUALIFY_RESERVATION "%s", a->node);
    _cleanup_(mem_freep) char *text =
        mem_printf(script, QUALIFY_LAUNCH_S, QUALIFY_BOUND_S, QUALIFY_LAUNCH_S);
    _cleanup_(mem_freep) char *except = not_these(w, a);
    submit_response_msg_t *answer = NULL;
    job_desc_msg_t job;

    slurm_init_job_desc_msg(&job);
    job.name = (char *)QUALIFY_JOB;
    job.comment = (char *)a->instance;
    job.partition = (char *)a->partition;
    job.reservation = reservation;
    job.req_nodes = (char *)a->node;
    job.exc_nodes = except && *except ? except : NULL;
    job.min_nodes = a->wants_partner ? 2 : 1;
    job.max_nodes = 2;
    job.min_cpus = job.min_nodes;
    job.ntasks_per_node = 1;
    job.pn_min_memory = JOB_MEMORY_MIB;
    job.time_limit = QUALIFY_MINUTES;
    job.requeue = 0;
    job.script = text;
    job.environment = environment;
    job.env_size = TG_LEN(environment);
    job.work_dir = (char *)"/";
    job.std_in = job.std_out = job.std_err = (char *)"/dev/null";
    job.user_id = getuid();
    job.group_id = getgid();
    if (slurm_submit_batch_job(&job, &answer)) {
        int slurm_errno = errno;
        _cleanup_(mem_freep) char *what =
            mem_printf("cannot submit the job that proves %s", a->node);

        if (a->wants_partner && slurm_errno == ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
            return err_set(err, -EAGAIN, "%s: no other node can be its partner", what);
        return ctld_error(slurm_errno, what, err);
    }
    *ret_job = answer->job_id;
    slurm_free_submit_response_response_msg(answer);
    return 0;
}

/* Only where it is still wanted: nothing of ours waits or runs there. */
static int submit_once(const struct qualify_world *w, struct change *c)
{
    const struct qualify_action *a = &c->action;

    if (!find_reservation(w, a->node))
        return err_set(&c->err, -ESTALE,
                       "there is no reservation " QUALIFY_RESERVATION "%s", a->node);
    for (size_t i = 0; i < w->n_jobs; i++) {
        const struct qualify_job *j = &w->jobs[i];

        if (strcmp(j->node, a->node) == 0 &&
            (j->state == QUALIFY_JOB_WAITS || j->state == QUALIFY_JOB_RUNS))
            return err_set(&c->err, -ESTALE, "job %u proves %s already", j->id, a->node);
    }
    return submit(w, a, &c->job, &c->err);
}

static int cancel(uint32_t job, struct err *err)
{
    char id[16];

    (void)snprintf(id, sizeof(id), "%u", job);
    if (slurm_kill_job2(id, SIGKILL, 0, NULL)) {
        int slurm_errno = errno;
        _cleanup_(mem_freep) char *what = mem_printf("cannot cancel job %u", job);

        if (slurm_errno != ESLURM_ALREADY_DONE && slurm_errno != ESLURM_INVALID_JOB_ID)
            return ctld_error(slurm_errno, what, err);
    }
    return 0;
}

static int release(const struct qualify_world *w, const char *node, struct err *err)
{
    _cleanup_(mem_freep) char *name = mem_printf(QUALIFY_RESERVATION "%s", node);
    reservation_name_msg_t msg = {.name = name};
    _cleanup_(mem_freep) char *what = NULL;

    if (!find_reservation(w, node))
        return 0;
    for (size_t i = 0; i < w->n_jobs; i++) {
        const struct qualify_job *j = &w->jobs[i];
        int r = 0;

        if (strcmp(j->node, node) == 0 &&
            (j->state == QUALIFY_JOB_WAITS || j->state == QUALIFY_JOB_RUNS))
            r = cancel(j->id, err);
        if (r < 0)
            return r;
    }
    if (slurm_delete_reservation(&msg) == SLURM_SUCCESS ||
        errno == ESLURM_RESERVATION_INVALID)
        return 0;
    what = mem_printf("cannot delete reservation %s", name);
    if (errno == ESLURM_RESERVATION_BUSY)
        return err_set(err, -EBUSY, "%s: its job has not ended yet", what);
    return ctld_error(errno, what, err);
}

static int do_change(const struct qualify_world *w, struct change *c)
{
    switch (c->action.verb) {
    case QUALIFY_RESERVE:
        return reserve(w, c->action.node, &c->err);
    case QUALIFY_SUBMIT:
        return submit_once(w, c);
    case QUALIFY_CANCEL:
        return cancel(c->action.job, &c->err);
    case QUALIFY_RELEASE:
        return release(w, c->action.node, &c->err);
    }
    return -EINVAL;
}

static void batch_work(struct ctld_source *source, void *data)
{
    _cleanup_(qualify_world_freep) struct qualify_world *w = NULL;
    struct batch *b = data;
    struct err err = {0};
    int r = read_world(source, &w, &err);

    for (size_t i = 0; i < b->n; i++) {
        struct change *c = &b->changes[i];

        if (r < 0)
            c->code = err_set(&c->err, r, "%s", err.text);
        else if (clock_mono_ms() >= b->valid_until_ms)
            c->code =
                err_set(&c->err, -ECANCELED, "no longer the leader when its turn came");
        else
            c->code = do_change(w, c);
    }
}

static void batch_done(void *data)
{
    struct batch *b = data;
    _cleanup_(mem_freep) struct ctld_qualify_outcome *outcomes =
        mem_calloc(b->n, sizeof(*outcomes));

    for (size_t i = 0; i < b->n; i++) {
        const struct change *c = &b->changes[i];

        outcomes[i] =
            (struct ctld_qualify_outcome){.verb = c->action.verb,
                                          .node = c->action.node,
                                          .job = c->job,
                                          .code = c->code,
                                          .error = c->code < 0 ? c->err.text : NULL};
    }
    b->cb(outcomes, b->n, b->userdata);
}

static void batch_drop(void *data)
{
    struct batch *b = data;

    for (size_t i = 0; i < b->n; i++) {
        for (size_t k = 0; k < TG_LEN(b->changes[i].texts); k++)
            free(b->changes[i].texts[k]);
    }
    free(b->changes);
    free(b);
}

static void copy_action(struct change *to, const struct qualify_action *from)
{
    to->action = *from;
    to->job = from->job;
    to->action.node = to->texts[0] = mem_strdup(from->node);
    to->action.instance = to->texts[1] = mem_strdup(from->instance);
    to->action.partition = to->texts[2] = mem_strdup(from->partition);
    to->action.not_with = to->texts[3] = mem_strdup(from->not_with);
}

void ctld_qualify_do(struct ctld *c, const struct qualify_action *actions, size_t n,
                     int64_t valid_until_ms, ctld_qualify_done_cb cb, void *userdata)
{
    struct batch *b = mem_zalloc(sizeof(*b));

    b->changes = mem_calloc(n, sizeof(*b->changes));
    b->n = n;
    b->valid_until_ms = valid_until_ms;
    b->cb = cb;
    b->userdata = userdata;
    for (size_t i = 0; i < n; i++)
        copy_action(&b->changes[i], &actions[i]);
    ctld_run(c, batch_work, batch_done, batch_drop, b);
}
