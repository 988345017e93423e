#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the pods' shells; set by lib.bash
#
# Parts that die: a worker, the controller; and CoreDNS, which nobody here needs.

setup() {
    load lib
    dns=$(kubectl -n kube-system get service kube-dns -o jsonpath='{.spec.clusterIP}')
}
teardown() {
    # As kubeadm makes it.
    kubectl -n kube-system scale deployment coredns --replicas=2
    for node in "$control_plane" "${workers[@]}"; do
        if dns_packets "$node" -C 2>/dev/null; then dns_packets "$node" -D; fi
    done
    leave_as_found
}

# dns_packets NODE -I|-C|-D: drops what pods on the node send to the cluster's DNS server.
dns_packets() { in_node "$1" iptables -t raw "$2" PREROUTING -d "$dns" -j DROP; }

took() { # FILE WHAT FROM TO: notes a figure, and shows it
    seconds "$3" "$4" >"$1/$2"
    say "$2: $(cat "$1/$2") s"
}

# everyday DIRECTORY: what users and admins do all day, with the seconds that each took.
everyday() {
    local since seen
    mkdir -p "$1"
    since=$(now)
    login sbatch --wait -n1 --mem=100 -o day.out --wrap 'echo batch'
    took "$1" sbatch "$since" "$(now)"
    [ "$(login cat day.out)" = batch ]
    since=$(now)
    [ "$(login srun -N2 --mem=100 hostname | sort -u | wc -l)" -eq 2 ]
    took "$1" 'srun over 2 nodes' "$since" "$(now)"
    since=$(now)
    login srun --mpi=pmix -N2 --ntasks-per-node=1 --mem=100 "$ring" | grep 'ring is right'
    took "$1" MPI "$since" "$(now)"
    since=$(now)
    kubectl cordon "$X"
    seen=$(slurm 10 node_is "$X" 'idle\+drain' "$cordoned")
    took "$1" cordon "$since" "$seen"
    since=$(now)
    kubectl uncordon "$X"
    seen=$(slurm 10 node_is "$X" idle)
    took "$1" uncordon "$since" "$seen"
}

# lose_worker DIRECTORY: a worker is stopped under a job and started again. Kubernetes takes 33 to 50 s
# to find it NotReady, so that is no part of the figures.
lose_worker() {
    local job bystander node since seen
    mkdir -p "$1"
    login rm -f lost.out bystander.out
    job=$(login sbatch --parsable --requeue -n1 --mem=100 --open-mode=append -o lost.out --wrap '
        echo "run ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME"
        [ -n "$SLURM_RESTART_COUNT" ] || sleep 600')
    eventually 10 login grep -q 'run 0' lost.out
    node=$(job_field "$job" NodeList)
    bystander=$(login sbatch --parsable -x "$node" -n1 --mem=100 -o bystander.out --wrap 'sleep 70; echo done')
    becomes 10 job_is "$bystander" RUNNING
    "$top/tests/kind/cluster" stop-node "$node"
    eventually 90 ready_is "$node" 'False|Unknown'
    since=$(now)
    slurm 20 node_is "$node" 'down(\+(drain|not_responding))*|down\*' "$silent" >"$1/down"
    seen=$(cat "$1/down")
    took "$1" 'NotReady to DOWN' "$since" "$seen"
    eventually 5 pool_shows down 1
    since=$seen
    seen=$(slurm 60 job_is "$job" COMPLETED)
    took "$1" 'DOWN to job done elsewhere' "$since" "$seen"
    login cat lost.out
    [ "$(login head -n 1 lost.out)" = "run 0 on $node" ]
    [[ $(login tail -n 1 lost.out) =~ ^'run 1 on ' ]]
    [[ $(login tail -n 1 lost.out) != *" $node" ]]

    since=$(now)
    "$top/tests/kind/cluster" start-node "$node"
    seen=$(slurm 60 node_is "$node" idle)
    took "$1" 'start to back in Slurm' "$since" "$seen"
    [ "$(login srun -w "$node" -n1 --mem=100 --immediate=10 bash -c 'echo $SLURMD_NODENAME')" = "$node" ]
    becomes 60 job_is "$bystander" COMPLETED
    [ "$(job_field "$bystander" Restarts)" = 0 ]
    eventually 5 pool_shows ready 3
}

@test "a stopped worker is set DOWN and its job runs elsewhere; started it is back unaided and takes jobs (promise 3)" {
    lose_worker "$BATS_SUITE_TMPDIR/with-dns"
}

@test "with CoreDNS scaled to zero sbatch, srun, MPI, cordon, uncordon and a lost worker work as fast as with it" {
    local with=$BATS_SUITE_TMPDIR/with-dns without=$BATS_SUITE_TMPDIR/without-dns what node slack
    everyday "$with"
    # Alone, without the test before, its figures are had first.
    [[ -e $with/'NotReady to DOWN' ]] || lose_worker "$with"

    login getent ahosts kubernetes.default.svc.cluster.local
    kubectl -n kube-system scale deployment coredns --replicas=0
    eventually 60 no_dns
    # kube-proxy refuses what is for a Service without pods at once, and nobody waits for long. The packets
    # to a server that died a moment ago are lost: that is the worse case.
    for node in "$control_plane" "${workers[@]}"; do dns_packets "$node" -I; done
    run ! login timeout 2 getent ahosts kubernetes.default.svc.cluster.local
    everyday "$without"
    lose_worker "$without"

    # A name that is looked up in vain costs 5 s and more. What differs below that is the machine; and a
    # requeued job, once it may begin, is found by slurmctld's next look for such, 30 s apart.
    for what in "$with"/*; do
        slack=2
        case $what in
        */down) continue ;;
        *elsewhere) slack=32 ;;
        esac
        echo "${what##*/}: $(cat "$what") s with DNS, $(cat "$without/${what##*/}") s without"
        less "$(cat "$without/${what##*/}")" "$(awk -v slack="$slack" '{ print $1 * 1.5 + slack }' "$what")"
    done
}
no_dns() { [[ -z $(kubectl -n kube-system get pods -l k8s-app=kube-dns -o name) ]]; }

@test "a controller that is killed finds its queue again, and running jobs complete (promise 6)" {
    local running=() queued held job node
    for node in "${workers[@]}"; do
        running+=("$(login sbatch --parsable -w "$node" --exclusive -o "ran-%j.out" --wrap 'sleep 20; echo done')")
    done
    for job in "${running[@]}"; do becomes 10 job_is "$job" RUNNING; done
    queued=$(login sbatch --parsable -a 1-3 -N1 --exclusive -o 'queued-%a.out' --wrap 'echo done')
    held=$(login sbatch --parsable --hold -n1 --mem=100 --comment mind-me -o held.out --wrap 'echo done')
    # slurmctld writes changes down within 5 s, and what is lost with a SIGKILL before is no queue.
    eventually 20 written_down "$held"

    hang_up_controller
    becomes 30 job_is "$held" PENDING
    [ "$(job_field "$held" Comment)" = mind-me ]
    is job_is "$queued" 'PENDING|PENDING RUNNING|RUNNING|COMPLETED PENDING|COMPLETED'
    for job in "${running[@]}"; do
        is job_is "$job" 'RUNNING|COMPLETED'
        [ "$(job_field "$job" Restarts)" = 0 ]
    done
    for job in "${running[@]}" "$queued"; do becomes 100 job_is "$job" COMPLETED; done
    for job in "${running[@]}"; do [ "$(login cat "ran-$job.out")" = "done" ]; done
    [ "$(login cat queued-1.out queued-2.out queued-3.out | sort | uniq -c | xargs)" = '3 done' ]
    login scontrol release "$held"
    becomes 20 job_is "$held" COMPLETED
    # New ones do not take the number of an old one.
    job=$(login sbatch --parsable -n1 --mem=100 -o /dev/null --wrap true)
    ((job > held))
}
written_down() { # JOB: since it was submitted the jobs were saved
    local saved submitted
    saved=$(controller stat -c %Y /var/spool/slurmctld/job_state)
    submitted=$(date -d "$(job_field "$1" SubmitTime)Z" +%s)
    echo "job_state is of $saved, the job of $submitted"
    ((saved > submitted))
}
# SIGKILL to slurmctld first, so that it can not save anything, and then the pod.
hang_up_controller() {
    in_node "$control_plane" pkill -KILL -x slurmctld
    replace_controller --grace-period=0 --force
}

@test "a second controller on the state directory refuses in words, and the first goes on" {
    local job
    k get deploy tidegate-controller -o json | jq '{apiVersion: "v1", kind: "Pod",
        metadata: {name: "second-controller", labels: {test: "second"}},
        spec: (.spec.template.spec + {restartPolicy: "Never"})}' | k create -f -
    eventually 60 second_ended
    run k logs second-controller -c slurmctld
    echo "$output"
    [[ $output == *'/var/spool/slurmctld is in use by another slurmctld (tidegate-controller-'* ]]
    [ "$(k get pod second-controller -o jsonpath='{.status.containerStatuses[?(@.name=="slurmctld")].state.terminated.exitCode}')" = 75 ]
    k delete pod second-controller --grace-period=1
    job=$(login sbatch --parsable --wait -n1 --mem=100 -o /dev/null --wrap true)
    is job_is "$job" COMPLETED
}
second_ended() {
    k get pod second-controller \
        -o jsonpath='{.status.containerStatuses[?(@.name=="slurmctld")].state.terminated.exitCode}' | grep .
}
