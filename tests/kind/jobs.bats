#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the pods' shells; set by lib.bash
#
# What an HPC user does, who is uid 1000 in a login pod and never sees Kubernetes.

setup() { load lib; }
teardown() { leave_as_found; }

zombies() { # none is left in any compute pod
    local node found=''
    for node in "${workers[@]}"; do
        found+=$(k exec "$(compute_pod "$node")" -c slurmd -- ps -eo stat=,pid=,comm= |
            awk -v node="$node" '$1 ~ /^Z/ { print node ": " $0 }')
    done
    echo "$found"
    [[ -z $found ]]
}

@test "a batch array of 20 as uid 1000 writes the right output, and leaves no zombie in the pods" {
    local job i
    [ "$(login id -u)" = 1000 ]
    job=$(login sbatch --parsable --wait -a 1-20 -n1 --mem=100 -o 'array-%a.out' \
        --wrap 'echo "$SLURM_ARRAY_TASK_ID squared is $((SLURM_ARRAY_TASK_ID * SLURM_ARRAY_TASK_ID)), says uid $(id -u) ($(id -un))"')
    for i in {1..20}; do
        login cat "array-$i.out"
    done >"$BATS_TEST_TMPDIR/said"
    for i in {1..20}; do
        echo "$i squared is $((i * i)), says uid 1000 (alice)"
    done | diff - "$BATS_TEST_TMPDIR/said"

    login scontrol -o show job "$job" >"$BATS_TEST_TMPDIR/shown"
    cat "$BATS_TEST_TMPDIR/shown"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/shown")" -eq 20 ]
    [ "$(job_field "$job" JobState)" = COMPLETED ]
    [ "$(job_field "$job" ExitCode)" = 0:0 ]
    [ "$(job_field "$job" Reason)" = None ]
    [ "$(job_field "$job" UserId)" = 'alice(1000)' ]
    [ "$(job_field "$job" Partition)" = hpc ]
    [ "$(job_field "$job" Restarts)" = 0 ]
    [ "$(job_field "$job" WorkDir)" = /home/alice ]
    [ "$(job_field "$job" ArrayTaskId | sort -n | xargs)" = "$(echo {1..20})" ]
    eventually 5 zombies
}

@test "an Open MPI ring over 2 nodes is right, names both hosts, and has done MPI_Init in under 2 s" {
    local nodes hosts init
    # Twice the same: from the login pod, and from within a batch job.
    run --separate-stderr login srun --mpi=pmix -N2 --ntasks-per-node=2 "$ring"
    echo "$output" "$stderr"
    [ "$status" -eq 0 ]
    [[ $output == *'ring is right: sum 6'* ]]
    nodes=$(grep -oP '(?<=, node )[^,]*' <<<"$output" | sort -u)
    hosts=$(grep -oP '(?<=: host )[^,]*' <<<"$output" | sort -u)
    [ "$(wc -l <<<"$nodes")" -eq 2 ]
    [ "$(wc -l <<<"$hosts")" -eq 2 ]
    for node in $nodes; do
        # Slurm's name of the node is Kubernetes', and the host is the pod there.
        grep -qx "$(compute_pod "$node")" <<<"$hosts"
    done
    init=$(grep -oP '(?<=on 2 hosts: MPI_Init )[0-9.]+' <<<"$output")
    say "MPI_Init $init s over 2 nodes"
    less "$init" 2

    login sbatch --wait -N2 --ntasks-per-node=1 --mem=100 -o ring.out --wrap "srun --mpi=pmix $ring"
    run login cat ring.out
    echo "$output"
    [[ $output == *'on 2 hosts: MPI_Init'*'ring is right: sum 1'* ]]
}
