#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Fail closed while slurmctld cannot be read, catch up afterwards.

setup_file() {
    load lib
    cluster_up
    bridge_up a
}
setup() { load lib; }
teardown() { nodes_away; }

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'

@test "slurmctld gone for 30 s: the bridge lives on, says so, and catches up (promise 4)" {
    nodes_up n1 n2 n3 n4
    scontrol update nodename=n3 state=drain reason='a person'
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    job=$(submit -w n4 60)
    eventually 15 job_is "$job" RUNNING
    stop slurmctld
    kubectl uncordon n1
    kubectl cordon n2
    kubectl cordon n3
    kube_ready n4 False
    always 30 runs bridge-a
    bridge_view a | jq -e '.slurm.fresh == false and .slurm.error != ""'
    curl -sSf "$TIDEGATE_BRIDGE_URL/healthz"
    curl -sSf "$TIDEGATE_BRIDGE_URL/readyz"
    kube_ready n4 True
    slurmctld_up
    eventually 40 slurmctld_ready
    eventually 40 state_is n2 IDLE+DRAIN "$CORDONED"
    eventually 30 state_is n1 IDLE
    state_is n3 IDLE+DRAIN 'a person'
    eventually 15 state_is n4 MIXED
    job_is "$job" RUNNING
}

@test "slurmctld that hangs for 20 s: the bridge still answers, and catches up (promise 4)" {
    nodes_up n1
    signal slurmctld STOP
    kubectl cordon n1
    always 20 bridge_view a
    signal slurmctld CONT
    eventually 30 state_is n1 IDLE+DRAIN "$CORDONED"
}

@test "a bridge that starts while slurmctld is away waits for it (promise 4, promise 6)" {
    nodes_up n1
    stop bridge-a
    stop slurmctld
    kubectl cordon n1
    bridge_start a
    eventually 30 curl -sSf "$TIDEGATE_BRIDGE_URL/readyz"
    always 12 runs bridge-a
    run curl -sS "$TIDEGATE_BRIDGE_URL/v1/nodes"
    echo "$output"
    [[ $(jq -r .error <<<"$output") == *'has not been able to read slurmctld'* ]]
    slurmctld_up
    eventually 40 slurmctld_ready
    eventually 40 state_is n1 IDLE+DRAIN "$CORDONED"
}
