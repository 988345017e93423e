// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/steps.h"

static char proc[] = "/tmp/test-steps-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(proc));
    return 0;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r %s", proc);
    assert_int_equal(system(command), 0);
    return 0;
}

static void write_file(const char *pid, const char *name, const char *text)
{
    char path[64];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s/%s", proc, pid, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void add_as(const char *pid, const char *stat, unsigned uid)
{
    char path[64], status[128];

    (void)snprintf(path, sizeof(path), "%s/%s", proc, pid);
    assert_int_equal(mkdir(path, 0700), 0);
    if (!stat)
        return;
    write_file(pid, "stat", stat);
    (void)snprintf(status, sizeof(status),
                   "Name:\tUid:\t0\nState:\tS (sleeping)\nUid:\t%u\t0\t0\t0\nGid:\t0\n",
                   uid);
    write_file(pid, "status", status);
}

static void add(const char *pid, const char *stat)
{
    add_as(pid, stat, 0);
}

static void test_who_counts(void **state)
{
    struct steps s;

    (void)state;
    add("1",
        "1 (tidegate-node) S 0 1 1 0 -1 4194560 695 0 1 0 0 0 0 0 20 0 15 0 1263530\n");
    add("10", "10 (slurmd) S 1 10 10 0 -1\n");
    add("530", "530 (slurmstepd) S 1 529 529 0 -1 4194560 695 0 1 0 0 0 0 0 20 0 15 0\n");
    add("531", "531 (slurmstepd) R 1 529 529 0 -1\n");
    add("532", "532 (slurmstepd) S 530 529 529 0 -1\n"); /* of a step's own */
    add("533", "533 (slurmstepd) Z 1 529 529 0 -1\n");
    add("534", "534 (slurmstepd) S 10 529 529 0 -1\n"); /* slurmd has not let it go yet */
    add("535", "535 (my (slurmstepd) S 1) S 7 1 1 0 -1\n");
    add("536", NULL); /* gone */
    /* a user's program by that name, whose parent has gone */
    add_as("537", "537 (slurmstepd) S 1 537 537 0 -1\n", 1000);
    add("self", "530 (slurmstepd) S 1 529 529 0 -1\n");
    add("540", "540 (prolog) S 10 10 10 0 -1\n");
    add("541", "541 (prolog) Z 10 10 10 0 -1\n");
    assert_int_equal(steps_look(proc, 1, 10, &s, NULL), 0);
    assert_int_equal(s.running, 2);
    assert_int_equal(s.begun, 2);
    assert_int_equal(steps_look(proc, 1, 0, &s, NULL), 0);
    assert_int_equal(s.begun, 0);
}

static void test_what_cannot_be_read_is_not_none(void **state)
{
    struct err err;
    struct steps s = {.running = 99};

    (void)state;
    assert_int_equal(steps_look("/nonexistent", 1, 10, &s, &err), -ENOENT);
    assert_string_equal(err.text, "the processes in /nonexistent cannot be read: No such "
                                  "file or directory");
    assert_int_equal(s.running, 99);
}

/* A real process of that name, and one of a user. */
static void test_real(void **state)
{
    struct steps s;
    pid_t pid, user;

    (void)state;
    assert_int_equal(steps_look("/proc", getpid(), 0, &s, NULL), 0);
    assert_int_equal(s.running, 0);
    user = fork();
    assert_true(user >= 0);
    if (user == 0) {
        if (setresuid(1000, 1000, 1000) < 0)
            _exit(1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "slurmstepd");
        (void)prctl(PR_SET_DUMPABLE, 0); /* root owns its files in /proc, then */
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(user, NULL, WUNTRACED), user);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_NAME, "slurmstepd");
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    assert_int_equal(steps_look("/proc", getpid(), 0, &s, NULL), 0);
    assert_int_equal(s.running, 1);
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_int_equal(steps_look("/proc", getpid(), 0, &s, NULL), 0); /* a zombie */
    assert_int_equal(s.running, 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)kill(user, SIGKILL);
    assert_int_equal(waitpid(user, NULL, 0), user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_counts),
        cmocka_unit_test(test_what_cannot_be_read_is_not_none),
        cmocka_unit_test(test_real),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
