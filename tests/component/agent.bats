#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# tidegate-node as PID 1 of a slurmd pod: real munged, slurmd and slurmctld, and no Kubernetes. The bridge is its
# side of the agents' links alone, which prints what the agents say.

setup_file() {
    load lib
    slurm_alone
}
setup() { load lib; }
teardown() {
    if [[ -z ${BATS_TEST_COMPLETED:-} ]]; then ps -eo pid,ppid,stat,comm,args | cut -c1-150; tail -n 60 "$LOGS"/{slurmd-n1,ear}.log || :; fi
    all_away
}

# The chart's file of that name, from the template alone.
chart_file() { chart slurm/configmap.yaml | awk -v key="  $1: |" 'index($0, key) == 1 { on = 1; next } /^  [^ ]/ { on = 0 } on' | sed 's/^    //'; }

slurm_alone() {
    slurm_conf() { # in place of the one in lib.bash, for slurm_up
        chart_file slurm.conf | sed "
            s/@SLURMCTLD_IP@/$IP/
            s|^\(StateSaveLocation\)=.*|\1=$RUN/state|" >"$SLURM_CONF"
        chart_file cgroup.conf >"$RUN/cgroup.conf"
    }
    echo 1 >/proc/sys/net/ipv4/ip_forward
    mkdir -p /run/netns "$RUN/pods"
    slurm_up
}

# pod_up NAME [VARIABLE=VALUE]...: its container; its exit status comes to $RUN/pods/NAME/status.
pod_up() {
    [[ -e /run/netns/$1 ]] || pod_net "$1"
    rm -f "$RUN/pods/$1/status"
    # shellcheck disable=SC2016 # expanded by the inner shell
    spawn "slurmd-$1" bash -c '"$@"; echo $? >"$0"' "$RUN/pods/$1/status" tests/component/pod "$1" \
        env -u SLURM_CONF NODE_NAME="$1" POD_UID="uid-$1" POOL=hpc SLURMCTLD_IP="$IP" TIDEGATE_AGENTS="$IP:6821" \
        TIDEGATE_BRIDGE_UID="$(id -u slurm)" TIDEGATE_GRACE=30 "${@:2}" "$TIDEGATE_BUILD/tidegate-node" run
}
agent() { pgrep -P "$(pgrep -P "$(pid_of "slurmd-$1")")"; }
daemon() { pgrep -P "$(agent "$1")" -x "$2"; } # daemon NODE slurmd|munged
inside() { nsenter --target "$(agent "$1")" --all "${@:2}"; }
ended() { [[ -s $RUN/pods/$1/status ]]; }
status_of() { cat "$RUN/pods/$1/status"; }
log_of() { cat "$LOGS/slurmd-$1.log"; }
said() { grep -q -- "$2" "$LOGS/slurmd-$1.log"; }
# in_order NODE PATTERN...: each stands in a line behind the one before.
in_order() {
    local line=0 next pattern
    for pattern in "${@:2}"; do
        next=$(grep -n -- "$pattern" "$LOGS/slurmd-$1.log" | cut -d: -f1 | awk -v after="$line" '$1 > after { print; exit }')
        if [[ -z $next ]]; then
            echo "not behind line $line: $pattern"
            return 1
        fi
        line=$next
    done
}

# up NAME [VARIABLE=VALUE]...: and free for jobs; a new record is drained until a bridge lets it go.
up() {
    pod_up "$@"
    eventually 15 state_is "$1" 'IDLE*'
    eventually 20 is_free "$1"
}
# A resume within a second of slurmd's start may come back as 'unexpectedly rebooted'.
is_free() {
    state_is "$1" IDLE && return
    if [[ $(node_state "$1") == *D[RO][AW]* ]]; then scontrol update nodename="$1" state=resume; fi
    sleep 0.5
    return 1
}

# ear NODE...: the bridge's side for these, with a heartbeat each 0.2 s. hears NODE JQ: of what it heard last.
ear() {
    local name
    for name; do
        [[ -e /run/netns/$name ]] || pod_net "$name"
        echo "$(pod_ip "$name") $name uid-$name"
    done >"$RUN/ear.pods"
    spawn ear "${AS_SLURM[@]}" "$TIDEGATE_BUILD/peers/agents_server" "$IP:6821" 200 "$RUN/ear.pods"
    eventually 5 port_open 6821
}
heard() { grep '^{' "$LOGS/ear.log" | tail -n 1; }
hears() {
    heard
    heard | jq -e ".nodes.$1 | $2" >/dev/null
}
# In agents_server's numbers.
UP='.linked == "yes" and .reported and .phase == 1 and .slurmd == 1'
STOPPING='.phase == 2'
GIVING_UP='.phase == 3'

all_away() {
    local file name
    scancel --full --signal=KILL --state=RUNNING
    scancel --quiet -u alice
    for file in "$RUN"/slurmd-*.pid; do
        [[ -e $file ]] || continue
        name=$(basename "$file" .pid)
        if runs "$name"; then
            kill -KILL "$(agent "${name#slurmd-}")"
            eventually 10 ended "${name#slurmd-}"
        fi
        rm "$file" "$LOGS/$name.log"
    done
    if [[ -e $RUN/ear.pid ]]; then
        if runs ear; then stop ear; fi
        rm "$RUN/ear.pid" "$LOGS/ear.log"
    fi
    rm -rf "$RUN"/pods/*/checks/* "$RUN"/pods/*/state/*
    for name in $(scontrol -o show nodes | sed -n 's/^NodeName=\([^ ]*\).*/\1/p'); do
        eventually 15 forget_in_slurm "$name"
    done
}

# batch NODE COMMAND: prints the job's number.
batch() { as_alice sbatch --parsable -w "$1" -D / -o /dev/null -n1 --mem=100 --wrap "$2"; }

@test "a pod comes up: its node's own line, drained until it is let go, and heard by the bridge" {
    ear n1
    t0=$(now_ms)
    pod_up n1
    eventually 15 state_is n1 IDLE+DRAIN 'tidegate/health: new node, the checks of its start have not passed yet'
    echo "# registered $(($(now_ms) - t0)) ms after the start of the pod" >&3
    line=$(inside n1 "$(readlink -f "$TIDEGATE_BUILD/tidegate-node")" line)
    [[ $(node_line n1) == *" RealMemory=$(sed -n 's/.*RealMemory=\([0-9]*\).*/\1/p' <<<"$line") "* ]]
    [[ $(node_line n1) == *"AvailableFeatures=hpc"* ]]
    [[ $(node_line n1) == *"InstanceId=uid-n1"* ]]
    eventually 10 hears n1 "$UP and .cpus >= 1 and .checks == 0"
    # each line says who wrote it
    [ "$(log_of n1 | grep -cvE '^time=[^ ]+ level=[a-z]+ program=tidegate-node |^slurmd(-n1)?: |^munged: ')" = 0 ]
}

@test "what a person has set for the pool wins over the node's own line" {
    up n1 SLURMD_CONF='CPUs=1 RealMemory=1500 Features=fast Weight=7'
    [[ $(node_line n1) == *" CPUTot=1 "*" RealMemory=1500 "*" Weight=7 "* ]]
    [[ $(node_line n1) == *"AvailableFeatures=hpc,fast "* ]]
}

@test "slurmd is killed under a running job: the job completes, slurmd is back, and knows nothing of a new boot" {
    up n1
    job=$(batch n1 'sleep 6')
    eventually 15 job_is "$job" RUNNING
    kill -KILL "$(daemon n1 slurmd)"
    eventually 10 said n1 'daemon=slurmd how="killed by signal 9 (Killed)" delay_ms=1000 restarts=1'
    eventually 10 daemon n1 slurmd
    always 2 job_is "$job" RUNNING
    eventually 20 job_is "$job" COMPLETED
    [[ $(scontrol -o show job "$job") == *" Restarts=0 "* ]]
    eventually 10 state_is n1 IDLE
}

# started NODE COUNT: slurmd was started that often.
started() { [[ $(grep -c 'msg=started daemon=slurmd' "$LOGS/slurmd-$1.log") == "$2" ]]; }
@test "a slurmd that dies again and again is started later each time" {
    up n1
    for i in 1 2 3; do
        eventually 10 started n1 $i
        inside n1 kill -KILL "$(log_of n1 | sed -n 's/.*msg=started daemon=slurmd pid=//p' | tail -n 1)"
        eventually 10 said n1 "daemon=slurmd .*delay_ms=$((500 * 2 ** i)) restarts=$i"
    done
    eventually 10 started n1 4
    eventually 15 state_is n1 IDLE
}

@test "a slurmctld that comes later than the pod: slurmd waits for it, and the node joins" {
    stop slurmctld
    pod_up n1
    eventually 15 said n1 'slurmd: error: .*Retrying in 10 seconds'
    slurmctld_up
    eventually 20 slurmctld_ready
    eventually 30 state_is n1 'IDLE*'
    [ "$(grep -c 'msg=started daemon=slurmd' "$LOGS/slurmd-n1.log")" = 1 ]
}

no_zombies() {
    local all
    all=$(inside "$1" ps -eo stat,args)
    echo "$all"
    ! grep '^Z' <<<"$all"
}
@test "no zombie after 200 short processes whose parents are gone" {
    up n1
    # shellcheck disable=SC2016 # expanded in the job
    job=$(batch n1 'for i in $(seq 200); do (setsid sleep 0.1 &); done; sleep 1')
    eventually 30 job_is "$job" COMPLETED
    for i in 1 2 3; do
        job=$(batch n1 true)
        eventually 15 job_is "$job" COMPLETED
    done
    eventually 5 no_zombies n1
}

@test "munged is killed: jobs run on, it is back, and the next job starts" {
    up n1
    job=$(batch n1 'sleep 4')
    eventually 15 job_is "$job" RUNNING
    kill -KILL "$(daemon n1 munged)"
    eventually 10 said n1 'msg="ended; jobs run on, it is started again" daemon=munged how="killed by signal 9'
    eventually 10 daemon n1 munged
    eventually 20 job_is "$job" COMPLETED
    job=$(batch n1 true)
    eventually 20 job_is "$job" COMPLETED
}

@test "told to stop while idle: the bridge is told, slurmd ends, then munged, within 2 s" {
    ear n1
    up n1
    eventually 10 hears n1 "$UP"
    t0=$(now_ms)
    kill -TERM "$(agent n1)"
    eventually 5 ended n1
    took=$(($(now_ms) - t0))
    echo "# ended $took ms after SIGTERM" >&3
    [ "$(status_of n1)" = 0 ]
    [ "$took" -lt 2500 ]
    in_order n1 'phase=stopping' 'no job is here any more' 'as it was told to" daemon=slurmd' \
        'as it was told to" daemon=munged' 'msg=stopped jobs="all ended"'
    grep '^{' "$LOGS/ear.log" | jq -e "select(.nodes.n1 | $STOPPING)"
}

@test "told to stop with a job: no new job starts, the job ends in peace, and only then the pod" {
    ear n1
    up n1
    job=$(batch n1 'sleep 6')
    eventually 15 job_is "$job" RUNNING
    kill -TERM "$(agent n1)"
    eventually 5 hears n1 "$STOPPING and .steps == 1"
    late=$(batch n1 true)
    eventually 15 said n1 'a job was refused, since this node is stopping'
    eventually 15 state_is n1 '*DRAIN' 'tidegate/update: the slurmd pod is being stopped'
    [ "$(job_state "$job")" = RUNNING ]
    eventually 20 ended n1
    [ "$(status_of n1)" = 0 ]
    eventually 10 job_is "$job" COMPLETED
    job_is "$late" PENDING
}

@test "told to stop while a job is on its way: it is not lost" {
    for name in n1 n2 n3; do
        up $name
        job=$(batch $name 'sleep 2')
        eventually 15 job_is "$job" RUNNING # slurmctld says so before the step is there
        kill -TERM "$(agent $name)"
        eventually 25 ended $name
        eventually 5 job_is "$job" COMPLETED
        [[ $(scontrol -o show job "$job") == *" Restarts=0 "* ]]
    done
}

@test "told to stop with an allocation that has no step just now: it is a job all the same" {
    up n1
    install -d -o alice "$RUN/alice"
    # shellcheck disable=SC2016 # expanded by the inner shell
    spawn salloc as_alice salloc -w n1 -n1 --mem=100 -D "$RUN/alice" bash -c 'touch begun; sleep 4; srun -D / true && touch done'
    eventually 15 test -e "$RUN/alice/begun"
    kill -TERM "$(agent n1)"
    eventually 15 ended n1
    [ "$(status_of n1)" = 0 ]
    [ -e "$RUN/alice/done" ]
}

@test "told to stop with an allocation, and Slurm's libraries have something to say: waited for all the same" {
    up n1
    install -d -o alice "$RUN/alice"
    rm -f "$RUN/alice/done"
    cp /usr/bin/squeue "$LOGS/squeue.real"
    printf '#!/bin/sh\necho "squeue: error: If munged is up, restart with --num-threads=10" >&2\nexec "%s" "$@"\n' "$LOGS/squeue.real" >"$LOGS/squeue"
    chmod 755 "$LOGS/squeue"
    inside n1 mount --bind "$LOGS/squeue" /usr/bin/squeue
    # shellcheck disable=SC2016 # expanded by the inner shell
    spawn salloc as_alice salloc -w n1 -n1 --mem=100 -D "$RUN/alice" bash -c 'touch said; sleep 4; srun -D / true && touch done'
    eventually 15 test -e "$RUN/alice/said"
    kill -TERM "$(agent n1)"
    eventually 30 ended n1
    [ "$(status_of n1)" = 0 ]
    [ -e "$RUN/alice/done" ]
}

@test "told to stop while slurmctld is away: what this node knows itself has to do" {
    up n1
    stop slurmctld
    kill -TERM "$(agent n1)"
    eventually 5 said n1 'slurmctld does not tell which jobs are here'
    eventually 25 ended n1
    [ "$(status_of n1)" = 0 ]
    slurmctld_up
    eventually 20 slurmctld_ready
}

@test "told to stop with a job that outlasts the grace period: gives up in time, and says so by its status" {
    ear n1
    up n1 TIDEGATE_GRACE=9
    job=$(batch n1 'sleep 600')
    eventually 15 hears n1 '.steps == 1'
    t0=$(now_ms)
    kill -TERM "$(agent n1)"
    eventually 3 hears n1 "$STOPPING"
    eventually 7 hears n1 "$GIVING_UP and .steps == 1"
    gave_up=$(($(now_ms) - t0))
    eventually 9 ended n1
    took=$(($(now_ms) - t0))
    echo "# of 9 s: gave up after $gave_up ms, ended after $took ms" >&3
    [ "$gave_up" -ge 3900 ]
    [ "$took" -lt 9500 ]
    [ "$(status_of n1)" = 75 ]
    in_order n1 'phase=stopping' 'phase="giving up"' 'jobs still run and are cut off' \
        'daemon=slurmd' 'daemon=munged' 'jobs="cut off"'
}

@test "a bridge that moves, or was never there, is found; slurmd does not wait for it" {
    up n1
    said n1 'the bridge cannot be reached yet; jobs go on'
    job=$(batch n1 true)
    eventually 15 job_is "$job" COMPLETED
    ear n1
    eventually 10 hears n1 "$UP"
    stop ear KILL
    eventually 5 said n1 'lost the bridge; jobs go on, it is looked for'
    ear n1
    eventually 10 hears n1 "$UP"
}

more_frames() { [[ $(heard | jq .frames) -gt $(($1 + 5)) ]]; }
@test "a hung munged stops neither heartbeats nor the end; a link that needs it waits" {
    ear n1
    up n1
    eventually 10 hears n1 "$UP"
    pid=$(daemon n1 munged)
    kill -STOP "$pid"
    frames=$(heard | jq .frames)
    eventually 5 more_frames "$frames"
    stop ear
    ear n1
    eventually 15 said n1 'no credential for it could be made: killed at its deadline'
    kill -CONT "$pid"
    eventually 15 hears n1 "$UP"
    kill -STOP "$(daemon n1 munged)"
    kill -TERM "$(agent n1)"
    eventually 40 ended n1
    [ "$(status_of n1)" = 0 ]
}

@test "checks: a failing one is reported, a hung one holds up nothing, another file is taken without a restart" {
    ear n1
    cat >"$RUN/pods/n1/checks/checks.json" <<'EOF'
{"checks": [{"name": "hangs", "command": ["sleep", "1000"], "moments": ["start", "period"], "period": 2, "deadline": 1,
             "fail": {"times": 1, "of": 1}, "clear": {"times": 1}}]}
EOF
    up n1
    eventually 15 hears n1 "$UP and .checks == 1"
    frames=$(heard | jq .frames)
    eventually 5 more_frames "$frames"
    echo '{"checks": []}' >"$RUN/pods/n1/checks/new"
    mv "$RUN/pods/n1/checks/new" "$RUN/pods/n1/checks/checks.json"
    eventually 20 hears n1 '.checks == 0'
}

# refuses SENTENCE [VARIABLE=VALUE]...
refuses() {
    run env NODE_NAME=n1 POD_UID=u POOL=hpc SLURMCTLD_IP="$IP" TIDEGATE_BRIDGE_UID=64030 "${@:2}" "$TIDEGATE_BUILD/tidegate-node" run
    echo "$output"
    [ "$status" = 78 ]
    [[ $output == *"$1"* ]]
}
@test "what is missing in the environment is said, and what is expected" {
    refuses 'NODE_NAME is empty, expected the name of this node (spec.nodeName)' NODE_NAME=
    refuses 'POD_UID is empty, expected the pod' POD_UID=
    refuses 'POOL is empty, expected the name of the pool' POOL=
    refuses 'POOL is \"a b\", expected the name of the pool: letters' POOL='a b'
    refuses 'SLURMCTLD_IP is empty, expected the IP address of the controller' SLURMCTLD_IP=
    refuses 'SLURMCTLD_IP is \"controller\", expected the IP address of the controller' SLURMCTLD_IP=controller
    refuses 'TIDEGATE_GRACE is \"soon\", expected a whole number' TIDEGATE_GRACE=soon
    refuses 'TIDEGATE_GRES is \"1\", expected yes or no' TIDEGATE_GRES=1
    refuses 'TIDEGATE_BRIDGE_UID is \"\", expected a whole number' TIDEGATE_AGENTS=10.0.0.1:6821 TIDEGATE_BRIDGE_UID=
    refuses '/run/secrets/munge/munge.key cannot be read: No such file or directory; mount the Secret'
    run env NODE_NAME=n1 POD_UID=u POOL=hpc SLURMCTLD_IP="$IP" setpriv --reuid 1000 --clear-groups "$TIDEGATE_BUILD/tidegate-node" run
    [ "$status" = 77 ]
    run "$TIDEGATE_BUILD/tidegate-node" run now
    [ "$status" = 64 ]
    run "$TIDEGATE_BUILD/tidegate-node" walk
    [ "$status" = 64 ]
}

@test "a configuration that cannot work ends the pod with a sentence" {
    pod_up n1 TIDEGATE_AGENTS=bridge:6821
    eventually 5 ended n1
    [ "$(status_of n1)" = 78 ]
    said n1 'TIDEGATE_AGENTS: the bridge.s address is .*expected ADDRESS:PORT in numbers'
    pod_up n1 TIDEGATE_RESERVE_CPUS=60000
    eventually 5 ended n1
    [ "$(status_of n1)" = 78 ]
    said n1 'this node cannot take jobs as it is configured'
    pod_up n1 SLURMD_CONF=fast
    eventually 5 ended n1
    [ "$(status_of n1)" = 78 ]
    said n1 'SLURMD_CONF has the word .*fast.*, expected KEY=VALUE'
    echo '{' >"$RUN/pods/n1/checks/checks.json"
    pod_up n1
    eventually 5 ended n1
    [ "$(status_of n1)" = 78 ]
    said n1 '/etc/tidegate/checks/checks.json'
}

ticks_of() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
# The footprint with a live link, slurmd, a job and five checks. The time is only printed: a test never depends on it.
@test "a second agent in the pod is refused with a sentence, and the first goes on" {
    up n1
    run inside n1 env NODE_NAME=n1 POD_UID=uid-n1 POOL=hpc SLURMCTLD_IP="$IP" "$(readlink -f "$TIDEGATE_BUILD/tidegate-node")" run
    echo "$status: $output"
    [ "$status" = 69 ]
    [[ $output == *'an agent runs in this container already'* ]]
    as_alice srun -w n1 --mem=100 true
}

@test "it is small: less than 8 MiB" {
    ear n1
    cat >"$RUN/pods/n1/checks/checks.json" <<'EOF'
{"checks": [{"name": "root", "command": ["tidegate-node", "check", "space", "/"]},
            {"name": "tmp", "command": ["tidegate-node", "check", "space", "/tmp"]},
            {"name": "memory", "command": ["tidegate-node", "check", "memory"]},
            {"name": "clock", "command": ["tidegate-node", "check", "clock"]},
            {"name": "munge", "command": ["tidegate-node", "check", "munge"]}]}
EOF
    up n1 PATH="$(readlink -f "$TIDEGATE_BUILD"):$PATH"
    job=$(batch n1 'sleep 60')
    eventually 15 job_is "$job" RUNNING
    eventually 10 hears n1 "$UP and .checks == 0"
    pid=$(agent n1)
    ticks=$(ticks_of "$pid")
    sleep 10
    ticks=$(($(ticks_of "$pid") - ticks))
    rss=$(awk '/^Rss:/ { print $2 }' "/proc/$pid/smaps_rollup")
    echo "# Rss $rss KiB, $(awk '/^(Pss|Private_Dirty):/ { printf "%s %s KiB, ", $1, $2 }' "/proc/$pid/smaps_rollup")$ticks ticks of 10 ms in 10 s with a heartbeat each 0.2 s" >&3
    # a build with sanitizers has memory of their own
    if grep -q __asan_init "$TIDEGATE_BUILD/tidegate-node"; then rss=$((rss / 4)); fi
    [ "$rss" -lt 8192 ]
}
