// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/view.h"

#include <string.h>

#include "tests/unit/titled.h"

static struct kube_pool hpc = {.name = (char[]){"hpc"}};
static struct kube_node kube = {.ready = TRI_YES, .unschedulable = true};
static struct slurm_node slurm = {
    .state = (char[]){"IDLE+DRAIN"},
    .reason = (char[]){"say \"hi\"\n"},
    .reason_at = INT64_C(1733050000000),
    .jobs = 2,
};

static void nodes(void **state)
{
    struct view_head head = {.leader = true, .holder = "me", .kube_fresh = true};
    struct node_facts f[] = {{.name = "w1", .kube = &kube, .pool = &hpc, .slurm = &slurm},
                             {.name = "w2", .pool = &hpc}};
    struct verdict v[] = {
        {.holder = HOLDER_PERSON,
         .why = WHY_PERSON,
         .cause = CAUSE_CORDONED,
         .ledger = {.overruled = 1u << CAUSE_CORDONED | 1u << CAUSE_GONE}},
        {.why = WHY_NOT_REGISTERED}};
    _cleanup_(mem_freep) char *text = view_nodes(&head, f, v, 2);

    (void)state;
    assert_string_equal(
        text,
        "{\"leader\":true,\"holder\":\"me\",\"kubernetes\":{\"fresh\":true},"
        "\"slurm\":{\"fresh\":false,\"error\":\"\"},\"nodes\":["
        "{\"name\":\"w1\",\"pool\":\"hpc\",\"kubernetes\":{\"state\":\"Ready,"
        "SchedulingDisabled\","
        "\"pod\":\"\"},\"slurm\":{\"state\":\"IDLE+DRAIN\",\"reason\":\"say "
        "\\\"hi\\\"\\n\","
        "\"jobs\":2,\"extra\":\"ours\"},\"slurmd\":\"unknown\",\"agent\":null,\"holder\":"
        "\"person\","
        "\"since\":\"2024-12-01T10:46:40Z\",\"cause\":\"cordoned\","
        "\"overruled\":[\"cordoned\",\"gone\"],\"why\":\"A person holds it in IDLE+DRAIN "
        "with the "
        "reason \\\"say \\\"hi\\\"\\n\\\"; Tidegate leaves that as it is. It would drain "
        "the node "
        "by itself, because the node is cordoned in Kubernetes.\","
        "\"ends\":\"`scontrol update nodename=w1 state=resume` ends it.\"},"
        "{\"name\":\"w2\",\"pool\":\"hpc\",\"kubernetes\":{\"state\":\"Gone\",\"pod\":"
        "\"\"},"
        "\"slurm\":{\"state\":\"none\",\"reason\":\"\",\"jobs\":0,\"extra\":\"ours\"},"
        "\"slurmd\":\"unknown\",\"agent\":null,\"holder\":\"nobody\",\"since\":\"\","
        "\"cause\":\"none\","
        "\"overruled\":[],\"why\":\"Pool hpc selects it, but no slurmd of that name has "
        "registered "
        "with slurmctld; it has no slurmd pod.\",\"ends\":\"Its slurmd pod registering "
        "ends it; "
        "see the pod's log.\"}]}");
}

static void one_node(void **state)
{
    struct view_head head = {.slurm_fresh = false, .slurm_error = "no route"};
    struct node_facts f = {.name = "w1", .kube = &kube, .pool = &hpc, .slurm = &slurm};
    struct verdict v = {.holder = HOLDER_NOBODY};
    _cleanup_(mem_freep) char *text = view_node(&head, &f, &v);

    (void)state;
    assert_non_null(
        strstr(text, "\"slurm\":{\"fresh\":false,\"error\":\"no route\"},\"node\":{"));
    /* a reason that is left over on a free node says nothing of since when it is free */
    assert_non_null(strstr(text, "\"since\":\"\""));
}

/* Its words are outside bytes: JSON keeps them from doing harm. */
static void agent(void **state)
{
    struct view_head head = {.slurm_fresh = true};
    struct check_fact checks[] = {{.name = (char[]){"scratch"},
                                   .text = (char[]){"/scratch is full: \"rm\" \x1b[2J"},
                                   .since = INT64_C(1733050000000)},
                                  {.name = (char[]){"gpu"}}};
    struct agent_fact a = {.linked = TRI_YES,
                           .phase = AGENT_GIVING_UP,
                           .slurmd = SLURMD_WAITING,
                           .slurmd_restarts = 3,
                           .steps = 2,
                           .checks = checks,
                           .n_checks = 2};
    struct node_facts f = {
        .name = "w1", .kube = &kube, .pool = &hpc, .slurm = &slurm, .agent = &a};
    struct verdict v = {.ledger = {.overruled_checks = 1}};
    _cleanup_(mem_freep) char *text = view_node(&head, &f, &v);

    (void)state;
    assert_non_null(strstr(
        text, "\"agent\":{\"linked\":\"yes\",\"phase\":\"giving-up\",\"slurmd\":"
              "\"waiting\",\"restarts\":3,\"steps\":2,\"checks\":[{\"name\":\"scratch\","
              "\"text\":\"/scratch is full: \\\"rm\\\" \\u001b[2J\","
              "\"since\":\"2024-12-01T10:46:40Z\"},"
              "{\"name\":\"gpu\",\"text\":\"\",\"since\":\"\"}]}"));
    assert_non_null(strstr(text, "\"overruled\":[\"health\"]"));
}

static void error(void **state)
{
    _cleanup_(mem_freep) char *text = view_error("no node \"x\"");

    (void)state;
    assert_string_equal(text, "{\"error\":\"no node \\\"x\\\"\"}");
}

static void kube_states(void **state)
{
    struct kube_node n = {0};

    (void)state;
    assert_string_equal(view_kube_state(NULL), "Gone");
    assert_string_equal(view_kube_state(&n), "Unknown");
    n.ready = TRI_NO;
    assert_string_equal(view_kube_state(&n), "NotReady");
    n.unschedulable = true;
    assert_string_equal(view_kube_state(&n), "NotReady,SchedulingDisabled");
    n.ready = TRI_YES;
    assert_string_equal(view_kube_state(&n), "Ready,SchedulingDisabled");
    n.unschedulable = false;
    assert_string_equal(view_kube_state(&n), "Ready");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TITLED("all nodes, with every field and its quotes", nodes),
        TITLED("one node, and the error of Slurm's side", one_node),
        TITLED("what its agent says", agent),
        TITLED("an error is a JSON object", error),
        TITLED("promise 4: a Node without the Ready condition is Unknown", kube_states),
    };

    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
