#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Pool objects: the one place where the bridge learns which nodes are its business.

setup_file() {
    load lib
    cluster_up
    bridge_up a
}
setup() { load lib; }
teardown() {
    kubectl delete pools -n "$NS" --all --ignore-not-found >/dev/null
    kubectl apply -f "$RUN/pools.yaml" >/dev/null
    nodes_away
}

CORDONED='tidegate/k8s: node is cordoned in Kubernetes'

pool_status() { kubectl get pool -n "$NS" "$1" -o json | jq -rc '.status | "\(.nodes) \(.ready) \(.drained) \(.down) \(.jobs)"'; }
pool_status_is() {
    local status
    status=$(pool_status "$1")
    echo "pool $1: nodes ready drained down jobs = $status"
    [[ $status == "$2" ]]
}
pool_message() { kubectl get pool -n "$NS" "$1" -o 'jsonpath={.status.message}'; }
message_has() {
    local message
    message=$(pool_message "$1")
    echo "pool $1 says: $message"
    [[ $message == *"$2"* ]]
}

has_no_message() { [[ -z $(pool_message "$1") ]]; }

second_pool() { # NAME SELECTOR FEATURE
    kubectl apply -f - <<EOF
apiVersion: tidegate.dev/v1alpha1
kind: Pool
metadata: {name: $1, namespace: $NS}
spec: {nodeSelector: {$2}, partition: $1, feature: $3}
EOF
}

@test "a Pool counts its nodes, those that take jobs, those that do not, and jobs" {
    nodes_up n1 n2 n3 n4
    eventually 15 pool_status_is hpc '4 4 0 0 0'
    job=$(submit 60)
    eventually 30 job_is "$job" RUNNING
    free=(n1 n2 n3 n4)
    free=("${free[@]/$(job_node "$job")/}")
    mapfile -t free < <(printf '%s\n' "${free[@]}" | sed '/^$/d')
    kubectl cordon "${free[0]}"
    scontrol update nodename="${free[1]}" state=down reason='a person'
    eventually 15 pool_status_is hpc '4 2 1 1 1'
    kubectl get pools -n "$NS" | tee /dev/stderr | grep -E '^hpc +4 +2 +1 +1 +1 +'
    kubectl get pool -n "$NS" hpc -o json | jq -e '.status.observedGeneration == .metadata.generation'
    scancel "$job"
    eventually 30 pool_status_is hpc '4 2 1 1 0'
}

# Whichever of the two comes first by name.
two_pools() { # NODE OTHER
    nodes_up "$1" "$1-too"
    second_pool "$2" "rack-$2: b" gpu
    kubectl label node "$1" "rack-$2=b"
    eventually 15 message_has hpc "node $1 is selected by the pools"
    eventually 15 message_has "$2" "node $1 is selected by the pools"
    message_has hpc "$2"
    message_has "$2" hpc
    kubectl cordon "$1"
    kubectl cordon "$1-too"
    eventually 15 state_is "$1-too" IDLE+DRAIN "$CORDONED"
    always 3 state_is "$1" IDLE

    kubectl label node "$1" "rack-$2-" # once only one selects it, it is followed again
    eventually 15 state_is "$1" IDLE+DRAIN "$CORDONED"
    eventually 15 has_no_message hpc
    eventually 15 has_no_message "$2"
}

@test "a node that two pools select is left alone, both Pools say so, and the others go on" {
    two_pools n1 before
    two_pools n2 z-after
}

@test "a node that moves to another pool in Kubernetes drains in the one it has in Slurm" {
    nodes_up n1
    second_pool other 'tidegate.dev/pool: other' other
    eventually 15 pool_status_is other '0 0 0 0 0'
    kubectl label --overwrite node n1 tidegate.dev/pool=other
    eventually 15 state_is n1 IDLE+DRAIN 'tidegate/k8s: node left pool hpc in Kubernetes'
    kubectl label --overwrite node n1 tidegate.dev/pool=hpc
    eventually 15 state_is n1 IDLE
}

@test "a Slurm node of no pool is nobody's business" {
    nodes_up n1
    scontrol create nodename=cloud1 cpus=1 realmemory=100 feature=else state=cloud
    before=$(node_state cloud1)
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    always 2 state_is cloud1 "$before"
    bridge_view a | jq -e '[.nodes[].name] == ["n1"]'
}

@test "a Pool that is deleted changes nothing in Slurm" {
    nodes_up n1 n2
    kubectl cordon n1
    eventually 15 state_is n1 IDLE+DRAIN "$CORDONED"
    kubectl delete pool -n "$NS" hpc
    kubectl cordon n2
    always 3 state_is n2 IDLE
    state_is n1 IDLE+DRAIN "$CORDONED"
    kubectl uncordon n1
    kubectl apply -f "$RUN/pools.yaml"
    eventually 15 state_is n2 IDLE+DRAIN "$CORDONED"
    eventually 15 state_is n1 IDLE
}

@test "a Pool that is wrong is refused by the API with the key's name" {
    run kubectl apply -f - <<EOF
apiVersion: tidegate.dev/v1alpha1
kind: Pool
metadata: {name: wrong, namespace: $NS}
spec: {nodeSelector: {}, partition: hpc, feature: hpc, confinement: jail}
EOF
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output == *spec.nodeSelector* && $output == *spec.confinement* ]]
}

# The rights that the chart's upgrade hook has, without the hook's Job.
upgrader_token() {
    helm template tidegate charts/tidegate -n "$NS" --kube-version 1.34 --is-upgrade \
        --show-only templates/crd/upgrade.yaml >"$RUN/upgrade.yaml"
    kubectl apply -f "$RUN/upgrade.yaml" >/dev/null
    kubectl create token -n "$NS" "$(kubectl create --dry-run=client -o json -f "$RUN/upgrade.yaml" |
        jq -rs '[.[] | if .kind == "List" then .items[] else . end | select(.kind == "ServiceAccount")][0].metadata.name')"
}
apply_crd() { # FILE
    "${AS_SLURM[@]}" "$TIDEGATE_BUILD/tidegated" --apply "$1" --kube-server "$API" \
        --kube-ca "$RUN/ca.crt" --kube-token "$RUN/upgrade-token"
}

@test "tidegated --apply brings the CRD up to date with the rights of the upgrade hook, and takes nothing else" {
    upgrader_token >"$RUN/upgrade-token"
    kubectl create --dry-run=client -o json -f charts/tidegate/crds/pools.tidegate.dev.yaml |
        jq '.spec.versions[0].schema.openAPIV3Schema.description = "newer"' >"$RUN/crd.json"
    chmod 644 "$RUN/crd.json" "$RUN/upgrade-token"
    apply_crd "$RUN/crd.json"
    [ "$(kubectl get crd pools.tidegate.dev -o 'jsonpath={.spec.versions[0].schema.openAPIV3Schema.description}')" = newer ]
    kubectl get pools -n "$NS" hpc # what there was is still there

    echo '{"kind":"Secret","metadata":{"name":"x"}}' >"$RUN/secret.json"
    run apply_crd "$RUN/secret.json"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output == *Secret* && $output == *pools.tidegate.dev* ]]
    run apply_crd "$RUN/no-such-file"
    [ "$status" -ne 0 ]
    [[ $output == *no-such-file* ]]
}
