#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A node proves itself by a PMIx wire-up before it takes jobs: real agents, slurmds and PMIx in pods of their own.

setup_file() {
    load lib
    pods_up
    bridge_up a --agents
    qualify true
}
setup() { load lib; }
teardown() {
    nodes_away
    rm -f "$RUN"/pods/*/tidegate-pmix
    nsenter --net=/run/netns/n1 nft flush ruleset
}

qualify() { api PATCH "/apis/tidegate.dev/v1alpha1/namespaces/$NS/pools/hpc" '{"spec":{"qualify":'"$1"'}}' >/dev/null; }

# pmix_of NODE <<<SCRIPT: what its pods find as tidegate-pmix from now on.
pmix_of() {
    [[ -e /run/netns/$1 ]] || pod_net "$1"
    cat >"$RUN/pods/$1/tidegate-pmix"
    chmod 755 "$RUN/pods/$1/tidegate-pmix"
}
pmix_is_good() { rm -f "$RUN/pods/$1/tidegate-pmix"; }

# crash NODE: its container and all in it is killed; a new one is started, as the kubelet does it.
crash() {
    stop "slurmd-$1" KILL
    sleep 2
    agent_start "$1"
}

# proved_up NODE...: up, and free of their reservations.
proved_up() {
    local name
    agents_up "$@"
    for name; do eventually 15 no_reservation "$name"; done
}

# unproved NODE PATTERN: drained since its probe failed, which said so.
unproved() {
    local reason
    reason=$(node_reason "$1")
    echo "$1 is $(node_state "$1"), reason \"$reason\""
    # shellcheck disable=SC2053 # a pattern
    [[ $(node_state "$1") == IDLE+DRAIN && $reason == 'tidegate/health: PMIx probe failed: '$2 ]]
}

reservation_of() { scontrol -o show reservation "tidegate-qualify-$1" 2>/dev/null | grep 'State=ACTIVE'; }
no_reservation() { ! reservation_of "$1"; }
probes() { scontrol -o show jobs | grep 'JobName=tidegate-qualify '; }
# probes_of NODE [PATTERN]: its jobs, oldest first.
probes_of() { probes | grep "ReqNodeList=$1 " | grep -e "${2:-.}"; }
probe_runs() { probes_of "$1" JobState=RUNNING; }
# The number of its newest; slurmctld forgets the old ones.
last_probe() { probes_of "$1" | job_field JobId | sort -n | tail -n 1; }
probes_after() { probes_of "$1" | job_field JobId | awk -v id="$2" '$1 > id'; }
job_field() { grep -oE "(^| )$1=[^ ]*" | cut -d= -f2; }
count_is() { [[ $("${@:2}" | wc -l) == "$1" ]]; }
# The line of slurmctld's log where the job got its nodes, or where it ended.
began_in_log() { grep -nE "(Allocate|Started) JobId=$1 " "$LOGS/slurmctld.log" | tail -n 1 | cut -d: -f1; }
ended_in_log() { grep -nE "_job_complete: JobId=$1 done" "$LOGS/slurmctld.log" | tail -n 1 | cut -d: -f1; }

@test "a new node proves itself on its own where there is no other, and a job that waits runs afterwards" {
    kube_node_up n1
    agent_up n1
    eventually 10 state_is n1 'IDLE+DRAIN*'
    job=$(submit -w n1 0)
    eventually 30 job_is "$job" COMPLETED
    probe=$(probes_of n1 JobState=COMPLETED | job_field JobId)
    [[ $(probes_of n1) == *'2 ranks on 1 node: PMIx_Init'* ]]
    (($(ended_in_log "$probe") < $(began_in_log "$job")))
    eventually 10 no_reservation n1
    always 2 state_is n1 IDLE
    count_is 1 probes_of n1
}

@test "a node back from a crash runs the probe with a partner before any job" {
    proved_up n1 n2
    before=$(last_probe n1)
    first=$(submit --requeue -w n1 600)
    eventually 15 job_is "$first" RUNNING
    crash n1
    eventually 20 job_is "$first" PENDING
    job=$(submit -w n1 0)
    eventually 40 job_is "$first" RUNNING
    count_is 1 probes_after n1 "$before"
    probe=$(probes_of n1 | tail -n 1)
    [[ $probe == *'JobState=COMPLETED'*'2 ranks on 2 nodes: PMIx_Init'* ]]
    id=$(job_field JobId <<<"$probe")
    (($(ended_in_log "$id") < $(began_in_log "$first")))
    eventually 15 job_is "$job" COMPLETED
    (($(ended_in_log "$id") < $(began_in_log "$job")))
    eventually 10 no_reservation n1
}

@test "a node that has proved itself is not asked again after an ordinary drain" {
    proved_up n1
    before=$(last_probe n1)
    kubectl cordon n1
    eventually 10 state_is n1 IDLE+DRAIN
    kubectl uncordon n1
    eventually 15 state_is n1 IDLE
    [ "$(last_probe n1)" = "$before" ]
    no_reservation n1
}

@test "a probe that fails with two partners leaves the node drained with what it said, until its next start" {
    proved_up n2 n3
    pmix_of n1 <<'EOF'
#!/bin/sh
echo "tidegate-pmix: $SLURMD_NODENAME, rank $SLURM_PROCID: no luck today" >&2
exit 1
EOF
    kube_node_up n1
    agent_up n1
    eventually 10 state_is n1 'IDLE*'
    job=$(submit -w n1 0)
    eventually 40 unproved n1 'partner n[23]: n1, rank [01]: no luck today'
    eventually 10 no_reservation n1
    count_is 2 probes_of n1 JobState=FAILED
    [ "$(probes_of n1 JobState=FAILED | grep -oE ' NodeList=n[^ ]*' | sort -u | wc -l)" = 2 ]
    job_is "$job" PENDING
    always 3 unproved n1 'partner n[23]: n1, rank [01]: no luck today'
    count_is 2 probes_of n1 JobState=FAILED

    pmix_is_good n1
    crash n1
    eventually 40 job_is "$job" COMPLETED
    state_is n1 IDLE
}

@test "a person who resumes a node that failed has the last word" {
    proved_up n2
    pmix_of n1 <<<'#!/bin/sh
exit 1'
    kube_node_up n1
    agent_up n1
    eventually 60 unproved n1 'partner n2: srun: error: n1: task [01]: Exited with exit code 1'
    eventually 10 no_reservation n1
    scontrol update nodename=n1 state=resume
    eventually 10 state_is n1 IDLE
    always 4 state_is n1 IDLE
}

# shut_off NODE: from other nodes, but for Slurm's own ports.
shut_off() {
    [[ -e /run/netns/$1 ]] || pod_net "$1"
    nsenter --net="/run/netns/$1" nft -f - <<EOF
table ip shut_off {
    chain in { type filter hook input priority 0; ip saddr $(pod_ip "$1") accept
        ip saddr 10.99.1.0/24 tcp dport != 6818 tcp sport != 6818 drop; }
    chain out { type filter hook output priority 0; ip daddr $(pod_ip "$1") accept
        ip daddr 10.99.1.0/24 tcp dport != 6818 tcp sport != 6818 drop; }
}
EOF
}

@test "a node that is shut off from its partner but for slurmd's port fails, and says so" {
    proved_up n2
    shut_off n1
    kube_node_up n1
    agent_up n1
    eventually 60 unproved n1 'partner n2: n[12], rank [01]: the first fence was not complete within 10 s: *'
}

@test "a person's drained node proves nothing: no reservation, no job, and the drain stands (promise 1)" {
    proved_up n1
    before=$(last_probe n1)
    scontrol update nodename=n1 state=drain reason='bad dimm'
    crash n1
    always 8 no_reservation n1
    state_is n1 IDLE+DRAIN 'bad dimm'
    [ "$(last_probe n1)" = "$before" ]
}

@test "a person who drains a node in the middle of it ends it, and the drain stands (promise 1)" {
    pmix_of n1 <<<'#!/bin/sh
sleep 600'
    kube_node_up n1
    agent_up n1
    eventually 30 probe_runs n1
    probe=$(probe_runs n1 | job_field JobId)
    scontrol update nodename=n1 state=drain reason='bad dimm'
    eventually 10 no_reservation n1
    eventually 10 count_is 1 probes_of n1 "JobId=$probe .*JobState=CANCELLED"
    eventually 15 state_is n1 IDLE+DRAIN 'bad dimm'
    always 3 state_is n1 IDLE+DRAIN 'bad dimm'
}

@test "a node that hangs in its probe holds up no other" {
    pmix_of n1 <<<'#!/bin/sh
sleep 600'
    kube_node_up n1
    agent_up n1
    eventually 30 probe_runs n1
    kube_node_up n2
    agent_up n2
    job=$(submit 0)
    eventually 30 job_is "$job" COMPLETED
    [ "$(job_node "$job")" = n2 ]
    # nor is it anybody's partner
    [[ $(probes_of n2) == *'2 ranks on 1 node: '* ]]
    probe_runs n1
    state_is n1 'MIXED*RESERVED'
}

@test "a bridge that is killed in the middle of it is followed by one that carries on (promise 6)" {
    pmix_of n1 <<<"#!/bin/sh
sleep 6
exec $(readlink -f "$TIDEGATE_BUILD/tidegate-pmix") \"\$@\""
    kube_node_up n1
    agent_up n1
    eventually 10 state_is n1 'IDLE*'
    job=$(submit -w n1 0)
    eventually 30 probe_runs n1
    before=$(last_probe n1)
    stop bridge-a KILL
    always 2 reservation_of n1
    bridge_up a --agents
    job_is "$job" PENDING
    eventually 30 job_is "$job" COMPLETED
    eventually 10 no_reservation n1
    [ "$(last_probe n1)" = "$before" ]
}

@test "what is left of it goes when the pool no longer asks for it" {
    pmix_of n1 <<<'#!/bin/sh
sleep 600'
    kube_node_up n1
    agent_up n1
    eventually 30 probe_runs n1
    qualify false
    eventually 10 no_reservation n1
    eventually 15 state_is n1 IDLE
    qualify true
}
