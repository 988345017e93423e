// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/children.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/timer.h"

#define EXEC_WAIT_MS 200  /* an exec that takes longer is told by on_end */
#define STUCK_MS     1000 /* after SIGKILL; who has not ended then hangs in the kernel */
#define READ_SIZE    4096
#define READS_MAX                                                                        \
    16 /* at once, as much as a pipe holds: who writes without end must not have the loop */

struct child {
    struct children *children;
    struct child *next;
    pid_t pid;
    void (*on_end)(const struct child_end *end, void *userdata);
    void *userdata;
    bool limited; /* it has a deadline */
    bool timed_out;
    sd_event_source *timer; /* the deadline, then the end of our patience */
    struct buf output;
    int out_fd; /* -1: nothing is captured, or no longer */
    sd_event_source *out;
};

struct children {
    sd_event *event;
    sd_event_source *signal;
    struct child *first;
    uint64_t reaped;
};

/* gcc's analyzer takes descriptors in arrays, and the child's, which stay open on purpose, for lost ones. */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wanalyzer-fd-leak"
#endif

/* ---- ends --------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void child_free(struct child *k)
{
    (void)sd_event_source_disable_unref(k->timer);
    (void)sd_event_source_disable_unref(k->out);
    close_fd(&k->out_fd);
    buf_free(&k->output);
    free(k);
}

static struct child **find(const struct children *c, pid_t pid)
{
    struct child **at = (struct child **)&c->first;

    while (*at && (*at)->pid != pid)
        at = &(*at)->next;
    return at;
}

/* Reads what is there; what does not fit is thrown away, or the child would wait for us. */
static void drain(struct child *k)
{
    char part[READ_SIZE];
    ssize_t n = 1;

    for (int i = 0; i < READS_MAX && n > 0; i++) {
        size_t room = k->output.cap - k->output.len;

        n = read(k->out_fd, part, sizeof(part));
        /* cannot fail: it fits */
        if (n > 0 && buf_add(&k->output, part, (size_t)n < room ? (size_t)n : room) < 0)
            break;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        k->out = sd_event_source_disable_unref(k->out);
        close_fd(&k->out_fd);
    }
}

static int on_output(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
    (void)s;
    (void)fd;
    (void)revents;
    drain(userdata);
    return 0;
}

static void tell(struct child *k, int status, bool stuck)
{
    struct child_end end = {
        .pid = k->pid, .status = status, .timed_out = k->timed_out, .stuck = stuck};
    void (*on_end)(const struct child_end *, void *) = k->on_end;

    if (k->out_fd >= 0)
        drain(k);
    end.output = buf_str(&k->output);
    end.size = k->output.len;
    k->on_end = NULL;
    if (on_end)
        on_end(&end, k->userdata);
}

/* All that have ended: one SIGCHLD may stand for many. What is left of the group of one that had a deadline
 * is killed while its zombie still holds the number. */
static int on_sigchld(sd_event_source *s, const struct signalfd_siginfo *si,
                      void *userdata)
{
    struct children *c = userdata;
    siginfo_t info;

    (void)s;
    (void)si;
    for (;;) {
        struct child **at, *k;
        int status;

        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
            return 0;
        at = find(c, info.si_pid);
        k = *at;
        if (k && k->limited)
            (void)kill(-k->pid, SIGKILL);
        if (waitpid(info.si_pid, &status, 0) < 0)
            return 0;
        if (!k) {
            c->reaped++;
            continue;
        }
        *at = k->next;
        tell(k, status, false);
        child_free(k);
    }
}

/* The deadline; then, when it still has not ended, the end of our patience. It stays in the list
 * until it is reaped. */
static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct child *k = userdata;

    (void)s;
    (void)usec;
    if (!k->timed_out) {
        k->timed_out = true;
        (void)kill(-k->pid, SIGKILL);
        timer_arm(k->timer, clock_mono_ms() + STUCK_MS);
    } else {
        tell(k, SIGKILL, true);
    }
    return 0;
}

/* ---- starting ----------------------------------------------------------------------- */

struct pipes {
    int in;      /* the child's stdin; -1: /dev/null */
    int out[2];  /* -1: nothing is captured */
    int exec[2]; /* the child's errno when it cannot be executed */
};

static void close_pipes(struct pipes *p)
{
    close_fd(&p->in);
    for (int i = 0; i < 2; i++) {
        close_fd(&p->out[i]);
        close_fd(&p->exec[i]);
    }
}

/* A file in memory takes all of the input at once, whatever the child reads of it. */
static int open_input(const struct child_spec *spec)
{
    int fd = memfd_create("input", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (pwrite(fd, spec->input, spec->input_size, 0) != (ssize_t)spec->input_size) {
        (void)close(fd);
        return -ENOSPC;
    }
    return fd;
}

static int open_pipes(const struct child_spec *spec, struct pipes *p)
{
    int error;

    *p = (struct pipes){-1, {-1, -1}, {-1, -1}};
    if (spec->input_size > CHILD_INPUT_MAX)
        return -EMSGSIZE;
    if (spec->input) {
        p->in = open_input(spec);
        if (p->in < 0)
            return p->in;
    }
    if (pipe2(p->exec, O_CLOEXEC) == 0 &&
        (!spec->capture ||
         (pipe2(p->out, O_CLOEXEC) == 0 && fcntl(p->out[0], F_SETFL, O_NONBLOCK) == 0)))
        return 0;
    error = errno;
    close_pipes(p);
    return -error;
}

/* In the child. Only what is allowed between fork and exec of a process with one thread. */

static int set_descriptors(const struct pipes *p)
{
    int in = p->in >= 0 ? p->in : open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (in < 0 || dup2(in, STDIN_FILENO) < 0)
        return -errno;
    if (p->out[1] >= 0 &&
        (dup2(p->out[1], STDOUT_FILENO) < 0 || dup2(p->out[1], STDERR_FILENO) < 0))
        return -errno;
    (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    return 0;
}

static void set_signals(void)
{
    sigset_t none;

    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL); /* of some it cannot be set, and need not */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int set_user(const struct child_spec *spec)
{
    if (!spec->drop)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(spec->gid, spec->gid, spec->gid) < 0 ||
                   setresuid(spec->uid, spec->uid, spec->uid) < 0
               ? -errno
               : 0;
}

static int set_environment(const struct child_spec *spec)
{
    for (const char *const *e = spec->setenv; e && *e; e++) {
        if (putenv((char *)*e) != 0)
            return -ENOMEM;
    }
    return 0;
}

static _Noreturn void run_child(const struct child_spec *spec, const struct pipes *p)
{
    int r;

    (void)setpgid(0, 0);
    set_signals();
    r = set_descriptors(p);
    if (r == 0)
        r = set_environment(spec);
    if (r == 0)
        r = set_user(spec);
    if (r == 0) {
        (void)execvp(spec->argv[0], (char *const *)spec->argv);
        r = -errno;
    }
    if (write(p->exec[1], &r, sizeof(r)) < 0)
        (void)dprintf(STDERR_FILENO, "cannot execute %s: %s\n", spec->argv[0],
                      strerror(-r));
    _exit(CHILD_NO_EXEC);
}

/* 0: it was executed, or that cannot be told in time. */
static int await_exec(const struct pipes *p)
{
    struct pollfd fd = {.fd = p->exec[0], .events = POLLIN};
    int r = 0;

    if (poll(&fd, 1, EXEC_WAIT_MS) <= 0)
        return 0;
    return read(p->exec[0], &r, sizeof(r)) == (ssize_t)sizeof(r) ? r : 0;
}

static int watch(struct child *k, struct pipes *p, int64_t deadline_ms, struct err *err)
{
    int r = 0;

    if (deadline_ms > 0) {
        r = timer_new(k->children->event, on_deadline, k, &k->timer, err);
        if (r < 0)
            return r;
        timer_arm(k->timer, clock_mono_ms() + deadline_ms);
    }
    if (p->out[0] >= 0) {
        k->out_fd = p->out[0];
        p->out[0] = -1;
        r = sd_event_add_io(k->children->event, &k->out, k->out_fd, EPOLLIN, on_output,
                            k);
    }
    return r < 0 ? err_set(err, r, "%s", strerror(-r)) : 0;
}

/* Forks; the pid, or a negative errno when that or the exec failed. */
static pid_t spawn(const struct child_spec *spec, struct pipes *p)
{
    pid_t pid = fork();
    int r;

    if (pid < 0)
        return -errno;
    if (pid == 0)
        run_child(spec, p);
    (void)setpgid(pid, pid); /* whoever of the two comes first */
    close_fd(&p->exec[1]);
    close_fd(&p->out[1]);
    r = await_exec(p);
    if (r == 0)
        return pid;
    (void)waitpid(pid, NULL, 0); /* it has nothing left to do but to exit */
    return r;
}

int child_start(struct children *c, const struct child_spec *spec, pid_t *ret_pid,
                struct err *err)
{
    struct child *k;
    struct pipes p;
    pid_t pid;
    int r = open_pipes(spec, &p);

    if (r < 0)
        return err_set(err, r, "cannot start %s: %s", spec->argv[0], strerror(-r));
    k = mem_zalloc(sizeof(*k));
    *k = (struct child){.children = c, .out_fd = -1, .limited = spec->deadline_ms > 0};
    k->output = BUF_INIT(spec->capture);
    /* before there is a process: what fails from here on is the process itself */
    r = watch(k, &p, spec->deadline_ms, err);
    if (r < 0) {
        close_pipes(&p);
        child_free(k);
        return err_context(err, r, "cannot start %s", spec->argv[0]);
    }
    pid = spawn(spec, &p);
    close_pipes(&p);
    if (pid < 0) {
        child_free(k);
        return err_set(err, pid, "cannot execute %s: %s", spec->argv[0], strerror(-pid));
    }
    k->pid = pid;
    k->on_end = spec->on_end;
    k->userdata = spec->userdata;
    k->next = c->first;
    c->first = k;
    if (ret_pid)
        *ret_pid = pid;
    return 0;
}

/* ---- the rest ----------------------------------------------------------------------- */

void child_kill(struct children *c, pid_t pid, int signal, bool group)
{
    if (pid > 0 && *find(c, pid))
        (void)kill(group ? -pid : pid, signal);
}

void child_forget(struct children *c, pid_t pid)
{
    struct child *k = *find(c, pid);

    if (k)
        k->on_end = NULL;
}

bool child_exists(const struct children *c, pid_t pid)
{
    return *find(c, pid) != NULL;
}

uint64_t children_reaped(const struct children *c)
{
    return c->reaped;
}

struct child_words child_describe(const struct child_end *end)
{
    struct child_words w;
    int status = end->status;

    if (end->timed_out)
        (void)snprintf(w.text, sizeof(w.text), "killed at its deadline%s",
                       end->stuck ? ", and does not even die of that" : "");
    else if (WIFSIGNALED(status))
        (void)snprintf(w.text, sizeof(w.text), "killed by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(w.text, sizeof(w.text), "exit status %d", WEXITSTATUS(status));
    return w;
}

int children_new(sd_event *event, struct children **ret, struct err *err)
{
    struct children *c;
    sigset_t set;
    int r;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return err_set(err, -errno, "cannot become the reaper of orphans: %s",
                       strerror(errno));
    c = mem_zalloc(sizeof(*c));
    c->event = event;
    r = sd_event_add_signal(event, &c->signal, SIGCHLD, on_sigchld, c);
    if (r < 0) {
        free(c);
        return err_set(err, r, "cannot hear of children that end: %s", strerror(-r));
    }
    *ret = c;
    return 0;
}

void children_free(struct children *c)
{
    if (!c)
        return;
    (void)sd_event_source_disable_unref(c->signal);
    while (c->first) {
        struct child *k = c->first;

        c->first = k->next;
        child_free(k);
    }
    free(c);
}
