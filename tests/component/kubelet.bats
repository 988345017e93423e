#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# With Kubernetes' own judge of nodes (kube-controller-manager), which goes by the kubelets' Leases.

setup_file() {
    load lib
    cluster_up
    bridge_up a
    controller_manager_up
}
setup() { load lib; }
teardown() {
    kubelets_away
    nodes_away
}

ready_is() { [[ $(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') == "$2" ]]; }

@test "a machine that dies: Kubernetes gives it up, Slurm sets it DOWN, its job runs elsewhere, and it comes back (promise 3, row not-ready, slurmd silent)" {
    kubelet_up k1
    nodes_up k1
    job=$(submit --requeue 2)
    eventually 15 job_is "$job" RUNNING
    kubelet_up k2
    nodes_up k2
    stop slurmd-k1 KILL
    stop kubelet-k1 KILL
    eventually 40 ready_is k1 Unknown
    eventually 15 state_is k1 'DOWN*' 'tidegate/k8s: node is NotReady in Kubernetes and slurmd does not answer'
    eventually 40 job_is "$job" COMPLETED
    [ "$(job_node "$job")" = k2 ]
    state_is k2 IDLE

    slurmd_up k1
    rm "$RUN/kubelet-k1.pid"
    api DELETE /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/k1 >/dev/null
    kubelet_up k1
    kube_ready k1 True
    eventually 30 state_is k1 IDLE
    job=$(submit -w k1 0)
    eventually 30 job_is "$job" COMPLETED
}

@test "a kubelet that dies alone: its node drains, and the job on it ends in peace (promise 3, row not-ready, slurmd answers)" {
    kubelet_up k3
    nodes_up k3
    job=$(submit 14)
    eventually 15 job_is "$job" RUNNING
    stop kubelet-k3 KILL
    eventually 30 state_is k3 MIXED+DRAIN 'tidegate/k8s: node is NotReady in Kubernetes'
    eventually 40 job_is "$job" COMPLETED
    state_is k3 IDLE+DRAIN 'tidegate/k8s: node is NotReady in Kubernetes'
}
