// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/checks.h"
#include "io/checks_priv.h"

#define PERIOD_MS 40

struct fixture {
    sd_event *event;
    struct children *children;
    struct checks *checks;
    char directory[32], file[64], marks[64];
    bool idle;
    int changes, done;
    size_t n_failed;
    char failed[CHECK_TEXT_MAX + 1]; /* the first of those, with its name */
};

static const char *const *environment(void *userdata)
{
    static const char *const list[] = {"TIDEGATE_REAL_MEMORY_MIB=2000", NULL};

    (void)userdata;
    return list;
}

static bool idle(void *userdata)
{
    return ((struct fixture *)userdata)->idle;
}

static void on_change(void *userdata)
{
    ((struct fixture *)userdata)->changes++;
}

static void on_done(const struct check_fact *failed, size_t n, void *userdata)
{
    struct fixture *f = userdata;

    f->done++;
    f->n_failed = n;
    f->failed[0] = '\0';
    if (n)
        (void)snprintf(f->failed, sizeof(f->failed), "%s: %s", failed[0].name,
                       failed[0].text);
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    strcpy(f->directory, "/tmp/test-checks-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    (void)snprintf(f->file, sizeof(f->file), "%s/state/checks.json", f->directory);
    (void)snprintf(f->marks, sizeof(f->marks), "%s/marks", f->directory);
    assert_int_equal(setenv("MARKS", f->marks, 1), 0);
    assert_true(sd_event_new(&f->event) >= 0);
    assert_int_equal(children_new(f->event, &f->children, NULL), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[64];

    checks_free(f->checks);
    children_free(f->children);
    sd_event_unref(f->event);
    (void)snprintf(command, sizeof(command), "rm -rf %s", f->directory);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

/* One check: a shell script, the moments and the rest as in checks.json. */
#define CHECK(name, script, moments, rest)                                               \
    "{\"name\": \"" name "\", \"command\": [\"sh\", \"-c\", \"" script                   \
    "\"], \"moments\": [" moments "]" rest "}"
#define MARK "echo x >>$MARKS; "

static struct checkconf *conf_of(const char *checks)
{
    _cleanup_(mem_freep) char *text = mem_printf("{\"checks\": [%s]}", checks);
    struct checkconf *conf = NULL;
    struct err err = {""};

    if (checkconf_parse(text, strlen(text), &conf, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    for (size_t i = 0; i < conf->n; i++) { /* seconds are too long for a test */
        conf->items[i].period_ms = PERIOD_MS;
        conf->items[i].deadline_ms /= 10;
    }
    return conf;
}

static void make(struct fixture *f, const char *checks, const char *boot_id)
{
    struct checks_host host = {.state_file = f->file,
                               .boot_id = boot_id,
                               .environment = environment,
                               .idle = idle,
                               .on_change = on_change,
                               .userdata = f};

    checks_free(f->checks);
    f->checks = NULL;
    assert_int_equal(
        checks_new(f->event, f->children, conf_of(checks), &host, &f->checks, NULL), 0);
}

static void run_for(struct fixture *f, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end)
        assert_true(sd_event_run(f->event, 5000) >= 0);
}

static void until_done(struct fixture *f)
{
    int64_t end = clock_mono_ms() + 20000;
    int done = f->done;

    while (f->done == done) {
        assert_true(clock_mono_ms() < end);
        assert_true(sd_event_run(f->event, 20000) >= 0);
    }
}

static void moment(struct fixture *f, enum check_moment m)
{
    int done = f->done;

    checks_run(f->checks, m, NULL, on_done, f);
    assert_int_equal(f->done, done); /* never from within the call */
    until_done(f);
}

static size_t failing(const struct fixture *f, const struct check_fact **ret)
{
    const struct check_fact *facts;
    size_t n;

    facts = checks_failing(f->checks, &n);
    if (ret)
        *ret = facts;
    return n;
}

static void until_failing(struct fixture *f, size_t want)
{
    int64_t end = clock_mono_ms() + 20000;

    while (failing(f, NULL) != want) {
        assert_true(clock_mono_ms() < end);
        assert_true(sd_event_run(f->event, 20000) >= 0);
    }
}

/* How often a script with MARK has run. */
static int marks(const struct fixture *f)
{
    struct stat st;

    return stat(f->marks, &st) < 0 ? 0 : (int)st.st_size / 2;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

/* ---- what a run comes to ------------------------------------------------------------- */

static void test_results(void **state)
{
    static const struct {
        const char *check, *said;
    } rows[] = {
        {CHECK("a", "exit 0", "\"epilog\"", ""), ""},
        {CHECK("a", "echo fine; exit 0", "\"epilog\"", ""), ""},
        {CHECK("a", "echo; echo ' /scratch is full\\t'; echo more; exit 3", "\"epilog\"",
               ""),
         "a: /scratch is full"},
        {CHECK("a", "echo told on stderr >&2; exit 1", "\"epilog\"", ""),
         "a: told on stderr"},
        {CHECK("a", "printf 'a\\\\tb\\\\033c\\\\303\\\\244d'; exit 1", "\"epilog\"", ""),
         "a: a b?c?d"},
        {CHECK("a", "exit 3", "\"epilog\"", ""),
         "a: check a failed with status 3 and said nothing, expected a line; run 'sh -c "
         "exit 3' on the node to see why"},
        {CHECK("a", "kill -SEGV $$", "\"epilog\"", ""),
         "a: check a crashed by signal 11 (Segmentation fault), expected an exit status; "
         "run 'sh -c kill -SEGV $$' on the node to see why"},
        {CHECK("a", "echo begun; sleep 60", "\"epilog\"", ", \"deadline\": 1"),
         "a: check a has not ended within 0 s and was killed; run 'sh -c echo begun; "
         "sleep 60' on the node to see what it waits for"},
        {"{\"name\": \"a\", \"command\": [\"/nowhere/x\"], \"moments\": [\"epilog\"]}",
         "a: check a: cannot execute /nowhere/x: No such file or directory; correct its "
         "command, or put the program where it is expected"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < TG_LEN(rows); i++) {
        checks_free(f->checks);
        f->checks = NULL;
        (void)unlink(f->file); /* each begins from nothing */
        make(f, rows[i].check, NULL);
        moment(f, CHECK_EPILOG);
        assert_string_equal(f->failed, rows[i].said);
        assert_int_equal(failing(f, NULL), 0); /* one failed run of 2 in 3 */
    }
}

static void test_long_output_is_cut(void **state)
{
    struct fixture *f = *state;

    make(f, CHECK("a", "head -c 9000 /dev/zero | tr '\\\\0' y; exit 1", "\"epilog\"", ""),
         NULL);
    moment(f, CHECK_EPILOG);
    assert_int_equal(strlen(f->failed), CHECK_TEXT_MAX); /* cut by this test again */
    make(f, CHECK("a", "printf %0400d 1; exit 1", "\"prolog\"", ""), NULL);
    moment(f, CHECK_PROLOG);
    {
        const struct check_fact *facts;

        assert_int_equal(failing(f, &facts), 1);
        assert_int_equal(strlen(facts[0].text), CHECK_TEXT_MAX);
        assert_string_equal(facts[0].text + CHECK_TEXT_MAX - 5, "00...");
    }
}

static void test_environment(void **state)
{
    static const char *const job[] = {"SLURM_JOB_ID=42", NULL};
    struct fixture *f = *state;

    make(f,
         CHECK("mem",
               "echo $TIDEGATE_CHECK $TIDEGATE_REAL_MEMORY_MIB $SLURM_JOB_ID; exit 1",
               "\"epilog\"", ""),
         NULL);
    checks_run(f->checks, CHECK_EPILOG, job, on_done, f);
    until_done(f);
    assert_string_equal(f->failed, "mem: mem 2000 42");
}

static void test_same_words(void **state)
{
    (void)state;
    assert_true(check_same_words("/a has 1.5 % free", "/a has 12 % free"));
    assert_true(check_same_words("", ""));
    assert_false(check_same_words("/a has 1 % free", "/b has 1 % free"));
    assert_false(check_same_words("has 1", "has "));
    assert_false(check_same_words("has ", "has 1"));
    assert_false(check_same_words("ends 1", "ends 1 now"));
}

/* ---- moments ------------------------------------------------------------------------- */

static void test_start_passes(void **state)
{
    struct fixture *f = *state;

    make(f,
         CHECK("a", MARK, "\"start\"", "") "," CHECK("b", MARK "exit 1", "\"idle\"", ""),
         NULL);
    moment(f, CHECK_START);
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(marks(f), 1);
    checks_begin(f->checks);
    run_for(f, 5 * PERIOD_MS);
    assert_int_equal(marks(f), 1); /* it is settled, and the node is not idle */
    moment(f, CHECK_PROLOG);       /* nobody's moment */
    assert_int_equal(f->n_failed, 0);
}

/* At the start a failed run is repeated until it passes or holds. */
static void test_start_settles(void **state)
{
    struct fixture *f = *state;

    make(f, CHECK("a", MARK "echo down; exit 1", "\"start\"", ""), NULL);
    moment(f, CHECK_START);
    assert_string_equal(f->failed, "a: down");
    assert_int_equal(marks(f), 2); /* 2 of 3 */
    assert_int_equal(failing(f, NULL), 1);
    assert_int_equal(f->changes, 1);

    make(f,
         CHECK("b", MARK "test $(wc -l <$MARKS) -ge 4 || { echo not yet; exit 1; }",
               "\"start\"", ""),
         NULL);
    moment(f, CHECK_START);
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(marks(f), 4);
    assert_int_equal(failing(f, NULL), 0);
}

static void test_period_holds_and_lets_go(void **state)
{
    struct fixture *f = *state;
    const struct check_fact *facts;

    make(f,
         CHECK("a", "test -e $MARKS || { echo gone since $(date +%N); exit 1; }",
               "\"period\"", ""),
         NULL);
    write_file(f->marks, "");
    checks_begin(f->checks);
    run_for(f, 4 * PERIOD_MS);
    assert_int_equal(failing(f, NULL), 0);
    assert_int_equal(unlink(f->marks), 0);
    until_failing(f, 1);
    run_for(f, 6 * PERIOD_MS); /* another number in it each time */
    assert_int_equal(f->changes, 1);
    assert_int_equal(failing(f, &facts), 1);
    assert_string_equal(facts[0].name, "a");
    assert_true(facts[0].since > 1600000000000);
    write_file(f->marks, "");
    until_failing(f, 0);
    run_for(f, PERIOD_MS);
    assert_int_equal(f->changes, 2);
}

static void test_idle_only_while_no_job_runs(void **state)
{
    struct fixture *f = *state;

    make(f, CHECK("a", MARK, "\"idle\"", ""), NULL);
    checks_begin(f->checks);
    checks_run_now(f->checks, NULL);
    run_for(f, 5 * PERIOD_MS);
    assert_int_equal(marks(f), 0);
    f->idle = true;
    run_for(f, 5 * PERIOD_MS);
    assert_true(marks(f) > 1);
}

/* One failed run refuses the job, holds the node, and goes on being tried until it is good. */
static void test_prolog(void **state)
{
    struct fixture *f = *state;

    make(f,
         CHECK("a", MARK "test -e $MARKS.ok || { echo no; exit 1; }", "\"prolog\"", ""),
         NULL);
    checks_begin(f->checks);
    moment(f, CHECK_PROLOG);
    assert_string_equal(f->failed, "a: no");
    assert_int_equal(failing(f, NULL), 1);
    {
        _cleanup_(mem_freep) char *ok = mem_printf("%s.ok", f->marks);

        write_file(ok, "");
    }
    until_failing(f, 0);
    assert_true(marks(f) >= 3); /* two good runs */
}

static void test_run_now(void **state)
{
    struct fixture *f = *state;

    make(f, CHECK("a", MARK, "\"epilog\"", "") "," CHECK("b", MARK, "\"epilog\"", ""),
         NULL);
    checks_run_now(f->checks, "b");
    run_for(f, 100);
    assert_int_equal(marks(f), 1);
    checks_run_now(f->checks, NULL);
    run_for(f, 100);
    assert_int_equal(marks(f), 3);
    checks_run_now(f->checks, "c");
}

/* Two prologs at once: both are told, by one run. */
static void test_joined_runs(void **state)
{
    struct fixture *f = *state;

    make(f, CHECK("a", MARK "sleep 0.1; echo no; exit 1", "\"prolog\"", ""), NULL);
    checks_run(f->checks, CHECK_PROLOG, NULL, on_done, f);
    checks_run(f->checks, CHECK_PROLOG, NULL, on_done, f);
    until_done(f);
    if (f->done < 2)
        until_done(f);
    assert_int_equal(f->done, 2);
    assert_string_equal(f->failed, "a: no");
    assert_int_equal(marks(f), 1);
}

/* Nothing else waits while a check hangs. */
static void test_the_loop_goes_on(void **state)
{
    struct fixture *f = *state;
    int64_t longest = 0, before, end = clock_mono_ms() + 800;

    make(f,
         CHECK("hung", "sleep 60", "\"period\"",
               ", \"deadline\": 5") "," CHECK("quick", MARK, "\"period\"", ""),
         NULL);
    checks_begin(f->checks);
    while (clock_mono_ms() < end) {
        before = clock_mono_ms();
        assert_true(sd_event_run(f->event, 5000) >= 0);
        if (clock_mono_ms() - before > longest)
            longest = clock_mono_ms() - before;
    }
    assert_true(marks(f) >= 5);
    assert_true(longest < 300);
    until_failing(f, 1);
}

/* ---- kept over a restart ------------------------------------------------------------- */

#define FLAKY                                                                            \
    CHECK("a", MARK "test -e $MARKS.ok || { echo broken; exit 1; }", "\"start\"", "")

static void test_a_hold_survives_a_restart(void **state)
{
    struct fixture *f = *state;
    const struct check_fact *facts;
    _cleanup_(mem_freep) char *ok = mem_printf("%s.ok", f->marks);
    struct stat st;
    int64_t since;

    make(f, FLAKY, NULL);
    moment(f, CHECK_START);
    assert_int_equal(failing(f, &facts), 1);
    since = facts[0].since;

    make(f, FLAKY, NULL); /* frees the old one, which has written its state by then */
    assert_int_equal(stat(f->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(failing(f, &facts), 1);
    assert_string_equal(facts[0].text, "broken");
    assert_int_equal(facts[0].since, since);
    /* one good run is not two */
    write_file(ok, "");
    moment(f, CHECK_START);
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(failing(f, NULL), 1);
    checks_begin(f->checks);
    until_failing(f, 0);
    make(f, FLAKY, NULL);
    assert_int_equal(failing(f, NULL), 0);
}

/* N of M is counted on. */
static void test_a_failure_survives_a_restart(void **state)
{
    struct fixture *f = *state;

    make(f, CHECK("a", "echo no; exit 1", "\"epilog\"", ""), NULL);
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, NULL), 0);
    make(f, CHECK("a", "echo no; exit 1", "\"epilog\"", ""), NULL);
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, NULL), 1);
}

static void test_another_boot(void **state)
{
    static const char check[] =
        CHECK("ecc", "test -e $MARKS || { echo bad dimm; exit 1; }", "\"epilog\"",
              ", \"clear\": \"boot\"");
    struct fixture *f = *state;

    make(f, check, "boot-1");
    moment(f, CHECK_EPILOG);
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, NULL), 1);
    write_file(f->marks, "");
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, NULL), 1);
    make(f, check, "boot-1");
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, NULL), 1);
    make(f, check, "boot-2");
    assert_int_equal(failing(f, NULL), 1); /* until it has passed */
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, NULL), 0);
}

static void test_a_bad_file_counts_as_none(void **state)
{
    struct fixture *f = *state;
    _cleanup_(mem_freep) char *directory = mem_printf("%s/state", f->directory);
    _cleanup_(mem_freep) char *other = mem_printf("%s/other", f->directory);
    static const char good[] =
        "{\"v\": 1, \"checks\": [{\"name\": \"a\", \"holds\": true, \"history\": \"1\","
        "\"since\": 1, \"boot\": \"b\", \"text\": \"x\"}, {\"name\": \"gone\", "
        "\"holds\": "
        "true, \"history\": \"1\", \"since\": 1, \"boot\": \"b\", \"text\": \"x\"}]}";

    assert_int_equal(mkdir(directory, 0700), 0);
    write_file(f->file, good);
    make(f, FLAKY, NULL);
    assert_int_equal(failing(f, NULL),
                     1); /* that of a check that is no more is not kept */
    write_file(f->file, "{\"v\": 1, ");
    make(f, FLAKY, NULL);
    assert_int_equal(failing(f, NULL), 0);
    write_file(f->file, good);
    assert_int_equal(chmod(f->file, 0660), 0); /* others could let the node go */
    make(f, FLAKY, NULL);
    assert_int_equal(failing(f, NULL), 0);
    write_file(other, good);
    assert_int_equal(unlink(f->file), 0);
    assert_int_equal(symlink(other, f->file), 0);
    make(f, FLAKY, NULL);
    assert_int_equal(failing(f, NULL), 0);
    assert_int_equal(unlink(f->file), 0);
    assert_int_equal(mkfifo(f->file, 0600), 0); /* does not make us wait */
    make(f, FLAKY, NULL);
    assert_int_equal(failing(f, NULL), 0);
}

/* A directory that cannot be written costs the state, nothing else. */
static void test_a_state_that_cannot_be_kept(void **state)
{
    struct fixture *f = *state;

    (void)snprintf(f->file, sizeof(f->file), "%s/no/such/place", f->directory);
    make(f, CHECK("a", "echo no; exit 1", "\"prolog\"", ""), NULL);
    moment(f, CHECK_PROLOG);
    assert_int_equal(failing(f, NULL), 1);
    checks_begin(f->checks);
    run_for(f, 5 * PERIOD_MS);
    assert_int_equal(failing(f, NULL), 1);
}

/* ---- a person, and another configuration --------------------------------------------- */

static void test_released_by_a_person(void **state)
{
    struct fixture *f = *state;
    struct err err;

    make(f,
         CHECK("a", "test ! -e $MARKS || exit 0; echo no; exit 1", "\"prolog\"",
               ", \"clear\": \"person\"") "," CHECK("b", "echo no; exit 1", "\"prolog\"",
                                                    ""),
         NULL);
    assert_int_equal(checks_release(f->checks, "a", &err), -EALREADY);
    assert_int_equal(checks_release(f->checks, "c", &err), -ENOENT);
    moment(f, CHECK_PROLOG);
    assert_int_equal(failing(f, NULL), 2);
    assert_int_equal(checks_release(f->checks, "b", &err), -EPERM);
    assert_string_equal(err.text,
                        "check b is not for a person to release: it ends by 2 good "
                        "runs, one after the other");
    write_file(f->marks, "");
    moment(f, CHECK_PROLOG);
    moment(f, CHECK_PROLOG);
    assert_int_equal(failing(f, NULL), 2);
    assert_int_equal(checks_release(f->checks, "a", &err), 0);
    assert_int_equal(failing(f, NULL), 1);
}

static void test_replaced(void **state)
{
    struct fixture *f = *state;
    const struct check_fact *facts;

    make(f,
         CHECK("a", "echo no; exit 1", "\"prolog\"", "") "," CHECK("b", "sleep 60",
                                                                   "\"prolog\"", ""),
         NULL);
    checks_run(f->checks, CHECK_PROLOG, NULL, on_done, f);
    until_failing(f, 1);
    assert_int_equal(f->done, 0);
    /* b goes, and nobody waits for it any more; c comes; a keeps its state */
    checks_replace(f->checks, conf_of(CHECK("c", MARK, "\"period\"", "") "," CHECK(
                                  "a", "echo still; exit 1", "\"prolog\"", "")));
    until_done(f);
    assert_string_equal(f->failed, "a: no");
    assert_int_equal(failing(f, &facts), 1);
    assert_string_equal(facts[0].text, "no");
    checks_begin(f->checks);
    run_for(f, 5 * PERIOD_MS);
    assert_true(marks(f) >= 2);
    assert_int_equal(failing(f, &facts), 1);
    assert_string_equal(facts[0].text, "still");
    checks_replace(f->checks, conf_of(""));
    assert_int_equal(failing(f, NULL), 0);
}

/* The reason of a node must not change to and fro: the first to hold it is told first. */
static void test_the_longest_standing_comes_first(void **state)
{
    struct fixture *f = *state;
    const struct check_fact *facts;

    make(f,
         CHECK("a", "echo first; exit 1", "\"epilog\"",
               ", \"fail\": {\"times\": 1}") "," CHECK("b", "echo second; exit 1",
                                                       "\"prolog\"", ""),
         NULL);
    moment(f, CHECK_PROLOG);
    run_for(f, 20);
    moment(f, CHECK_EPILOG);
    assert_int_equal(failing(f, &facts), 2);
    assert_string_equal(facts[0].text, "second");
    assert_string_equal(facts[1].text, "first");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_results),
        TEST(test_long_output_is_cut),
        TEST(test_environment),
        cmocka_unit_test(test_same_words),
        TEST(test_start_passes),
        TEST(test_start_settles),
        TEST(test_period_holds_and_lets_go),
        TEST(test_idle_only_while_no_job_runs),
        TEST(test_prolog),
        TEST(test_run_now),
        TEST(test_joined_runs),
        TEST(test_the_loop_goes_on),
        TEST(test_a_hold_survives_a_restart),
        TEST(test_a_failure_survives_a_restart),
        TEST(test_another_boot),
        TEST(test_a_bad_file_counts_as_none),
        TEST(test_a_state_that_cannot_be_kept),
        TEST(test_released_by_a_person),
        TEST(test_replaced),
        TEST(test_the_longest_standing_comes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
