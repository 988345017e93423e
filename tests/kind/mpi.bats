#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the pods' shells; set by lib.bash
#
# MPI over two pods where something stands in its way.

setup() { load lib; }

# in_pod NODE CMD...: with the network of the node's compute pod and the programs of the node.
in_pod() {
    local node=$1
    shift
    in_node "$node" sh -c 'exec nsenter -t "$(pgrep -o -x tidegate-node)" -n -- "$@"' sh "$@"
}

# useless NODE ADDRESS: an interface that goes nowhere, such as docker0 or cni0 are in a pod that has them.
useless() {
    in_pod "$1" ip link add useless0 type bridge
    in_pod "$1" ip addr add "$2" dev useless0
    in_pod "$1" ip link set useless0 up
}

teardown() {
    local node
    for node in "$X" "$Y"; do
        if in_pod "$node" test -e /proc/sys/net/ipv4/conf/useless0; then
            in_pod "$node" ip link del useless0
        fi
    done
    leave_as_found
}

# go_around [NAME=VALUE]...: the ring over both nodes, for half a minute at most.
go_around() {
    run login env "$@" timeout 30 srun --mpi=pmix -w "$X,$Y" -N2 --ntasks-per-node=2 \
        --mem-per-cpu=100 "$ring" 100000
    echo "$*: status $status, $output"
}
ring_is_right() {
    go_around "$@"
    [[ $status == 0 && $output == *'on 2 hosts: MPI_Init'*'ring is right: sum 6'* ]]
}
ring_dies() {
    go_around "$@"
    [[ $status != 0 && $output != *'ring is right'* ]]
}

@test "an interface that goes nowhere, with one subnet in both pods: MPI takes eth0, and dies without our defaults" {
    useless "$X" 172.30.0.1/16
    useless "$Y" 172.30.0.2/16
    ring_is_right
    # By mpirun, which has daemons of its own.
    login sbatch --wait -w "$X,$Y" -N2 --ntasks-per-node=2 --mem-per-cpu=100 -o mpirun.out \
        --wrap "timeout 30 mpirun $ring"
    run login cat mpirun.out
    echo "$output"
    [[ $output == *'on 2 hosts: MPI_Init'*'ring is right: sum 6'* ]]
    # As Open MPI comes, and with the wrong one alone.
    ring_dies OMPI_MCA_btl_tcp_if_include=
    ring_dies OMPI_MCA_btl_tcp_if_include=useless0
    ring_is_right
}

@test "an interface that has the same address in both pods, as docker0 has: MPI takes eth0" {
    useless "$X" 172.17.0.1/16
    useless "$Y" 172.17.0.1/16
    ring_is_right
    ring_dies OMPI_MCA_btl_tcp_if_include=
    # UCX leaves bridges out by itself.
    ring_is_right OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any
}

@test "a job has the pod's locked memory and /dev/shm, whatever the shell has that it is submitted from" {
    local want
    want=$(k exec "$(compute_pod "$X")" -c slurmd -- sh -c 'ulimit -l')
    run login bash -c 'ulimit -l 16 && srun -w "$1" -n1 --mem=100 bash -c "ulimit -l; df -BM --output=size /dev/shm"' \
        sh "$X"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(head -n 1 <<<"$output")" = "$want" ]
    [ "$want" != 16 ]
    [[ $output == *512M ]]
}
