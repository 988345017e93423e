#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# What the bridge makes of what the nodes' agents say, with real agents in pods of their own.

setup_file() {
    load lib
    pods_up
    bridge_up a --agents
}
setup() { load lib; }
teardown() {
    nodes_away
    pool_patch '{"featureLabels":null,"qualify":null}'
    rm -f "$RUN"/pods/*/checks/* "$RUN"/pods/*/state/*
}

FULL='the scratch disk is full: make room under /scratch'
BROKEN='memory bank 3 is broken: replace it'
STOPPING='tidegate/update: the slurmd pod is being stopped'

pool_patch() { api PATCH /apis/tidegate.dev/v1alpha1/namespaces/"$NS"/pools/hpc '{"spec":'"$1"'}' >/dev/null; }
features_of() { node_line "$1" | sed -n 's/.* AvailableFeatures=\([^ ]*\) .*/\1/p'; }
active_of() { node_line "$1" | sed -n 's/.* ActiveFeatures=\([^ ]*\) .*/\1/p'; }
features_are() {
    echo "available $(features_of "$1"), active $(active_of "$1")"
    [[ $(features_of "$1" | tr , '\n' | sort | xargs) == "$2" && $(active_of "$1") == "$(features_of "$1")" ]]
}

# check_up NODE: a check that fails while there is a file "bad" beside it, whose text it says.
check_up() {
    [[ -e /run/netns/$1 ]] || pod_net "$1"
    cat >"$RUN/pods/$1/checks/checks.json" <<'EOF'
{"checks": [{"name": "bad", "command": ["/bin/sh", "-c", "cat /etc/tidegate/checks/bad 2>/dev/null && exit 1; exit 0"],
             "moments": ["start", "period"], "period": 1, "deadline": 5,
             "fail": {"times": 1, "of": 1}, "clear": {"times": 1}}]}
EOF
}
check_fails() { echo "$2" >"$RUN/pods/$1/checks/bad"; }
check_passes() { rm "$RUN/pods/$1/checks/bad"; }

@test "a new node registers drained, and takes jobs once its agent has reported and nothing fails (promise 4, row new node)" {
    check_up n1
    check_fails n1 "$FULL"
    kube_node_up n1
    agent_up n1
    eventually 20 state_is n1 'IDLE+DRAIN' "tidegate/health: $FULL"
    job=$(submit -w n1 0)
    always 2 state_is n1 IDLE+DRAIN "tidegate/health: $FULL"
    job_is "$job" PENDING
    check_passes n1
    eventually 20 state_is n1 IDLE
    eventually 20 job_is "$job" COMPLETED
    eventually 5 metric_is a 'tidegate_agents{state="up"}' 1
}

@test "a failing check drains with its own sentence, and its end gives the node back by nobody's hand (row unhealthy)" {
    check_up n1
    agents_up n1
    job=$(submit -w n1 6)
    eventually 10 job_is "$job" RUNNING
    check_fails n1 "$BROKEN"
    eventually 15 state_is n1 MIXED+DRAIN "tidegate/health: $BROKEN"
    eventually 20 job_is "$job" COMPLETED
    check_passes n1
    eventually 15 state_is n1 IDLE
}

@test "a person's resume overrules the checks that fail, and no others (promise 1, rule 2)" {
    check_up n1
    agents_up n1
    check_fails n1 "$BROKEN"
    eventually 15 state_is n1 IDLE+DRAIN "tidegate/health: $BROKEN"
    scontrol update nodename=n1 state=resume
    eventually 15 state_is n1 IDLE
    always 4 state_is n1 IDLE
    check_passes n1
    sleep 3
    check_fails n1 "$BROKEN"
    eventually 15 state_is n1 IDLE+DRAIN "tidegate/health: $BROKEN"
}

@test "a pod that is told to stop drains its node, its job ends in peace, and the next pod brings it back (promise 2, row stopping)" {
    agents_up n1
    job=$(submit -w n1 8)
    eventually 10 job_is "$job" RUNNING
    pod_delete n1
    agent_signal n1 TERM
    eventually 10 state_is n1 'MIXED+DRAIN' "$STOPPING"
    eventually 20 job_is "$job" COMPLETED
    pid=$(pid_of slurmd-n1)
    eventually 20 test ! -e "/proc/$pid"
    agent_up n1
    eventually 30 state_is n1 IDLE
}

@test "jobs that outlast the grace period are requeued before the pod ends, and run when the next one is there (promise 2, row stopping)" {
    kube_node_up n1
    agent_up n1 TIDEGATE_GRACE=15
    eventually 30 state_is n1 IDLE
    job=$(submit --requeue -w n1 600)
    eventually 15 job_is "$job" RUNNING
    pid=$(pid_of slurmd-n1)
    pod_delete n1
    agent_signal n1 TERM
    eventually 10 state_is n1 MIXED+DRAIN "$STOPPING"
    always 4 job_is "$job" RUNNING
    eventually 15 state_is n1 DOWN+DRAIN "$STOPPING, and the time for its jobs is up"
    test -e "/proc/$pid"
    eventually 5 job_is "$job" PENDING
    eventually 15 test ! -e "/proc/$pid"
    agent_up n1
    eventually 30 job_is "$job" RUNNING
}

@test "features come from the labels that the pool names, and follow them" {
    pool_patch '{"featureLabels":["topology.kubernetes.io/zone","feature.example/"]}'
    agents_up n1
    eventually 15 features_are n1 hpc
    kubectl label node n1 topology.kubernetes.io/zone=a feature.example/avx512=true other=x
    eventually 15 features_are n1 'avx512 hpc zone=a'
    job=$(submit -C zone=a 0)
    eventually 15 job_is "$job" COMPLETED
    kubectl label --overwrite node n1 topology.kubernetes.io/zone=b feature.example/avx512-
    eventually 15 features_are n1 'hpc zone=b'
    state_is n1 IDLE
}

@test "a killed bridge comes back to what it left: held stays held, free stays free (promise 6)" {
    check_up n1
    agents_up n1 n2
    check_fails n1 "$BROKEN"
    eventually 15 state_is n1 IDLE+DRAIN "tidegate/health: $BROKEN"
    job=$(submit -w n2 60)
    eventually 15 job_is "$job" RUNNING
    before=$(changes_of n1)-$(changes_of n2)
    stop bridge-a KILL
    bridge_up a --agents
    eventually 10 metric_is a 'tidegate_agents{state="up"}' 2
    always 3 state_is n1 IDLE+DRAIN "tidegate/health: $BROKEN"
    state_is n2 MIXED
    job_is "$job" RUNNING
    [ "$(changes_of n1)-$(changes_of n2)" = "$before" ]
}

@test "no word of the agent is no good word: what a check holds stays held while the agent is away (promise 4)" {
    check_up n1
    agents_up n1
    check_fails n1 "$BROKEN"
    eventually 15 state_is n1 IDLE+DRAIN "tidegate/health: $BROKEN"
    agent_signal n1 STOP
    stop bridge-a KILL
    check_passes n1
    bridge_up a --agents
    always 5 state_is n1 IDLE+DRAIN "tidegate/health: $BROKEN"
    agent_signal n1 CONT
    eventually 20 state_is n1 IDLE
}

@test "leadership moves, and the agents follow" {
    agents_up n1 n2
    bridge_start b --agents
    stop bridge-a KILL
    eventually 40 bridge_leads b
    eventually 40 metric_is b 'tidegate_agents{state="up"}' 2
    kubectl cordon n1
    eventually 5 state_is n1 IDLE+DRAIN 'tidegate/k8s: node is cordoned in Kubernetes'
    kubectl uncordon n1
    eventually 15 state_is n1 IDLE
    stop bridge-b
    bridge_up a --agents
    eventually 40 metric_is a 'tidegate_agents{state="up"}' 2
}
