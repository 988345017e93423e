#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the pods' shells; set by lib.bash
#
# Planned work on nodes, and who has the last word.

setup() { load lib; }
teardown() { leave_as_found; }

word_stands() { # AFTER WHAT: the person's drain of X is as it was set, and the bridge is at work
    bridge_acts
    slurm 0 node_is "$X" 'idle\+drain' 'bad dimm' >/dev/null || {
        echo "after $1 the drain is not what the person set"
        return 1
    }
}

@test "a cordon drains the node within 2 s, its job completes, new ones stay off; uncordon gives it back (promise 2)" {
    local job pending since seen
    job=$(login sbatch --parsable -w "$X" -n1 --mem=100 -o job.out --wrap 'sleep 6; echo done')
    becomes 10 job_is "$job" RUNNING
    since=$(now)
    kubectl cordon "$X"
    seen=$(slurm 10 node_is "$X" '(mixed|allocated)\+drain' "$cordoned")
    say "cordon to DRAIN: $(seconds "$since" "$seen") s, with kubectl's own time"
    less "$(seconds "$since" "$seen")" 2

    # Off this node, and on with the rest.
    run login srun -w "$X" -n1 --mem=100 --immediate=1 true
    echo "$output"
    [ "$status" -ne 0 ]
    pending=$(login sbatch --parsable -w "$X" -n1 --mem=100 -o pending.out --wrap 'echo came')
    run --separate-stderr login srun -N2 --mem=100 bash -c 'echo $SLURMD_NODENAME'
    echo "$output"
    [ "$(sort <<<"$output" | xargs)" = "$Y $Z" ]
    is job_is "$job" RUNNING
    eventually 5 pool_shows drained 1
    becomes 20 job_is "$job" COMPLETED
    [ "$(login cat job.out)" = "done" ]
    becomes 5 node_is "$X" 'idle\+drain' "$cordoned"
    is job_is "$pending" PENDING
    kubectl get events -n default --field-selector "involvedObject.name=$X,reason=SlurmDrained" |
        tee /dev/stderr | grep -q "$cordoned"

    since=$(now)
    kubectl uncordon "$X"
    # The job that waited may have it first.
    seen=$(slurm 20 node_is "$X" 'idle|mixed|allocated')
    say "uncordon to back: $(seconds "$since" "$seen") s"
    run --separate-stderr login srun -w "$X" -n1 --mem=100 --immediate=10 bash -c 'echo $SLURMD_NODENAME'
    echo "$output" "$stderr"
    [ "$output" = "$X" ]
    becomes 20 job_is "$pending" COMPLETED
    eventually 5 pool_shows drained 0
}

@test "a person's drain stays word for word over restarts of bridge, slurmd pod and controller, and over cordon and uncordon (promise 1)" {
    local extra
    controller scontrol update nodename="$X" state=drain reason="bad dimm"
    word_stands 'nothing'
    restart_bridge
    word_stands 'a restart of the bridge'
    replace_slurmd "$X"
    word_stands 'a new slurmd pod'
    replace_controller
    word_stands 'a new controller pod'
    kubectl cordon "$X"
    word_stands 'a cordon of the node'
    run login tidegate why "$X"
    echo "$output"
    [[ $output == *'bad dimm'* && $output == *'cordoned in Kubernetes'* ]]
    kubectl uncordon "$X"
    word_stands 'its uncordon'
    extra=$(extra_of "$X")
    echo "Extra: $extra"

    # And the person's own resume is enough.
    controller scontrol update nodename="$X" state=resume
    becomes 10 node_is "$X" idle
}

@test "an admin's kubectl cordon is never undone by us, nor is the resume of who overrules our drain (promise 1)" {
    run -1 kubectl auth can-i patch nodes --as system:serviceaccount:tidegate:tidegate-bridge
    run -1 kubectl auth can-i update nodes --as system:serviceaccount:tidegate:tidegate-bridge

    kubectl cordon "$X"
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"
    controller scontrol update nodename="$X" state=resume
    becomes 10 node_is "$X" idle
    bridge_acts
    is node_is "$X" idle
    restart_bridge
    bridge_acts
    is node_is "$X" idle
    is_cordoned "$X"
    replace_slurmd "$X"
    becomes 30 node_is "$X" idle
    bridge_acts
    is_cordoned "$X"

    # Once the cause has cleared, the next time counts again.
    kubectl uncordon "$X"
    bridge_acts
    kubectl cordon "$X"
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"
}
