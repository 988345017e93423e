#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the pods' shells; set by lib.bash
#
# The node agent: PID 1 of the compute pod. The checks `scratch` and `stuck` come from values.yaml.

setup() { load lib; }
teardown() {
    local node
    for node in "${workers[@]}"; do in_compute "$node" rm -f /dev/shm/fill /dev/shm/stuck; done
    k patch pool hpc --type merge -p '{"spec":{"qualify":false}}'
    leave_as_found
}

in_compute() { # NODE CMD...
    local node=$1
    shift
    k exec -i "$(compute_pod "$node")" -c slurmd -- "$@"
}
# After a reconfiguration it goes by its other name.
slurmd_pid() { in_compute "$1" pgrep -o -x 'slurmd(-wlm)?'; }
slurmd_is_another() { # NODE PID
    local pid
    pid=$(slurmd_pid "$1")
    echo "slurmd of $1 is process $pid"
    [[ -n $pid && $pid != "$2" ]]
}
# agent_of NODE FILTER: of what the bridge tells of the node's agent.
agent_of() { login tidegate nodes --json | jq -r --arg n "$1" ".nodes[] | select(.name == \$n) | .agent | $2"; }
agent_is() { # NODE FILTER VALUE
    local have
    have=$(agent_of "$1" "$2")
    echo "$1: $2 is $have"
    [[ $have == "$3" ]]
}
# line_of NODE: cpus and MiB that Slurm has of the node.
line_of() { login sinfo -h -n "$1" -O 'CPUs:|,Memory:' | head -n 1 | sed 's/ *$//'; }
line_is() { # NODE CPUS|MIB
    local have
    have=$(line_of "$1")
    echo "$1 has $have"
    [[ $have == "$2" ]]
}
# run_ns NODE: nanoseconds that PID 1 of the compute pod has been on a cpu.
run_ns() { in_compute "$1" cut -d ' ' -f 1 /proc/1/schedstat; }
zombies() { # none is left in any compute pod
    local node found=''
    for node in "${workers[@]}"; do
        found+=$(in_compute "$node" ps -eo stat=,pid=,comm= | awk -v node="$node" '$1 ~ /^Z/ { print node ": " $0 }')
    done
    echo "$found"
    [[ -z $found ]]
}

@test "slurmd is killed under a running batch job: the job completes, slurmd is back, the node never goes down" {
    local job pid
    job=$(login sbatch --parsable -w "$X" -n1 --mem=100 -o killed.out --wrap 'echo begun; sleep 10; srun echo done')
    eventually 15 login grep -q begun killed.out
    pid=$(slurmd_pid "$X")
    in_compute "$X" kill -KILL "$pid"
    eventually 15 slurmd_is_another "$X" "$pid"
    becomes 40 job_is "$job" COMPLETED
    [ "$(job_field "$job" Restarts)" = 0 ]
    [ "$(login cat killed.out | xargs)" = "begun done" ]
    [ "$(agent_of "$X" .restarts)" -ge 1 ]
    is node_is "$X" idle
}

@test "200 short jobs leave no zombie in the compute pods" {
    local job since
    since=$(now)
    job=$(login sbatch --parsable --wait -a 1-200 -n1 --mem=10 -o /dev/null --wrap '(sleep 0.05 &) ; true')
    say "200 jobs took $(seconds "$since") s"
    [ "$(login squeue -h -t all -j "$job" -r -o %T | sort | uniq -c | xargs)" = '200 COMPLETED' ]
    eventually 5 zombies
}

@test "the node's line is what the pod may use: a pod with limits shows them in Slurm, and a job that asks for more is refused" {
    local before
    before=$(line_of "$X")
    line_is "$Z" "$before"
    upgrade --set-json 'poolDefaults.resources={"limits":{"cpu":"1","memory":"1Gi"}}'
    # The old record does not fit the new pod: it is made anew, by nobody's hand.
    replace_slurmd "$Z"
    eventually 60 line_is "$Z" '1|512'
    becomes 60 node_is "$Z" idle
    run login sbatch -w "$Z" -N1 -n2 --mem=10 --wrap true
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output == *'Requested node configuration is not available'* ]]
    run login sbatch -w "$Z" -N1 -n1 --mem=600 --wrap true
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$(login srun -w "$Z" -n1 --mem=500 echo fits)" = fits ]

    upgrade
    replace_slurmd "$Z"
    eventually 60 line_is "$Z" "$before"
    becomes 60 node_is "$Z" idle
}

@test "full scratch drains the node with a sentence, and clears by itself once there is room" {
    local since seen line
    since=$(now)
    in_compute "$Y" sh -c 'head -c 509M /dev/zero >/dev/shm/fill'
    seen=$(slurm 30 node_is "$Y" 'idle\+drain')
    say "full scratch to DRAIN: $(seconds "$since" "$seen") s"
    line=$(login sinfo -h -n "$Y" -O 'Reason:200' | head -n 1)
    echo "$line"
    [[ $line =~ ^'tidegate/health: /dev/shm has '.*' free, expected ' ]]
    run login tidegate why "$Y"
    echo "$output"
    [[ $output == *'/dev/shm'* ]]
    since=$(now)
    in_compute "$Y" rm /dev/shm/fill
    seen=$(slurm 40 node_is "$Y" idle)
    say "room to IDLE: $(seconds "$since" "$seen") s"
}

@test "a check that hangs is a result, and stops neither heartbeats nor other checks" {

    in_compute "$Y" touch /dev/shm/stuck
    becomes 40 node_is "$Y" 'idle\+drain'
    login sinfo -h -n "$Y" -O 'Reason:200' | grep 'tidegate/health: .*stuck'
    # What another check finds arrives; a link without a heartbeat for 9 s would be lost.
    in_compute "$Y" sh -c 'head -c 509M /dev/zero >/dev/shm/fill'
    eventually 30 agent_is "$Y" '[.checks[].name] | sort | join(" ")' 'scratch stuck'
    for _ in {1..15}; do
        agent_is "$Y" .linked yes
        sleep 1
    done
    in_compute "$Y" rm /dev/shm/stuck /dev/shm/fill
    becomes 60 node_is "$Y" idle
}

@test "promise 2: a pod that is deleted under jobs drains its node, lets the short job end, requeues the long one, and the node returns" {
    local short long later old drained gone
    short=$(login sbatch --parsable -w "$X" -n1 --mem=100 -o /dev/null --wrap 'sleep 6')
    long=$(login sbatch --parsable --requeue -w "$X" -n1 --mem=100 --open-mode=append -o long.out --wrap '
        echo "run ${SLURM_RESTART_COUNT:-0}"
        [ -n "$SLURM_RESTART_COUNT" ] || sleep 600')
    becomes 10 job_is "$short" RUNNING
    becomes 10 job_is "$long" RUNNING
    old=$(compute_pod "$X")
    gone=$(now)
    k delete pod "$old" --wait=false
    drained=$(slurm 10 node_is "$X" '.*drain.*' 'tidegate/update: the slurmd pod is being stopped')
    say "deletion to DRAIN: $(seconds "$gone" "$drained") s"
    later=$(login sbatch --parsable -w "$X" -n1 --mem=100 -o /dev/null --wrap true)
    becomes 15 job_is "$short" COMPLETED
    is job_is "$later" PENDING
    is job_is "$long" RUNNING
    becomes 30 job_is "$long" PENDING
    [ "$(job_field "$short" Restarts)" = 0 ]
    # grace period 20 s, see values.yaml
    eventually 30 new_slurmd "$X" "$old"
    say "deletion to the next pod: $(seconds "$gone") s"
    becomes 90 job_is "$long" COMPLETED
    login cat long.out
    [ "$(login grep '^run' long.out | xargs)" = 'run 0 run 1' ]
    becomes 30 job_is "$later" COMPLETED
    becomes 30 node_is "$X" idle
}

@test "a node that comes back from a crash in a pool with qualify runs the probe before any job" {
    local waits probe since
    k patch pool hpc --type merge -p '{"spec":{"qualify":true}}'
    since=$(now)
    # As the kernel's out-of-memory killer would: the container is restarted in place.
    in_node "$Z" pkill -KILL -x tidegate-node
    becomes 30 node_is "$Z" 'down.*'
    waits=$(login sbatch --parsable -w "$Z" -n1 --mem=100 -o /dev/null --wrap true)
    becomes 120 job_is "$waits" COMPLETED
    say "crash to the first job done, with the probe: $(seconds "$since") s"
    probe=$(login squeue -h -t all -n tidegate-qualify -o %A | tail -n 1)
    [ "$(job_field "$probe" JobState)" = COMPLETED ]
    login scontrol show hostnames "$(job_field "$probe" NodeList)" | grep -qx "$Z"
    echo "probe ended $(job_field "$probe" EndTime), job began $(job_field "$waits" StartTime)"
    [[ ! $(job_field "$waits" StartTime) < $(job_field "$probe" EndTime) ]]
    # Nothing of it is left.
    becomes 10 node_is "$Z" idle
    [[ $(login scontrol -o show reservation) != *tidegate-qualify* ]]
}

@test "promise 6: the agents find the bridge again after its leader has died" {
    local old
    old=$(leader)
    kill_bridge "$old"
    eventually 60 bridge_is_another "$old"
    for node in "${workers[@]}"; do eventually 30 agent_is "$node" .linked yes; done
    bridge_acts
}
bridge_is_another() {
    local now
    now=$(leader)
    echo "leader is $now"
    [[ -n $now ]] && login tidegate nodes --json | jq -e .leader
}

@test "the agent takes less than 8 MiB and 0.1 % of a core, and its node is registered within 3 s of the pod's start" {
    local rss ran before took
    rss=$(in_compute "$Y" awk '/^Rss:/ { print $2 }' /proc/1/smaps_rollup)
    say "agent: $rss KiB resident"
    less "$rss" 8192
    before=$(run_ns "$Y")
    sleep 30
    ran=$((($(run_ns "$Y") - before) / 1000))
    say "agent: $ran us of cpu in 30 s"
    less "$ran" 30000

    # The best of three: what else the machine does is no part of it.
    for _ in 1 2 3; do
        took=$(start_to_registered "$Y")
        say "container's start, in whole seconds, to registered: $took s"
        becomes 60 node_is "$Y" idle
        if less "$took" 4; then return; fi
    done
    false
}
started_at() { # POD; the kubelet tells it a moment later
    k get pod "$1" -o jsonpath='{.status.containerStatuses[0].state.running.startedAt}' | grep .
}
# start_to_registered NODE: seconds, of a new pod.
start_to_registered() {
    local old uid seen
    old=$(compute_pod "$1")
    k delete pod "$old" --wait=true --timeout=60s >&2
    eventually 30 new_slurmd "$1" "$old"
    uid=$(k get pod "$(compute_pod "$1")" -o jsonpath='{.metadata.uid}')
    seen=$(slurm 60 registered_here "$1" "$uid")
    eventually 30 started_at "$(compute_pod "$1")"
    seconds "$(date -d "$(started_at "$(compute_pod "$1")")" +%s)" "$seen"
}
