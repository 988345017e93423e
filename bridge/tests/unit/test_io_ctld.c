// SPDX-License-Identifier: GPL-2.0-or-later
/* What ctld makes of slurmctld's records. The RPCs themselves are tested with a real slurmctld. */
#include <errno.h>
#include <setjmp.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/ctld_priv.h"

#define SLURM_UID 64030
#define DRAIN     NODE_STATE_DRAIN
#define SILENT    NODE_STATE_NO_RESPOND

/* The value made of one record; the caller frees. */
static struct slurm_snapshot *snapshot_of(const node_info_t *node)
{
    struct ctld_source s = {.by_name = &node, .n = 1, .slurm_uid = SLURM_UID};

    return ctld_source_snapshot(&s);
}

static void test_reason(void **state)
{
    /* each row was measured: Slurm 24.11 without slurmdbd */
    static const struct {
        uint32_t state;
        uint32_t uid;
        const char *is;
        const char *want; /* NULL: none */
    } rows[] = {
        {NODE_STATE_IDLE, 0, NULL, NULL},
        {NODE_STATE_IDLE | DRAIN, 0, "bad dimm", "bad dimm"},
        {NODE_STATE_IDLE | DRAIN, SLURM_UID, "tidegate/k8s: x", "tidegate/k8s: x"},
        /* left over after a resume: still to be seen, so that it can be taken away */
        {NODE_STATE_IDLE, 0, "bad dimm", "bad dimm"},
        {NODE_STATE_IDLE, SLURM_UID, "bad dimm : Not responding",
         "bad dimm : Not responding"},
        {NODE_STATE_IDLE, SLURM_UID, REASON_BLANK, NULL},
        {NODE_STATE_IDLE, SLURM_UID, " ", NULL},
        {NODE_STATE_DOWN, SLURM_UID, " ", NULL},
        /* fell silent: slurmctld appends its text, and takes the word over */
        {NODE_STATE_DOWN | SILENT, SLURM_UID, "Not responding", "Not responding"},
        {NODE_STATE_DOWN | SILENT, SLURM_UID, "  : Not responding", "Not responding"},
        {NODE_STATE_DOWN | SILENT, SLURM_UID, "bad dimm : Not responding",
         "Not responding"},
        {NODE_STATE_DOWN | SILENT, SLURM_UID, "Not responding : Not responding",
         "Not responding"},
        {NODE_STATE_DOWN | DRAIN | SILENT, SLURM_UID, "bad dimm : Not responding",
         "bad dimm"},
        {NODE_STATE_DOWN | DRAIN, SLURM_UID, "tidegate/k8s: x : Not responding",
         "tidegate/k8s: x"},
        {NODE_STATE_DOWN | NODE_STATE_FAIL, SLURM_UID, "bad : Not responding", "bad"},
        {NODE_STATE_DOWN | DRAIN, SLURM_UID, "  : Not responding", NULL},
        /* a person's own words that end so */
        {NODE_STATE_DOWN, 0, "switch 7 : Not responding", "switch 7 : Not responding"},
        {NODE_STATE_DOWN, SLURM_UID, "Node unexpectedly rebooted",
         "Node unexpectedly rebooted"},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        node_info_t node = {.name = "d1",
                            .node_state = rows[i].state,
                            .reason = (char *)rows[i].is,
                            .reason_uid = rows[i].uid,
                            .reason_time = 1000};
        struct slurm_snapshot *s = snapshot_of(&node);

        assert_string_equal(s->nodes[0].reason ? s->nodes[0].reason : "(none)",
                            rows[i].want ? rows[i].want : "(none)");
        assert_int_equal(s->nodes[0].reason_at, rows[i].want ? 1000000 : 0);
        slurm_snapshot_free(s);
    }
}

static void test_values(void **state)
{
    node_info_t node = {
        .name = "d1",
        .node_addr = "10.0.0.1",
        .port = 6818,
        .node_state = NODE_STATE_MIXED | NODE_STATE_DRAIN | NODE_STATE_COMPLETING |
                      NODE_STATE_DYNAMIC_NORM | NODE_STATE_INVALID_REG,
        .features = "hpc,big",
        .sockets = 2,
        .cores = 2,
        .threads = 2,
        .cpus = 8,
        .real_memory = 64000,
        .boot_time = 1733050000,
        .extra =
            "{\"tidegate\":{\"v\":1,\"episode\":\"cordoned\",\"at\":7},\"who\":\"me\"}",
    };
    struct ctld_jobs jobs = {.node = "d1", .n = 2, .share = 1.5};
    const node_info_t *by_name = &node;
    struct ctld_source source = {.by_name = &by_name, .n = 1, .jobs = &jobs, .n_jobs = 1};
    struct slurm_snapshot *s = ctld_source_snapshot(&source);
    const struct slurm_node *n = &s->nodes[0];

    (void)state;
    assert_string_equal(n->name, "d1");
    assert_string_equal(n->addr, "10.0.0.1");
    assert_int_equal(n->port, 6818);
    assert_string_equal(n->state, "MIXED+DRAIN+COMPLETING+INVALID_REG+DYNAMIC_NORM");
    assert_true(n->base == SLURM_BASE_MIXED && n->drain && n->completing && n->dynamic);
    assert_true(n->invalid_reg && !n->fail && !n->not_responding && !n->rebooting);
    assert_string_equal(n->features, "hpc,big");
    assert_int_equal(n->cpus, 8);
    assert_true(n->sockets == 2 && n->cores == 2 && n->threads == 2);
    assert_int_equal(n->memory_mib, 64000);
    assert_int_equal(n->jobs, 2);
    assert_true(n->job_share > 1.49 && n->job_share < 1.51);
    assert_int_equal(n->boot_at, 1733050000000);
    assert_int_equal(n->extra_state, EXTRA_OURS);
    assert_int_equal(n->ledger.episode, CAUSE_CORDONED);
    assert_string_equal(n->extra_other, "{\"who\":\"me\"}");
    slurm_snapshot_free(s);
    node.node_state =
        NODE_STATE_IDLE; /* jobs of an idle node are over, whatever was counted */
    s = ctld_source_snapshot(&source);
    assert_int_equal(s->nodes[0].jobs, 0);
    slurm_snapshot_free(s);
}

static void test_find(void **state)
{
    node_info_t nodes[] = {{.name = "a"}, {.name = "b"}, {.name = "d"}};
    const node_info_t *by_name[] = {&nodes[0], &nodes[1], &nodes[2]};
    struct ctld_source s = {.by_name = by_name, .n = 3}, empty = {0};

    (void)state;
    assert_ptr_equal(ctld_source_find(&s, "b"), &nodes[1]);
    assert_null(ctld_source_find(&s, "c"));
    assert_null(ctld_source_find(&empty, "a"));
}

/* What another may do to a node between the decision and the RPC is seen; a job's start is not. */
static void test_fingerprint(void **state)
{
    const node_info_t before = {.name = "d1",
                                .node_state = NODE_STATE_IDLE | NODE_STATE_DRAIN,
                                .reason = "x",
                                .reason_uid = 1,
                                .reason_time = 2,
                                .extra = "{}"};
    const uint64_t print = ctld_fingerprint(&before);
    node_info_t after = before;

    (void)state;
    after.node_state = NODE_STATE_MIXED | NODE_STATE_DRAIN | NODE_STATE_NO_RESPOND;
    assert_true(ctld_fingerprint(&after) == print);
    after.node_state = NODE_STATE_IDLE;
    assert_true(ctld_fingerprint(&after) != print);
    after.node_state = NODE_STATE_DOWN | NODE_STATE_DRAIN;
    assert_true(ctld_fingerprint(&after) != print);
    after = before;
    after.reason = "y";
    assert_true(ctld_fingerprint(&after) != print);
    after = before;
    after.reason_uid = 0;
    assert_true(ctld_fingerprint(&after) != print);
    after = before;
    after.reason_time = 3; /* the same words, said again */
    assert_true(ctld_fingerprint(&after) != print);
    after = before;
    after.extra = NULL;
    assert_true(ctld_fingerprint(&after) != print);
    after = before;
    after.features = "hpc";
    assert_true(ctld_fingerprint(&after) != print);
}

/* What slurmctld has of the only node; in place of libslurm's function. */
static node_info_t there;

int slurm_load_node_single(node_info_msg_t **resp, char *name, uint16_t flags)
{
    (void)name;
    (void)flags;
    *resp = calloc(1, sizeof(**resp));
    assert_non_null(*resp);
    (*resp)->node_array = &there;
    (*resp)->record_count = there.name ? 1 : 0;
    return SLURM_SUCCESS;
}

/* What it was asked for last, likewise. */
static struct {
    bool update, delete;
    bool read_all; /* whether the next look is at all nodes */
    char features[32], features_act[32];
    char reason[32];
    uint32_t state;
} asked;

static void copy(char *to, const char *from)
{
    snprintf(to, 32, "%s", from ? from : "(none)");
}

int slurm_update_node(update_node_msg_t *msg)
{
    asked.update = true;
    asked.state = msg->node_state;
    copy(asked.features, msg->features);
    copy(asked.features_act, msg->features_act);
    copy(asked.reason, msg->reason);
    return SLURM_SUCCESS;
}

int slurm_delete_node(update_node_msg_t *msg)
{
    assert_string_equal(msg->node_names, "w1");
    asked.delete = true;
    return SLURM_SUCCESS;
}

void slurm_free_node_info_msg(node_info_msg_t *msg)
{
    free(msg);
}

/* 'No change' would hide for a minute what a controller whose clock went back has changed. */
static void test_changed_meanwhile(void **state)
{
    const char *name = "w1";
    struct ctld_target target = {.name = (char *)"w1", .known = true}, *targets = &target;
    struct action action = {.verb = VERB_DRAIN, .names = &name, .n = 1};
    struct ctld_outcome outcome = {.name = "w1"};
    struct ctld_source source = {0};
    struct ctld_batch b = {.actions = &action,
                           .targets = &targets,
                           .n = 1,
                           .valid_until_ms = INT64_MAX,
                           .outcomes = &outcome,
                           .n_outcomes = 1};

    (void)state;
    there = (node_info_t){.name = (char *)"w1", .node_state = NODE_STATE_IDLE};
    target.fingerprint = ctld_fingerprint(&there);
    there.node_state |= NODE_STATE_DRAIN;
    there.reason = (char *)"bad dimm";
    ctld_batch_run(&b, &source);
    assert_int_equal(outcome.code, -ESTALE);
    assert_int_equal(b.rpcs, 0);
    assert_true(source.nodes_full);
    free((char *)outcome.error);
}

/* Runs the action on w1, which has been as it is in `there` since it was decided on. */
static int run_action(struct action *action)
{
    const char *name = "w1";
    struct ctld_target target = {.name = (char *)"w1", .known = true}, *targets = &target;
    struct ctld_outcome outcome = {.name = "w1"};
    struct ctld_source source = {0};
    struct ctld_batch b = {.actions = action,
                           .targets = &targets,
                           .n = 1,
                           .valid_until_ms = INT64_MAX,
                           .outcomes = &outcome,
                           .n_outcomes = 1};

    memset(&asked, 0, sizeof(asked));
    action->names = &name;
    action->n = 1;
    target.fingerprint = ctld_fingerprint(&there);
    ctld_batch_run(&b, &source);
    asked.read_all = source.nodes_full;
    free((char *)outcome.error);
    return outcome.code;
}

/* slurmctld lets the active features only grow when the available ones alone are set. */
static void test_features(void **state)
{
    struct action action = {.verb = VERB_FEATURES, .features = (char *)"hpc,zone=a"};

    (void)state;
    there = (node_info_t){.name = (char *)"w1", .features = (char *)"hpc,zone=b"};
    assert_int_equal(run_action(&action), 0);
    assert_true(asked.update && !asked.delete);
    assert_string_equal(asked.features, "hpc,zone=a");
    assert_string_equal(asked.features_act, "hpc,zone=a");
    assert_string_equal(asked.reason, "(none)");
    assert_true(asked.state == NO_VAL && !asked.read_all);
    action = (struct action){.verb = VERB_DRAIN, .reason = (char *)"x"};
    assert_int_equal(run_action(&action), 0);
    assert_string_equal(asked.features, "(none)");
}

static void test_delete(void **state)
{
    struct action action = {.verb = VERB_DELETE};

    (void)state;
    there = (node_info_t){.name = (char *)"w1",
                          .node_state = NODE_STATE_IDLE | NODE_STATE_DRAIN};
    assert_int_equal(run_action(&action), 0);
    assert_true(asked.delete && !asked.update);
    assert_true(asked.read_all);
    there = (node_info_t){0}; /* gone already: so it was wanted */
    assert_int_equal(run_action(&action), 0);
    assert_true(!asked.delete && !asked.update);
}

static void test_errors(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(
        ctld_error(SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR, "cannot x", &err),
        -EHOSTDOWN);
    assert_memory_equal(err.text, "cannot x: slurmctld: ", 21);
    assert_int_equal(ctld_error(ESLURM_USER_ID_MISSING, "x", NULL), -EACCES);
    assert_int_equal(ctld_error(ESLURM_INVALID_NODE_STATE, "x", NULL), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reason),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_changed_meanwhile),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_delete),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
