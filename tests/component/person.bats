#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# An admin's word stands, whatever else happens.

setup_file() {
    load lib
    cluster_up
    bridge_up a
}
setup() { load lib; }
teardown() { nodes_away; }

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'

restart_bridge() {
    stop bridge-a KILL
    bridge_up a
}

@test "a person's drain stays, word for word, over restarts of everything and over cordon and uncordon (promise 1, rule 1)" {
    text='bad dimm: "slot 3", ticket #42 (50% errors)'
    nodes_up n1 n2
    scontrol update nodename=n1 state=drain reason="$text"
    restart_bridge
    kubectl cordon n1
    always 2 state_is n1 IDLE+DRAIN "$text"
    kubectl uncordon n1
    always 2 state_is n1 IDLE+DRAIN "$text"
    slurmd_crash n1
    always 3 state_is n1 IDLE+DRAIN "$text"
    stop slurmctld
    slurmctld_up
    eventually 40 slurmctld_ready
    eventually 30 state_is n2 IDLE
    always 3 state_is n1 IDLE+DRAIN "$text"

    # and it is the person who ends it
    scontrol update nodename=n1 state=resume
    eventually 30 state_is n1 IDLE
    always 2 state_is n1 IDLE
}

@test "a node that a person set DOWN stays so (promise 1, rule 1)" {
    nodes_up n1
    scontrol update nodename=n1 state=down reason='smoke'
    kubectl cordon n1
    kubectl uncordon n1
    restart_bridge
    slurmd_crash n1
    always 4 state_is n1 DOWN smoke
}

@test "a person who writes over our reason takes the node over (promise 1, rule 1)" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    scontrol update nodename=n1 state=drain reason='mine now'
    always 2 state_is n1 IDLE+DRAIN 'mine now'
    kubectl uncordon n1
    always 3 state_is n1 IDLE+DRAIN 'mine now'
}

@test "a person's drain of a node that is cordoned turns into ours once the person lets go" {
    nodes_up n1
    scontrol update nodename=n1 state=drain reason='mine'
    kubectl cordon n1
    always 1 state_is n1 IDLE+DRAIN mine
    scontrol update nodename=n1 state=resume
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
}

@test "a person's resume of our drain stands until the cause has cleared once, also over a restart (promise 1, rule 2)" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    scontrol update nodename=n1 state=resume
    eventually 15 state_is n1 IDLE
    always 3 state_is n1 IDLE
    restart_bridge
    always 3 state_is n1 IDLE
    [ "$(kubectl get node n1 -o 'jsonpath={.spec.unschedulable}')" = true ]

    kubectl uncordon n1
    always 2 state_is n1 IDLE
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
}

@test "a resume while the bridge was dead counts as well (rule 2, promise 6)" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    stop bridge-a KILL
    scontrol update nodename=n1 state=resume
    bridge_up a
    eventually 15 state_is n1 IDLE
    always 3 state_is n1 IDLE
}

@test "overruling a cordon does not overrule a death" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    scontrol update nodename=n1 state=resume
    eventually 15 state_is n1 IDLE
    stop slurmd-n1 KILL
    kube_ready n1 Unknown
    eventually 15 state_is n1 'DOWN*' 'tidegate/k8s: node is NotReady in Kubernetes and slurmd does not answer'
}

@test "an admin's cordon is never undone: the bridge has not even the right to (promise 1)" {
    nodes_up n1
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    scontrol update nodename=n1 state=resume
    restart_bridge
    always 2 test "$(kubectl get node n1 -o 'jsonpath={.spec.unschedulable}')" = true
    for verb in update patch delete create; do
        run kubectl auth can-i "$verb" nodes --as "system:serviceaccount:$NS:tidegate-bridge"
        [ "${lines[-1]}" = no ]
    done
    run kubectl auth can-i get secrets -n "$NS" --as "system:serviceaccount:$NS:tidegate-bridge"
    [ "${lines[-1]}" = no ]
}

@test "a malformed Extra of somebody else is kept byte for byte, and the node still follows Kubernetes" {
    text='{"rack": 7, oops, "tidegate": <'
    nodes_up n1 n2
    scontrol update nodename=n1 extra="$text"
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    [ "$(node_extra n1)" = "$text" ]
    kubectl uncordon n1
    eventually 15 state_is n1 IDLE
    [ "$(node_extra n1)" = "$text" ]
    kubectl cordon n2 # the rest goes on
    eventually 15 state_is n2 IDLE+DRAIN "$CORDONED"
}

@test "an overruling holds where the ledger cannot be kept (rule 2)" {
    nodes_up n1
    scontrol update nodename=n1 extra='not json'
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    scontrol update nodename=n1 state=resume
    eventually 15 state_is n1 IDLE "$CORDONED"
    restart_bridge
    always 3 state_is n1 IDLE "$CORDONED"
    [ "$(node_extra n1)" = 'not json' ]
    kubectl uncordon n1
    eventually 15 state_is n1 IDLE 'Not responding'
}

@test "the keys of others in Extra stay as they were written" {
    text='{"rack":{"row":"B","u":17},"serial":12345678901234567890}'
    nodes_up n1
    scontrol update nodename=n1 extra="$text"
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    node_extra n1 | jq -e '.rack.u == 17 and .tidegate.episode == "cordoned"'
    node_extra n1 | grep -F '"serial":12345678901234567890'
    kubectl uncordon n1
    eventually 15 state_is n1 IDLE
    [ "$(node_extra n1)" = "$text" ]
}

@test "a person's text on a node that was resumed is not taken for a word on its next crash" {
    nodes_up crash1
    scontrol update nodename=crash1 state=drain reason='bad dimm'
    scontrol update nodename=crash1 state=resume
    eventually 15 state_is crash1 IDLE 'Not responding'
    job=$(submit 0) # a sign of life, else slurmctld does not see that a crash is one
    eventually 30 job_is "$job" COMPLETED
    sleep 1 # until nothing more is on its way to it
    slurmd_crash crash1
    eventually 30 grep -q 'crash1.*unexpectedly rebooted' "$LOGS/slurmctld.log"
    eventually 30 state_is crash1 IDLE
}
