// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/text.h"

#include <string.h>

#include "tests/unit/titled.h"

static struct kube_pool hpc = {.name = (char[]){"hpc"}};

static void reasons_are_ours(void **state)
{
    const struct node_facts f = {.name = "w1", .pool = &hpc};

    (void)state;
    for (enum cause c = CAUSE_NONE + 1; c < CAUSE_COUNT_; c++) {
        for (int down = 0; down < 2; down++) {
            _cleanup_(mem_freep) char *text = text_reason(&f, c, down);

            assert_true(text_is_ours(text));
            assert_null(strchr(text, '\n'));
        }
    }
}

static void others_are_not(void **state)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "bad dimm",
                                        "tidegate",
                                        "tidegate/",
                                        "tidegate/k8s",
                                        "tidegate/k8s:",
                                        "tidegate/k8s:x",
                                        "Tidegate/k8s: x",
                                        " tidegate/k8s: x",
                                        "tidegate/ops: x",
                                        "see tidegate/k8s: x",
                                        "Not responding"};

    (void)state;
    assert_false(text_is_ours(NULL));
    for (size_t i = 0; i < TG_LEN(texts); i++)
        assert_false(text_is_ours(texts[i]));
}

/* As the contract with the chart's and the tests' readers has them. */
static void reasons_word_for_word(void **state)
{
    static const struct {
        enum cause cause;
        bool down;
        const char *text;
    } rows[] = {
        {CAUSE_CORDONED, false, "tidegate/k8s: node is cordoned in Kubernetes"},
        {CAUSE_NOT_READY, false, "tidegate/k8s: node is NotReady in Kubernetes"},
        {CAUSE_LEFT_POOL, false, "tidegate/k8s: node left pool hpc in Kubernetes"},
        {CAUSE_GONE, false, "tidegate/k8s: node is gone from Kubernetes"},
        {CAUSE_NOT_READY, true,
         "tidegate/k8s: node is NotReady in Kubernetes and slurmd does not answer"},
        {CAUSE_GONE, true,
         "tidegate/k8s: node is gone from Kubernetes and slurmd does not answer"},
        {CAUSE_SLURMD, false, "tidegate/fail: slurmd does not answer"},
        {CAUSE_SLURMD, true,
         "tidegate/fail: slurmd does not answer, and its pod is not ready either"},
        {CAUSE_STOPPING, false, "tidegate/update: the slurmd pod is being stopped"},
        {CAUSE_STOPPING, true,
         "tidegate/update: the slurmd pod is being stopped and slurmd does not answer"},
        {CAUSE_HEALTH, false, "tidegate/health: a health check of the node fails"},
        {CAUSE_UNPROVED, false,
         "tidegate/health: PMIx probe failed: the node has not proved itself since its "
         "last start"},
        {CAUSE_LINE, false,
         "tidegate/update: the node has other resources than its record in Slurm"},
    };

    const struct node_facts f = {.name = "w1", .pool = &hpc};

    (void)state;
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        _cleanup_(mem_freep) char *text = text_reason(&f, rows[i].cause, rows[i].down);

        assert_string_equal(text, rows[i].text);
    }
}

/* What tells of an overruling where there is no ledger. */
static void reasons_name_their_cause(void **state)
{
    const struct node_facts f = {.name = "w1", .pool = &hpc};

    (void)state;
    for (enum cause c = CAUSE_NONE + 1; c < CAUSE_COUNT_; c++) {
        _cleanup_(mem_freep) char *text = text_reason(&f, c, false);

        for (enum cause other = CAUSE_NONE; other < CAUSE_COUNT_; other++)
            assert_int_equal(text_names(text, other), other == c);
    }
    for (enum cause c = CAUSE_NONE; c < CAUSE_COUNT_; c++) {
        assert_false(text_names(TEXT_NEW_NODE, c));
        assert_false(text_names("bad dimm", c));
        assert_false(text_names(NULL, c));
    }
    assert_true(text_is_ours(TEXT_NEW_NODE));
}

/* The agent's words are outside bytes, and Slurm's field is short. */
static void reasons_are_clean(void **state)
{
    char raw[1000];
    struct check_fact check = {.name = (char[]){"x"}, .text = raw};

    (void)state;
    for (size_t n = 0; n < sizeof(raw); n++) {
        _cleanup_(mem_freep) char *text = NULL;

        for (size_t i = 0; i < n; i++)
            raw[i] = (char)(i % 7 ? 1 + (i * 37) % 255 : ' ');
        raw[n] = '\0';
        text = text_reason_of_check(&check);
        assert_true(strlen(text) <= TEXT_REASON_MAX);
        assert_true(text_is_ours(text) || n < 2);
        for (const char *p = text; *p; p++)
            assert_true(*p >= ' ' && *p <= '~');
        assert_true(text[strlen(text) - 1] != ' ');
    }
    memset(raw, 'y', sizeof(raw)); /* no word to cut at */
    raw[sizeof(raw) - 1] = '\0';
    {
        _cleanup_(mem_freep) char *text = text_reason_of_check(&check);

        assert_in_range(strlen(text), TEXT_REASON_MAX / 2, TEXT_REASON_MAX);
        assert_string_equal(text + strlen(text) - 3, "...");
    }
}

/* Also with next to nothing known: a sentence, never a crash. */
static void every_state_has_its_sentence(void **state)
{
    struct kube_pool pool = {.name = (char[]){"hpc"}};
    struct slurm_node slurm = {.state = (char[]){"IDLE"}};
    const struct node_facts facts[] = {
        {.name = "w1"},
        {.name = "w1", .pool = &pool, .slurm = &slurm},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(facts); i++) {
        for (enum why w = WHY_HEALTHY; w < WHY_COUNT_; w++) {
            for (enum cause c = CAUSE_NONE; c < CAUSE_COUNT_; c++) {
                struct verdict v = {.why = w, .cause = c};
                _cleanup_(mem_freep) char *why = text_why(&facts[i], &v);
                _cleanup_(mem_freep) char *ends = text_ends(&facts[i], &v);

                assert_true(strlen(why) > 10);
                assert_int_equal(why[strlen(why) - 1], '.');
                assert_true(!*ends || ends[strlen(ends) - 1] == '.');
                assert_true(strspn(why, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") ||
                            !strncmp(why, "slurm", 5));
            }
        }
    }
}

static void not_registered_tells_of_the_pod(void **state)
{
    struct kube_pool pool = {.name = (char[]){"hpc"}};
    struct kube_pod pod = {.ready = true};
    struct node_facts f = {.name = "w1", .pool = &pool, .pod = &pod};
    struct verdict v = {.why = WHY_NOT_REGISTERED};
    char *why = text_why(&f, &v);

    (void)state;
    assert_string_equal(
        why, "Pool hpc selects it, but no slurmd of that name has registered with "
             "slurmctld; its slurmd pod is ready.");
    free(why);
    pod.ready = false;
    why = text_why(&f, &v);
    assert_non_null(strstr(why, "; its slurmd pod is not ready."));
    free(why);
}

static void events_say_what_was_done(void **state)
{
    static const struct {
        enum verb verb;
        const char *reason, *text;
    } rows[] = {
        {VERB_DRAIN, "SlurmDrained", "Drained in Slurm: why. Running jobs go on."},
        {VERB_DOWN, "SlurmDown", "Set down in Slurm, its jobs are requeued: why."},
        {VERB_RESUME, "SlurmResumed", "Resumed in Slurm why."},
        {VERB_FEATURES, "SlurmFeatures", "Its features in Slurm are now why."},
        {VERB_DELETE, "SlurmRecordDeleted",
         "Its record in Slurm was deleted, so that slurmd registers anew with what the "
         "node has now."},
        {VERB_NOTE, "SlurmNoted", ""},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        _cleanup_(mem_freep) char *text = text_event_message(rows[i].verb, "why");

        assert_string_equal(text_event_reason(rows[i].verb), rows[i].reason);
        assert_string_equal(text, rows[i].text);
    }
}

static void only_faults_are_warnings(void **state)
{
    (void)state;
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_CORDONED), "Normal");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_LEFT_POOL), "Normal");
    assert_string_equal(text_event_type(VERB_RESUME, CAUSE_NONE), "Normal");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_STOPPING), "Normal");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_LINE), "Normal");
    assert_string_equal(text_event_type(VERB_DELETE, CAUSE_LINE), "Normal");
    assert_string_equal(text_event_type(VERB_FEATURES, CAUSE_NONE), "Normal");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_HEALTH), "Warning");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_SLURMD), "Warning");
    assert_string_equal(text_event_type(VERB_DOWN, CAUSE_STOPPING), "Warning");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_NOT_READY), "Warning");
    assert_string_equal(text_event_type(VERB_DRAIN, CAUSE_GONE), "Warning");
    assert_string_equal(text_event_type(VERB_DOWN, CAUSE_NOT_READY), "Warning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TITLED("every reason of ours is of our grammar", reasons_are_ours),
        TITLED("rule 1: what only looks like our grammar is a person's", others_are_not),
        TITLED("reasons, word for word", reasons_word_for_word),
        TITLED("rule 2: a reason names one cause, and a new node's none",
               reasons_name_their_cause),
        TITLED("reasons are short and printable, whatever an agent says",
               reasons_are_clean),
        TITLED("every state has a sentence that ends with a full stop",
               every_state_has_its_sentence),
        TITLED("row new node: why tells of its pod", not_registered_tells_of_the_pod),
        TITLED("Events say what was done", events_say_what_was_done),
        TITLED("only what somebody should look at is a Warning",
               only_faults_are_warnings),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
