#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The node's line against the real slurmctld and slurmd: a record made of it shows its figures and is never
# INVALID_REG.

setup_file() {
    load lib
    local i
    kube_up
    mkdir -p "$RUN/dev"
    for i in {0..7}; do mknod "$RUN/dev/nvidia$i" c 1 3; done
    # slurm.conf of the chart, for a cluster with GPUs on one node
    eval "chart_$(declare -f slurm_conf)"
    slurm_conf() {
        chart_slurm_conf
        echo GresTypes=gpu >>"$SLURM_CONF"
        NODE_NAME=gpus node line --gres-conf --xml "$MACHINES"/h100-8-on-2.xml |
            sed "s|/dev/|$RUN/dev/|" >"$RUN/gres.conf"
    }
    slurm_up
}
setup() {
    load lib
    bats_require_minimum_version 1.5.0
}
teardown() { nodes_away; }

MACHINES=bridge/tests/topologies
node() { "$TIDEGATE_BUILD/tidegate-node" "$@"; }

# slurmd_with NAME LINE: a slurmd whose record is made of this line.
slurmd_with() {
    local port=$((7000 + $(find "$RUN" -maxdepth 1 -name '*.port' | wc -l)))
    echo $port >"$RUN/$1.port"
    spawn "slurmd-$1" unshare --pid --fork --kill-child --mount-proc tini -s -- slurmd -D -b -Z -N "$1" \
        --conf-server "$IP:6817" --conf "Feature=hpc $2 Port=$port"
}

# field NAME KEY: of the record.
field() { node_line "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }

# shows NAME LINE: the record has the figures of the line.
shows() {
    local shown
    shown="Boards=$(field "$1" Boards) SocketsPerBoard=$(field "$1" Sockets)"
    shown+=" CoresPerSocket=$(field "$1" CoresPerSocket) ThreadsPerCore=$(field "$1" ThreadsPerCore)"
    shown+=" RealMemory=$(field "$1" RealMemory)"
    echo "$1 shows $shown, expected $2"
    [[ $shown == "$2" ]]
}

# pod_root DIR CPUS MIB: a tree that is this machine for hwloc, with the limits of a pod.
pod_root() {
    mkdir -p "$1"/{cg,dev,proc/self}
    ln -s /sys "$1/sys"
    ln -s /proc/cpuinfo /proc/meminfo "$1/proc"
    cp /proc/self/status "$1/proc/self/"
    echo '0::/' >"$1/proc/self/cgroup"
    echo '31 23 0:28 / /cg rw - cgroup2 cgroup2 rw' >"$1/proc/self/mountinfo"
    echo "$(($2 * 100000)) 100000" >"$1/cg/cpu.max"
    echo $(($3 * 1024 * 1024)) >"$1/cg/memory.max"
}

@test "each shape that a machine can give is registered as it stands" {
    local lines line i=0
    # All lines of the table, with memory that this machine has.
    mapfile -t lines < <(sed -n 's/^line: \(.*\) RealMemory=.*/\1 RealMemory=1000/p' $MACHINES/cases | sort -u)
    ((${#lines[@]} > 20))
    for line in "${lines[@]}"; do slurmd_with "s$((i++))" "$line"; done
    for ((i = 0; i < ${#lines[@]}; i++)); do
        eventually 60 state_is "s$i" IDLE
        shows "s$i" "${lines[i]}"
    done
    echo "# ${#lines[@]} shapes" >&3
}

@test "a line with more memory than the machine has is what slurmctld does not take" {
    slurmd_with n1 'Boards=1 SocketsPerBoard=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=999999999'
    eventually 20 state_is n1 '*INVALID_REG*'
}

@test "this machine's own line is registered as it stands" {
    local line
    line=$(node line)
    slurmd_with n1 "$line"
    eventually 20 state_is n1 IDLE
    shows n1 "$line"
}

@test "a pod with fewer cpus and less memory than the machine: Slurm shows its limits and refuses jobs that ask for more" {
    local line
    pod_root "$RUN/pod1" 1 1500
    line=$(node line --root "$RUN/pod1")
    slurmd_with n1 "$line"
    eventually 20 state_is n1 IDLE
    shows n1 'Boards=1 SocketsPerBoard=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1500'
    [[ $(field n1 CPUTot) == 1 && $(field n1 CPUEfctv) == 1 ]]
    run -1 as_alice sbatch -D / -o /dev/null -n2 -N1 --wrap true
    [[ $output == *'Requested node configuration is not available'* ]]
    run -1 as_alice sbatch -D / -o /dev/null --mem=1501 --wrap true
    [[ $output == *'available'* ]]
    run -0 as_alice sbatch --parsable -D / -o /dev/null -n1 --mem=1500 --wrap true
    eventually 20 job_is "$output" COMPLETED
}

@test "a reserve is not for jobs" {
    pod_root "$RUN/pod2" 1 2000
    line=$(TIDEGATE_RESERVE_MEMORY_MIB=500 node line --root "$RUN/pod2")
    slurmd_with n1 "$line"
    eventually 20 state_is n1 IDLE
    [[ $(field n1 RealMemory) == 1500 ]]
}

@test "a slurmd that starts again with its line stays as it is" {
    local line
    pod_root "$RUN/pod3" 1 1500
    line=$(node line --root "$RUN/pod3")
    slurmd_with n1 "$line"
    eventually 20 state_is n1 IDLE
    stop slurmd-n1 KILL
    sleep 2
    slurmd_with n1 "$line"
    eventually 30 state_is n1 DOWN 'Node unexpectedly rebooted'
    scontrol update nodename=n1 state=resume
    eventually 20 state_is n1 IDLE
}

@test "GPUs by gres.conf of the line: counted, tied to their cores and refused beyond their number" {
    local line
    line=$(node line --xml "$MACHINES"/h100-8-on-2.xml | sed 's/RealMemory=[0-9]*/RealMemory=1000/; s/ Feature=.*//')
    slurmd_with gpus "$line"
    eventually 20 state_is gpus IDLE
    node_line gpus
    [[ $(field gpus Gres) == 'gpu:h100:8(S:0-1)' ]]
    run -1 as_alice sbatch -D / -o /dev/null -N1 --gres=gpu:h100:9 --wrap true
    [[ $output == *'Requested node configuration is not available'* ]]
    # shellcheck disable=SC2016 # for the job's shell
    run -0 as_alice sbatch --parsable -D / -o /dev/null -N1 -n1 --mem=100 --gres=gpu:h100:2 \
        --wrap '[ "$CUDA_VISIBLE_DEVICES" = 0,1 ]'
    eventually 20 job_is "$output" COMPLETED
}

@test "a line follows the cpus that the kernel allows" {
    local cpu
    cpu=$(sed -n 's/^Cpus_allowed_list:\t\([0-9]*\).*/\1/p' /proc/self/status)
    run -0 taskset -c "$cpu" "$TIDEGATE_BUILD/tidegate-node" line
    [[ $output == *'SocketsPerBoard=1 CoresPerSocket=1 ThreadsPerCore=1'* ]]
}

@test "what cannot be a line is a sentence and status 78" {
    TIDEGATE_RESERVE_CPUS=many run -78 node line
    [[ $output == *'TIDEGATE_RESERVE_CPUS is "many", expected'* ]]
    TIDEGATE_RESERVE_MEMORY_MIB=99999999 run -78 node line
    [[ $output == *'no memory is left for jobs'* ]]
    run -78 node line --xml /nonexistent
    [[ $output == *'/nonexistent cannot be opened'* ]]
    run -78 node line --xml /dev/zero
    [[ $output == *'has more than'* ]]
    run -64 node line --json --gres-conf
    run -64 node line more
}

@test "broken XML is a sentence, also where hwloc dies of it" {
    local file=$RUN/broken.xml
    # hwloc 2.12 crashes on a core without its complete_cpuset
    sed '/os_index="3"/s/complete_cpuset="[^"]*"//' $MACHINES/intel-graphics.xml >"$file"
    run -78 node line --xml "$file"
    [[ $output == "tidegate-node line: "*"$file"* ]]
    # 300 files with a few bytes changed: a line or a sentence, nothing else
    python3 - "$TIDEGATE_BUILD/tidegate-node" "$file" $MACHINES/*.xml <<'EOF'
import random, subprocess, sys
program, path, sources = sys.argv[1], sys.argv[2], sys.argv[3:]
random.seed(4)
seen = {}
for i in range(300):
    data = bytearray(open(random.choice(sources), "rb").read())
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(data))
        if random.random() < .5:
            data[at] = random.choice(b'<>"/= 019afx\x00')
        else:
            del data[at:at + random.randint(1, 200)]
    open(path, "wb").write(data)
    r = subprocess.run([program, "line", "--xml", path], capture_output=True, text=True)
    seen[r.returncode] = seen.get(r.returncode, 0) + 1
    good = r.stdout.startswith("Boards=1 ") if r.returncode == 0 else r.stderr.startswith("tidegate-node line: ")
    assert good and r.returncode in (0, 78), (i, r)
print("# broken files by status:", seen)
assert len(seen) == 2
EOF
}
