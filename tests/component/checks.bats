#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The health checks that are shipped, and what slurmd's prolog makes of the agent's word.
bats_require_minimum_version 1.5.0

setup_file() {
    load lib
    cluster_up
    mkdir -p /etc/tidegate
    mount -t tmpfs tmpfs /etc/tidegate # this sandbox's own
    for verb in prolog epilog; do
        printf '#!%s %s\n' "$(readlink -f "$TIDEGATE_BUILD/tidegate-node")" $verb >"$RUN/$verb"
        chmod 755 "$RUN/$verb"
    done
    # The chart's, which this cluster leaves out since other tests have no agent.
    printf '%s\n' "Prolog=$RUN/prolog" "Epilog=$RUN/epilog" >>"$SLURM_CONF"
    stop slurmctld
    slurmctld_up
    eventually 20 slurmctld_ready
}
setup() {
    load lib
    ROOT=$BATS_TEST_TMPDIR/root
    mkdir -p "$ROOT"
}
teardown() {
    agent_away
    rm -rf /etc/tidegate/*
    umount "$BATS_TEST_TMPDIR/full" 2>/dev/null || :
    nodes_away
}

# check WANTED_STATUS NAME [ARG]...: and $output is one line that a Slurm reason can hold.
check() {
    local want=$1
    shift
    run --separate-stderr "$TIDEGATE_BUILD/tidegate-node" check "$@"
    # shellcheck disable=SC2154 # run sets it
    echo "$output $stderr"
    [ "$status" = "$want" ]
    [ "${#lines[@]}" = 1 ] && [ "${#output}" -le 200 ]
}

# file PATH TEXT: below the root.
file() {
    mkdir -p "$ROOT$(dirname "$1")"
    printf '%s\n' "$2" >"$ROOT$1"
}

# ---- the checks -------------------------------------------------------------------------------

@test "space: too little of it, too few inodes, and enough again" {
    full=$BATS_TEST_TMPDIR/full
    mkdir "$full"
    mount -t tmpfs -o size=10m,nr_inodes=100 tmpfs "$full"
    check 0 space "$full" --writable
    head -c 9961472 /dev/zero >"$full/big"
    check 0 space "$full"
    check 1 space "$full" --min-percent 10
    [ "$output" = "$full has 5.0 % (0 MiB) free, expected at least 10 %: delete files there or enlarge it" ]
    check 1 space "$full" --min-mib 2
    [ "$output" = "$full has 0 MiB free, expected at least 2 MiB: delete files there or enlarge it" ]
    rm "$full/big"
    check 0 space "$full" --min-percent 10
    touch "$full"/{1..97}
    check 1 space "$full"
    [[ $output == "$full has 2.0 % of its inodes free, expected at least 5 %:"* ]]
    check 0 space "$full" --min-inode-percent 0
    mount -o remount,ro "$full"
    check 1 space "$full" --writable --min-inode-percent 0
    [[ $output == "$full is mounted read-only, expected writable:"* ]]
    check 1 space /no/such/place
    [[ $output == '/no/such/place cannot be looked at: No such file or directory, expected'* ]]
}

@test "memory: less than Slurm was told, and less than an idle node has" {
    file /proc/meminfo 'MemTotal:       16384000 kB
MemFree:         1024000 kB
MemAvailable:    8192000 kB'
    export TIDEGATE_REAL_MEMORY_MIB=16000
    check 0 memory --root "$ROOT"
    check 0 memory --root "$ROOT" --min-available-percent 50
    check 1 memory --root "$ROOT" --min-available-percent 51
    [[ $output == '8000 MiB of memory are available, expected 51 % of RealMemory (16000 MiB):'* ]]
    TIDEGATE_REAL_MEMORY_MIB=16001 check 1 memory --root "$ROOT"
    [[ $output == 'the machine has 16000 MiB of memory, expected the 16001 MiB (RealMemory)'* ]]
    unset TIDEGATE_REAL_MEMORY_MIB
    check 1 memory --root "$ROOT"
    TIDEGATE_REAL_MEMORY_MIB=1 check 0 memory # of this machine
}

@test "mount: lost, another one, and one that answers" {
    mkdir -p "$ROOT/scratch" "$ROOT/home dir"
    file /proc/self/mounts 'server:/export /scratch nfs4 rw,hard 0 0
/dev/sda1 /home\040dir ext4 rw 0 0
/dev/sdb1 /gone ext4 rw 0 0'
    check 0 mount --root "$ROOT" /scratch --type nfs4 --source server:/export
    check 0 mount --root "$ROOT" '/home dir'
    check 1 mount --root "$ROOT" /scratch --type lustre
    [ "$output" = '/scratch is a mount of type nfs4, expected lustre: mount the right one' ]
    check 1 mount --root "$ROOT" /scratch --source other:/export
    [ "$output" = '/scratch is mounted from server:/export, expected other:/export: mount the right one' ]
    check 1 mount --root "$ROOT" /data --source server:/data
    [[ $output == 'nothing is mounted at /data, expected server:/data:'* ]]
    check 1 mount --root "$ROOT" /gone
    [[ $output == '/gone (ext4 from /dev/sdb1) does not answer: No such file or directory,'* ]]
}

@test "clock: ahead, behind, and not known" {
    check 0 clock
    TIDEGATE_CLOCK_OFFSET_MS=-1000 check 0 clock
    TIDEGATE_CLOCK_OFFSET_MS=1001 check 1 clock
    [[ $output == "the clock is 1001 ms behind the bridge's, expected at most 1000 ms:"* ]]
    TIDEGATE_CLOCK_OFFSET_MS=-300 check 1 clock --max-ms 200
    [[ $output == "the clock is 300 ms ahead of the bridge's, expected at most 200 ms:"* ]]
    TIDEGATE_CLOCK_OFFSET_MS=soon check 1 clock
}

@test "munge: end to end, and dead" {
    check 0 munge
    stop munged
    check 1 munge
    [[ $output == 'munge does not work: '*'look at munged in the log'* ]]
    rm -f /run/munge/munge.socket.2*
    spawn munged munged -F --key-file "$RUN/munge.key" --seed-file "$RUN/munge.seed"
    eventually 10 check 0 munge
}

# process PID PPID UID STATE NAME
process() {
    file "/proc/$1/status" "Name:	$5
Umask:	0022
State:	$4 (whatever)
Pid:	$1
PPid:	$2
Uid:	$3	$3	$3	$3"
}

@test "leftovers: of users, below the agent, while no job runs" {
    process 1 0 0 S tidegate-node
    process 20 1 64031 S munged
    process 30 1 0 S slurmd
    check 0 leftovers --root "$ROOT"
    # a shell that a person opened in the container, and a service of another pod (hostPID)
    process 500 0 1000 S bash
    process 501 500 1000 S top
    check 0 leftovers --root "$ROOT"
    process 41 1 1000 S python3
    process 42 41 70000 R 'a b'
    check 1 leftovers --root "$ROOT"
    [[ $output == '2 processes of users are left with no job: 41 python3 (uid 1000), 42 a b (uid 70000);'* ]]
    check 0 leftovers --root "$ROOT" --min-uid 100000
    # whoever takes the name of slurmstepd hides nothing
    process 60 41 1000 S slurmstepd
    check 1 leftovers --root "$ROOT"
    process 60 30 0 S slurmstepd
    check 0 leftovers --root "$ROOT"
    # what a prolog or epilog runs as a user
    rm -r "$ROOT/proc/60" "$ROOT/proc/41" "$ROOT/proc/42"
    process 70 30 0 S prolog
    process 71 70 1000 S mkdir
    check 0 leftovers --root "$ROOT"
    rm -r "$ROOT/proc/70" "$ROOT/proc/71"
    for ((i = 100; i < 121; i++)); do process $i 1 1000 Z sleep; done
    check 1 leftovers --root "$ROOT"
    [[ $output == '21 zombies are left, expected at most 20:'* ]]
}

@test "leftovers: killed, when that is asked for" {
    # a parent that stands for the agent, as the check is not below a tidegate-node here
    cat >"$ROOT/agent" <<'SH'
setpriv --reuid 1000 --regid 1000 --clear-groups sleep 1000 &
echo $! >"$1"
sleep 0.3
"$TIDEGATE_BUILD/tidegate-node" check leftovers; echo "status $?"
"$TIDEGATE_BUILD/tidegate-node" check leftovers --kill; echo "status $?"
"$TIDEGATE_BUILD/tidegate-node" check leftovers; echo "status $?"
SH
    run bash "$ROOT/agent" "$ROOT/pid"
    echo "$output"
    pid=$(cat "$ROOT/pid")
    [[ ${lines[0]} == "1 processes of users are left with no job: $pid sleep (uid 1000);"* ]]
    [ "${lines[1]}" = 'status 1' ]
    [ "${lines[2]}" = "1 processes with no job were killed: $pid sleep (uid 1000)" ]
    [ "${lines[-3]}" = 'status 0' ]
    [ "${lines[-2]}" = 'no process is left with no job, 0 zombies' ]
    [ "${lines[-1]}" = 'status 0' ]
}

@test "ecc: uncorrected errors name the DIMM, machine checks are counted" {
    check 0 ecc --root "$ROOT"
    mc=/sys/devices/system/edac/mc
    file $mc/mc0/ue_count 0
    file $mc/mc0/ce_count 12
    file $mc/mc1/ue_count 0
    file $mc/mc1/ce_count 0
    file /proc/interrupts '           CPU0       CPU1
  0:         35          0   IO-APIC    2-edge      timer
MCE:          0          0   Machine check exceptions
MCP:         17         17   Machine check polls'
    check 0 ecc --root "$ROOT"
    check 1 ecc --root "$ROOT" --max-corrected 11
    [ "$output" = 'memory controller mc0 counts 12 corrected ECC errors since boot, expected at most 11: replace DIMM' ]
    file $mc/mc1/ue_count 3
    file $mc/mc1/dimm0/dimm_ue_count 0
    file $mc/mc1/dimm4/dimm_ue_count 3
    file $mc/mc1/dimm4/dimm_label CPU_SrcID#1_MC#0_Chan#2_DIMM#0
    check 1 ecc --root "$ROOT"
    [ "$output" = 'memory controller mc1 counts 3 uncorrected ECC errors since boot, expected at most 0: replace CPU_SrcID#1_MC#0_Chan#2_DIMM#0' ]
    check 0 ecc --root "$ROOT" --max-uncorrected 3
    sed -i 's/^MCE: *0/MCE: 2/' "$ROOT/proc/interrupts"
    check 1 ecc --root "$ROOT" --max-uncorrected 3
    [[ $output == 'the processors report 2 machine checks since boot, expected at most 0:'* ]]
}

@test "link: interfaces and InfiniBand ports" {
    file /sys/class/net/eth0/operstate up
    file /sys/class/net/eth0/speed 25000
    file /sys/class/infiniband/mlx5_0/ports/1/state '4: ACTIVE'
    file /sys/class/infiniband/mlx5_0/ports/1/rate '200 Gb/sec (4X HDR)'
    file /sys/class/infiniband/mlx5_0/ports/2/state '1: DOWN'
    check 0 link --root "$ROOT" eth0 mlx5_0 --min-gbit 25
    check 1 link --root "$ROOT" eth0 --min-gbit 100
    [[ $output == 'link eth0 runs at 25 Gbit/s, expected at least 100:'* ]]
    check 1 link --root "$ROOT" mlx5_0:1 --min-gbit 400
    [[ $output == 'link mlx5_0:1 runs at 200 Gbit/s, expected at least 400:'* ]]
    check 1 link --root "$ROOT" eth0 mlx5_0:2
    [[ $output == "port mlx5_0:2 is in state '1: DOWN', expected '4: ACTIVE':"* ]]
    file /sys/class/net/eth0/operstate down
    check 1 link --root "$ROOT" eth0
    [[ $output == 'link eth0 is down, expected up:'* ]]
    check 1 link --root "$ROOT" ib0
    [[ $output == 'link ib0 is not there, expected a network interface or an InfiniBand port:'* ]]
}

@test "gpu: one that is lost, and what the kernel says of them" {
    check 0 gpu --root "$ROOT"
    check 1 gpu --root "$ROOT" --count 1
    [[ $output == '0 GPUs are there (/dev/nvidia*), expected 1:'* ]]
    file /dev/nvidia0 ''
    file /dev/nvidia1 ''
    file /dev/nvidiactl ''
    check 0 gpu --root "$ROOT" --count 2
    # a program's own mistake (31), a very long line, then one of the hardware's
    file /dev/kmsg "6,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=a.out, Ch 8, MMU Fault
6,2,2,-;$(head -c 20000 /dev/zero | tr '\0' x)"
    check 0 gpu --root "$ROOT"
    echo '4,3,3,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.' >>"$ROOT/dev/kmsg"
    check 1 gpu --root "$ROOT"
    [[ $output == 'GPU PCI:0000:3b:00 reported XID 79 since boot (it has fallen off the bus), expected none:'* ]]
    check 0 gpu --root "$ROOT" --ignore-xids 48,79
}

@test "a check that is asked for in a wrong way says so and is no good one" {
    for words in '' 'nonsense' 'space' 'space / /tmp' 'space / --min-percent' 'space / --min-percent x' \
        'clock now' 'space / --no-such'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr "$TIDEGATE_BUILD/tidegate-node" check $words
        echo "$words: $stderr"
        [ "$status" = 64 ]
        [[ $stderr == "tidegate-node check: '"*"': expected "*"; see tidegate-node check --help" ]]
    done
}

# ---- prolog and epilog ------------------------------------------------------------------------

# agent_answers SHELL: something that listens where the agent does, in its stead, so that it can be slow, silent
# or wrong as well. What it is asked is in $RUN/asked.
agent_answers() {
    : >"$RUN/asked"
    printf '%s\n' "read -r -N 200 -t 0.2 q; echo \"\$q\" >>$RUN/asked" "$1" >"$RUN/agent.sh"
    spawn agent socat "UNIX-LISTEN:$RUN/agent.sock,type=5,fork" "EXEC:bash $RUN/agent.sh"
    eventually 5 test -S "$RUN/agent.sock"
}
agent_away() {
    [[ ! -e $RUN/agent.pid ]] || ! runs agent || stop agent KILL
    rm -f "$RUN/agent.pid" "$RUN/agent.sock"
}
STOPPING='tidegate/update: the slurmd pod is being stopped'

# site VERB NAME LINE...: a program of the site's own.
site() {
    mkdir -p "/etc/tidegate/$1"
    printf '%s\n' '#!/bin/bash' "${@:3}" >"/etc/tidegate/$1/$2"
    chmod 755 "/etc/tidegate/$1/$2"
}

@test "the agent says yes: the job runs" {
    agent_answers "printf '1 yes'"
    nodes_up n1
    job=$(submit -w n1 0)
    eventually 20 job_is "$job" COMPLETED
    grep -x "1 prolog $job 1000" "$RUN/asked"
    eventually 5 grep -x "1 epilog $job 1000" "$RUN/asked"
    state_is n1 IDLE
}

@test "the agent says no: the job is requeued and not held, the node drained in our words (promise 2)" {
    agent_answers "printf '1 no $STOPPING'"
    nodes_up n1
    job=$(submit 0)
    eventually 20 state_is n1 IDLE+DRAIN "$STOPPING"
    eventually 10 job_is "$job" PENDING
    scontrol -o show job "$job" | grep -E ' Priority=[1-9].* Restarts=1 '
    always 3 state_is n1 IDLE+DRAIN "$STOPPING" # slurmctld does not write 'Prolog error' over it
    grep 'this job does not start here' "$LOGS/slurmd-n1.log"
    agent_away
    nodes_up n2
    eventually 30 job_is "$job" COMPLETED
    state_is n1 IDLE+DRAIN "$STOPPING"
}

@test "a sentence without a class of its own is one of health" {
    agent_answers "printf '1 no /scratch has 1 %% free'"
    nodes_up n1
    submit 0
    eventually 20 state_is n1 IDLE+DRAIN 'tidegate/health: /scratch has 1 % free'
}

@test "a person who drains the node while the prolog asks is not written over (promise 1)" {
    agent_answers "sleep 2; printf '1 no $STOPPING'"
    nodes_up n1
    job=$(submit -w n1 0)
    eventually 20 grep -q "1 prolog $job " "$RUN/asked"
    scontrol update nodename=n1 state=drain reason='mine'
    eventually 20 grep -q 'this job does not start here' "$LOGS/slurmd-n1.log"
    always 3 state_is n1 '*+DRAIN' mine
    eventually 10 job_is "$job" PENDING
}

@test "no agent: the job runs as without one, and the log says so" {
    nodes_up n1
    job=$(submit -w n1 0)
    eventually 20 job_is "$job" COMPLETED
    state_is n1 IDLE
    SLURM_JOB_ID=7 run "$TIDEGATE_BUILD/tidegate-node" prolog
    [ "$status" = 0 ]
    [[ $output == *'there is no agent to ask, so the job goes on as without one'*'job=7'* ]]
}

@test "an agent that is there but does not answer: the job does not start" {
    agent_answers 'sleep 60'
    nodes_up n1
    job=$(submit -w n1 0)
    eventually 30 state_is n1 IDLE+DRAIN 'tidegate/health: the agent of this node does not answer (Connection timed out), expected an answer within 10 s; look at the log of its slurmd pod'
    eventually 10 job_is "$job" PENDING
    agent_away
    agent_answers "printf nonsense"
    nodes_up n2
    submit -w n2 0
    eventually 20 state_is n2 IDLE+DRAIN 'tidegate/health: the agent of this node does not answer (Bad message), expected an answer within 10 s; look at the log of its slurmd pod'
}

@test "the site's own prolog and epilog run as Slurm would run them" {
    agent_answers "printf '1 yes'"
    # shellcheck disable=SC2016 # for the programs
    for verb in prolog epilog; do
        site $verb 10-first "echo $verb first \$SLURM_JOB_ID \$SLURM_JOB_USER \$PATH >>$RUN/site"
        site $verb 20-second "echo $verb second >>$RUN/site"
    done
    nodes_up n1
    job=$(submit -w n1 0)
    eventually 20 job_is "$job" COMPLETED
    eventually 5 grep -q 'epilog second' "$RUN/site"
    cat "$RUN/site"
    [[ $(sed -n 1p "$RUN/site") == "prolog first $job alice "*/usr/bin* ]]
    [ "$(sed -n 2p "$RUN/site")" = 'prolog second' ]
    [[ $(sed -n 3p "$RUN/site") == "epilog first $job alice "*/usr/bin* ]]
    state_is n1 IDLE
    rm "$RUN/site"
}

@test "a site's prolog that fails keeps the job away, by Slurm's own words; its epilog goes on to the end" {
    site prolog 10-fails 'exit 3'
    site prolog 20-not-reached "echo reached >>$RUN/site"
    site epilog 10-fails 'exit 4'
    site epilog 20-reached "echo reached >>$RUN/epilog-site"
    run "$TIDEGATE_BUILD/tidegate-node" prolog
    [ "$status" = 3 ]
    [ ! -e "$RUN/site" ]
    run "$TIDEGATE_BUILD/tidegate-node" epilog
    [ "$status" = 4 ]
    [ "$(cat "$RUN/epilog-site")" = reached ]
    nodes_up n1
    submit -w n1 0
    eventually 20 state_is n1 IDLE+DRAIN 'Prolog error'

    chmod 644 /etc/tidegate/prolog/10-fails
    run "$TIDEGATE_BUILD/tidegate-node" prolog
    [ "$status" = 78 ]
    [[ $output == *'make it executable'*'path=/etc/tidegate/prolog/10-fails'* ]]
}

@test "a node that is not well after a job is no fault of the job" {
    agent_answers "[[ \$q == *epilog* ]] && printf '1 no /scratch is full' || printf '1 yes'"
    nodes_up n1
    job=$(submit -w n1 0)
    eventually 20 job_is "$job" COMPLETED
    eventually 10 grep -q "1 epilog $job " "$RUN/asked"
    always 2 state_is n1 IDLE # the agent tells the bridge
}

@test "an interactive job that is refused ends at once, with a word on why" {
    agent_answers "printf '1 no $STOPPING'"
    nodes_up n1
    run timeout 20 setpriv --reuid 1000 --regid 1000 --clear-groups srun --mem=100 -n1 hostname
    echo "status $status: $output"
    [ "$status" != 0 ] && [ "$status" != 124 ]
    [[ $output == *'failed on node n1: Job prolog failed'* ]]
}
