#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Health checks from end to end: the shipped programs under a real agent, the bridge, and Slurm.
bats_require_minimum_version 1.5.0

setup_file() {
    load lib
    pods_up
    bridge_up a --agents
}
setup() { load lib; }
teardown() {
    nodes_away
    rm -f "$RUN"/pods/*/checks/* "$RUN"/pods/*/state/*
}

# checks NODE JSON: those of the node, before its agent starts.
checks() {
    [[ -e /run/netns/$1 ]] || pod_net "$1"
    echo "{\"checks\": [$2]}" >"$RUN/pods/$1/checks/checks.json"
}
tidegate_node() { in_pod "$1" "$PWD/$TIDEGATE_BUILD/tidegate-node" "${@:2}"; }
said() { grep -F -- "$2" "$LOGS/slurmd-$1.log"; }
EACH='"moments": ["start", "period"], "period": 1, "deadline": 3'

@test "a full scratch drains the node with a sentence, and clears by itself once there is room" {
    checks n1 "{\"name\": \"scratch\", \"command\": [\"$PWD/$TIDEGATE_BUILD/tidegate-node\", \"check\", \"space\", \"/srv\",
        \"--min-percent\", \"10\", \"--writable\"], $EACH}"
    agents_up n1
    in_pod n1 mount -t tmpfs -o size=10m tmpfs /srv
    always 2 state_is n1 IDLE
    in_pod n1 dd if=/dev/zero of=/srv/big bs=64k count=150 2>/dev/null
    eventually 15 state_is n1 IDLE+DRAIN \
        'tidegate/health: /srv has 6.2 % (0 MiB) free, expected at least 10 %: delete files there or enlarge it'
    job=$(submit -w n1 0)
    always 2 job_is "$job" PENDING
    in_pod n1 rm /srv/big
    eventually 20 job_is "$job" COMPLETED
}

@test "a check that hangs is itself a result, and stops no heartbeat" {
    checks n1 "{\"name\": \"lustre\", \"command\": [\"sleep\", \"1000\"], $EACH, \"fail\": {\"times\": 1}}"
    agent_up n1
    kube_node_up n1
    eventually 20 state_is n1 IDLE+DRAIN "tidegate/health: check lustre has not ended within 3 s and was killed; \
run 'sleep 1000' on the node to see what it waits for"
    links=$(grep -c 'linked to the bridge' "$LOGS/slurmd-n1.log")
    [ "$links" -ge 1 ]
    sleep 12 # four times as long as the check hangs, and longer than a link lives without an answer
    [ "$(grep -c 'linked to the bridge' "$LOGS/slurmd-n1.log")" = "$links" ]
    state_is n1 IDLE+DRAIN
}

@test "a check that holds a node holds it over a restart of the pod, until it clears" {
    bad=$RUN/pods/n1/checks/bad
    checks n1 "{\"name\": \"disk\", \"command\": [\"sh\", \"-c\", \"cat /etc/tidegate/checks/bad 2>/dev/null && exit 1; exit 0\"],
        $EACH, \"fail\": {\"times\": 2}, \"clear\": {\"times\": 5}}"
    agents_up n1
    echo 'disk sdb is failing: replace it' >"$bad"
    eventually 15 state_is n1 IDLE+DRAIN 'tidegate/health: disk sdb is failing: replace it'
    rm "$bad"
    stop slurmd-n1 KILL
    agent_up n1
    eventually 10 said n1 'a health check held this node before its restart, and still does'
    always 3 state_is n1 '*+DRAIN*' 'tidegate/health: disk sdb is failing: replace it'
    eventually 20 state_is n1 IDLE
}

@test "a check of the prolog keeps the job away, the job runs elsewhere, and the node comes back" {
    for node in n1 n2; do
        checks $node '{"name": "gate", "command": ["sh", "-c", "cat /etc/tidegate/checks/bad 2>/dev/null && exit 1; exit 0"],
            "moments": ["prolog"], "period": 1}'
    done
    agents_up n1
    echo 'the licence file is gone: mount /opt' >"$RUN/pods/n1/checks/bad"
    job=$(submit 0)
    eventually 20 state_is n1 IDLE+DRAIN 'tidegate/health: the licence file is gone: mount /opt'
    eventually 10 job_is "$job" PENDING
    agents_up n2
    eventually 40 job_is "$job" COMPLETED
    rm "$RUN/pods/n1/checks/bad"
    eventually 20 state_is n1 IDLE
}

@test "a check that only a person clears is released on the node" {
    checks n1 "{\"name\": \"smart\", \"command\": [\"sh\", \"-c\", \"cat /etc/tidegate/checks/bad 2>/dev/null && exit 1; exit 0\"],
        $EACH, \"fail\": {\"times\": 1}, \"clear\": \"person\"}"
    agents_up n1
    echo 'disk sda has 12 bad sectors: replace it' >"$RUN/pods/n1/checks/bad"
    eventually 15 state_is n1 IDLE+DRAIN 'tidegate/health: disk sda has 12 bad sectors: replace it'
    rm "$RUN/pods/n1/checks/bad"
    always 4 state_is n1 IDLE+DRAIN
    run tidegate_node n1 check --release other
    [ "$status" = 1 ]
    [[ $output == *'this node has no check of the name other'* ]]
    run tidegate_node n1 check --release smart
    [ "$status" = 0 ]
    eventually 15 state_is n1 IDLE
}

# leave NODE SECONDS: a job that leaves a process of its user behind.
leave() {
    as_alice sbatch --parsable -w "$1" -D / -o /dev/null -n1 --mem=100 --wrap "setsid -f sleep $2; sleep 1"
}
left() { pgrep -u 1000 -x -f "sleep $1"; }
not_left() { ! left "$1"; }

@test "what a job leaves behind is ended before the next one comes, where that is checked" {
    checks n1 "{\"name\": \"leftovers\", \"command\": [\"$PWD/$TIDEGATE_BUILD/tidegate-node\", \"check\", \"leftovers\", \"--kill\"],
        \"moments\": [\"idle\", \"epilog\"], \"period\": 1}"
    agents_up n1 n2
    jobs=("$(leave n1 4711)" "$(leave n2 4712)")
    eventually 20 job_is "${jobs[0]}" COMPLETED
    eventually 20 job_is "${jobs[1]}" COMPLETED
    eventually 15 not_left 4711
    state_is n1 IDLE
    always 2 left 4712 # so it is not Slurm that ends it
    in_pod n2 pkill -u 1000 sleep
}

@test "the chart's own checks pass on a healthy node, and start it without delay" {
    mkdir -p "$RUN/pods"
    chart node/configmaps.yaml | kubectl create --dry-run=client -o json -f - |
        jq -er 'select(.metadata.name | endswith("-checks")) | .data["checks.json"]' >"$RUN/defaults.json"
    jq -e '.checks | length > 5' "$RUN/defaults.json"
    [[ -e /run/netns/n1 ]] || pod_net n1
    cp "$RUN/defaults.json" "$RUN/pods/n1/checks/checks.json"
    kube_node_up n1
    since=$(wc -l <"$LOGS/slurmd-n1.log")
    agent_up n1 "PATH=$PWD/$TIDEGATE_BUILD:$PATH"
    eventually 20 state_is n1 IDLE
    run -1 grep 'a health check has failed' <(tail -n "+$((since + 1))" "$LOGS/slurmd-n1.log")
}
