# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A Slurm of our images in plain containers, under the limits that the chart puts on pods: for the
# tests of the images themselves. The caller sets
#   stack  what every container's name begins with
#   dir    a directory for what are volumes in a cluster
: "${stack:?}" "${dir:?}"

# shellcheck source=tests/lib/container.sh
. "$BATS_TEST_DIRNAME/../lib/container.sh"

version=$(cat "$BATS_TEST_DIRNAME/../../VERSION")
controller=localhost/tidegate-controller:$version
node=localhost/tidegate-node:$version
# shellcheck disable=SC2034 # for the tests
bridge=localhost/tidegate-bridge:$version

# slurmctld wants the host name that slurm.conf gives it. With docker it comes with the network.
as_controller=(--network "container:$stack-net")
[[ $CONTAINER != podman ]] || as_controller+=(--hostname tidegate-controller)

# What Pod Security 'restricted' and a read-only root file system come to.
restricted=(--user 64030:64030 --read-only --cap-drop ALL --security-opt no-new-privileges)
[[ $CONTAINER != podman ]] || restricted+=(--read-only-tmpfs=false)

# The capabilities that the chart gives slurmd when nothing is confined.
slurmd_caps=(--cap-drop ALL)
for cap in SETUID SETGID CHOWN DAC_OVERRIDE FOWNER KILL SYS_CHROOT SETPCAP FSETID; do
    slurmd_caps+=(--cap-add "$cap")
done

# stack_files DIR: what ConfigMaps, Secrets and volumes are in a cluster.
stack_files() {
    mkdir -p "$1"/{key,munge-key,munge-dir,slurm-in,slurm,run,state,tmp,users,home,checks}
    head -c 1024 /dev/urandom >"$1/key/munge.key"
    chmod 444 "$1/key/munge.key"
    cp "$BATS_TEST_DIRNAME/slurm.conf" "$1/slurm-in/"
    echo CgroupPlugin=disabled >"$1/slurm-in/cgroup.conf"
    cp "$BATS_TEST_DIRNAME/../../charts/tidegate/files/mpi.conf" "$1/slurm-in/"
    echo '{"checks": [{"name": "munge", "command": ["tidegate-node", "check", "munge"]}]}' \
        >"$1/checks/checks.json"
    echo alice:x:1000:1000::/home:/bin/bash >"$1/users/passwd"
    echo alice:x:1000: >"$1/users/group"
    echo 'alice:*:20000::::::' >"$1/users/shadow"
    chown 64030:64030 "$1"/{munge-key,slurm,run,state,tmp}
    # As an emptyDir with an fsGroup is.
    chown 0:64030 "$1/munge-dir"
    chmod 2775 "$1/munge-dir"
    chown 1000:1000 "$1/home"
}

# init_pod DIR IMAGE IP: runs the init container.
init_pod() {
    "$CONTAINER" run --rm "${restricted[@]}" -e "SLURMCTLD_IP=$3" \
        -v "$1/key:/run/secrets/munge:ro" -v "$1/munge-key:/run/munge-key" \
        -v "$1/munge-dir:/run/munge-dir" -v "$1/slurm-in:/etc/slurm-in:ro" \
        -v "$1/slurm:/etc/slurm" "$2" init
}

# run_controller NAME [OPTION]...: starts slurmctld in the network of $stack-net.
run_controller() {
    local name=$1
    shift
    "$CONTAINER" run -d --name "$stack-$name" "${as_controller[@]}" "${restricted[@]}" \
        -e "POD_NAME=$name" "$@" \
        -v "$dir/munge-dir/munge:/run/munge" -v "$dir/slurm:/etc/slurm:ro" \
        -v "$dir/run:/run/slurmctld" -v "$dir/state:/var/spool/slurmctld" \
        -v "$dir/tmp:/tmp" -v "$dir/users:/var/lib/extrausers:ro" \
        "$controller" slurmctld >/dev/null
}

run_node() {
    "$CONTAINER" run -d --name "$stack-$1" --hostname "pod-$1" "${slurmd_caps[@]}" \
        --shm-size 256m --security-opt no-new-privileges=false --entrypoint /usr/bin/tidegate-node \
        -e "NODE_NAME=$1" -e POOL=hpc -e "POD_UID=uid-$1" -e "SLURMCTLD_IP=$ip" \
        -e "SLURMD_CONF=SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1" \
        -e TIDEGATE_AGENTS= -e TIDEGATE_BRIDGE_UID=64030 -e TIDEGATE_GRACE=10 \
        -v "$dir/checks:/etc/tidegate/checks:ro" \
        -v "$dir/key:/run/secrets/munge:ro" -v "$dir/users:/var/lib/extrausers:ro" \
        -v "$dir/home:/home" "$node" run >/dev/null
}

stack_up() {
    stack_files "$dir"
    "$CONTAINER" run -d --name "$stack-net" --hostname tidegate-controller \
        "$controller" sleep infinity >/dev/null
    ip=$("$CONTAINER" exec "$stack-net" hostname -i)
    ip=${ip%% *}
    echo "$ip" >"$dir/ip"
    init_pod "$dir" "$controller" "$ip"
    "$CONTAINER" run -d --name "$stack-munged" "${as_controller[@]}" "${restricted[@]}" \
        -v "$dir/munge-key:/run/munge-key:ro" \
        -v "$dir/munge-dir/munge:/run/munge" "$controller" munged >/dev/null
    run_controller controller
    run_node n1
    run_node n2
    within 30 'n1 and n2 are idle' idle n1 n2
}

stack_down() {
    local names
    # The net last: others depend on it.
    mapfile -t names < <("$CONTAINER" ps -a --format '{{.Names}}' | grep "^$stack-" |
        grep -v -- '-net$')
    # At once; what has ended already can not be killed.
    "$CONTAINER" kill "${names[@]}" "$stack-net" >/dev/null 2>&1 || :
    ((${#names[@]} == 0)) || "$CONTAINER" rm -f -v "${names[@]}" >/dev/null
    "$CONTAINER" rm -f "$stack-net" >/dev/null
}

# within SECONDS WHAT COMMAND...: waits for the command to succeed.
within() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= end)); then
            echo "waited in vain until $what; last answer:" >&2
            "$@" >&2
            return 1
        fi
        sleep 0.2
    done
}

in_controller() {
    "$CONTAINER" exec "$stack-controller" "$@"
}

as_alice() {
    "$CONTAINER" exec -u 1000:1000 -e HOME=/home -w /home "$stack-n1" "$@"
}

node_state() {
    in_controller scontrol show node "$1" | grep -o 'State=[A-Z+_*]*'
}

idle() {
    local name
    for name in "$@"; do
        [[ $(node_state "$name") == State=IDLE+DYNAMIC_NORM ]] ||
            { node_state "$name"; return 1; }
    done
}

gone() {
    ! "$CONTAINER" ps --format '{{.Names}}' | grep -qx "$stack-$1"
}

exit_code() {
    "$CONTAINER" inspect -f '{{.State.ExitCode}}' "$stack-$1"
}
