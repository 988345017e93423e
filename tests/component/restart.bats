#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Nothing is remembered only in memory, and one replica acts.

setup_file() {
    load lib
    cluster_up
}
setup() { load lib; }
teardown() {
    local id
    for id in a b; do # by TERM, which gives the lease up
        if [[ -e $RUN/bridge-$id.pid ]] && runs "bridge-$id"; then
            signal "bridge-$id" CONT
            stop "bridge-$id"
        fi
    done
    nodes_away
}

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'

@test "killed at 20 random moments of cordons and uncordons, the bridge ends right each time (promise 6)" {
    seed=${TIDEGATE_SEED:-$((RANDOM * 32768 + RANDOM))}
    RANDOM=$seed
    echo "seed $seed (TIDEGATE_SEED=$seed repeats it)"
    nodes_up n1 n2 n3
    scontrol update nodename=n3 state=drain reason='a person'
    bridge_up a
    for round in {1..20}; do
        if ((RANDOM % 2)); then wanted=true state=IDLE+DRAIN; else wanted=false state=IDLE; fi
        pause=$(printf '0.%03d' $((RANDOM % 120)))
        echo "round $round: unschedulable=$wanted, killed after $pause s"
        for n in 1 2 3; do
            api PATCH "/api/v1/nodes/n$n" '{"spec":{"unschedulable":'$wanted'}}' >/dev/null &
        done
        sleep "$pause"
        stop bridge-a KILL
        wait
        bridge_start a
        if [[ $wanted == true ]]; then
            eventually 40 state_is n1 "$state" "$CORDONED"
            eventually 15 state_is n2 "$state" "$CORDONED"
        else
            eventually 40 state_is n1 "$state"
            eventually 15 state_is n2 "$state"
            [[ -z $(node_extra n1)$(node_extra n2) ]]
        fi
        state_is n3 IDLE+DRAIN 'a person'
    done
}

@test "of two replicas one acts, once; when it stalls the other takes over, and it never acts again by itself" {
    nodes_up two1 two2 two3
    bridge_up a
    bridge_start b
    eventually 30 curl -sSf "http://127.0.0.1:8081/readyz"
    kubectl cordon two1
    eventually 15 state_is two1 IDLE+DRAIN "$CORDONED"
    bridge_view b | jq -e '.leader == false and .holder == "bridge-a" and (.nodes | length) == 3'

    signal bridge-a STOP
    kubectl cordon two2
    eventually 40 state_is two2 IDLE+DRAIN "$CORDONED"
    bridge_view b | jq -e '.leader and .holder == "bridge-b"'

    # While b cannot act, nobody may: a has lost the lease and knows it.
    signal bridge-b STOP
    signal bridge-a CONT
    kubectl cordon two3
    always 4 state_is two3 IDLE
    signal bridge-b CONT
    eventually 15 state_is two3 IDLE+DRAIN "$CORDONED"
    bridge_view a | jq -e '.leader == false'
    for n in two1 two2 two3; do
        kubectl uncordon $n
        eventually 15 state_is $n IDLE
        [ "$(changes_of $n)" = 2 ] # one drain, one resume
    done
}

@test "a replica that is asked to stop hands over at once" {
    nodes_up n1
    bridge_up a
    bridge_start b
    eventually 30 curl -sSf "http://127.0.0.1:8081/readyz"
    stop bridge-a
    eventually 15 bridge_leads b
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
}

events_of() {
    api GET "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=$1" |
        jq -r '.items[] | "\(.reason) x\(.count // 1): \(.message)"' | sort
}
events_are() {
    local all
    all=$(events_of "$1")
    echo "$all"
    [[ $all == "$2" ]]
}

@test "each change is one Event on the Node, and a restart makes no new one (promise 6)" {
    nodes_up events1
    bridge_up a
    kubectl cordon events1
    eventually 15 state_is events1 IDLE+DRAIN "$CORDONED"
    wanted="SlurmDrained x1: Drained in Slurm: $CORDONED. Running jobs go on."
    eventually 15 events_are events1 "$wanted"
    stop bridge-a KILL
    bridge_up a
    always 2 events_are events1 "$wanted"
    kubectl uncordon events1
    eventually 15 state_is events1 IDLE
    wanted+=$'\nSlurmResumed x1: Resumed in Slurm: it takes jobs again.'
    eventually 15 events_are events1 "$wanted"
    api GET "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=events1" |
        jq -e 'all(.items[]; .involvedObject.kind == "Node" and .source.component != "")'
    kubectl describe node events1 | grep -F 'Resumed in Slurm'
}
