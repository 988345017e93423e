#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# An agent that is lost, and a record that no longer fits: what the bridge then asks, and what it does.

setup_file() {
    load lib
    pods_up
    bridge_up a --agents
}
setup() { load lib; }
teardown() {
    kubelets_away
    nodes_away
}

SILENT='tidegate/fail: slurmd does not answer'
NOT_READY='tidegate/k8s: node is NotReady in Kubernetes'

memory_of() { node_line "$1" | sed -n 's/.* RealMemory=\([^ ]*\) .*/\1/p'; }
# state_is_like NAME STATE REASON: both are patterns.
state_is_like() {
    echo "$1 is $(node_state "$1"), reason \"$(node_reason "$1")\""
    # shellcheck disable=SC2053 # patterns
    [[ $(node_state "$1") == $2 && $(node_reason "$1") == $3 ]]
}
# less_memory NODE: a GiB of the machine is gone, as the pod sees it.
less_memory() {
    local file copy=meminfo
    for file in /proc/meminfo /sys/devices/system/node/node0/meminfo; do
        [[ -e $file ]] || continue
        copy+=.
        awk '/MemTotal/ { $(NF - 1) -= 1048576 } { print }' "$file" >"$RUN/pods/$1/state/$copy"
        in_pod "$1" mount --no-mtab --bind "/var/lib/tidegate/$copy" "$file"
    done
}

@test "slurmd silent and the link lost, while the kubelet renews its Lease: drained, and down once the pod is gone, too (promise 3, row fine, slurmd silent)" {
    kubelet_up n1
    kubelet_up n2
    agents_up n1 n2
    job=$(submit --requeue 600)
    eventually 15 job_is "$job" RUNNING
    node=$(job_node "$job")
    stop "slurmd-$node" KILL
    eventually 25 state_is "$node" 'MIXED+DRAIN*' "$SILENT"
    always 3 job_is "$job" RUNNING
    pod_gone "$node"
    eventually 20 state_is "$node" 'DOWN*' "$SILENT, and its pod is not ready either"
    eventually 40 job_is "$job" RUNNING
    [ "$(job_node "$job")" != "$node" ]
    agent_up "$node"
    eventually 40 state_is "$node" IDLE
}

@test "slurmd silent, the link lost and the Lease stale: down within seconds, though Kubernetes still calls the node Ready (promise 3, row not-ready, slurmd silent)" {
    kubelet_up n1
    agents_up n1
    job=$(submit --requeue 600)
    eventually 15 job_is "$job" RUNNING
    stop kubelet-n1 KILL
    stop slurmd-n1 KILL
    t0=$(now_ms)
    eventually 40 state_is n1 'DOWN*' "$NOT_READY and slurmd does not answer"
    echo "# down after $(($(now_ms) - t0)) ms" >&3
    kubectl get node n1 | grep -w Ready
    kubelet_up n1
    agent_up n1
    eventually 40 state_is n1 IDLE
}

@test "a lost link alone is no cause: the node goes on with its jobs (promise 3)" {
    kubelet_up n1
    agents_up n1
    job=$(submit -w n1 20)
    eventually 15 job_is "$job" RUNNING
    agent_signal n1 STOP
    eventually 15 metric_is a 'tidegate_agents{state="lost"}' 1
    always 8 state_is n1 MIXED
    agent_signal n1 CONT
    eventually 15 metric_is a 'tidegate_agents{state="up"}' 1
    eventually 25 job_is "$job" COMPLETED
}

@test "a node whose resources change gets a new record, and no job is lost by it (promise 2, row line)" {
    agents_up n1
    job=$(submit -w n1 70)
    eventually 15 job_is "$job" RUNNING
    before=$(memory_of n1)
    less_memory n1
    eventually 80 state_is_like n1 MIXED+DRAIN 'tidegate/update: the node has 2 cpus *'
    next=$(submit -w n1 0)
    eventually 60 job_is "$job" COMPLETED
    eventually 60 state_is n1 IDLE
    echo "memory: $before, now $(memory_of n1)"
    (($(memory_of n1) < before))
    eventually 30 job_is "$next" COMPLETED
}
