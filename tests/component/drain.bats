#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# What Kubernetes says of a node, and what becomes of it in Slurm.

setup_file() {
    load lib
    cluster_up
    bridge_up a
}
setup() { load lib; }
teardown() { nodes_away; }

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'
NOT_READY='tidegate/k8s: node is NotReady in Kubernetes'
LEFT='tidegate/k8s: node left pool hpc in Kubernetes'
GONE='tidegate/k8s: node is gone from Kubernetes'

@test "a cordon drains the node within 2 s, its job ends by itself, and uncordon gives it back (promise 2, row cordoned)" {
    nodes_up n1
    job=$(submit 4)
    eventually 5 job_is "$job" RUNNING
    kubectl cordon n1
    eventually 2 state_is n1 MIXED+DRAIN "$CORDONED"
    next=$(submit 1)
    eventually 10 job_is "$job" COMPLETED
    eventually 5 state_is n1 IDLE+DRAIN "$CORDONED"
    job_is "$next" PENDING
    kubectl uncordon n1
    eventually 10 job_is "$next" COMPLETED
    eventually 10 state_is n1 IDLE
}

@test "NotReady with slurmd alive is a DRAIN and never a DOWN, and the job goes on (row not-ready, slurmd answers)" {
    nodes_up n1
    job=$(submit 60)
    eventually 15 job_is "$job" RUNNING
    kube_ready n1 False
    eventually 15 state_is n1 MIXED+DRAIN "$NOT_READY"
    always 4 state_is n1 MIXED+DRAIN "$NOT_READY"
    job_is "$job" RUNNING
    kube_ready n1 True
    eventually 15 state_is n1 MIXED
    job_is "$job" RUNNING
}

@test "a node that is deleted in Kubernetes drains, and comes back with the Node (row gone)" {
    nodes_up n1
    kubectl delete node n1
    eventually 15 state_is n1 IDLE+DRAIN "$GONE"
    kube_node_up n1
    eventually 30 state_is n1 IDLE
}

@test "a node that loses the pool's label drains, and comes back with it (row left-pool)" {
    nodes_up n1
    kubectl label node n1 tidegate.dev/pool-
    eventually 15 state_is n1 IDLE+DRAIN "$LEFT"
    kubectl label node n1 tidegate.dev/pool=hpc
    eventually 30 state_is n1 IDLE
}

@test "of two causes the node is held until both have ended (rule 3)" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    kube_ready n1 False
    eventually 15 state_is n1 IDLE+DRAIN "$NOT_READY"
    kube_ready n1 True
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    always 3 state_is n1 IDLE+DRAIN "$CORDONED"
    kubectl uncordon n1
    eventually 30 state_is n1 IDLE
}

@test "a pod that restarts on a cordoned node does not give it back" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    slurmd_crash n1
    always 4 state_is n1 IDLE+DRAIN "$CORDONED"
    kubectl uncordon n1
    eventually 30 state_is n1 IDLE
}

@test "a node that has been Ready for less than the hold time is not given back yet (rule 4)" {
    nodes_up n1
    stop bridge-a
    bridge_up a --resume-hold 4
    kube_ready n1 False
    eventually 15 state_is n1 IDLE+DRAIN "$NOT_READY"
    kube_ready n1 True
    always 2 state_is n1 IDLE+DRAIN "$NOT_READY"
    eventually 15 state_is n1 IDLE
    stop bridge-a
    bridge_up a
}

@test "a rack that is cordoned at once is drained in a handful of RPCs (promise 7)" {
    nodes_up n1 n2 n3 n4 n5 n6 n7 n8
    before=$(curl -sS "$TIDEGATE_BRIDGE_URL/metrics" | awk '$1 == "tidegate_slurm_rpcs_total" { print $2 }')
    signal bridge-a STOP
    for n in {1..8}; do api PATCH "/api/v1/nodes/n$n" '{"spec":{"unschedulable":true}}' >/dev/null; done
    signal bridge-a CONT
    for n in {1..8}; do eventually 15 state_is "n$n" IDLE+DRAIN "$CORDONED"; done
    after=$(curl -sS "$TIDEGATE_BRIDGE_URL/metrics" | awk '$1 == "tidegate_slurm_rpcs_total" { print $2 }')
    echo "RPCs: $((after - before))"
    ((after - before <= 3))
}
