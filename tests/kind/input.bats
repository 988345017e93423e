#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # jsonpath and the pods' shells; set by lib.bash
#
# Bad input: a clear message, nothing lost, and the rest goes on.

setup() { load lib; }
teardown() {
    k delete pool rival Bad_Name --ignore-not-found
    k delete pod stranger --ignore-not-found --grace-period=1
    if controller scontrol -o show node stranger | grep -q NodeName=stranger; then forget stranger; fi
    leave_as_found
}

forget() { # NODE, in Slurm
    controller scontrol update nodename="$1" state=down reason='test is over'
    controller scontrol delete nodename="$1"
}
revision() { helm -n tidegate list -o json | jq -r '.[0] | "\(.revision) \(.status)"'; }
message_says() { # POOL TEXT
    local message
    message=$(k get pool "$1" -o jsonpath='{.status.message}')
    echo "pool $1 says: $message"
    [[ $message == *"$2"* ]]
}

nothing_said() { [[ -z $(k get pool "$1" -o jsonpath='{.status.message}') ]]; }

@test "an unknown value, a pool name that is no DNS label, and two pools on one node are refused by helm upgrade, which changes nothing" {
    local before
    before=$(revision)
    run upgrade --set controler.resources=1
    echo "$output"
    [[ $status -ne 0 && $output == *"'controler' not allowed"* ]]
    run upgrade --set-json 'pools=[{"name":"My_Pool"}]'
    echo "$output"
    [[ $status -ne 0 && $output == *"/pools/0/name"* && $output == *"My_Pool"* ]]
    run upgrade --set-json 'pools=[{"name":"hpc"},{"name":"more","nodeSelector":{"tidegate.dev/pool":"hpc"}}]'
    echo "$output"
    [[ $status -ne 0 && $output == *'every node of "hpc"'*'is selected by "more"'* ]]
    [ "$(revision)" = "$before" ]
    login srun -N2 --mem=100 true
}

@test "a live Pool with a bad name or without a selector is refused by the API server, and the bridge goes on" {
    run k create -f - <<'END'
{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "Bad_Name"},
 "spec": {"nodeSelector": {"a": "b"}, "partition": "bad", "feature": "bad"}}
END
    echo "$output"
    [[ $status -ne 0 && $output == *'"Bad_Name"'* && $output == *'lower case'* ]]
    run k create -f - <<'END'
{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "rival"},
 "spec": {"nodeSelector": {}, "partition": "rival", "feature": "rival"}}
END
    echo "$output"
    [[ $status -ne 0 && $output == *spec.nodeSelector* ]]
    bridge_acts
}

@test "two live Pools that select one node: both say so by name, that node is left alone, and the rest goes on" {
    k create -f - <<END
{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "rival"},
 "spec": {"nodeSelector": {"kubernetes.io/hostname": "$X"}, "partition": "rival", "feature": "rival"}}
END
    eventually 10 message_says hpc "$X is selected by the pools"
    eventually 10 message_says rival "$X is selected by the pools"
    run login tidegate why "$X"
    echo "$output"
    [[ $output == *'Two pools select it'*rival* ]]
    kubectl cordon "$X"
    bridge_acts "$Y"
    is node_is "$X" idle
    login srun -w "$X" -n1 --mem=100 true

    k delete pool rival
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"
    eventually 5 nothing_said hpc
    kubectl uncordon "$X"
    becomes 10 node_is "$X" idle
}

@test "an Extra that somebody else wrote is kept: a malformed one byte for byte, the keys of another beside ours" {
    local bad='{"rack": "r4", oops' had
    had=$(extra_of "$X")
    controller scontrol update nodename="$X" extra="$bad"
    kubectl cordon "$X"
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"
    [ "$(extra_of "$X")" = "$bad" ]
    restart_bridge
    bridge_acts
    is node_is "$X" 'idle\+drain' "$cordoned"
    kubectl uncordon "$X"
    becomes 10 node_is "$X" idle
    [ "$(extra_of "$X")" = "$bad" ]

    controller scontrol update nodename="$X" extra='{"rack":"r4","slot":7}'
    kubectl cordon "$X"
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"
    extra_of "$X" | tee /dev/stderr | jq -e '.rack == "r4" and .slot == 7 and .tidegate.episode == "cordoned"'
    kubectl uncordon "$X"
    becomes 10 node_is "$X" idle
    extra_of "$X" | jq -e '.rack == "r4" and .slot == 7'
    [[ $had != '(null)' ]] || had=''
    controller scontrol update nodename="$X" extra="$had"
}

@test "a node with another name in Slurm than in Kubernetes gets no jobs and says why, and its namesake goes on" {
    local job
    # A slurmd pod as the DaemonSet makes it, but for the name.
    k get ds tidegate-node-hpc -o json | jq --arg node "$X" '{apiVersion: "v1", kind: "Pod",
        metadata: {name: "stranger", labels: .spec.template.metadata.labels},
        spec: (.spec.template.spec + {nodeName: $node, restartPolicy: "Never"})} |
        del(.metadata.labels["app.kubernetes.io/component"]) |
        (.spec.containers[0].env[] | select(.name == "NODE_NAME")) |= {name, value: "stranger"}' | k create -f -
    becomes 60 node_is stranger 'idle\+drain' 'tidegate/k8s: node is gone from Kubernetes'
    run login tidegate why stranger
    echo "$output"
    [[ $output == *'gone from Kubernetes'* ]]
    job=$(login sbatch --parsable --wait -a 1-12 -n1 --mem=100 -o /dev/null --wrap true)
    run job_field "$job" NodeList
    echo "$output"
    [[ $output != *stranger* ]]
    bridge_acts "$X"
    k delete pod stranger --grace-period=1
    forget stranger
    run login sinfo -h -n stranger -o %T
    [ -z "$output" ]
}
