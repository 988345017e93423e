#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the nodes' shells; set by lib.bash
#
# The bridge is killed, and each of the two that it keeps in step stops answering.

setup() { load lib; }
teardown() {
    go_on kube-apiserver
    go_on slurmctld
    restarts_as_usual
    leave_as_found
}

# A kubelet waits longer and longer before it starts a container again, up to 5 minutes: that would
# be a test of the kubelet. Its configuration is put back at the end.
restart_kubelet() {
    in_node "$control_plane" systemctl restart kubelet
    # It answers before it knows its pods again.
    eventually 60 controller true
    eventually 60 login true
}
quick_restarts() {
    in_node "$control_plane" sh -ec '
        cd /var/lib/kubelet
        cp config.yaml config.yaml.before-test
        printf "%s\n" "featureGates: {KubeletCrashLoopBackOffMax: true}" \
            "crashLoopBackOff: {maxContainerRestartPeriod: 1s}" >>config.yaml'
    restart_kubelet
}
restarts_as_usual() {
    if in_node "$control_plane" test -e /var/lib/kubelet/config.yaml.before-test; then
        in_node "$control_plane" mv /var/lib/kubelet/config.yaml.before-test /var/lib/kubelet/config.yaml
        restart_kubelet
    fi
}

@test "20 SIGKILLs of the bridge at random moments of cordon and uncordon leave each node as it should be (promise 6)" {
    local i node pod whom delay since
    declare -A want=([$Y]=idle [$Z]=idle)
    quick_restarts
    controller scontrol update nodename="$X" state=drain reason="bad dimm"
    RANDOM=${TIDEGATE_SEED:-$$}
    echo "TIDEGATE_SEED=${TIDEGATE_SEED:-$$}"
    for i in {1..20}; do
        # Mostly the leader, at times the standby or both.
        case $((RANDOM % 4)) in
        0) mapfile -t whom < <(bridge_pods) ;;
        1) mapfile -t whom < <(bridge_pods | grep -vx "$(leader)") ;;
        *) whom=("$(leader)") ;;
        esac
        delay=0.$((RANDOM % 6))
        node=$Y
        ((RANDOM % 2)) || node=$Z
        since=$(now)
        (sleep "$delay" && for pod in "${whom[@]}"; do kill_bridge "$pod"; done) 3>&- &
        if [[ ${want[$node]} == idle ]]; then
            kubectl cordon "$node"
            want[$node]=drained
        else
            kubectl uncordon "$node"
            want[$node]=idle
        fi
        wait $!
        for node in "$Y" "$Z"; do
            if [[ ${want[$node]} == idle ]]; then
                becomes 60 node_is "$node" idle
            else
                becomes 60 node_is "$node" 'idle\+drain' "$cordoned"
            fi
        done
        is node_is "$X" 'idle\+drain' 'bad dimm'
        echo "$i: killed ${whom[*]} after $delay s; right after $(seconds "$since") s"
    done
    # Uncordoned, they all come back, and the person's drain still stands.
    kubectl uncordon "$Y" "$Z"
    becomes 60 node_is "$Y" idle
    becomes 60 node_is "$Z" idle
    is node_is "$X" 'idle\+drain' 'bad dimm'
}

@test "an API server that hangs for 30 s drains nothing, jobs start all the while, and then it goes on (promise 4)" {
    local end job
    job=$(login sbatch --parsable -w "$X" -n1 --mem=100 -o long.out --wrap 'sleep 20; echo done')
    becomes 10 job_is "$job" RUNNING
    hang kube-apiserver
    end=$((SECONDS + 30))
    while ((SECONDS < end)); do
        run direct sinfo -h -N -O 'NodeList:30,StateComplete:60,Reason:60'
        [ "$status" -eq 0 ]
        if grep -E 'drain|down|fail' <<<"$output"; then
            echo "a node was drained while the API server did not answer"
            return 1
        fi
        direct srun --overcommit -N1 -n1 --mem=100 --immediate=5 -D / true
        sleep 1
    done
    go_on kube-apiserver
    eventually 60 kubectl get --raw /readyz
    becomes 20 job_is "$job" COMPLETED
    bridge_acts "$X"
}

@test "a slurmctld that hangs for 30 s: nothing is wrongly drained, what happened meanwhile is caught up with (promise 4)" {
    local since
    hang slurmctld
    kubectl cordon "$X"
    kubectl cordon "$Y"
    sleep 15
    kubectl uncordon "$Y"
    sleep 15
    # What cannot be seen is said to be so, and not called drained or gone.
    run k exec deploy/tidegate-bridge -c tidegated -- tidegate nodes
    echo "$output"
    [[ $status -eq 69 && $output == *'slurmctld cannot be read'* ]]
    go_on slurmctld
    since=$(now)
    since=$(seconds "$since" "$(slurm 20 node_is "$X" 'idle\+drain' "$cordoned")")
    say "slurmctld back to DRAIN: $since s"
    becomes 5 node_is "$Y" idle
    becomes 5 node_is "$Z" idle
    kubectl uncordon "$X"
    becomes 10 node_is "$X" idle
    all_idle 5
}
