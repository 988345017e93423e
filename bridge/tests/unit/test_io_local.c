// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/local.h"

#define MANY 300 /* more than are taken at once */

struct fixture {
    sd_event *event;
    char directory[32], path[64];
    struct local *local;
    struct local_question asked;
    uint64_t ids[MANY];
    size_t n;
    const char *no; /* answer at once: with this sentence, or yes */
    bool at_once;
};

static void on_question(uint64_t id, const struct local_question *q, void *userdata)
{
    struct fixture *f = userdata;

    f->asked = *q;
    f->ids[f->n++] = id;
    if (f->at_once)
        local_answer(f->local, id, !f->no, f->no);
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    strcpy(f->directory, "/tmp/test-local-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    (void)snprintf(f->path, sizeof(f->path), "%s/run/agent.sock", f->directory);
    assert_true(sd_event_new(&f->event) >= 0);
    assert_int_equal(local_new(f->event, f->path, on_question, f, &f->local, NULL), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char run[64];

    local_free(f->local);
    sd_event_unref(f->event);
    (void)snprintf(run, sizeof(run), "%s/run", f->directory);
    (void)unlink(f->path);
    (void)rmdir(run);
    assert_int_equal(rmdir(f->directory), 0);
    free(f);
    return 0;
}

/* A process that asks; its exit status: 0 yes, 1 no, else the errno. The sentence goes to `fd`. */
static pid_t ask_as(const struct fixture *f, uid_t uid, int64_t timeout_ms, int fd)
{
    struct local_question q = {.what = LOCAL_PROLOG, .job = 4711, .uid = 1000};
    struct local_reply reply;
    pid_t pid = fork();
    int r;

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (setresuid(uid, uid, uid) < 0)
        _exit(99);
    r = local_ask(f->path, &q, timeout_ms, &reply, NULL);
    if (r == 0 && fd >= 0 && write(fd, reply.text, strlen(reply.text)) < 0)
        _exit(98);
    _exit(r < 0 ? -r : reply.yes ? 0 : 1);
}

/* Runs the loop until the process has ended. */
static int status_of(struct fixture *f, pid_t pid)
{
    int64_t end = clock_mono_ms() + 10000;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        assert_true(clock_mono_ms() < end);
        assert_true(sd_event_run(f->event, 20000) >= 0);
    }
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_yes(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    f->at_once = true;
    assert_int_equal(status_of(f, ask_as(f, geteuid(), 5000, -1)), 0);
    assert_int_equal(f->asked.what, LOCAL_PROLOG);
    assert_int_equal(f->asked.job, 4711);
    assert_int_equal(f->asked.uid, 1000);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    *strrchr(f->path, '/') = '\0';
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    f->path[strlen(f->path)] = '/';
}

static void test_no_with_a_sentence(void **state)
{
    struct fixture *f = *state;
    char text[300] = "";
    int p[2];

    assert_int_equal(pipe(p), 0);
    f->at_once = true;
    f->no = "the slurmd pod is being stopped";
    assert_int_equal(status_of(f, ask_as(f, geteuid(), 5000, p[1])), 1);
    assert_int_equal(read(p[0], text, sizeof(text) - 1), strlen(f->no));
    assert_string_equal(text, f->no);
    (void)close(p[0]);
    (void)close(p[1]);
}

static void test_a_late_answer(void **state)
{
    struct fixture *f = *state;
    pid_t pid = ask_as(f, geteuid(), 5000, -1);
    int64_t later;

    while (f->n == 0)
        assert_true(sd_event_run(f->event, 1000000) >= 0);
    later = clock_mono_ms() + 100;
    while (clock_mono_ms() < later)
        assert_true(sd_event_run(f->event, 20000) >= 0);
    local_answer(f->local, f->ids[0], true, NULL);
    assert_int_equal(status_of(f, pid), 0);
}

static void test_release(void **state)
{
    struct fixture *f = *state;
    struct local_question q = {.what = LOCAL_RELEASE, .check = "scratch-1"};
    struct local_reply reply;
    pid_t pid = fork();

    f->at_once = true;
    if (pid == 0)
        _exit(local_ask(f->path, &q, 5000, &reply, NULL) == 0 && reply.yes ? 0 : 1);
    assert_int_equal(status_of(f, pid), 0);
    assert_int_equal(f->asked.what, LOCAL_RELEASE);
    assert_string_equal(f->asked.check, "scratch-1");
}

static void test_no_answer(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(status_of(f, ask_as(f, geteuid(), 100, -1)), ETIMEDOUT);
    /* by then nobody waits for it */
    assert_true(sd_event_run(f->event, 100000) >= 0);
    local_answer(f->local, f->ids[0], true, NULL);
    local_answer(f->local, 12345, true, NULL);
}

/* The agent ends while it is asked. */
static void test_hung_up(void **state)
{
    struct fixture *f = *state;
    pid_t pid = ask_as(f, geteuid(), 5000, -1);

    while (f->n == 0)
        assert_true(sd_event_run(f->event, 1000000) >= 0);
    local_free(f->local);
    f->local = NULL;
    assert_int_equal(status_of(f, pid), ECONNRESET);
    assert_int_equal(status_of(f, ask_as(f, geteuid(), 5000, -1)), ENOENT);
}

/* A socket that a killed agent has left. */
static void test_left_socket(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    local_free(f->local);
    f->local = NULL;
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    (void)close(fd);
    assert_int_equal(status_of(f, ask_as(f, geteuid(), 5000, -1)), ECONNREFUSED);

    assert_int_equal(local_new(f->event, f->path, on_question, f, &f->local, NULL), 0);
    f->at_once = true;
    assert_int_equal(status_of(f, ask_as(f, geteuid(), 5000, -1)), 0);
}

static void test_another_uid_is_not_heard(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(geteuid(), 0); /* unit tests run as root of the toolbox */
    f->at_once = true;
    /* even where the modes would let it through */
    assert_int_equal(chmod(f->directory, 0755), 0);
    assert_int_equal(chmod(f->path, 0666), 0);
    *strrchr(f->path, '/') = '\0';
    assert_int_equal(chmod(f->path, 0755), 0);
    f->path[strlen(f->path)] = '/';
    assert_int_equal(status_of(f, ask_as(f, 1000, 5000, -1)), ECONNRESET);
    assert_int_equal(f->n, 0);
}

static void test_not_a_question(void **state)
{
    static const char *const packets[] = {
        "",
        "x",
        "1 prolog",
        "1 prolog 1 2 3",
        "2 prolog 1 2",
        "1 release",
        "1 release ",
        "1 release A",
        "1 release a b",
        "1 release a23456789a123456789b123456789c123",
        "1 proloh 1 2",
        "1 prolog -1 2",
        "1 prologprologprologprolog 1 2",
    };
    struct fixture *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char big[2000], answer[8];

    memset(big, '1', sizeof(big));
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    for (size_t i = 0; i <= TG_LEN(packets); i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        const char *p = i < TG_LEN(packets) ? packets[i] : big;

        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_true(send(fd, p, i < TG_LEN(packets) ? strlen(p) : sizeof(big), 0) >= 0);
        for (int n = 0; n < 5; n++)
            assert_true(sd_event_run(f->event, 10000) >= 0);
        assert_true(recv(fd, answer, sizeof(answer), MSG_DONTWAIT) <= 0);
        (void)close(fd);
    }
    assert_int_equal(f->n, 0);
    f->at_once = true;
    assert_int_equal(status_of(f, ask_as(f, geteuid(), 5000, -1)), 0);
}

static void test_many(void **state)
{
    struct fixture *f = *state;
    pid_t pids[MANY];

    for (int i = 0; i < MANY; i++)
        pids[i] = ask_as(f, geteuid(), 30000, -1);
    while (f->n < 256)
        assert_true(sd_event_run(f->event, 1000000) >= 0);
    f->at_once = true;
    for (size_t i = 0; i < 256; i++)
        local_answer(f->local, f->ids[i], true, NULL);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(status_of(f, pids[i]), 0);
    assert_int_equal(f->n, MANY);
}

static void test_long_path(void **state)
{
    char path[300];
    struct local *l = NULL;
    struct fixture *f = *state;

    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(local_new(f->event, path, on_question, f, &l, NULL), -ENAMETOOLONG);
    assert_null(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_yes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_with_a_sentence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_late_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_release, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hung_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_left_socket, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_uid_is_not_heard, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_a_question, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_path, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
