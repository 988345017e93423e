#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A node dies only when both sides say so, and comes back by nobody's hand.

setup_file() {
    load lib
    cluster_up
    bridge_up a
}
setup() { load lib; }
teardown() { nodes_away; }

NOT_READY='tidegate/k8s: node is NotReady in Kubernetes'
DEAD="$NOT_READY and slurmd does not answer"
GONE='tidegate/k8s: node is gone from Kubernetes'

@test "a node that is NotReady and whose slurmd is dead goes DOWN, and its job runs elsewhere (promise 3, row not-ready, slurmd silent)" {
    nodes_up n1
    job=$(submit --requeue 2)
    eventually 15 job_is "$job" RUNNING
    nodes_up n2
    stop slurmd-n1 KILL
    kube_ready n1 Unknown
    eventually 15 state_is n1 'DOWN*' "$DEAD"
    eventually 40 job_is "$job" COMPLETED
    [ "$(job_node "$job")" = n2 ]

    # back by nobody's hand
    slurmd_up n1
    kube_ready n1 True
    eventually 30 state_is n1 IDLE
}

@test "slurmd dead on a node that Kubernetes finds Ready is no death yet: the job is left alone (promise 3)" {
    nodes_up n1
    job=$(submit 60)
    eventually 15 job_is "$job" RUNNING
    stop slurmd-n1 KILL
    always 5 job_is "$job" RUNNING
    [[ $(node_reason n1) != tidegate/* ]]
}

@test "a slurmd that is back after a crash is resumed: 'Node unexpectedly rebooted' is nobody's word (row rebooted)" {
    nodes_up crash1
    slurmd_crash crash1
    eventually 30 grep -q 'crash1.*unexpectedly rebooted' "$LOGS/slurmctld.log"
    eventually 30 state_is crash1 IDLE
    always 2 state_is crash1 IDLE
}

@test "a node whose slurmd was silent until Slurm set it DOWN is resumed when it is back (row rebooted)" {
    nodes_up n1
    stop slurmd-n1 KILL
    eventually 60 state_is n1 'DOWN*' 'Not responding'
    always 2 state_is n1 'DOWN*' 'Not responding'
    slurmd_up n1
    eventually 30 state_is n1 IDLE
}

@test "a node that is deleted in Kubernetes and whose slurmd is dead goes DOWN (row gone)" {
    nodes_up n1
    stop slurmd-n1 KILL
    kubectl delete node n1
    eventually 15 state_is n1 'DOWN*' "$GONE and slurmd does not answer"
}
