// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME       "(slurmstepd)"
#define STAT_MAX   64   /* bytes of stat: pid, name, state and parent stand within */
#define STATUS_MAX 1024 /* bytes of status: the uids stand within */

struct process {
    bool is_step; /* by its name */
    pid_t parent; /* 0: it is a zombie, or has gone */
};

/* By /proc/PID/stat, "530 (slurmstepd) S 1 ...". A name may have blanks and parentheses. */
static int read_process(int proc, const char *pid, struct process *ret)
{
    char path[32], text[STAT_MAX + 1], state = 'Z';
    const char *name, *end;
    int fd, parent = 0;
    ssize_t n;

    *ret = (struct process){0};
    (void)snprintf(path, sizeof(path), "%.20s/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    n = read(fd, text, STAT_MAX);
    if (n < 0)
        n = errno == ESRCH ? 0 : -errno;
    (void)close(fd);
    if (n < 0)
        return (int)n;
    text[n] = '\0';
    name = strchr(text, '(');
    end = strrchr(text, ')');
    if (!name || !end || sscanf(end + 1, " %c %d", &state, &parent) != 2)
        return 0;
    ret->is_step = strncmp(name, NAME, (size_t)(end - name) + 1) == 0;
    ret->parent = state == 'Z' || state == 'X' ? 0 : parent;
    return 0;
}

/* Any program may call itself so, but not as root. What cannot be told is taken for a step. */
static bool is_roots(int proc, const char *pid)
{
    char path[32], text[STATUS_MAX + 1];
    const char *at;
    unsigned uid = 0;
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "%.20s/status", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    n = read(fd, text, STATUS_MAX);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strstr(text, "\nUid:\t");
    return !at || sscanf(at, "\nUid:\t%u", &uid) != 1 || uid == 0;
}

static int look(DIR *dir, pid_t pid1, pid_t slurmd, struct steps *ret)
{
    const struct dirent *e;
    int fd = dirfd(dir), r = fd < 0 ? -errno : 0;

    while (r == 0 && (errno = 0, e = readdir(dir))) {
        struct process p = {0};

        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            r = read_process(fd, e->d_name, &p);
        ret->running += p.is_step && p.parent == pid1 && is_roots(fd, e->d_name);
        ret->begun += slurmd && p.parent == slurmd;
    }
    return r < 0 ? r : -errno;
}

int steps_look(const char *proc, pid_t pid1, pid_t slurmd, struct steps *ret,
               struct err *err)
{
    DIR *dir = opendir(proc);
    struct steps found = {0};
    int r = dir ? look(dir, pid1, slurmd, &found) : -errno;

    if (dir)
        (void)closedir(dir);
    if (r < 0)
        return err_set(err, r, "the processes in %s cannot be read: %s", proc,
                       strerror(-r));
    *ret = found;
    return 0;
}
