#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A pod that is resized gets another record in Slurm by nobody's hand, and loses no job. Taking cpus from the agent by
# taskset stands in for a smaller cpuset; SIGHUP spares the test a minute.

setup_file() {
    load lib
    pods_up
    bridge_up a --agents
}
setup() { load lib; }
teardown() { nodes_away; }

cpus_are() {
    local line
    line=$(node_line "$1")
    echo "$line"
    [[ $line == *" CPUTot=$2 "* ]]
}
# resize NODE CPUS: "0", "0-1"
resize() {
    taskset -pc "$2" "$(agent_pid "$1")" >/dev/null
    agent_signal "$1" HUP
}

@test "a pod that becomes smaller: drained, its job ends in peace, then a new record, and free" {
    agents_up n1
    cpus_are n1 "$(nproc)"
    job=$(submit -w n1 5)
    eventually 10 job_is "$job" RUNNING
    resize n1 0
    eventually 15 state_is n1 MIXED+DRAIN
    [[ $(node_reason n1) == 'tidegate/update: the node has 1 cpus (1x1x1) and '*' MiB, its record '* ]]
    job_is "$job" RUNNING
    eventually 20 job_is "$job" COMPLETED
    eventually 30 cpus_are n1 1
    eventually 30 state_is n1 IDLE
    [[ $(scontrol -o show job "$job") == *" Restarts=0 "* ]]
    job=$(submit -w n1 0)
    eventually 15 job_is "$job" COMPLETED
    run submit -w n1 -n2 0
    [ "$status" != 0 ]

    # and larger again
    resize n1 "0-$(($(nproc) - 1))"
    eventually 40 cpus_are n1 "$(nproc)"
    eventually 30 state_is n1 IDLE
}

@test "a person's drain is not touched by another line; the record follows once it is let go" {
    agents_up n1
    scontrol update nodename=n1 state=drain reason='bad dimm'
    resize n1 0
    always 6 state_is n1 'IDLE+DRAIN' 'bad dimm'
    cpus_are n1 "$(nproc)"
    scontrol update nodename=n1 state=resume
    eventually 40 cpus_are n1 1
    eventually 30 state_is n1 IDLE
}
