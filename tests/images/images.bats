#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The images themselves, in plain containers and without Kubernetes.
#
# shellcheck disable=SC2016 # single quotes: what is in them is for the shell in the container
# shellcheck disable=SC2034,SC2154 # variables shared with stack.bash, which bats loads

bats_require_minimum_version 1.5.0

setup_file() {
    export stack=tgimg-$$
    export dir=$BATS_FILE_TMPDIR
    load stack
    chmod 755 "$BATS_RUN_TMPDIR" "$dir"
    stack_up
}

teardown_file() {
    load stack
    if [[ -n ${TIDEGATE_KEEP:-} ]]; then
        "$CONTAINER" ps -a >&3
        return
    fi
    stack_down
}

setup() {
    load stack
    ip=$(cat "$dir/ip")
}

logs() {
    "$CONTAINER" logs "$stack-$1" 2>&1
}

@test "the node image has less than 150 MB compressed" {
    run -0 "$BATS_TEST_DIRNAME/images" size "$node"
    compressed=${output##* }
    ((compressed < 150000000))
}

@test "labels say what each image is, and no image is left to run as root but the node's" {
    for image in "$controller" "$node" "$bridge"; do
        run -0 "$CONTAINER" image inspect -f '{{json .Config.Labels}} user={{.Config.User}}' "$image"
        [[ $output == *'"org.opencontainers.image.version":"'"$version"'"'* ]]
        [[ $output == *'"org.opencontainers.image.licenses":"GPL-2.0-or-later"'* ]]
        [[ $image == "$node" || $output == *user=64030:64030 ]]
    done
}

@test "no compiler, man page, locale or package list is in an image" {
    for image in "$controller" "$node" "$bridge"; do
        "$CONTAINER" run --rm --user 0 "$image" /usr/local/lib/tidegate/check-image
    done
}

@test "init refuses an empty or odd controller address in words" {
    run -64 init_pod "$dir" "$controller" ''
    [[ $output == *"SLURMCTLD_IP is empty, expected the IP address of the controller's Service"* ]]
    run -64 init_pod "$dir" "$controller" 'ctl|e date'
    [[ $output == *"SLURMCTLD_IP is 'ctl|e date', expected an IP address"* ]]
}

@test "the agent refuses to start without its node name, in words" {
    run -78 "$CONTAINER" run --rm --entrypoint /usr/bin/tidegate-node "$node" run
    [[ $output == *"NODE_NAME is empty, expected the name of this node (spec.nodeName)"* ]]
}

@test "the node image without a command says what it is for" {
    run -64 "$CONTAINER" run --rm "$node"
    [[ $output == *"no command was given, expected login, init, munged or a program"* ]]
}

@test "the agent is PID 1 of a compute node, with slurmd and munged below it and no shell between" {
    run -0 "$CONTAINER" exec "$stack-n1" ps -eo pid=,ppid=,comm=
    echo "$output"
    [[ $(awk '$1 == 1 { print $3 }' <<<"$output") == tidegate-node ]]
    [[ $(awk '$3 == "slurmd" || $3 == "munged" { print $2 }' <<<"$output") == $'1\n1' ]]
}

@test "prolog and epilog are where slurm.conf names them, and let a job start where no agent is" {
    for program in prolog epilog; do
        run -0 "$CONTAINER" run --rm -e SLURM_JOB_ID=1 "$node" "/usr/libexec/tidegate/$program"
        [[ $output == *"there is no agent to ask"* ]]
    done
}

@test "the controller runs as 64030 on a read-only root without capabilities" {
    in_controller scontrol ping
    run -0 in_controller cat /proc/1/status
    [[ $output == *Uid:$'\t'64030* && $output == *CapEff:$'\t'0000000000000000* ]]
    run ! in_controller touch /usr/here
}

@test "a second slurmctld on the same state directory refuses with 75, in words" {
    run_controller second
    within 10 'the second controller has ended' gone second
    [[ $(exit_code second) == 75 ]]
    run -0 logs second
    [[ $output == *"/var/spool/slurmctld is in use by another slurmctld (controller, since "* ]]
    in_controller scontrol ping
}

@test "the lock stays over scontrol reconfigure" {
    in_controller scontrol reconfigure
    in_controller scontrol ping
    run_controller third
    within 10 'the third controller has ended' gone third
    [[ $(exit_code third) == 75 ]]
    idle n1 n2
}

@test "a batch array of 20 of an ordinary user runs" {
    as_alice sbatch -W -o 'out.%a' -a 1-20 --wrap 'echo task $SLURM_ARRAY_TASK_ID of $(id -un)'
    for i in {1..20}; do
        [[ $(cat "$dir/home/out.$i") == "task $i of alice" ]]
    done
}

@test "MPI by srun over two nodes: the ring is right and both hosts are named" {
    run -0 as_alice srun --mpi=pmix -N2 --ntasks-per-node=2 /usr/share/tidegate/examples/ring
    echo "$output"
    [[ $output == *"host pod-n1, node n1"* && $output == *"host pod-n2, node n2"* ]]
    [[ $output == *"ring is right: sum 6"* ]]
}

@test "MPI messages of 4 MB, within a node and between two, arrive whole" {
    run -0 as_alice srun --mpi=pmix -N2 --ntasks-per-node=2 \
        /usr/share/tidegate/examples/ring 4000000
    [[ $output == *"ring is right: sum 6"* ]]
}

@test "MPI by mpirun in a batch job" {
    as_alice sbatch -W -N2 --ntasks-per-node=2 -o mpirun.out \
        --wrap 'mpirun /usr/share/tidegate/examples/ring'
    grep 'of 4 ranks on 2 hosts' "$dir/home/mpirun.out"
    grep 'ring is right: sum 6' "$dir/home/mpirun.out"
}

@test "an interface that goes nowhere, in both pods: MPI takes eth0, and dies without our defaults" {
    local bad n
    for n in 1 2; do
        in_network "n$n" sh -c "ip link add useless0 type bridge && ip addr add 172.30.0.$n/16 dev useless0 &&
            ip link set useless0 up"
    done
    run -0 ring_of_4
    [[ $output == *"ring is right: sum 6"* ]]
    as_alice sbatch -W -N2 --ntasks-per-node=2 -o useless.out \
        --wrap 'timeout 30 mpirun /usr/share/tidegate/examples/ring'
    grep 'ring is right: sum 6' "$dir/home/useless.out"
    # As Open MPI comes, and with the wrong one alone.
    for bad in '' useless0; do
        run ring_of_4 "OMPI_MCA_btl_tcp_if_include=$bad"
        echo "with '$bad': $output"
        [[ $status != 0 && $output != *"ring is right"* ]]
    done
    for n in 1 2; do in_network "n$n" ip link del useless0; done
}

# in_network NODE CMD...: in the network of the node's container, with the toolbox's programs.
in_network() {
    local of=$1
    shift
    "$CONTAINER" run --rm --network "container:$stack-$of" --cap-add NET_ADMIN "$("$BATS_TEST_DIRNAME/../toolbox/build")" "$@"
}

ring_of_4() { # [NAME=VALUE]...
    as_alice env "$@" timeout 30 srun --mpi=pmix -N2 --ntasks-per-node=2 \
        /usr/share/tidegate/examples/ring
}

@test "a job has the node's limit of locked memory, not that of the shell it is submitted from" {
    want=$("$CONTAINER" exec "$stack-n1" sh -c 'ulimit -l')
    [[ $want != 16 ]]
    run -0 as_alice bash -c 'ulimit -l 16 && srun -w n1 sh -c "ulimit -l"'
    [[ $output == "$want" ]]
}

@test "UCX works without the libraries left out of the image" {
    # Without InfiniBand Open MPI takes UCX only when told that anything will do.
    run -0 as_alice env OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any \
        srun --mpi=pmix -N2 --ntasks-per-node=2 /usr/share/tidegate/examples/ring 4000000
    [[ $output == *"ring is right: sum 6"* ]]
}

@test "a slurmd that is killed comes back, its job runs on, and no zombie is left" {
    job=$(as_alice sbatch --parsable -w n2 -o killed.out --wrap 'sleep 6; echo survived')
    within 20 "job $job runs on n2" job_state "$job" RUNNING
    "$CONTAINER" exec "$stack-n2" sh -c 'kill -9 $(cat /run/slurmd.pid)'
    within 40 "job $job is over" job_state "$job" COMPLETED
    [[ $(cat "$dir/home/killed.out") == survived ]]
    run -0 logs n2
    [[ $output == *"ended; job steps run on, it is started again"*daemon=slurmd* ]]
    within 10 'n2 is idle' idle n2
    run -0 "$CONTAINER" exec "$stack-n2" ps -eo stat,comm
    [[ $output != *$'\n'Z* ]]
}

# job_state JOB STATE: whether the job is in it.
job_state() {
    local state
    state=$(in_controller scontrol -o show job "$1" | grep -o 'JobState=[A-Z]*')
    echo "$state"
    [[ $state == "JobState=$2" ]]
}

@test "SIGTERM stops slurmd and munged in order, with 0" {
    run_node n3
    within 20 'n3 is idle' idle n3
    "$CONTAINER" stop -t 10 "$stack-n3"
    [[ $(exit_code n3) == 0 ]]
    run -0 logs n3
    [[ $output == *daemon=slurmd*daemon=munged* ]]
    [[ $(grep 'as it was told to' <<<"$output" | grep -oE 'daemon=\S+' | xargs) == 'daemon=slurmd daemon=munged' ]]
}

@test "a munged that dies comes back, and with it jobs" {
    "$CONTAINER" exec "$stack-n1" pkill -9 -x munged
    within 10 'n1 takes jobs' as_alice srun -w n1 hostname
    run -0 logs n1
    [[ $output == *"ended; jobs run on, it is started again"*daemon=munged* ]]
}

@test "a controller that is killed frees the lock, and the next one goes on with its jobs" {
    as_alice sbatch -H --wrap hostname
    sleep 6 # slurmctld writes its state every five seconds
    # By number: a reconfigure changes its name.
    in_controller sh -c 'kill -9 $(cat /run/slurmctld/slurmctld.pid)'
    within 10 'the controller has ended' gone controller
    "$CONTAINER" rm "$stack-controller"
    run_controller controller
    within 20 'n1 and n2 are idle' idle n1 n2
    in_controller squeue -h -o %T | grep PENDING
}

@test "slurmctld does not outlive the holder of its lock" {
    # The exec may end with the container before it can say how it went.
    in_controller pkill -9 -x entrypoint || true
    within 10 'the controller has ended' gone controller
    "$CONTAINER" rm "$stack-controller"
    run_controller controller
    within 20 'n1 and n2 are idle' idle n1 n2
}

@test "SIGTERM ends the controller with its state written, with 0" {
    "$CONTAINER" stop -t 10 "$stack-controller"
    [[ $(exit_code controller) == 0 ]]
    run -0 logs controller
    [[ $output == *"Saving all slurm state"* ]]
}
