// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Processes that a job has left behind: of a user, below the agent, while no slurmstepd runs. Who
 * came in by `kubectl exec` is not below the agent, nor is anybody else's pod where the host's processes can be
 * seen (hostPID).
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "app/tidegate-node.h"
#include "app/tidegate-node_check.h"
#include "base/buf.h"

/* Debian's own range for daemons (slurm and munge have their uids there), and nobody. */
#define SYSTEM_UID_FIRST 60000
#define SYSTEM_UID_LAST  65535

#define PROCESSES_MAX    1048576
#define DEPTH_MAX                                                                        \
    1000 /* of parents; the list is not taken at one moment and may have a loop */
#define TOLD_MAX 3
#define DYING_MS 500

struct process {
    pid_t pid, parent;
    int64_t uid;
    char state;
    char name[32];
};

struct processes {
    struct process *items; /* by pid */
    size_t n;
    pid_t agent;
};

/* ---- the list ------------------------------------------------------------------------ */

static bool read_process(const struct check_call *c, pid_t pid, struct process *ret)
{
    _cleanup_(mem_freep) char *path = check_path(c, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    char line[256];
    long long uid = -1;

    if (!f)
        return false; /* it has ended meanwhile */
    *ret = (struct process){.pid = pid};
    while (fgets(line, sizeof(line), f)) {
        (void)sscanf(line, "Name: %31[^\n]", ret->name);
        (void)sscanf(line, "State: %c", &ret->state);
        (void)sscanf(line, "PPid: %d", &ret->parent);
        if (sscanf(line, "Uid: %lld", &uid) == 1)
            break;
    }
    (void)fclose(f);
    ret->uid = uid;
    return uid >= 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct process *find(const struct processes *all, pid_t pid)
{
    const struct process key = {.pid = pid};

    return all->n ? bsearch(&key, all->items, all->n, sizeof(key), by_pid) : NULL;
}

static bool read_all(const struct check_call *c, struct processes *ret)
{
    _cleanup_(mem_freep) char *path = check_path(c, "/proc");
    DIR *d = opendir(path);
    size_t size = 0;
    const struct dirent *e;

    if (!d)
        return false;
    while ((e = readdir(d)) && ret->n < PROCESSES_MAX) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);

        if (pid <= 0 || *end)
            continue;
        if (ret->n == size) {
            size = size ? 2 * size : 256;
            ret->items = mem_resize(ret->items, size, sizeof(*ret->items));
        }
        ret->n += read_process(c, (pid_t)pid, &ret->items[ret->n]);
    }
    (void)closedir(d);
    if (ret->n)
        qsort(ret->items, ret->n, sizeof(*ret->items), by_pid);
    return true;
}

/* Names in /proc are cut at 15 bytes, ours and slurmstepd are shorter. */
static bool is_named(const struct process *p, const char *name)
{
    return p && strcmp(p->name, name) == 0;
}

static bool is_below(const struct processes *all, const struct process *p, pid_t ancestor)
{
    for (int i = 0; p && i < DEPTH_MAX; i++) {
        if (p->parent == ancestor)
            return true;
        p = find(all, p->parent);
    }
    return false;
}

/* Any program may call itself so, but not as root. */
static bool is_of_slurm(const struct process *p, const char *name)
{
    return is_named(p, name) && p->uid == 0;
}

/* ---- judging ------------------------------------------------------------------------- */

/* What slurmd runs is a prolog or epilog at work, also as a user; what is left by one goes to the agent. */
static bool is_below_slurmd(const struct processes *all, const struct process *p)
{
    for (int i = 0; p && i < DEPTH_MAX; i++) {
        p = find(all, p->parent);
        if (is_of_slurm(p, "slurmd"))
            return true;
    }
    return false;
}

static bool is_leftover(const struct processes *all, const struct process *p,
                        int64_t min_uid)
{
    return p->state != 'Z' && p->uid >= min_uid &&
           (p->uid < SYSTEM_UID_FIRST || p->uid > SYSTEM_UID_LAST) &&
           is_below(all, p, all->agent) && !is_below_slurmd(all, p);
}

static bool a_job_runs(const struct processes *all)
{
    for (size_t i = 0; i < all->n; i++) {
        if (is_of_slurm(&all->items[i], "slurmstepd"))
            return true;
    }
    return false;
}

static size_t count_zombies(const struct processes *all)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        n += all->items[i].state == 'Z' && is_below(all, &all->items[i], all->agent);
    return n;
}

/* By a descriptor of the process, looked at once more: its number may be another's by now. */
static void end_process(const struct check_call *c, const struct process *p)
{
    int fd = pidfd_open(p->pid, 0);
    struct process now;

    if (fd < 0)
        return;
    if (read_process(c, p->pid, &now) && now.uid == p->uid && now.parent == p->parent)
        (void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
    (void)close(fd);
}

/* Takes the list and judges it; how many there are, the first few as text. */
static bool look(const struct check_call *c, pid_t agent, int64_t min_uid, bool end,
                 size_t *ret_n, size_t *ret_zombies, struct buf *told)
{
    struct processes all = {.agent = agent};
    bool good = read_all(c, &all), busy = good && a_job_runs(&all);

    *ret_n = 0;
    *ret_zombies = good ? count_zombies(&all) : 0;
    buf_clear(told);
    for (size_t i = 0; i < all.n && !busy; i++) {
        const struct process *p = &all.items[i];

        if (!is_leftover(&all, p, min_uid))
            continue;
        if (end)
            end_process(c, p);
        /* cannot fail: few and short */
        if ((*ret_n)++ < TOLD_MAX &&
            buf_printf(told, "%s%d %s (uid %lld)", told->len ? ", " : "", (int)p->pid,
                       p->name, (long long)p->uid) < 0)
            break;
    }
    free(all.items);
    return good;
}

/* PID 1 where that is the agent, else whoever has started this check. */
static pid_t find_agent(const struct check_call *c)
{
    struct process first;

    return read_process(c, 1, &first) && is_named(&first, TG_NODE_PROGRAM) ? 1
                                                                           : getppid();
}

int check_leftovers(struct check_call *c)
{
    int64_t min_uid = 1000, max_zombies = 20;
    bool end = false;
    const struct check_option options[] = {
        {"--min-uid", .number = &min_uid},
        {"--max-zombies", .number = &max_zombies},
        {"--kill", .flag = &end},
        {0},
    };
    const struct timespec dying = {.tv_nsec = DYING_MS * 1000000L};
    struct buf told = BUF_INIT(1024), still = BUF_INIT(1024);
    size_t n, left, zombies;
    bool good;
    pid_t agent;
    int r = check_read_only_options(c, options);

    if (r)
        return r;
    agent = find_agent(c);
    good = look(c, agent, min_uid, end, &n, &zombies, &told);
    left = n;
    if (good && n && end) {
        (void)nanosleep(&dying, NULL);
        good = look(c, agent, min_uid, false, &left, &zombies, &still);
    }
    if (!good)
        r = check_failed(
            "the list of processes cannot be read: %s, expected /proc: mount it",
            strerror(errno));
    else if (left && end)
        r = check_failed("%zu processes of users are left with no job and do not die: "
                         "%.80s; expected none: "
                         "look what they hang on, then reboot the node",
                         left, buf_str(&still));
    else if (left)
        r = check_failed("%zu processes of users are left with no job: %.90s; expected "
                         "none: end them, or "
                         "give the check --kill",
                         left, buf_str(&told));
    else if (zombies > (size_t)max_zombies)
        r = check_failed("%zu zombies are left, expected at most %lld: their parent does "
                         "not wait for them; "
                         "find it by ps and restart it",
                         zombies, (long long)max_zombies);
    else if (n)
        r = check_good("%zu processes with no job were killed: %.90s", n, buf_str(&told));
    else
        r = check_good("no process is left with no job, %zu zombies", zombies);
    buf_free(&told);
    buf_free(&still);
    return r;
}
