// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A check that does not die of SIGKILL, because it hangs in the kernel. That cannot be had on purpose, so the
 * functions of io/children.h are this file's own here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/checks.h"

static struct child_spec started; /* the last one */
static int starts;
static bool exists;

int child_start(struct children *c, const struct child_spec *spec, pid_t *ret_pid,
                struct err *err)
{
    (void)c;
    (void)err;
    assert_false(exists); /* two would hang */
    started = *spec;
    starts++;
    exists = true;
    *ret_pid = 100 + starts;
    return 0;
}

bool child_exists(const struct children *c, pid_t pid)
{
    (void)c;
    return exists && pid == 100 + starts;
}

void child_kill(struct children *c, pid_t pid, int signal, bool group)
{
    (void)c;
    (void)pid;
    (void)signal;
    (void)group;
}

void child_forget(struct children *c, pid_t pid)
{
    (void)c;
    (void)pid;
}

static void end_it(struct child_end end)
{
    end.pid = 100 + starts;
    end.output = "";
    exists = end.stuck;
    started.on_end(&end, started.userdata);
}

static void run_for(sd_event *event, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end)
        assert_true(sd_event_run(event, 5000) >= 0);
}

static void test_not_started_again_while_it_hangs(void **state)
{
    static const char text[] =
        "{\"checks\": [{\"name\": \"lustre\", \"command\": "
        "[\"tidegate-node\", \"check\", \"mount\", \"/lustre\"]}]}";
    const struct checks_host host = {.boot_id = "b"};
    struct checkconf *conf = NULL;
    struct checks *checks = NULL;
    const struct check_fact *facts;
    sd_event *event = NULL;
    size_t n;

    (void)state;
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(checkconf_parse(text, strlen(text), &conf, NULL), 0);
    conf->items[0].period_ms = 30;
    assert_int_equal(checks_new(event, NULL, conf, &host, &checks, NULL), 0);
    checks_begin(checks);
    run_for(event, 20);
    assert_int_equal(starts, 1);
    assert_int_equal(started.deadline_ms, 10000);

    /* killed at its deadline, it hangs; each period counts as a failed run */
    end_it((struct child_end){.timed_out = true, .stuck = true});
    run_for(event, 100);
    assert_int_equal(starts, 1);
    facts = checks_failing(checks, &n);
    assert_int_equal(n, 1);
    assert_string_equal(
        facts[0].text,
        "check lustre does not answer: killed after 10 s, it hangs in the kernel; look "
        "in "
        "dmesg for the disk or mount that 'tidegate-node check mount /lustre' uses");

    /* the mount answers again: the old one dies at last, a new one is started */
    exists = false;
    run_for(event, 60);
    assert_int_equal(starts, 2);
    end_it((struct child_end){.status = 0});
    run_for(event, 60);
    assert_int_equal(starts, 3);
    end_it((struct child_end){.status = 0});
    (void)checks_failing(checks, &n);
    assert_int_equal(n, 0);
    checks_free(checks);
    sd_event_unref(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_started_again_while_it_hangs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
