#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# What `tidegate` and `kubectl tidegate` say of a real cluster.

# pod_up NAME LABELS NODE: a Pod object.
pod_up() {
    api POST "/api/v1/namespaces/$NS/pods" '{"metadata":{"name":"'"$1"'","labels":'"$2"'},
        "spec":{"serviceAccountName":"tidegate-node","nodeName":"'"$3"'",
        "containers":[{"name":"main","image":"none"}]}}' >/dev/null
}

# The way of `kubectl tidegate`: the chart's Service, and what a controller would make of the pod: the API
# server proxies to addresses of pods only.
service_up() {
    chart bridge/service.yaml | kubectl apply -f - >/dev/null
    pod_up bridge '{}' control-plane
    api PATCH "/api/v1/namespaces/$NS/pods/bridge/status" \
        '{"status":{"phase":"Running","podIP":"'"$IP"'","podIPs":[{"ip":"'"$IP"'"}]}}' >/dev/null
    api POST "/api/v1/namespaces/$NS/endpoints" '{"metadata":{"name":"tidegate-bridge"},"subsets":[{
        "addresses":[{"ip":"'"$IP"'","targetRef":{"kind":"Pod","namespace":"'"$NS"'","name":"bridge"}}],
        "ports":[{"name":"http","port":8080}]}]}' >/dev/null
}

setup_file() {
    load lib
    cluster_up
    bridge_up a
    service_up
    mkdir "$RUN/bin"
    ln -s "$PWD/$TIDEGATE_BUILD/tidegate" "$RUN/bin/tidegate"
    ln -s tidegate "$RUN/bin/kubectl-tidegate"
}
setup() {
    load lib
    PATH=$RUN/bin:$PATH
    bats_require_minimum_version 1.5.0
}
teardown() { nodes_away; }

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'

# row NODE: its line of the table, with single blanks and without the age.
row() { tidegate nodes | awk -v n="$1" '$1 == n' | tr -s ' ' | sed -E 's/ [0-9]+[smhd]( |$)/ AGE /; s/ $//'; }
row_is() {
    local line
    line=$(row "$1")
    echo "$line"
    [[ $line == "$2" ]]
}

# why_has NODE TEXT
why_has() { tidegate why "$1" | tee /dev/stderr | grep -F "$2"; }

@test "tidegate nodes shows who holds each node, and why" {
    nodes_up n1 n2 n3
    kubectl cordon n1
    scontrol update nodename=n2 state=drain reason='bad dimm'
    eventually 15 row_is n1 "n1 hpc Ready,SchedulingDisabled - IDLE+DRAIN+DYNAMIC_NORM 0 tidegate AGE $CORDONED"
    eventually 15 row_is n2 'n2 hpc Ready - IDLE+DRAIN+DYNAMIC_NORM 0 person AGE bad dimm'
    eventually 15 row_is n3 'n3 hpc Ready - IDLE+DYNAMIC_NORM 0 - - -'
    run -0 tidegate nodes --json
    jq -e '[.nodes[] | .holder] == ["tidegate", "person", "nobody"]' <<<"$output"
}

@test "tidegate why says in one screen who holds a node, since when, why, and what ends it" {
    nodes_up n1 n2
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    eventually 15 row_is n1 "n1 hpc Ready,SchedulingDisabled - IDLE+DRAIN+DYNAMIC_NORM 0 tidegate AGE $CORDONED"
    run -0 tidegate why n1
    echo "$output"
    [[ $output == *'Held by:'*tidegate,\ for* ]]
    [[ $output == *'because the node is cordoned in Kubernetes.'* ]]
    [[ $output == *'kubectl uncordon'*' of the node ends it.'* ]]
    ((${#lines[@]} < 24))
    run -0 tidegate why n1 --json
    jq -e '.node.name == "n1" and .node.cause == "cordoned"' <<<"$output"

    scontrol update nodename=n1 state=resume
    eventually 15 state_is n1 IDLE
    eventually 15 why_has n1 'A person resumed it in spite of'

    scontrol update nodename=n2 state=drain reason='bad dimm'
    kubectl cordon n2
    eventually 15 why_has n2 'A person holds it in IDLE+DRAIN+DYNAMIC_NORM with the reason "bad dimm"'
    eventually 15 why_has n2 'It would drain the node by itself, because the node is cordoned'
}

@test "a node that has another name in Slurm is told of on both sides, and the rest goes on" {
    kube_node_up n1.example.org
    slurmd_up n1
    nodes_up n2
    eventually 15 state_is n1 IDLE+DRAIN 'tidegate/k8s: node is gone from Kubernetes'
    eventually 15 why_has n1.example.org 'no slurmd of that name has registered'
    eventually 15 why_has n1 'gone from Kubernetes'
    eventually 15 row_is n2 'n2 hpc Ready - IDLE+DYNAMIC_NORM 0 - - -'
    kubectl cordon n2
    eventually 15 state_is n2 IDLE+DRAIN "$CORDONED"
}

@test "a node without slurmd is told of together with its pod" {
    kube_node_up n1
    pod_up tidegate-node-hpc-x '{"app.kubernetes.io/component":"node"}' n1
    eventually 15 why_has n1 'its slurmd pod is not ready'
    kubectl delete pod -n "$NS" tidegate-node-hpc-x --force --grace-period=0
    eventually 15 why_has n1 'it has no slurmd pod'
}

@test "a node of two pools is told of with both names" {
    nodes_up n1
    kubectl apply -f - <<EOF
apiVersion: tidegate.dev/v1alpha1
kind: Pool
metadata: {name: rival, namespace: $NS}
spec: {nodeSelector: {rack: b}, partition: rival, feature: rival}
EOF
    kubectl label node n1 rack=b
    eventually 15 why_has n1 'Two pools select it, hpc and rival'
    kubectl delete pool -n "$NS" rival
}

@test "an Extra of somebody else is told of" {
    nodes_up n1
    scontrol update nodename=n1 extra='not ours'
    eventually 15 why_has n1 'Extra of this node in Slurm was written by somebody else'
}

@test "control characters in a reason do not reach the terminal" {
    nodes_up n1
    scontrol update nodename=n1 state=drain reason=$'red \e[31m alert'
    eventually 15 why_has n1 alert
    run -0 tidegate why n1
    [[ $output != *$'\e'* ]]
    run -0 tidegate nodes
    [[ $output != *$'\e'* ]]
}

@test "an unknown node is status 1 and named" {
    run -1 tidegate why nosuch
    [[ $output == *nosuch* ]]
    run -1 kubectl tidegate why nosuch
    [[ $output == *nosuch* ]]
}

@test "without a bridge it is status 69, and says where it asked" {
    run -69 tidegate --url http://127.0.0.1:9 nodes
    echo "$output"
    [[ $output == *'cannot be reached at http://127.0.0.1:9'* ]]
}

@test "while slurmctld is away the last known is shown, with a warning and status 69" {
    nodes_up n1
    eventually 15 row_is n1 'n1 hpc Ready - IDLE+DYNAMIC_NORM 0 - - -'
    stop slurmctld
    stale() { run -69 tidegate nodes; }
    eventually 30 stale
    run -69 tidegate nodes
    echo "$output"
    [[ $output == *'slurmctld cannot be read'*'n1 '* ]]
    run -69 tidegate why n1
    slurmctld_up
    eventually 30 slurmctld_ready
    fresh() { run -0 tidegate nodes; }
    eventually 40 fresh
}

@test "kubectl tidegate asks through the API server" {
    nodes_up n1
    eventually 15 row_is n1 'n1 hpc Ready - IDLE+DYNAMIC_NORM 0 - - -'
    run -0 kubectl tidegate nodes
    echo "$output"
    [[ $output == *n1* ]]
    run -0 kubectl tidegate why n1 --json
    jq -e '.node.name == "n1"' <<<"$output"
    run -69 kubectl tidegate -n nowhere nodes
    echo "$output"
    [[ $output == *nowhere* ]]
}

@test "kubectl tidegate of somebody without the right is status 77 and says which" {
    KUBECONFIG=$RUN/visitor run -77 kubectl tidegate nodes
    echo "$output"
    [[ $output == *services/proxy* ]]
}

@test "the metrics are well-formed and tell the same" {
    nodes_up n1 n2
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    metric_is() {
        local value
        value=$(curl -sSf "$TIDEGATE_BRIDGE_URL/metrics" | awk -v m="$1" '$1 == m { print $2 }')
        echo "$1 $value"
        [[ $value == "$2" ]]
    }
    eventually 15 metric_is 'tidegate_nodes{holder="tidegate"}' 1
    metric_is 'tidegate_nodes{holder="nobody"}' 1
    metric_is tidegate_leader 1
    metric_is tidegate_kubernetes_fresh 1
    metric_is tidegate_slurm_fresh 1
    curl -sSf "$TIDEGATE_BRIDGE_URL/metrics" >"$RUN/metrics"
    run -1 grep -vE '^(# (HELP|TYPE) tidegate_[a-z_]+ .+|tidegate_[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+]+)$' "$RUN/metrics"
}
