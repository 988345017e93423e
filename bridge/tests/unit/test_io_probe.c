// SPDX-License-Identifier: GPL-2.0-or-later
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/probe.h"

struct fixture {
    sd_event *event;
    struct probe *probe;
    int changes;
    int server; /* listens on 127.0.0.1 */
    uint16_t port;
};

static void on_change(void *userdata)
{
    ((struct fixture *)userdata)->changes++;
}

static int listen_on(uint16_t port, uint16_t *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 1024), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    assert_true(sd_event_new(&f->event) >= 0);
    assert_int_equal(probe_new(f->event, on_change, f, &f->probe, NULL), 0);
    f->server = listen_on(0, &f->port);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    probe_free(f->probe);
    sd_event_unref(f->event);
    if (f->server >= 0)
        (void)close(f->server);
    free(f);
    return 0;
}

/* Runs the loop until the target's answer is `want`; fails after `limit_ms`. */
static void run_until(struct fixture *f, const char *name, enum tri want,
                      int64_t limit_ms)
{
    int64_t end = clock_mono_ms() + limit_ms;

    while (probe_get(f->probe, name).answers != want) {
        assert_true(clock_mono_ms() < end);
        assert_true(sd_event_run(f->event, 50000) >= 0);
    }
}

static void run_for(struct fixture *f, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end)
        assert_true(sd_event_run(f->event, 20000) >= 0);
}

static void test_yes_no_unknown(void **state)
{
    struct fixture *f = *state;
    int64_t begin = clock_wall_ms();
    struct probe_fact fact;
    uint16_t closed;

    (void)close(listen_on(0, &closed));
    probe_set_targets(f->probe,
                      (struct probe_target[]){{"up", "127.0.0.1", f->port},
                                              {"closed", "127.0.0.1", closed},
                                              {"named", "localhost", f->port},
                                              {"no-address", NULL, f->port}},
                      4);
    assert_int_equal(probe_get(f->probe, "up").answers, TRI_UNKNOWN);
    run_until(f, "up", TRI_YES, 5000);
    run_for(f, 1200); /* for two NOs, which might be lost packets */
    assert_int_equal(probe_get(f->probe, "closed").answers, TRI_UNKNOWN);
    run_until(f, "closed", TRI_NO, 5000);
    assert_int_equal(probe_get(f->probe, "named").answers, TRI_UNKNOWN);
    assert_int_equal(probe_get(f->probe, "no-address").answers, TRI_UNKNOWN);
    assert_int_equal(probe_get(f->probe, "nobody").answers, TRI_UNKNOWN);
    fact = probe_get(f->probe, "closed");
    assert_in_range(fact.since, begin, begin + 900); /* the first NO */
    assert_int_equal(f->changes, 2);
}

static void test_changes_are_seen(void **state)
{
    struct fixture *f = *state;
    const struct probe_target t = {"d1", "127.0.0.1", f->port};

    probe_set_targets(f->probe, &t, 1);
    run_until(f, "d1", TRI_YES, 5000);
    (void)close(f->server);
    run_until(f, "d1", TRI_NO, 5000);
    f->server = listen_on(f->port, &f->port);
    run_until(f, "d1", TRI_YES, 5000);
}

static void test_targets_that_stay_keep_their_answer(void **state)
{
    struct fixture *f = *state;
    const struct probe_target both[] = {{"b", "127.0.0.1", f->port},
                                        {"a", "127.0.0.1", f->port}};
    struct probe_target moved = both[0];
    struct probe_fact before;

    probe_set_targets(f->probe, both, 2);
    run_until(f, "a", TRI_YES, 5000);
    run_until(f, "b", TRI_YES, 5000);
    before = probe_get(f->probe, "b");
    probe_set_targets(f->probe, both, 1);
    assert_int_equal(probe_get(f->probe, "b").answers, TRI_YES);
    /* from one clock to the other and back */
    assert_in_range(probe_get(f->probe, "b").since, before.since - 5, before.since + 5);
    assert_int_equal(probe_get(f->probe, "a").answers, TRI_UNKNOWN);
    moved.addr = "127.0.0.2";
    probe_set_targets(f->probe, &moved, 1);
    assert_int_equal(probe_get(f->probe, "b").answers, TRI_UNKNOWN);
    probe_set_targets(f->probe, NULL, 0);
    assert_int_equal(probe_get(f->probe, "b").answers, TRI_UNKNOWN);
}

/* A server whose queue is full lets no connect end. */
static void test_silence_is_no(void **state)
{
    struct fixture *f = *state;
    uint16_t port;
    int server = listen_on(0, &port), fill[8];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int64_t begin;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(listen(server, 0), 0);
    for (size_t i = 0; i < TG_LEN(fill); i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fill[i], (struct sockaddr *)&a, sizeof(a));
    }
    begin = clock_mono_ms();
    probe_set_targets(f->probe, &(struct probe_target){"stuck", "127.0.0.1", port}, 1);
    run_until(f, "stuck", TRI_NO, 10000);
    assert_true(clock_mono_ms() - begin >= 1900);
    for (size_t i = 0; i < TG_LEN(fill); i++)
        (void)close(fill[i]);
    (void)close(server);
}

static void test_own_lack_is_unknown(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, none;

    probe_set_targets(f->probe, &(struct probe_target){"d1", "127.0.0.1", f->port}, 1);
    run_until(f, "d1", TRI_YES, 5000);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    run_until(f, "d1", TRI_UNKNOWN, 5000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    run_until(f, "d1", TRI_YES, 5000);
}

/* A pause of this process is not slurmd's silence. */
static void test_a_pause_is_not_silence(void **state)
{
    struct fixture *f = *state;
    int64_t end = clock_mono_ms() + 1500;

    probe_set_targets(f->probe, &(struct probe_target){"d1", "127.0.0.1", f->port}, 1);
    run_until(f, "d1", TRI_YES, 5000);
    while (clock_mono_ms() < end) {
        assert_true(sd_event_run(f->event, 1200000) >= 0);
        (void)usleep(2100000);
    }
    assert_int_equal(probe_get(f->probe, "d1").answers, TRI_YES);
    assert_int_equal(f->changes, 1);
}

/* More targets than may be asked at once. */
static void test_many(void **state)
{
    enum { MANY = 700 };
    struct fixture *f = *state;
    struct probe_target *targets = mem_calloc(MANY, sizeof(*targets));

    for (size_t i = 0; i < MANY; i++)
        targets[i] = (struct probe_target){mem_printf("n%zu", i), "127.0.0.1", f->port};
    probe_set_targets(f->probe, targets, MANY);
    for (size_t i = 0; i < MANY; i++) {
        int64_t end = clock_mono_ms() + 10000;

        while (probe_get(f->probe, targets[i].name).answers != TRI_YES) {
            assert_true(clock_mono_ms() < end);
            assert_true(sd_event_run(f->event, 20000) >= 0);
        }
    }
    for (size_t i = 0; i < MANY; i++)
        free((char *)targets[i].name);
    free(targets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_yes_no_unknown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changes_are_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_targets_that_stay_keep_their_answer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_silence_is_no, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_own_lack_is_unknown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pause_is_not_silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
