#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # for the pods' shells; set by lib.bash
#
# The release as a whole: what a platform team installs, looks at, upgrades and removes. The last
# test takes it away and puts it back.

setup() { load lib; }
teardown() {
    kubectl delete namespace tidegate-restricted --ignore-not-found --wait=false
    leave_as_found
}

# pod_of KIND/NAME: a Pod as its template makes it, without what belongs to its own namespace, and with
# the chart's own /home: a directory of the node, as in these tests' values, is not for 'restricted'.
pod_of() {
    k get "$1" -o json | jq '{apiVersion: "v1", kind: "Pod", metadata: {name: "trial"},
        spec: (.spec.template.spec | del(.serviceAccountName, .serviceAccount))} |
        (.spec.volumes[] | select(.hostPath)) |= {name, emptyDir: {}}'
}

@test "Pod Security 'restricted' admits controller, login and bridge, and the compute pods ask for no privilege" {
    local part
    kubectl create namespace tidegate-restricted
    kubectl label namespace tidegate-restricted pod-security.kubernetes.io/enforce=restricted
    eventually 20 kubectl -n tidegate-restricted get serviceaccount default
    for part in controller login bridge; do
        pod_of "deploy/tidegate-$part" |
            kubectl -n tidegate-restricted create --dry-run=server -f - | grep created
    done
    # That it does refuse what is more than restricted.
    run bash -c "$(declare -f pod_of k); pod_of ds/tidegate-node-hpc | kubectl -n tidegate-restricted create --dry-run=server -f -"
    echo "$output"
    [[ $status -ne 0 && $output == *'violates PodSecurity "restricted:latest"'* ]]
    [[ $output != *privileged* && $output != *host* ]]
    # The running ones, judged by the same: compute pods are named, and login for its /home alone.
    run kubectl label --dry-run=server --overwrite namespace tidegate pod-security.kubernetes.io/enforce=restricted
    echo "$output"
    [[ $output == *tidegate-node-hpc-* ]]
    [[ $output != *tidegate-controller-* && $output != *tidegate-bridge-* ]]
    [[ $(grep tidegate-login- <<<"$output") =~ :\ restricted\ volume\ types$ ]]
}

@test "no pod but the bridge's has a token, and the bridge may change no node and read no Secret" {
    local pod verb
    for pod in $(k get pods -o name); do
        if [[ $pod == */tidegate-bridge-* ]]; then continue; fi
        echo "$pod"
        [ -z "$(k get "$pod" -o json | jq -r '.spec.volumes[] | select(.projected) | .name')" ]
    done
    for verb in create update patch delete; do
        run -1 kubectl auth can-i "$verb" nodes --as system:serviceaccount:tidegate:tidegate-bridge
    done
    for verb in get list watch; do
        run -1 k auth can-i "$verb" secrets --as system:serviceaccount:tidegate:tidegate-bridge
    done
}

@test "kubectl get pools shows nodes, ready, drained, down and jobs" {
    local job
    job=$(login sbatch --parsable -a 1-2 -w "$X" -n1 --mem=100 -o /dev/null --wrap 'sleep 60')
    becomes 10 job_is "$job" RUNNING
    kubectl cordon "$Y"
    becomes 10 node_is "$Y" 'idle\+drain' "$cordoned"
    eventually 10 pools_are 'hpc 3 2 1 0 2'
    login scancel "$job"
    kubectl uncordon "$Y"
    eventually 20 pools_are 'hpc 3 3 0 0 0'
}
pools_are() {
    local shown
    shown=$(k get pools)
    echo "$shown"
    [[ $(head -n 1 <<<"$shown") =~ ^NAME\ +NODES\ +READY\ +DRAINED\ +DOWN\ +JOBS\ +AGE && \
        $(awk 'NR == 2 { print $1, $2, $3, $4, $5, $6 }' <<<"$shown") == "$1" ]]
}

@test "helm upgrade keeps running jobs, the queue, the key and a person's drain" {
    local key running held before
    key=$(k get secret tidegate-munge -o jsonpath='{.data}' | sha256sum)
    before=$(k get pods -l app.kubernetes.io/component=node -o name | sort)
    running=$(login sbatch --parsable -w "$Y" -n1 --mem=100 -o ran.out --wrap 'sleep 30; echo done')
    held=$(login sbatch --parsable --hold -n1 --mem=100 -o held.out --wrap 'echo done')
    becomes 10 job_is "$running" RUNNING
    controller scontrol update nodename="$X" state=drain reason="bad dimm"

    # Controller, login and bridge restart: what all of them run with has changed.
    upgrade --wait --set slurm.credExpire=31
    is job_is "$running" 'RUNNING|COMPLETED'
    is job_is "$held" PENDING
    bridge_acts "$Z"
    is node_is "$X" 'idle\+drain' 'bad dimm'
    becomes 60 job_is "$running" COMPLETED
    [ "$(job_field "$running" Restarts)" = 0 ]
    [ "$(login cat ran.out)" = "done" ]
    [ "$(k get secret tidegate-munge -o jsonpath='{.data}' | sha256sum)" = "$key" ]
    [ "$(k get pods -l app.kubernetes.io/component=node -o name | sort)" = "$before" ]
    login scontrol release "$held"
    becomes 20 job_is "$held" COMPLETED
}

@test "helm uninstall leaves nothing of ours on a node, keeps claim and key and says so, and a new install finds its queue" {
    local key held said since
    key=$(k get secret tidegate-munge -o jsonpath='{.data}' | sha256sum)
    held=$(login sbatch --parsable --hold -n1 --mem=100 --comment mind-me -o held.out --wrap 'echo done')
    kubectl cordon "$X"
    becomes 10 node_is "$X" 'idle\+drain' "$cordoned"

    said=$(helm uninstall tidegate -n tidegate --wait --timeout 2m)
    echo "$said"
    [[ $said == *'kept'*'[PersistentVolumeClaim] tidegate-controller-state'* ]]
    [[ $said == *'[Secret] tidegate-munge'* ]]
    is_cordoned "$X"
    kubectl uncordon "$X"
    k get pvc tidegate-controller-state
    [ "$(k get secret tidegate-munge -o jsonpath='{.data}' | sha256sum)" = "$key" ]
    # The pool's label was set by whoever made the nodes.
    kubectl get nodes -o json | jq -r '.items[] | .metadata.name as $n |
        (.metadata.labels | del(.["tidegate.dev/pool"]) | to_entries[]), (.metadata.annotations | to_entries[]),
        .spec.taints[]?, .status.conditions[] | select(tostring | test("tidegate\\.dev|Slurm")) |
        "\($n): \(tostring)"' | tee "$BATS_TEST_TMPDIR/left"
    [ ! -s "$BATS_TEST_TMPDIR/left" ]
    run -1 bash -c 'kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o name | grep tidegate'
    eventually 60 no_pods

    since=$(now)
    helm install tidegate "$chart" -n tidegate -f "$values" --wait --timeout 3m
    [ "$(login srun -N1 --mem=100 --immediate=60 echo hello)" = hello ]
    say "helm install to first job done: $(seconds "$since") s"
    all_idle 60
    is job_is "$held" PENDING
    [ "$(job_field "$held" Comment)" = mind-me ]
    [ "$(k get secret tidegate-munge -o jsonpath='{.data}' | sha256sum)" = "$key" ]
    login scontrol release "$held"
    becomes 20 job_is "$held" COMPLETED
    [ "$(login cat held.out)" = "done" ]
}
no_pods() {
    local pods
    pods=$(k get pods -o name)
    echo "$pods"
    [[ -z $pods ]]
}
