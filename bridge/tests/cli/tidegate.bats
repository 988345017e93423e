#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The tidegate command against answers as the bridge gives them, and against what is no bridge.
# TIDEGATE names the program (default: build/release/tidegate).

bats_require_minimum_version 1.5.0

setup_file() {
    export TOP=$BATS_TEST_DIRNAME/../../..
    export TIDEGATE=${TIDEGATE:-$TOP/build/release/tidegate}
    unset TIDEGATE_BRIDGE_URL TIDEGATE_BRIDGE_SERVICE_HOST TIDEGATE_BRIDGE_SERVICE_PORT
    python3 "$BATS_TEST_DIRNAME/fake-bridge" "$BATS_FILE_TMPDIR/port" &
    echo $! >"$BATS_FILE_TMPDIR/pid"
    for _ in {1..100}; do
        [[ -s $BATS_FILE_TMPDIR/port ]] && break
        sleep 0.05
    done
    PORT=$(cat "$BATS_FILE_TMPDIR/port")
    export PORT BRIDGE=http://127.0.0.1:$PORT
    ln -s "$(realpath "$TIDEGATE")" "$BATS_FILE_TMPDIR/kubectl-tidegate"
    export PLUGIN=$BATS_FILE_TMPDIR/kubectl-tidegate
}

teardown_file() {
    kill "$(cat "$BATS_FILE_TMPDIR/pid")"
}

# kubectl STATUS [LINE]...: puts a kubectl in PATH that notes its arguments, prints the lines on
# stderr and exits so; with status 0 it prints the bridge's answer on stdout.
fake_kubectl() {
    local status=$1
    shift
    mkdir -p "$BATS_TEST_TMPDIR/bin"
    {
        echo '#!/bin/bash'
        # shellcheck disable=SC2016 # for the script
        echo 'for arg; do echo "$arg"; done >'"$(printf %q "$BATS_TEST_TMPDIR/args")"
        if ((status == 0)); then
            echo "exec curl -sS $BRIDGE/v1/nodes"
        else
            printf 'echo %q >&2\n' "$@"
            echo "exit $status"
        fi
    } >"$BATS_TEST_TMPDIR/bin/kubectl"
    chmod +x "$BATS_TEST_TMPDIR/bin/kubectl"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH
}

@test "nodes: a row for each, with who holds it and since when" {
    run --separate-stderr "$TIDEGATE" --url "$BRIDGE" nodes
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ ${lines[0]} =~ ^NODE\ +POOL\ +KUBERNETES\ +AGENT\ +SLURM\ +JOBS\ +HELD\ BY\ +SINCE\ +REASON$ ]]
    [[ ${lines[1]} =~ ^w1\ +hpc\ +Ready\ +-\ +IDLE\ +0\ +-\ +-\ +-$ ]]
    [[ ${lines[2]} =~ ^w2\ +hpc\ +Ready,SchedulingDisabled\ +up\ +MIXED\+DRAIN\ +2\ +tidegate\ +3m\  ]]
    [[ ${lines[2]} == *"tidegate/k8s: node is cordoned in Kubernetes" ]]
}

@test "nodes: what outside text holds cannot reach the terminal" {
    run "$TIDEGATE" --url "$BRIDGE" nodes
    [[ ${lines[3]} == *'bad\x1b[2Jdimm\u009b'* ]]
    [[ $output != *$'\e'* ]]
    run "$TIDEGATE" --url "$BRIDGE" nodes --json
    [[ $output != *$'\e'* && $output != *$'\u009b'* ]]
}

@test "--json: the bridge's answer, whole" {
    "$TIDEGATE" --url "$BRIDGE" nodes --json >"$BATS_TEST_TMPDIR/ours"
    diff <(jq -S . "$BATS_TEST_TMPDIR/ours") <(curl -sS "$BRIDGE/v1/nodes" | jq -S .)
    "$TIDEGATE" why w2 --json --url "$BRIDGE" >"$BATS_TEST_TMPDIR/ours"
    diff <(jq -S . "$BATS_TEST_TMPDIR/ours") <(curl -sS "$BRIDGE/v1/nodes/w2" | jq -S .)
}

@test "of several bridges the one that leads is heard, and it is said when that one is not there" {
    run --separate-stderr "$TIDEGATE" --url "$BRIDGE/standby" nodes
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    run --separate-stderr "$TIDEGATE" --url "$BRIDGE/follower" nodes
    [ "$status" -eq 0 ]
    [[ ${lines[1]} =~ ^w1\ +hpc\  ]]
    [[ $stderr == *"the bridge that leads has not answered"* ]]
}

@test "why: one screen" {
    run --separate-stderr "$TIDEGATE" --url "$BRIDGE" why w2
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "w2 (pool hpc)" ]
    [[ $output == *"Held by:     tidegate, for 3m (since 20"* ]]
    [[ $output == *"Slurm:       MIXED+DRAIN, 2 jobs"* ]]
    [[ $output == *"Overruled:   not-ready, gone"* ]]
    [[ $output == *"Tidegate holds it in MIXED+DRAIN, because the node is cordoned"* ]]
    [[ $output == *"\`kubectl uncordon\` of the node ends it."* ]]
}

@test "why: what the node's agent says" {
    run "$TIDEGATE" --url "$BRIDGE" why w1
    [[ $output != *Agent:* ]]
    run "$TIDEGATE" --url "$BRIDGE" why w2
    [[ $output == *"Agent:       up, slurmd running, 2 steps, slurmd was started again"* ]]
    [[ $output == *'Check fails: scratch, for 3m: /scratch is\x1b[2J full: make room'* ]]
    run "$TIDEGATE" --url "$BRIDGE" why w3
    [[ $output == *"Agent:       its link is lost; it was stopping, slurmd off, 0 steps"* ]]
}

@test "why: a node that is not there is status 1" {
    run "$TIDEGATE" --url "$BRIDGE" why w9
    [ "$status" -eq 1 ]
    [ "$output" = "tidegate: there is no node w9" ]
}

@test "where the bridge is: by the environment" {
    TIDEGATE_BRIDGE_URL=$BRIDGE/ run "$TIDEGATE" why w1
    [ "$status" -eq 0 ]
    TIDEGATE_BRIDGE_SERVICE_HOST=127.0.0.1 TIDEGATE_BRIDGE_SERVICE_PORT=$PORT run "$TIDEGATE" why w1
    [ "$status" -eq 0 ]
}

@test "no bridge is status 69, in words" {
    run "$TIDEGATE" --url http://127.0.0.1:1 nodes
    [ "$status" -eq 69 ]
    [[ $output == "tidegate: the bridge cannot be reached at http://127.0.0.1:1: "* ]]
    run "$TIDEGATE" --url "file:///etc/passwd" nodes
    [ "$status" -eq 69 ]
    for path in html array stranger endless early 404; do
        run "$TIDEGATE" --url "$BRIDGE/$path" nodes
        [ "$status" -eq 69 ]
        [[ $output == "tidegate: "* ]]
    done
}

@test "slurmctld away: the table, a word on stderr, status 69" {
    run --separate-stderr "$TIDEGATE" --url "$BRIDGE/stale" nodes
    [ "$status" -eq 69 ]
    [[ $stderr == "tidegate: slurmctld cannot be read: connect failure; "* ]]
    [[ ${lines[1]} =~ ^w1\  ]]
}

@test "a bridge that stalls is given up" {
    SECONDS=0
    run "$TIDEGATE" --url "$BRIDGE/stall" nodes
    [ "$status" -eq 69 ]
    ((SECONDS < 20))
}

@test "wrong usage is status 2" {
    local args
    for args in "" "nodes x" "why" "why a b" "frobnicate" "--bogus" "nodes --json=1" \
        "nodes --url $BRIDGE --kubectl" "nodes --url"; do
        # shellcheck disable=SC2086 # words on purpose
        run "$TIDEGATE" $args
        [ "$status" -eq 2 ]
        [[ $output == *"--help"* ]]
    done
}

@test "--help and --version" {
    run "$TIDEGATE" --help
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == "usage: tidegate nodes"* ]]
    run "$PLUGIN" --help
    [[ ${lines[0]} == "usage: kubectl tidegate nodes"* ]]
    run "$TIDEGATE" --version
    [ "$output" = "tidegate $(cat "$TOP/VERSION")" ]
}

@test "kubectl tidegate asks through the API server" {
    fake_kubectl 0
    run "$PLUGIN" nodes -n hpc --service s --context c --kubeconfig k
    [ "$status" -eq 0 ]
    [[ ${lines[1]} =~ ^w1\  ]]
    diff "$BATS_TEST_TMPDIR/args" - <<'END'
get
--raw
/api/v1/namespaces/hpc/services/s:http/proxy/v1/nodes
--request-timeout=5s
--context
c
--kubeconfig
k
END
    run "$PLUGIN" why w2 --json
    [ "$status" -eq 0 ]
    diff <(jq -S . <<<"$output") <(curl -sS "$BRIDGE/v1/nodes/w2" | jq -S .)
    grep -qx /api/v1/namespaces/tidegate/services/tidegate-bridge:http/proxy/v1/nodes \
        "$BATS_TEST_TMPDIR/args"
    run "$TIDEGATE" --kubectl why w9
    [ "$status" -eq 1 ]
}

@test "kubectl's refusals are told apart" {
    fake_kubectl 1 'Error from server (Forbidden): services "tidegate-bridge:http" is forbidden'
    run "$PLUGIN" nodes
    [ "$status" -eq 77 ]
    [[ $output == *"no permission: reading the bridge takes 'get' on 'services/proxy'"* ]]
    fake_kubectl 1 'error: You must be logged in to the server (Unauthorized)'
    run "$PLUGIN" nodes
    [ "$status" -eq 77 ]
    fake_kubectl 1 'Error from server (NotFound): services "tidegate-bridge" not found'
    run "$PLUGIN" nodes
    [ "$status" -eq 69 ]
    [[ $output == *"no Service tidegate-bridge in namespace tidegate"* ]]
    fake_kubectl 1 'The connection to the server 127.0.0.1:6443 was refused'
    run "$PLUGIN" nodes
    [ "$status" -eq 69 ]
    PATH=/nonexistent run "$PLUGIN" nodes
    [ "$status" -eq 69 ]
    [[ $output == *"kubectl is not installed"* ]]
}
