// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/munged.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/cred.h"

static void write_key(const char *path)
{
    uint8_t key[64];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(getentropy(key, sizeof(key)), 0);
    assert_int_equal(write(fd, key, sizeof(key)), sizeof(key));
    (void)close(fd);
}

static bool answers(const struct munged *m)
{
    struct buf b = BUF_INIT(4096);
    struct stat st;
    int r = -1;

    if (stat(m->socket, &st) == 0)
        r = cred_encode(m->socket, geteuid(), "x", 1, &b, NULL);
    buf_free(&b);
    return r == 0;
}

void munged_start(struct munged *m)
{
    char key[128], seed[128], pid[128], log[128];

    (void)snprintf(m->dir, sizeof(m->dir), "/tmp/tidegate-munged-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    assert_int_equal(chmod(m->dir, 0755), 0); /* munged wants it so */
    (void)snprintf(m->socket, sizeof(m->socket), "%s/socket", m->dir);
    (void)snprintf(key, sizeof(key), "%s/key", m->dir);
    (void)snprintf(seed, sizeof(seed), "%s/seed", m->dir);
    (void)snprintf(pid, sizeof(pid), "%s/pid", m->dir);
    (void)snprintf(log, sizeof(log), "%s/log", m->dir);
    write_key(key);
    m->pid = fork();
    assert_true(m->pid >= 0);
    if (m->pid == 0) {
        int out = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        (void)dup2(out, STDERR_FILENO);
        (void)dup2(out, STDOUT_FILENO);
        (void)execlp("munged", "munged", "-F", "--key-file", key, "--socket", m->socket,
                     "--seed-file", seed, "--pid-file", pid, "--log-file", log, NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && !answers(m); i++)
        (void)usleep(10000);
    assert_true(answers(m));
}

void munged_stop(struct munged *m)
{
    char command[128];

    (void)kill(m->pid, SIGKILL);
    assert_int_equal(waitpid(m->pid, NULL, 0), m->pid);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", m->dir);
    assert_int_equal(system(command), 0);
}
