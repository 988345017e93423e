// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME     " (slurmstepd) " /* behind the pid */
#define STAT_MAX 64 /* bytes of stat: pid, name, state and parent stand within */

/* Whether /proc/PID/stat tells of such a one; one that has gone in the meantime is none. */
static int is_step(int proc, const char *pid, pid_t parent, bool *ret)
{
    char path[32], text[STAT_MAX + 1], state = 'Z';
    const char *name;
    int fd, of = 0;
    ssize_t n;

    *ret = false;
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
    name = text + strspn(text, "0123456789");
    if (strncmp(name, NAME, strlen(NAME)) == 0 &&
        sscanf(name + strlen(NAME), "%c %d", &state, &of) == 2)
        *ret = of == parent && state != 'Z' && state != 'X';
    return 0;
}

int steps_count(const char *proc, pid_t parent, uint32_t *ret, struct err *err)
{
    DIR *dir = opendir(proc);
    const struct dirent *e;
    uint32_t count = 0;
    int r = dir ? 0 : -errno;

    while (r == 0 && (errno = 0, e = readdir(dir))) {
        bool found = false;

        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            r = is_step(dirfd(dir), e->d_name, parent, &found);
        count += found;
    }
    if (r == 0)
        r = -errno;
    if (dir)
        (void)closedir(dir);
    if (r < 0)
        return err_set(err, r, "the processes in %s cannot be read: %s", proc,
                       strerror(-r));
    *ret = count;
    return 0;
}
