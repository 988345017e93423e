#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Fail closed while Kubernetes cannot be seen, catch up afterwards.

setup_file() {
    load lib
    cluster_up
    bridge_up a
}
setup() { load lib; }
teardown() { nodes_away; }

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'
quiet() { state_is "$1" IDLE && state_is "$2" IDLE+DRAIN "$CORDONED" && state_is "$3" IDLE+DRAIN 'a person'; }

three_nodes() { # one fine, one cordoned, one of a person
    nodes_up "$@"
    kubectl cordon "$2"
    scontrol update nodename="$3" state=drain reason='a person'
    eventually 15 quiet "$@"
}

@test "an API server that hangs for 30 s changes nothing, and the bridge catches up (promise 4)" {
    three_nodes hang1 hang2 hang3
    signal apiserver STOP
    always 30 quiet hang1 hang2 hang3
    [ "$(changes_of hang1)" = 0 ]
    [ "$(changes_of hang2)" = 1 ]
    signal apiserver CONT
    eventually 30 kubectl cordon hang1
    kubectl uncordon hang2
    eventually 30 state_is hang1 IDLE+DRAIN "$CORDONED"
    eventually 15 state_is hang2 IDLE
    state_is hang3 IDLE+DRAIN 'a person'
}

@test "an API server that is gone for 15 s changes nothing, and the bridge catches up (promise 4)" {
    three_nodes gone1 gone2 gone3
    stop apiserver KILL
    always 15 quiet gone1 gone2 gone3
    bridge_view a | jq -e '.kubernetes.fresh == false and .leader == false'
    [ "$(changes_of gone2)" = 1 ]
    apiserver_up
    eventually 40 apiserver_ready
    kubectl cordon gone1
    kubectl uncordon gone2
    eventually 30 state_is gone1 IDLE+DRAIN "$CORDONED"
    eventually 15 state_is gone2 IDLE
    state_is gone3 IDLE+DRAIN 'a person'
}

@test "a watch whose past is compacted away (410) is listed anew, and nothing is missed (promise 4)" {
    nodes_up old1 old2 old3
    signal bridge-a STOP
    stop apiserver KILL # so that what follows is not in its socket already
    apiserver_up
    eventually 40 apiserver_ready
    kubectl cordon old1
    kubectl delete node old2
    revision=$(api GET /api/v1/nodes | jq -r .metadata.resourceVersion)
    curl -sSf -X POST -d '{"revision":'"$revision"',"physical":true}' http://127.0.0.1:2379/v3/kv/compaction
    # Its watch cache begins anew, at the present.
    stop apiserver KILL
    apiserver_up
    eventually 40 apiserver_ready
    signal bridge-a CONT
    eventually 30 state_is old1 IDLE+DRAIN "$CORDONED"
    eventually 15 state_is old2 IDLE+DRAIN 'tidegate/k8s: node is gone from Kubernetes'
    state_is old3 IDLE
    kubectl cordon old3
    eventually 15 state_is old3 IDLE+DRAIN "$CORDONED"
}

@test "a token that is no longer taken makes the bridge hold still and say so; a new one is picked up (promise 4)" {
    nodes_up token1
    cp "$RUN/bridge-token" "$RUN/bridge-token.good"
    echo nonsense >"$RUN/bridge-token"
    stop apiserver KILL # ends the watches, which were let in by the old one
    apiserver_up
    eventually 40 apiserver_ready
    kubectl cordon token1
    eventually 30 grep -i 'unauthorized' "$LOGS/bridge-a.log"
    always 3 state_is token1 IDLE
    cp "$RUN/bridge-token.good" "$RUN/bridge-token"
    eventually 30 state_is token1 IDLE+DRAIN "$CORDONED"
}
