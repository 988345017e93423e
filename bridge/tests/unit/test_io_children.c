// SPDX-License-Identifier: GPL-2.0-or-later
/* io/children against real processes. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/children.h"

struct fixture {
    sd_event *event;
    struct children *children;
    int ends;
    int status;
    bool timed_out, stuck;
    char output[8192];
    size_t size;
    char words[96];
};

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    assert_true(sd_event_new(&f->event) >= 0);
    assert_int_equal(children_new(f->event, &f->children, NULL), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    children_free(f->children);
    sd_event_unref(f->event);
    free(f);
    return 0;
}

static void on_end(const struct child_end *end, void *userdata)
{
    struct fixture *f = userdata;

    f->ends++;
    f->status = end->status;
    f->timed_out = end->timed_out;
    f->stuck = end->stuck;
    f->size = end->size;
    (void)snprintf(f->output, sizeof(f->output), "%s", end->output);
    (void)snprintf(f->words, sizeof(f->words), "%s", child_describe(end).text);
}

static pid_t start(struct fixture *f, struct child_spec spec)
{
    pid_t pid = 0;
    struct err err = {0};

    spec.on_end = on_end;
    spec.userdata = f;
    f->ends = 0;
    assert_int_equal(child_start(f->children, &spec, &pid, &err), 0);
    assert_true(pid > 0);
    assert_int_equal(f->ends, 0);
    return pid;
}

/* Runs the loop until `*what` is at least `want`. */
static void run_until(struct fixture *f, const int *what, int want)
{
    int64_t end = clock_mono_ms() + 10000;

    while (*what < want) {
        assert_true(clock_mono_ms() < end);
        assert_true(sd_event_run(f->event, 50000) >= 0);
    }
}

#define ARGV(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define SHELL(cmd) ARGV("sh", "-c", cmd)

static void test_status_and_output(void **state)
{
    struct fixture *f = *state;

    start(f, (struct child_spec){.argv = SHELL("echo out; echo err >&2; exit 3"),
                                 .capture = 100});
    run_until(f, &f->ends, 1);
    assert_true(WIFEXITED(f->status));
    assert_int_equal(WEXITSTATUS(f->status), 3);
    assert_string_equal(f->output, "out\nerr\n");
    assert_string_equal(f->words, "exit status 3");
    assert_false(f->timed_out);
}

static void test_signal_is_told(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start(f, (struct child_spec){.argv = ARGV("sleep", "100")});

    assert_true(child_exists(f->children, pid));
    child_kill(f->children, pid, SIGTERM, false);
    run_until(f, &f->ends, 1);
    assert_true(WIFSIGNALED(f->status));
    assert_string_equal(f->words, "killed by signal 15 (Terminated)");
    assert_false(child_exists(f->children, pid));
    child_kill(f->children, pid, SIGTERM, true); /* nobody: nothing happens */
}

/* Neither a flood nor binary bytes nor a cap make the child wait. */
static void test_output_is_cut_at_the_cap(void **state)
{
    struct fixture *f = *state;

    start(f, (struct child_spec){.argv = SHELL("head -c 1000000 /dev/zero | tr '\\0' x"),
                                 .capture = 4000});
    run_until(f, &f->ends, 1);
    assert_int_equal(f->status, 0);
    assert_int_equal(f->size, 4000);
    assert_int_equal(strlen(f->output), 4000);
}

/* One that writes faster than it can be read takes the loop's turns, but not the loop: its deadline comes. */
static void test_a_flood_without_end(void **state)
{
    struct fixture *f = *state;
    int64_t began = clock_mono_ms();

    start(f, (struct child_spec){.argv = SHELL("yes & yes & yes & yes & exec yes"),
                                 .capture = 4000,
                                 .deadline_ms = 300});
    run_until(f, &f->ends, 1);
    assert_true(f->timed_out);
    assert_in_range(clock_mono_ms() - began, 300, 9000);
    /* its last words are read when it ends: of one that has left its group, too */
    start(f, (struct child_spec){.argv = SHELL("setsid yes & setsid yes & sleep 0.2"),
                                 .capture = 4000,
                                 .deadline_ms = 9000});
    run_until(f, &f->ends, 1);
    assert_false(f->timed_out);
    assert_int_equal(f->size, 4000);
}

static void test_input(void **state)
{
    struct fixture *f = *state;
    static char big[CHILD_INPUT_MAX + 1];
    struct child_spec spec = {.argv = ARGV("wc", "-c"), .input = big, .capture = 100};
    struct err err;

    memset(big, 'x', sizeof(big));
    spec.input_size = CHILD_INPUT_MAX;
    start(f, spec);
    run_until(f, &f->ends, 1);
    assert_string_equal(f->output, "65536\n");
    /* one that does not read it */
    spec.argv = ARGV("true");
    start(f, spec);
    run_until(f, &f->ends, 1);
    assert_int_equal(f->status, 0);
    spec.input_size++;
    assert_int_equal(child_start(f->children, &spec, NULL, &err), -EMSGSIZE);
}

static void test_no_input_is_an_empty_one(void **state)
{
    struct fixture *f = *state;

    start(f, (struct child_spec){.argv = SHELL("cat; echo end"), .capture = 100});
    run_until(f, &f->ends, 1);
    assert_string_equal(f->output, "end\n");
}

static void test_environment(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(setenv("TIDEGATE_TEST_A", "ours", 1), 0);
    assert_int_equal(setenv("TIDEGATE_TEST_C", "ours", 1), 0);
    start(f, (struct child_spec){
                 .argv = SHELL(
                     "echo $TIDEGATE_TEST_A,$TIDEGATE_TEST_B,${TIDEGATE_TEST_C-none}"),
                 .setenv = ARGV("TIDEGATE_TEST_A=theirs", "TIDEGATE_TEST_B=b",
                                "TIDEGATE_TEST_C"),
                 .capture = 100});
    run_until(f, &f->ends, 1);
    assert_string_equal(f->output, "theirs,b,none\n");
    assert_string_equal(getenv("TIDEGATE_TEST_A"), "ours");
}

static void test_what_cannot_be_executed(void **state)
{
    struct fixture *f = *state;
    struct err err;

    assert_int_equal(child_start(f->children,
                                 &(struct child_spec){.argv = ARGV("/nonexistent/x"),
                                                      .on_end = on_end,
                                                      .userdata = f},
                                 NULL, &err),
                     -ENOENT);
    assert_string_equal(err.text,
                        "cannot execute /nonexistent/x: No such file or directory");
    assert_int_equal(
        child_start(f->children,
                    &(struct child_spec){.argv = ARGV("/etc/passwd"), .capture = 10},
                    NULL, &err),
        -EACCES);
    assert_true(sd_event_run(f->event, 100000) >= 0);
    assert_int_equal(f->ends, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
}

/* The whole group ends at the deadline, also who ignores SIGTERM. */
static void test_deadline(void **state)
{
    struct fixture *f = *state;
    int64_t begin = clock_mono_ms();
    pid_t pid = start(
        f, (struct child_spec){.argv = SHELL("trap '' TERM; echo x; sleep 100 & wait"),
                               .capture = 10,
                               .deadline_ms = 300});

    run_until(f, &f->ends, 1);
    assert_true(f->timed_out);
    assert_false(f->stuck);
    assert_true(clock_mono_ms() - begin >= 300);
    assert_string_equal(f->output, "x\n");
    assert_string_equal(f->words, "killed at its deadline");
    while (kill(-pid, 0) == 0) { /* orphans are ours, and reaped */
        assert_true(clock_mono_ms() - begin < 10000);
        assert_true(sd_event_run(f->event, 50000) >= 0);
    }
}

/* Who ends in time does not leave a sleeper behind, nor wait for it. */
static void test_what_is_left_of_the_group(void **state)
{
    struct fixture *f = *state;
    int64_t begin = clock_mono_ms();
    pid_t pid = start(f, (struct child_spec){.argv = SHELL("sleep 100 & echo done"),
                                             .capture = 10,
                                             .deadline_ms = 50000});

    run_until(f, &f->ends, 1);
    assert_false(f->timed_out);
    assert_string_equal(f->output, "done\n");
    while (kill(-pid, 0) == 0) {
        assert_true(clock_mono_ms() - begin < 10000);
        assert_true(sd_event_run(f->event, 50000) >= 0);
    }
}

static void test_orphans_are_reaped(void **state)
{
    struct fixture *f = *state;
    int64_t limit = clock_mono_ms() + 10000;

    start(f, (struct child_spec){
                 .argv = SHELL(
                     "i=0; while [ $i -lt 50 ]; do (sleep 0.1 &); i=$((i+1)); done")});
    while (children_reaped(f->children) < 50) {
        assert_true(clock_mono_ms() < limit);
        assert_true(sd_event_run(f->event, 50000) >= 0);
    }
    assert_int_equal(f->ends, 1);
    assert_int_equal(children_reaped(f->children), 50);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_forgotten(void **state)
{
    struct fixture *f = *state;
    int64_t limit = clock_mono_ms() + 10000;
    pid_t pid = start(f, (struct child_spec){.argv = ARGV("true")});

    child_forget(f->children, pid);
    while (child_exists(f->children, pid)) {
        assert_true(clock_mono_ms() < limit);
        assert_true(sd_event_run(f->event, 50000) >= 0);
    }
    assert_int_equal(f->ends, 0);
    assert_int_equal(children_reaped(f->children), 0);
}

/* A signal mask, ignored signals and descriptors of the loop are not handed down. */
static void test_child_gets_a_clean_slate(void **state)
{
    struct fixture *f = *state;

    (void)signal(SIGPIPE, SIG_IGN);
    start(
        f,
        (struct child_spec){
            /* 32 and 33 are glibc's own: who ignores them hands that on, whatever a program does */
            .argv = SHELL("grep -E '^Sig(Blk|Ign)' /proc/self/status | "
                          "sed 's/[01][08]0000000$/000000000/'; ls /proc/$$/fd"),
            .capture = 1000});
    run_until(f, &f->ends, 1);
    assert_string_equal(f->output,
                        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
                        "0\n1\n2\n");
    (void)signal(SIGPIPE, SIG_DFL);
}

static void test_user(void **state)
{
    struct fixture *f = *state;

    if (getuid() != 0) /* only root can; the toolbox is */
        fail_msg("this test must run as root, as all of them do in the toolbox");
    start(f, (struct child_spec){.argv = SHELL("id -u; id -g; id -G"),
                                 .drop = true,
                                 .uid = 1000,
                                 .gid = 1000,
                                 .capture = 100});
    run_until(f, &f->ends, 1);
    assert_string_equal(f->output, "1000\n1000\n1000\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_status_and_output, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_signal_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_is_cut_at_the_cap, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_flood_without_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_input, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_input_is_an_empty_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_environment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_executed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deadline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_left_of_the_group, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_orphans_are_reaped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_child_gets_a_clean_slate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_user, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
