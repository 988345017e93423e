// SPDX-License-Identifier: GPL-2.0-or-later
/* Reading from slurmctld: nodes, job counts, and their form as the core's values. */
#include <errno.h>
#include <slurm/slurm_errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "codec/ledger.h"
#include "io/ctld_priv.h"

/*
 * slurmctld answers 'no change' by comparing stamps of its own clock. Should that clock
 * go back (a controller that moved to another machine), it would say so for as long as it
 * went back: hence everything is read at least so often.
 */
#define FULL_READ_MS 60000
/* slurmctld can only send all jobs, pending ones too: where that takes long, read them
 * seldom. */
#define JOBS_MAX_SHARE 20

#define SILENT_TEXT    "Not responding"
#define SILENT_SUFFIX  " : " SILENT_TEXT

/* ---- what differs between the releases of libslurm --------------------------------- */

static uint32_t allocated_cpus(const node_info_t *node)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
    return node->alloc_cpus;
#else
    uint16_t n = 0;

    if (!node->select_nodeinfo ||
        slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_SUBCNT,
                                  NODE_STATE_ALLOCATED, &n) != SLURM_SUCCESS)
        return 0;
    return n;
#endif
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define free_conf slurm_free_conf
#else
#define free_conf slurm_free_ctl_conf
#endif

/* ---- errors ------------------------------------------------------------------------ */

int ctld_error(int slurm_errno, const char *what, struct err *err)
{
    int code = -EIO;

    switch (slurm_errno) {
    case SLURM_COMMUNICATIONS_CONNECTION_ERROR:
    case SLURM_COMMUNICATIONS_SEND_ERROR:
    case SLURM_COMMUNICATIONS_RECEIVE_ERROR:
    case SLURM_COMMUNICATIONS_SHUTDOWN_ERROR:
    case SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR:
    case SLURMCTLD_COMMUNICATIONS_SEND_ERROR:
    case SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR:
    case SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR:
    case SLURMCTLD_COMMUNICATIONS_BACKOFF:
    case SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT:
    case SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT:
    case ESLURM_IN_STANDBY_MODE:
    case ETIMEDOUT:
    case ECONNREFUSED:
    case ECONNRESET:
        code = -EHOSTDOWN;
        break;
    case ESLURM_ACCESS_DENIED:
    case ESLURM_USER_ID_MISSING:
        code = -EACCES;
        break;
    }
    return err_set(err, code, "%s: slurmctld: %s (%d)", what, slurm_strerror(slurm_errno),
                   slurm_errno);
}

/* ---- nodes ------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const node_info_t *const *)a)->name,
                  (*(const node_info_t *const *)b)->name);
}

void ctld_prints_clear(struct ctld_prints *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->items[i].name);
    free(p->items);
    *p = (struct ctld_prints){0};
}

void ctld_prints_copy(const struct ctld_prints *from, struct ctld_prints *ret)
{
    ret->n = from->n;
    ret->items = mem_calloc(from->n, sizeof(*ret->items));
    for (size_t i = 0; i < from->n; i++) {
        ret->items[i] = from->items[i];
        ret->items[i].name = mem_strdup(from->items[i].name);
    }
}

static int by_print_name(const void *a, const void *b)
{
    return strcmp(((const struct ctld_print *)a)->name,
                  ((const struct ctld_print *)b)->name);
}

const struct ctld_print *ctld_prints_find(const struct ctld_prints *p, const char *name)
{
    const struct ctld_print wanted = {.name = (char *)name};

    return p->n ? bsearch(&wanted, p->items, p->n, sizeof(wanted), by_print_name) : NULL;
}

static void take_prints(struct ctld_source *s)
{
    ctld_prints_clear(&s->prints);
    s->prints.items = mem_calloc(s->n, sizeof(*s->prints.items));
    for (; s->prints.n < s->n; s->prints.n++) {
        const node_info_t *node = s->by_name[s->prints.n];

        s->prints.items[s->prints.n] = (struct ctld_print){
            .name = mem_strdup(node->name), .fingerprint = ctld_fingerprint(node)};
    }
}

void ctld_source_release(struct ctld_source *s)
{
    slurm_free_node_info_msg(s->nodes);
    s->nodes = NULL;
    free(s->by_name);
    s->by_name = NULL;
    s->n = 0;
}

static bool is_busy(const node_info_t *node)
{
    uint32_t base = node->node_state & NODE_STATE_BASE;

    return base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED ||
           (node->node_state & NODE_STATE_COMPLETING) || allocated_cpus(node) > 0;
}

static void take_nodes(struct ctld_source *s, node_info_msg_t *msg)
{
    ctld_source_release(s);
    s->nodes = msg;
    s->nodes_stamp = msg->last_update;
    s->by_name = mem_resize(s->by_name, msg->record_count, sizeof(*s->by_name));
    s->n = 0;
    /* The table has a place for each of MaxNodeCount; the empty ones have no name. */
    for (uint32_t i = 0; i < msg->record_count; i++) {
        if (msg->node_array[i].name)
            s->by_name[s->n++] = &msg->node_array[i];
    }
    if (s->n)
        qsort(s->by_name, s->n, sizeof(*s->by_name), by_name);
    s->any_busy = false;
    for (size_t i = 0; i < s->n; i++)
        s->any_busy |= is_busy(s->by_name[i]);
    take_prints(s);
    s->changes++;
}

static int read_nodes(struct ctld_source *s, struct err *err)
{
    int64_t now = clock_mono_ms();
    bool full =
        !s->nodes_stamp || s->nodes_full || now - s->nodes_full_at >= FULL_READ_MS;
    node_info_msg_t *msg = NULL;

    s->nodes_full = true; /* until this has gone well */
    if (slurm_load_node(full ? 0 : s->nodes_stamp, &msg, SHOW_ALL | SHOW_MIXED)) {
        if (!full && errno == SLURM_NO_CHANGE_IN_DATA) {
            s->nodes_full = false;
            return 0;
        }
        return ctld_error(errno, "cannot read the nodes", err);
    }
    if (!msg) /* 'success' without an answer must not look like an empty cluster */
        return err_set(err, -EIO, "cannot read the nodes: slurmctld sent no list");
    take_nodes(s, msg);
    s->nodes_full = false;
    if (full) {
        s->nodes_full_at = now;
        s->jobs_stamp = 0;
    }
    return 0;
}

const node_info_t *ctld_source_find(const struct ctld_source *s, const char *name)
{
    const node_info_t wanted = {.name = (char *)name}, *key = &wanted;
    const node_info_t *const *found = NULL;

    if (s->n)
        found = bsearch(&key, s->by_name, s->n, sizeof(*s->by_name), by_name);
    return found ? *found : NULL;
}

/* ---- jobs -------------------------------------------------------------------------- */

static bool holds_nodes(const slurm_job_info_t *job)
{
    uint32_t base = job->job_state & JOB_STATE_BASE;

    return job->nodes && *job->nodes &&
           (base == JOB_RUNNING || base == JOB_SUSPENDED ||
            (job->job_state & JOB_COMPLETING));
}

static void free_jobs(struct ctld_jobs *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(jobs[i].node);
    free(jobs);
}

static void clear_jobs(struct ctld_source *s)
{
    free_jobs(s->jobs, s->n_jobs);
    s->jobs = NULL;
    s->n_jobs = 0;
}

/* Many changes of jobs, as that one more waits, are none of the nodes. */
static bool same_jobs(const struct ctld_source *s, const struct ctld_jobs *jobs, size_t n)
{
    if (s->n_jobs != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(s->jobs[i].node, jobs[i].node) != 0 || s->jobs[i].n != jobs[i].n ||
            s->jobs[i].share < jobs[i].share || s->jobs[i].share > jobs[i].share)
            return false;
    }
    return true;
}

static int by_node(const void *a, const void *b)
{
    return strcmp(((const struct ctld_jobs *)a)->node,
                  ((const struct ctld_jobs *)b)->node);
}

static void add_job(struct ctld_source *s, size_t *size, const char *nodes)
{
    hostlist_t *list = slurm_hostlist_create(nodes);
    double share;
    char *name;

    if (!list)
        return;
    share = 1.0 / slurm_hostlist_count(list);
    while ((name = slurm_hostlist_shift(list))) {
        if (s->n_jobs == *size) {
            *size = *size ? *size * 2 : 64;
            s->jobs = mem_resize(s->jobs, *size, sizeof(*s->jobs));
        }
        s->jobs[s->n_jobs++] = (struct ctld_jobs){.node = name, .n = 1, .share = share};
    }
    slurm_hostlist_destroy(list);
}

static void take_jobs(struct ctld_source *s, const job_info_msg_t *msg)
{
    struct ctld_jobs *before = s->jobs;
    size_t n_before = s->n_jobs, size = 0, kept = 0;

    s->jobs = NULL;
    s->n_jobs = 0;
    for (uint32_t i = 0; i < msg->record_count; i++) {
        if (holds_nodes(&msg->job_array[i]))
            add_job(s, &size, msg->job_array[i].nodes);
    }
    if (s->n_jobs)
        qsort(s->jobs, s->n_jobs, sizeof(*s->jobs), by_node);
    for (size_t i = 0; i < s->n_jobs; i++) {
        if (kept && strcmp(s->jobs[kept - 1].node, s->jobs[i].node) == 0) {
            s->jobs[kept - 1].n++;
            s->jobs[kept - 1].share += s->jobs[i].share;
            free(s->jobs[i].node);
        } else {
            s->jobs[kept++] = s->jobs[i];
        }
    }
    s->n_jobs = kept;
    s->changes += !same_jobs(s, before, n_before);
    free_jobs(before, n_before);
}

static int read_jobs(struct ctld_source *s, struct err *err)
{
    int64_t begin = clock_mono_ms();
    job_info_msg_t *msg = NULL;

    if (!s->any_busy) {
        clear_jobs(s);
        s->jobs_stamp = 0;
        return 0;
    }
    if (begin < s->jobs_not_before)
        return 0;
    if (slurm_load_jobs(s->jobs_stamp, &msg, SHOW_ALL)) {
        if (s->jobs_stamp && errno == SLURM_NO_CHANGE_IN_DATA)
            return 0;
        s->jobs_stamp = 0;
        return ctld_error(errno, "cannot read the jobs", err);
    }
    if (!msg)
        return err_set(err, -EIO, "cannot read the jobs: slurmctld sent no list");
    take_jobs(s, msg);
    s->jobs_stamp = msg->last_update;
    slurm_free_job_info_msg(msg);
    s->jobs_not_before = begin + (clock_mono_ms() - begin) * JOBS_MAX_SHARE;
    return 0;
}

static struct ctld_jobs find_jobs(const struct ctld_source *s, const node_info_t *node)
{
    const struct ctld_jobs wanted = {.node = node->name}, *found = NULL;

    if (s->n_jobs && is_busy(node))
        found = bsearch(&wanted, s->jobs, s->n_jobs, sizeof(*s->jobs), by_node);
    return found ? *found : (struct ctld_jobs){0};
}

/* ---- the whole --------------------------------------------------------------------- */

int ctld_source_uid(struct ctld_source *s, struct err *err)
{
    slurm_conf_t *conf = NULL;

    if (s->slurm_uid_known)
        return 0;
    if (slurm_load_ctl_conf(0, &conf))
        return ctld_error(errno, "cannot read the configuration", err);
    if (!conf)
        return err_set(err, -EIO, "cannot read the configuration: slurmctld sent none");
    s->slurm_uid = conf->slurm_user_id;
    s->slurm_uid_known = true;
    free_conf(conf);
    return 0;
}

int ctld_source_refresh(struct ctld_source *s, struct err *err)
{
    int64_t begin = clock_mono_ms();
    int r = ctld_source_uid(s, err);

    if (r == 0)
        r = read_nodes(s, err);
    if (r == 0)
        r = read_jobs(s, err);
    if (r == 0)
        s->read_at = begin;
    return r;
}

int ctld_source_hold(struct ctld_source *s, struct err *err)
{
    int r = ctld_source_refresh(s, err);

    if (r < 0 || s->nodes)
        return r;
    s->nodes_full = true;
    return ctld_source_refresh(s, err);
}

void ctld_source_clear(struct ctld_source *s)
{
    ctld_source_release(s);
    ctld_prints_clear(&s->prints);
    clear_jobs(s);
    *s = (struct ctld_source){0};
}

/* FNV-1a, which is plenty against chance; nobody gains by a collision. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;

    while (n--)
        h = (h ^ *p++) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t hash_str(uint64_t h, const char *s)
{
    return hash(h, s ? s : "", s ? strlen(s) + 1 : 1);
}

uint64_t ctld_fingerprint(const node_info_t *node)
{
    uint32_t state = node->node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL);
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    if ((node->node_state & NODE_STATE_BASE) == NODE_STATE_DOWN)
        state |= NODE_STATE_DOWN;
    h = hash(h, &state, sizeof(state));
    h = hash(h, &node->reason_uid, sizeof(node->reason_uid));
    h = hash(h, &node->reason_time, sizeof(node->reason_time));
    h = hash_str(h, node->reason);
    h = hash_str(h, node->features);
    return hash_str(h, node->extra);
}

/* ---- as the core's values ---------------------------------------------------------- */

static const char *const base_names[] = {
    [NODE_STATE_UNKNOWN] = "UNKNOWN", [NODE_STATE_DOWN] = "DOWN",
    [NODE_STATE_IDLE] = "IDLE",       [NODE_STATE_ALLOCATED] = "ALLOCATED",
    [NODE_STATE_ERROR] = "ERROR",     [NODE_STATE_MIXED] = "MIXED",
    [NODE_STATE_FUTURE] = "FUTURE",
};

static const struct {
    uint32_t bit;
    const char *name;
} flag_names[] = {
    {NODE_STATE_DRAIN, "DRAIN"},
    {NODE_STATE_FAIL, "FAIL"},
    {NODE_STATE_COMPLETING, "COMPLETING"},
    {NODE_STATE_NO_RESPOND, "NOT_RESPONDING"},
    {NODE_STATE_INVALID_REG, "INVALID_REG"},
    {NODE_STATE_MAINT, "MAINTENANCE"},
    {NODE_STATE_RES, "RESERVED"},
    {NODE_STATE_PLANNED, "PLANNED"},
    {NODE_STATE_BLOCKED, "BLOCKED"},
    {NODE_STATE_CLOUD, "CLOUD"},
    {NODE_STATE_DYNAMIC_NORM, "DYNAMIC_NORM"},
    {NODE_STATE_DYNAMIC_FUTURE, "DYNAMIC_FUTURE"},
    {NODE_STATE_REBOOT_REQUESTED, "REBOOT_REQUESTED"},
    {NODE_STATE_REBOOT_ISSUED, "REBOOT_ISSUED"},
    {NODE_STATE_POWERED_DOWN, "POWERED_DOWN"},
    {NODE_STATE_POWERING_DOWN, "POWERING_DOWN"},
    {NODE_STATE_POWERING_UP, "POWERING_UP"},
};

/* In the form of scontrol; its own function for it is in no header. */
static char *state_text(uint32_t state)
{
    uint32_t base = state & NODE_STATE_BASE;
    struct buf b = BUF_INIT(1024);
    int r = buf_puts(&b, base < TG_LEN(base_names) ? base_names[base] : "UNKNOWN");

    for (size_t i = 0; i < TG_LEN(flag_names) && r == 0; i++) {
        if (state & flag_names[i].bit)
            r = buf_printf(&b, "+%s", flag_names[i].name);
    }
    return b.data;
}

static enum slurm_base base_of(uint32_t state)
{
    switch (state & NODE_STATE_BASE) {
    case NODE_STATE_UNKNOWN:
        return SLURM_BASE_UNKNOWN;
    case NODE_STATE_DOWN:
        return SLURM_BASE_DOWN;
    case NODE_STATE_IDLE:
        return SLURM_BASE_IDLE;
    case NODE_STATE_ALLOCATED:
        return SLURM_BASE_ALLOCATED;
    case NODE_STATE_MIXED:
        return SLURM_BASE_MIXED;
    }
    return SLURM_BASE_OTHER;
}

/*
 * slurmctld cannot take a reason away: on a free node REASON_BLANK stands for none. And
 * when a node falls silent it appends its text to the one that is there, as SlurmUser. On
 * a drained node the text in front is the reason for the drain, whoever set it. On one
 * that is only DOWN it was left over: the node was up, since one that is DOWN already is
 * not set down again.
 */
static char *reason_text(const node_info_t *node, uint32_t slurm_uid)
{
    const char *reason = node->reason ? node->reason : "";
    const size_t suffix = strlen(SILENT_SUFFIX);
    size_t len = strlen(reason);
    bool kept = node->node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL);
    bool held = kept || (node->node_state & NODE_STATE_BASE) == NODE_STATE_DOWN;

    if (!held && strcmp(reason, REASON_BLANK) == 0)
        return NULL;
    if (held && node->reason_uid == slurm_uid && len >= suffix &&
        strcmp(reason + len - suffix, SILENT_SUFFIX) == 0) {
        if (!kept)
            return mem_strdup(SILENT_TEXT);
        len -= suffix;
    }
    return strspn(reason, " \t\n") >= len ? NULL : mem_strndup(reason, len);
}

static void node_value(const struct ctld_source *s, const node_info_t *in,
                       struct slurm_node *ret)
{
    struct ctld_jobs jobs = find_jobs(s, in);
    uint32_t state = in->node_state;

    *ret = (struct slurm_node){
        .name = mem_strdup(in->name),
        .addr = mem_strdup(in->node_addr),
        .port = in->port,
        .base = base_of(state),
        .drain = state & NODE_STATE_DRAIN,
        .fail = state & NODE_STATE_FAIL,
        .not_responding = state & NODE_STATE_NO_RESPOND,
        .invalid_reg = state & NODE_STATE_INVALID_REG,
        .maint = state & NODE_STATE_MAINT,
        .completing = state & NODE_STATE_COMPLETING,
        .rebooting = state & (NODE_STATE_REBOOT_REQUESTED | NODE_STATE_REBOOT_ISSUED),
        .dynamic = state & NODE_STATE_DYNAMIC_NORM,
        .state = state_text(state),
        .reason = reason_text(in, s->slurm_uid),
        .features = mem_strdup(in->features),
        .boot_at = (int64_t)in->boot_time * 1000,
        .sockets = in->sockets,
        .cores = in->cores,
        .threads = in->threads,
        .cpus = in->cpus,
        .memory_mib = in->real_memory,
        .alloc_cpus = allocated_cpus(in),
        .jobs = jobs.n,
        .job_share = jobs.share,
    };
    if (ret->reason) {
        ret->reason_uid = in->reason_uid;
        ret->reason_at = (int64_t)in->reason_time * 1000;
    }
    ledger_parse(in->extra, &ret->extra_state, &ret->ledger, &ret->extra_other);
}

struct slurm_snapshot *ctld_source_snapshot(const struct ctld_source *s)
{
    struct slurm_snapshot *ret = mem_zalloc(sizeof(*ret));

    ret->nodes = mem_calloc(s->n, sizeof(*ret->nodes));
    ret->slurm_uid = s->slurm_uid;
    ret->taken_mono_ms = s->read_at;
    for (; ret->n < s->n; ret->n++)
        node_value(s, s->by_name[ret->n], &ret->nodes[ret->n]);
    return ret;
}
