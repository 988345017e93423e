#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2154 # set by helpers and bats
#
# What values the chart takes, and what it says of the others.

load helpers

@test "each file in ci/ lints, renders, and renders as clean YAML" {
    for file in "$chart"/ci/*-values.yaml; do
        helm lint --strict --quiet "$chart" -f "$file"
        render -f "$file" >"$BATS_TEST_TMPDIR/out.yaml"
        # JSON inside YAML has no spaces after its commas.
        yamllint -s -d '{extends: default, rules: {line-length: disable, commas: disable}}' \
            "$BATS_TEST_TMPDIR/out.yaml"
    done
}

@test "README.md is what values.yaml's comments make of it" {
    "$BATS_TEST_DIRNAME/readme" --check
}

@test "a value without a comment is a mistake" {
    mkdir -p "$BATS_TEST_TMPDIR"/{tests/chart,charts}
    cp -r "$chart" "$BATS_TEST_TMPDIR/charts/tidegate"
    cp "$BATS_TEST_DIRNAME/readme" "$BATS_TEST_TMPDIR/tests/chart/"
    sed -i '/# ClusterName/d' "$BATS_TEST_TMPDIR/charts/tidegate/values.yaml"
    run "$BATS_TEST_TMPDIR/tests/chart/readme"
    [ "$status" -eq 1 ]
    [[ $output == *"slurm.clusterName has no comment above it"* ]]
}

@test "every key of the schema is in values.yaml" {
    run python3 - "$chart" <<'END'
import json, sys, yaml
schema = json.load(open(sys.argv[1] + "/values.schema.json"))
values = yaml.safe_load(open(sys.argv[1] + "/values.yaml"))
def walk(node, have, path):
    if "allOf" in node:
        node = schema["definitions"][node["allOf"][0]["$ref"].rsplit("/", 1)[1]]
    for key, sub in node.get("properties", {}).items():
        if not isinstance(have, dict) or key not in have:
            if (path, key) not in {("", "global"), ("poolDefaults.", "name")}:
                print(path + key)
        elif have[key]:
            walk(sub, have[key], path + key + ".")
walk(schema, values, "")
END
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "an unknown key is refused by name, at any depth" {
    refused "'controler' not allowed" --set controler.resources=1
    refused "at '/controller': additional properties 'replicas'" --set controller.replicas=2
    refused "at '/pools/0': additional properties 'confinment'" \
        --set 'pools[0].name=a,pools[0].confinment=none'
    refused "at '/poolDefaults': additional properties 'taints'" --set poolDefaults.taints=1
    refused "at '/users/0': additional properties 'password'" \
        --set 'users[0].name=a,users[0].uid=1000,users[0].gid=1000,users[0].password=x'
}

@test "a bad value is refused with the path of its key" {
    refused "at '/slurm/maxNodeCount'" --set slurm.maxNodeCount=100000
    refused "at '/bridge/replicas'" --set bridge.replicas=two
    refused "at '/pools': minItems" --set-json 'pools=[]'
    refused "missing property 'pools'" --set pools=null
    refused "at '/pools/0/confinement'" --set 'pools[0].name=a,pools[0].confinement=cgroups'
    refused "at '/users/0/uid'" --set 'users[0].name=a,users[0].uid=0,users[0].gid=1000'
    refused "at '/users/0/gecos'" --set-json 'users=[{"name":"a","uid":1000,"gid":1000,"gecos":"a:0:0"}]'
    refused "at '/slurm/clusterName'" --set-json 'slurm={"clusterName":"a\nSlurmUser=root"}'
    refused "at '/pools/0/partitionOptions/MaxTime'" \
        --set-json 'pools=[{"name":"a","partitionOptions":{"MaxTime":"1\nSlurmUser=root"}}]'
    refused "at '/home/volume'" --set-json 'home={"volume":{"emptyDir":{},"hostPath":{"path":"/x"}}}'
}

@test "a pool's name must be a DNS label" {
    for name in Hpc my_pool -a a- a.b ''; do
        refused "at '/pools/0/name'" --set-json "pools=[{\"name\":\"$name\"}]"
    done
    refused "at '/pools/0/name'" --set "pools[0].name=$(printf 'a%.0s' {1..64})"
    refused "at '/pools/0'" --set-json 'pools=[{"partition":"a"}]'
}

@test "two pools that select one node, or share a name, are refused in words" {
    refused 'every node of "a" {"x":"1"} is selected by "b" {"x":"1"} as well' --set-json \
        'pools=[{"name":"a","nodeSelector":{"x":"1"}},{"name":"b","nodeSelector":{"x":"1"}}]'
    refused 'every node of "a" {"x":"1","y":"2"} is selected by "b" {"y":"2"} as well' --set-json \
        'pools=[{"name":"a","nodeSelector":{"x":"1","y":"2"}},{"name":"b","nodeSelector":{"y":"2"}}]'
    refused 'every node of "b" {"x":"1","y":"2"} is selected by "a" {"x":"1"} as well' --set-json \
        'pools=[{"name":"a","nodeSelector":{"x":"1"}},{"name":"b","nodeSelector":{"x":"1","y":"2"}}]'
    refused 'two pools are named "a"' --set-json 'pools=[{"name":"a"},{"name":"a"}]'
    refused '"a" and "b" both have the partition "A"' --set-json \
        'pools=[{"name":"a"},{"name":"b","partition":"A"}]'
    refused '"a" has confinement "none" and "b" has "cgroup"' --set-json \
        'pools=[{"name":"a"},{"name":"b","confinement":"cgroup"}]'
    refused '"a" sets partitionOptions.NODES, which the chart sets itself' --set-json \
        'pools=[{"name":"a","partitionOptions":{"NODES":"ALL"}}]'
    refused '"hpc" has gres true, but slurm.gresConf is empty' --set poolDefaults.gres=true
    render --set-json 'pools=[{"name":"a"},{"name":"b"}]' >/dev/null
}

@test "a bad check, reserve or program is refused with the path of its key" {
    refused "at '/poolDefaults/checks/root/moments/0'" --set-json 'poolDefaults={"checks":{"root":{"moments":["boot"]}}}'
    refused "at '/poolDefaults/checks/root': additional properties 'timeout'" --set poolDefaults.checks.root.timeout=3
    refused "at '/poolDefaults/checks/root/clear'" --set poolDefaults.checks.root.clear=never
    refused "at '/poolDefaults/checks/root/fail/of'" --set poolDefaults.checks.root.fail.of=17
    refused "invalid propertyName 'Root'" --set poolDefaults.checks.Root.period=3
    refused "at '/poolDefaults/reserve': additional properties 'memory'" --set poolDefaults.reserve.memory=1Gi
    refused "at '/poolDefaults/reserve/cpus'" --set poolDefaults.reserve.cpus=500m
    refused "at '/poolDefaults/prolog/clean'" --set poolDefaults.prolog.clean='rm -rf /scratch'
    refused "invalid propertyName '../x'" --set-json 'poolDefaults={"epilog":{"../x":"#!/bin/sh"}}'
    refused "at '/poolDefaults/nodeStateDir'" --set poolDefaults.nodeStateDir=var/lib
    refused "at '/poolDefaults/featureLabels/0'" --set 'poolDefaults.featureLabels[0]=a/b/c'
    refused "at '/poolDefaults/qualify'" --set poolDefaults.qualify=always
    refused "at '/poolDefaults/sockets'" --set poolDefaults.sockets=node
}

@test "checks that can not work are refused in words" {
    refused 'the check "scratch" of "a" has no command' --set-json 'pools=[{"name":"a","checks":{"scratch":{"period":5}}}]'
    refused 'the check "root" of "hpc" fails 3 times of 2' --set-json 'poolDefaults={"checks":{"root":{"fail":{"times":3,"of":2}}}}'
    refused 'the check "leftovers" of "hpc" has a deadline of 60 s' --set poolDefaults.checks.leftovers.deadline=60
    refused 'the check "x" of "hpc" runs /etc/tidegate/check-scripts/x.sh, but checkScripts has no "x.sh"' \
        --set-json 'poolDefaults={"checks":{"x":{"command":["/etc/tidegate/check-scripts/x.sh"]}}}'
    refused '"a" has 68 checks, expected at most 64' --set-json \
        "pools=[{\"name\":\"a\",\"checks\":{$(printf '"c%d":{"command":["true"]},' {1..59})\"c60\":{\"command\":[\"true\"]}}}]"
    # What is switched off needs nothing.
    render --set-json 'pools=[{"name":"a","checks":{"root":null,"none":null}}]' >/dev/null
    render --set-json 'poolDefaults={"checks":{"root":null,"none":null}}' >/dev/null
}

@test "users that do not fit each other are refused in words" {
    refused '"a" is there twice' --set-json \
        'users=[{"name":"a","uid":1000,"gid":1000},{"name":"a","uid":1001,"gid":1000}]'
    refused '"a" and "b" both have the uid 1000' --set-json \
        'users=[{"name":"a","uid":1000,"gid":1000},{"name":"b","uid":1000,"gid":1000}]'
    refused 'to be in the group "chem", which is not in groups' --set-json \
        'users=[{"name":"a","uid":1000,"gid":1000,"groups":["chem"]}]'
    refused 'belong to Slurm' --set-json 'users=[{"name":"a","uid":64030,"gid":1000}]'
    refused '"a" has the gid 1000, but groups gives the group of that name 2000' --set-json \
        'users=[{"name":"a","uid":1000,"gid":1000}]' --set-json 'groups=[{"name":"a","gid":2000}]'
    refused 'login.user is "alice", who is not in users' --set-json 'users=[]'
    render --set-json 'users=[]' --set login.uid=1000,login.gid=1000 >/dev/null
}

@test "a release name that can not name a Service is refused in words" {
    run helm template 0tide "$chart" --kube-version 1.34.0
    [ "$status" -ne 0 ]
    [[ $output == *'release name "0tide"'*"begin with a letter"* ]]
    run helm template "$(printf 'a%.0s' {1..53})" "$chart" --kube-version 1.34.0
    [ "$status" -ne 0 ]
    [[ $output == *"has 53 characters"* ]]
}
