// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegate-node run: PID 1 of the compute pod. See docs/man/tidegate-node.8. */
#include "app/tidegate-node_run.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "app/tidegate-node.h"
#include "base/clock.h"
#include "base/log.h"
#include "io/local.h"
#include "io/steps.h"

static struct steps look(const struct agent *a)
{
    struct steps s = {.running = 1};
    struct err err;

    if (steps_look("/proc", getpid(), daemons_facts(a->daemons).slurmd_pid, &s, &err) < 0)
        log_error("job steps cannot be counted; taken for some",
                  LOG_STR("error", err.text));
    return s;
}

uint32_t agent_steps(const struct agent *a)
{
    return look(a).running;
}

bool agent_has_processes(const struct agent *a)
{
    struct steps s = look(a);

    return s.running || s.begun;
}

/* An allocation may have no step for a while, on all its nodes or on some. */
bool agent_has_jobs(const struct agent *a)
{
    return a->n_jobs || agent_has_processes(a);
}

void agent_set_phase(struct agent *a, enum agent_phase phase)
{
    static const char *const names[] = {"starting", "up", "stopping", "giving up"};

    a->phase = phase;
    log_info("phase", LOG_STR("phase", names[phase]));
    if (a->link)
        agent_link_heartbeat(a->link);
}

/* ---- the link ----------------------------------------------------------------------- */

static void on_heartbeat(struct agent_heartbeat *ret, void *userdata)
{
    const struct agent *a = userdata;
    struct daemons_facts d = daemons_facts(a->daemons);

    *ret = (struct agent_heartbeat){
        .mono_ms = (uint64_t)clock_mono_ms(),
        .phase = a->phase,
        .slurmd = d.slurmd,
        .slurmd_pid = (uint32_t)d.slurmd_pid,
        .slurmd_restarts = d.restarts,
        .steps = agent_steps(a),
    };
}

static void on_report(struct agent_report *ret, void *userdata)
{
    const struct agent *a = userdata;

    *ret = (struct agent_report){.line = *shape_line(a->shape)};
    if (a->checks)
        ret->checks = (struct check_fact *)checks_failing(a->checks, &ret->n_checks);
}

static void on_asked(const struct agent_asked *asked, void *userdata)
{
    struct agent *a = userdata;

    switch (asked->what) {
    case AGENT_ASK_RESTART_SLURMD:
        log_info("the bridge asks for slurmd to register anew, with a fresh line");
        a->restart_slurmd = true;
        shape_measure(a->shape, true);
        break;
    case AGENT_ASK_RUN_CHECKS:
        if (a->checks)
            checks_run_now(a->checks, asked->arg[0] ? asked->arg : NULL);
        break;
    case AGENT_ASK_STOP:
        stop_begin(a, "the bridge");
        break;
    }
}

static void on_link_change(void *userdata)
{
    stop_look(userdata);
}

static int open_link(struct agent *a, struct err *err)
{
    static const char *greet[3];
    int r;

    if (!a->env.agents) {
        log_info("there is no bridge to report to: TIDEGATE_AGENTS is empty");
        return 0;
    }
    greet[0] = a->program;
    greet[1] = "greet";
    a->link_config = (struct agent_link_config){
        .address = a->env.agents,
        .greet = greet,
        .node = a->env.node,
        .pod_uid = a->env.pod_uid,
        .boot_id = a->boot_id,
        .instance = a->instance,
        .heartbeat = on_heartbeat,
        .report = on_report,
        .asked = on_asked,
        .on_change = on_link_change,
        .userdata = a,
    };
    r = agent_link_new(a->event, a->children, &a->link_config, &a->link, err);
    return r < 0 ? err_context(err, r, "TIDEGATE_AGENTS") : 0;
}

/* ---- slurmd and its line ------------------------------------------------------------ */

static void on_daemon_change(void *userdata)
{
    struct agent *a = userdata;

    if (a->link)
        agent_link_heartbeat(a->link);
}

static void on_line(const struct node_line *line, const char *conf, void *userdata)
{
    struct agent *a = userdata;

    (void)line; /* a report asks for it */
    daemons_slurmd(a->daemons, conf);
    if (a->restart_slurmd)
        daemons_restart_slurmd(a->daemons);
    a->restart_slurmd = false;
    gate_begin(a);
    if (a->link)
        agent_link_report(a->link);
}

/* Nothing runs yet but munged, which ends with this. */
static void on_hopeless(void *userdata)
{
    struct agent *a = userdata;

    log_error("this node cannot take jobs as it is configured; see above");
    (void)sd_event_exit(a->event, EX_CONFIG);
}

/* ---- setting up --------------------------------------------------------------------- */

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si,
                     void *userdata)
{
    (void)s;
    stop_begin(userdata, strsignal((int)si->ssi_signo));
    return 0;
}

/* For a person who has just resized the pod, and does not want to wait. */
static int on_hangup(sd_event_source *s, const struct signalfd_siginfo *si,
                     void *userdata)
{
    const struct agent *a = userdata;

    (void)s;
    (void)si;
    if (a->shape)
        shape_measure(a->shape, false);
    return 0;
}

/* Children get an empty mask again (io/children). */
static int take_signals(struct agent *a, struct err *err)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set;
    int r = 0;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    for (size_t i = 0; i < TG_LEN(signals); i++)
        (void)sigaddset(&set, signals[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    for (size_t i = 0; i < TG_LEN(signals) && r >= 0; i++)
        r = sd_event_add_signal(a->event, NULL, signals[i],
                                signals[i] == SIGHUP ? on_hangup : on_signal, a);
    return r < 0 ? err_set(err, r, "cannot listen to signals: %s", strerror(-r)) : 0;
}

static int read_boot_id(struct agent *a, struct err *err)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, a->boot_id, sizeof(a->boot_id) - 1);
    int error = errno;

    if (fd >= 0)
        (void)close(fd);
    if (n <= 0)
        return err_set(err, -EIO, "/proc/sys/kernel/random/boot_id: %s", strerror(error));
    a->boot_id[n] = '\0';
    a->boot_id[strcspn(a->boot_id, "\n")] = '\0';
    return 0;
}

/* Who this is: the program itself, this boot, and this start. */
static int set_identity(struct agent *a, struct err *err)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    uint64_t random[2];

    if (n <= 0 || n == sizeof(path))
        return err_set(err, -EIO, "/proc/self/exe: %s", strerror(errno));
    a->program = mem_strndup(path, (size_t)n);
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_set(err, -EIO, "no random bytes: %s", strerror(errno));
    (void)snprintf(a->instance, sizeof(a->instance), "%016llx%016llx",
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    return read_boot_id(a, err);
}

static int set_up(struct agent *a, struct err *err)
{
    struct daemons_host daemons = {.env = &a->env,
                                   .on_change = on_daemon_change,
                                   .on_stopped = stop_done,
                                   .userdata = a};
    struct shape_host shape = {
        .env = &a->env, .on_line = on_line, .on_hopeless = on_hopeless, .userdata = a};
    int r = sd_event_default(&a->event);

    if (r < 0)
        return err_set(err, r, "cannot make an event loop: %s", strerror(-r));
    r = take_signals(a, err);
    if (r == 0)
        r = children_new(a->event, &a->children, err);
    if (r == 0)
        r = set_identity(a, err);
    if (r == 0)
        r = stop_prepare(a, err);
    daemons.children = shape.children = a->children;
    shape.program = a->program;
    if (r == 0)
        r = daemons_new(a->event, &daemons, &a->daemons, err);
    if (r == 0)
        r = shape_new(a->event, &shape, &a->shape, err);
    if (r == 0)
        r = open_link(a, err);
    return r < 0 ? r : gate_open(a, err);
}

static void tear_down(struct agent *a)
{
    agent_link_free(a->link);
    gate_close(a);
    shape_free(a->shape);
    daemons_free(a->daemons);
    (void)sd_event_source_disable_unref(a->stop_timer);
    children_free(a->children);
    sd_event_unref(a->event);
    free(a->program);
}

static int exit_status(int r)
{
    switch (r) {
    case -EPERM:
        return EX_NOPERM;
    case -EBUSY:
        return EX_UNAVAILABLE;
    case -EINVAL:
    case -ENOENT:
    case -EACCES:
    case -EBADMSG:
    case -EMSGSIZE:
        return EX_CONFIG;
    default:
        return EX_SOFTWARE;
    }
}

/* A second one in the same container would take munged's socket from the first. Held until the end. */
static int be_alone(struct err *err)
{
    int fd;

    if (mkdir(RUN_DIRECTORY, 0700) < 0 && errno != EEXIST)
        return err_set(err, -errno, "cannot make " RUN_DIRECTORY ": %s", strerror(errno));
    fd = open(RUN_DIRECTORY "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, -errno, "cannot open " RUN_DIRECTORY "/lock: %s",
                       strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, -EBUSY,
                       "an agent runs in this container already, and nothing is started "
                       "beside it; see " TG_NODE_PROGRAM " --help for what can be asked");
    return 0;
}

static int run(struct agent *a, struct err *err)
{
    int r = node_env_read(&a->env, err);

    if (r < 0)
        return r;
    if (getuid() != 0)
        return err_set(
            err, -EPERM,
            "this runs as uid %u, expected 0: slurmd starts jobs as their users",
            getuid());
    r = be_alone(err);
    if (r == 0)
        r = set_up(a, err);
    if (r < 0)
        return r;
    log_info("started", LOG_STR("version", TIDEGATE_VERSION),
             LOG_STR("node", a->env.node), LOG_STR("pool", a->env.pool),
             LOG_STR("instance", a->instance));
    r = sd_event_loop(a->event);
    return r < 0 ? err_set(err, -EIO, "event loop: %s", strerror(-r)) : r;
}

int verb_run(int argc, char **argv)
{
    struct agent a = {.phase = AGENT_STARTING};
    struct err err;
    int status;

    (void)argv;
    log_set_program(TG_NODE_PROGRAM);
    if (argc > 1) {
        log_error("run takes no arguments; see " TG_NODE_PROGRAM "(8)");
        return EX_USAGE;
    }
    /* its configuration and lists of names are most of what this would take up */
    (void)OPENSSL_init_crypto(
        OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ADD_ALL_CIPHERS |
            OPENSSL_INIT_NO_ADD_ALL_DIGESTS | OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS,
        NULL);
    (void)mallopt(M_MMAP_THRESHOLD, 64 * 1024); /* keeps the heap of a long life small */
    status = run(&a, &err);
    if (status < 0) {
        log_error("cannot go on", LOG_STR("error", err.text));
        status = exit_status(status);
    }
    tear_down(&a);
    return status;
}
