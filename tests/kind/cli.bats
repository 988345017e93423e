#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2154 # set by lib.bash
#
# tidegate nodes and tidegate why, from the three places where a person may be.

setup() { load lib; }
teardown() { leave_as_found; }

from_login() { login tidegate "$@"; }
from_bridge() { k exec deploy/tidegate-bridge -c tidegated -- tidegate "$@"; }
# The plugin, where the bridge's image has it: this machine may not be a trixie.
from_kubectl() {
    "$CONTAINER" run --rm --network host --user 0 -v "$(command -v kubectl):/usr/local/bin/kubectl:ro" \
        -v "${PLUGIN_KUBECONFIG:-$KUBECONFIG}:/kubeconfig:ro" -e KUBECONFIG=/kubeconfig \
        --entrypoint kubectl "localhost/tidegate-bridge:$version" tidegate "$@"
}

@test "tidegate nodes and why say who holds a node, from the login pod, the bridge's and as kubectl tidegate" {
    local from
    kubectl cordon "$X"
    controller scontrol update nodename="$Y" state=drain reason="bad dimm"
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"
    eventually 5 knows_word "$Y"
    for from in from_login from_bridge from_kubectl; do
        run --separate-stderr "$from" nodes
        echo "$from: $output" "$stderr"
        [ "$status" -eq 0 ]
        grep -E "^$X +.*tidegate.*$cordoned" <<<"$output"
        grep -E "^$Y +.*person.*bad dimm" <<<"$output"
        grep -E "^$Z +hpc +Ready +up +IDLE[^ ]* +0 +- " <<<"$output"
        run --separate-stderr "$from" why "$X"
        echo "$output" "$stderr"
        [[ $status -eq 0 && $output == *'because the node is cordoned in Kubernetes'* && $output == *'kubectl uncordon'* ]]
        run --separate-stderr "$from" why "$Y"
        echo "$output" "$stderr"
        [[ $status -eq 0 && $output == *'A person holds it'*'bad dimm'* ]]
        "$from" nodes --json | jq -e --arg node "$X" '.nodes[] | select(.name == $node) | .holder == "tidegate"'
        "$from" why "$X" --json | jq -e '.node.cause == "cordoned"'
    done
}
knows_word() { login tidegate why "$1" | grep 'bad dimm'; }

@test "tidegate says what is wrong and ends with a status of its own: unknown node, no permission, nobody answers, bad usage" {
    local from
    for from in from_login from_bridge from_kubectl; do
        run "$from" why no-such-node
        echo "$from, $status: $output"
        [[ $status -eq 1 && $output == *no-such-node* ]]
    done
    run login env TIDEGATE_BRIDGE_URL=http://127.0.0.1:9 tidegate nodes
    echo "$status: $output"
    [[ $status -eq 69 && $output == *127.0.0.1:9* ]]
    run login tidegate nodes --no-such-option
    echo "$status: $output"
    [ "$status" -eq 2 ]

    # Somebody of the cluster who has no right here.
    PLUGIN_KUBECONFIG=$BATS_TEST_TMPDIR/kubeconfig
    cp "$KUBECONFIG" "$PLUGIN_KUBECONFIG"
    kubectl --kubeconfig "$PLUGIN_KUBECONFIG" config set-credentials visitor --token "$(k create token default)"
    kubectl --kubeconfig "$PLUGIN_KUBECONFIG" config set-context --current --user visitor
    run from_kubectl nodes
    echo "$status: $output"
    [[ $status -eq 77 && $output == *'no permission'* ]]
}
