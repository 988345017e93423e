#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016 # what is quoted is jq's, or expanded by Kubernetes
# shellcheck disable=SC2154 # set by helpers and bats
# shellcheck disable=SC2119,SC2120 # options are optional
#
# What the chart makes of its values.

load helpers

conf() {
    ask 'named("ConfigMap"; "tidegate-slurm").data["slurm.conf"]' "$@"
}

# config NAME [OPTION]...: the annotation that restarts a Deployment when it changes.
config() {
    ask "named(\"Deployment\"; \"tidegate-$1\").spec.template.metadata.annotations[\"tidegate.dev/config\"]" \
        "${@:2}"
}

@test "nothing needs a value: every part is there, and one pool hpc" {
    run -0 ask '[.[] | select(.kind | test("^(Deployment|DaemonSet|Service|Pool|PersistentVolumeClaim|Secret)$"))
        | "\(.kind)/\(.metadata.name)"] | sort | join(" ")'
    [ "$output" = "DaemonSet/tidegate-node-hpc Deployment/tidegate-bridge Deployment/tidegate-controller \
Deployment/tidegate-login PersistentVolumeClaim/tidegate-controller-state Pool/hpc Secret/tidegate-munge \
Service/tidegate-bridge Service/tidegate-controller Service/tidegate-login" ]
    holds 'named("DaemonSet"; "tidegate-node-hpc").spec.template.spec.nodeSelector == {"tidegate.dev/pool": "hpc"}'
    holds 'named("Pool"; "hpc").spec == {nodeSelector: {"tidegate.dev/pool": "hpc"}, partition: "hpc",
        feature: "hpc", confinement: "none", featureLabels: [], qualify: false}'
}

@test "controller, login, bridge and the upgrade's Job keep to Pod Security 'restricted'" {
    for file in "$chart"/ci/{default,cgroup}-values.yaml; do
        holds '[pods | select(.name | startswith("DaemonSet") | not)] | length == 4 and all(
            .spec.securityContext.runAsNonRoot and .spec.securityContext.runAsUser > 0
            and .spec.securityContext.seccompProfile.type == "RuntimeDefault"
            and (.spec | .hostNetwork or .hostPID or .hostIPC | not)
            and all(.spec.volumes[]; keys - ["name"] | inside(["configMap", "emptyDir", "secret", "persistentVolumeClaim"]))
            and all(containers; .securityContext.allowPrivilegeEscalation == false
                and .securityContext.capabilities == {drop: ["ALL"]}
                and .securityContext.readOnlyRootFilesystem
                and (.securityContext.runAsUser // 1) > 0
                and all(.ports[]?; has("hostPort") | not)))' -f "$file"
    done
}

@test "slurmd has no privilege with confinement none, and has it with cgroup" {
    holds '[pods | component("node")] | length == 1 and all(
        .spec.securityContext.seccompProfile.type == "RuntimeDefault"
        and (.spec | .hostNetwork or .hostPID or .hostIPC | not)
        and [.spec.volumes[] | select(has("hostPath")).name] == ["node-state"]
        and all(containers; .securityContext | .privileged != true and .allowPrivilegeEscalation == false
            and .capabilities.drop == ["ALL"]
            # Pod Security baseline lets a container add these.
            and (.capabilities.add - ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]) == []))'
    # With an emptyDir for what the agent keeps, Pod Security baseline takes the pods.
    holds 'all(pods | component("node") | .spec.volumes[]; has("hostPath") | not)' --set poolDefaults.nodeStateDir=
    holds '[pods | component("node") | .spec.containers[0].securityContext] | length == 2 and all(.privileged)' \
        -f "$chart/ci/cgroup-values.yaml"
}

@test "only the bridge and the upgrade's Job mount a token" {
    holds '[pods | select(.spec.automountServiceAccountToken != false) | .name] | sort
        == ["Deployment tidegate-bridge", "Job tidegate-crd-upgrade"]'
    holds '[kind("ServiceAccount")] | length == 5 and all(.automountServiceAccountToken == false)'
    holds '(map(select(.kind == "ServiceAccount").metadata.name)) as $have
        | [pods.spec.serviceAccountName] | unique == ($have | unique)'
    holds 'all(pods | .spec.volumes[]; has("projected") | not)'
}

@test "the bridge may do what it does and no more" {
    run -0 ask '[.[] | select(.kind | endswith("Role")) | .metadata.namespace as $ns | .rules[]
        | "\($ns // "*") \(.resources[]) \(.resourceNames // [] | join(",")) \(.verbs | join(","))"] | sort | .[]'
    [ "$output" = "* customresourcedefinitions pools.tidegate.dev get,patch
* nodes  get,list,watch
default events  create,patch
kube-node-lease leases  get
tidegate leases  create
tidegate leases tidegate-bridge get,update
tidegate pods  get,list,watch
tidegate pools  get,list,watch
tidegate pools/status  patch" ]
}

@test "the key is in its Secret alone, and is kept" {
    objects >"$BATS_TEST_TMPDIR/objects"
    key=$(jq -r '.[] | select(.kind == "Secret").data["munge.key"]' "$BATS_TEST_TMPDIR/objects")
    [ "$(base64 -d <<<"$key" | wc -c)" -eq 1024 ]
    [ "$(grep -oF "$key" "$BATS_TEST_TMPDIR/objects" | wc -l)" -eq 1 ]
    jq -e 'all(.[] | select(.kind == "ConfigMap") | .data[]; test("munge.key|PRIVATE|password"; "i") | not)' \
        "$BATS_TEST_TMPDIR/objects"
    jq -e '[.[] | select(.metadata.annotations["helm.sh/resource-policy"] == "keep").kind] | sort
        == ["PersistentVolumeClaim", "Secret"]' "$BATS_TEST_TMPDIR/objects"
    # Nobody gets a password.
    holds 'named("ConfigMap"; "tidegate-users").data.shadow | split("\n") | map(select(. != ""))
        | length == 2 and all(split(":")[1] == "*")' -f "$chart/ci/full-values.yaml"
}

@test "only the container that prepares a pod sees the Secret, or root in a compute pod" {
    holds '[pods | .name as $pod | containers | select(.volumeMounts[]?.name == "munge-secret") | "\($pod) \(.name)"] | sort
        == ["DaemonSet tidegate-node-hpc slurmd", "Deployment tidegate-bridge init",
            "Deployment tidegate-controller init", "Deployment tidegate-login init"]'
    holds 'all(pods | component("node") | .spec.volumes[] | select(.name == "munge-secret"); .secret.defaultMode == 256)'
}

@test "a key, a claim and a directory of the site's own take the place of ours" {
    file=$chart/ci/directory-values.yaml
    holds '[.[] | select(.kind == "Secret" or .kind == "PersistentVolumeClaim")] == []' -f "$file"
    holds '[pods | .spec.volumes[] | select(.name == "munge-secret").secret.secretName] | unique == ["site-munge"]' \
        -f "$file"
    holds '[pods | .spec.volumes[] | select(.name == "state").persistentVolumeClaim.claimName] == ["site-state"]' \
        -f "$file"
    holds '[pods | .name as $pod | containers | select(.volumeMounts[]?.mountPath == "/etc/nsswitch.conf")
        | "\($pod) \(.name)"] | sort == ["DaemonSet tidegate-node-hpc slurmd",
        "Deployment tidegate-controller slurmctld", "Deployment tidegate-login login"]' -f "$file"
    # DNS, which users want, is not for slurmctld: it would wait for it.
    holds 'named("ConfigMap"; "tidegate-nsswitch").data | (.controller | endswith("\nhosts: files\n"))
        and (.node | endswith("\nhosts: files dns\n")) and all(startswith("passwd: files sss\n"))' -f "$file"
    holds 'named("Deployment"; "tidegate-login").spec.template.spec
        | .securityContext.runAsUser == 70001 and .securityContext.runAsGroup == 70000
        and .containers[0].workingDir == "/home/site/portal"' -f "$file"
}

@test "every mount has its volume, and every file in /home and of users is on login and compute alike" {
    for file in "$chart"/ci/*-values.yaml; do
        holds 'all(pods; (.spec.volumes | map(.name)) as $have
            | ($have | length) == ($have | unique | length)
            and ([containers | .volumeMounts[]?.name] - $have) == [])' -f "$file"
        holds '[pods | select(.name | test("login|node")) | .spec.containers[0].volumeMounts | map(select(
                .name | IN("home", "users", "scratch", "nsswitch")))] | unique | length == 1' -f "$file"
    done
}

@test "slurmctld: one at a time, under the name in slurm.conf, never killed for being busy" {
    [[ $(conf) == *"SlurmctldHost=tidegate-controller(@SLURMCTLD_IP@)"* ]]
    holds 'named("Deployment"; "tidegate-controller").spec | .replicas == 1 and .strategy == {type: "Recreate"}
        and .template.spec.hostname == "tidegate-controller"
        and (.template.spec.containers[] | select(.name == "slurmctld").livenessProbe | has("tcpSocket")
            and .periodSeconds * .failureThreshold >= 600)'
    holds 'named("Service"; "tidegate-controller").spec.publishNotReadyAddresses'
}

@test "slurmctld knows the names that srun may come from, and asks no DNS for them" {
    holds 'named("Deployment"; "tidegate-login").spec.template.spec.hostname == "tidegate-login"'
    holds 'named("Deployment"; "tidegate-controller").spec.template.spec.hostAliases
        == [{ip: "127.0.0.1", hostnames: ["tidegate-login", "notebook-0"]}]' -f "$chart/ci/full-values.yaml"
}

@test "addresses come from the environment, whatever the release is called" {
    run -0 helm template my-tide "$chart" -n x --kube-version 1.34.0
    [[ $output == *'value: "$(MY_TIDE_CONTROLLER_SERVICE_HOST)"'* &&
        $output == *'value: "http://$(MY_TIDE_BRIDGE_SERVICE_HOST):8080"'* ]]
    holds 'all(pods; .spec.enableServiceLinks)'
    # Services are ours by these names.
    holds '[kind("Service").metadata.name] | contains(["tidegate-controller", "tidegate-bridge"])'
}

@test "Open MPI finds a fence that is a barrier: PMIxCollFence=ring is in the configuration" {
    holds 'named("ConfigMap"; "tidegate-slurm").data["mpi.conf"] | test("(^|\n)PMIxCollFence=ring\n")'
}

@test "slurm.conf: parameters that the rest relies on, in whatever confinement" {
    for file in "$chart"/ci/*-values.yaml; do
        run -0 conf -f "$file"
        for line in SlurmUser=slurm ReturnToService=1 AuthType=auth/munge \
            StateSaveLocation=/var/spool/slurmctld SlurmdSpoolDir=/var/spool/slurmd; do
            grep -qx "$line" <<<"$output"
        done
        grep -qE '^SlurmctldParameters=enable_configless(,|$)' <<<"$output"
        grep -qE '^AuthInfo=cred_expire=[0-9]+$' <<<"$output"
        grep -qE '^MaxNodeCount=[0-9]+$' <<<"$output"
    done
    run -0 conf
    grep -qx ProctrackType=proctrack/linuxproc <<<"$output"
    grep -qx 'NodeSet=hpc Feature=hpc' <<<"$output"
    grep -qx 'PartitionName=hpc Nodes=hpc Default=YES' <<<"$output"
    holds 'named("ConfigMap"; "tidegate-slurm").data["cgroup.conf"] == "CgroupPlugin=disabled\n"'
    run -0 conf -f "$chart/ci/cgroup-values.yaml"
    grep -qx ProctrackType=proctrack/cgroup <<<"$output"
    grep -qx 'PartitionName=accel Nodes=gpu Default=YES PriorityTier=10' <<<"$output"
    [ "$(grep -c Default=YES <<<"$output")" -eq 1 ]
    grep -qx PriorityType=priority/multifactor <<<"$output"
}

@test "slurmctld restarts for a changed slurm.conf and for nothing else; login not for a pool" {
    before=$(config controller) login=$(config login)
    [ "$before" = "$(config controller --set login.replicas=2,bridge.replicas=3)" ]
    [ "$before" = "$(config controller --set-json 'users=[{"name":"alice","uid":1000,"gid":1000},{"name":"b","uid":1001,"gid":1001}]')" ]
    [ "$before" != "$(config controller --set slurm.slurmdTimeout=60)" ]
    [ "$before" != "$(config controller --set-json 'pools=[{"name":"hpc"},{"name":"b"}]')" ]
    [ "$login" = "$(config login --set-json 'pools=[{"name":"hpc"},{"name":"b"}]')" ]
    [ "$login" != "$(config login --set slurm.credExpire=60)" ]
}

@test "a new chart or program version alone is in no pod template's labels" {
    holds 'all(pods | select(.name | startswith("Job") | not); .labels | keys - ["tidegate.dev/pool"]
        == ["app.kubernetes.io/component", "app.kubernetes.io/instance", "app.kubernetes.io/name"])'
}

@test "compute pods: replaced by hand only, /dev/shm in memory, a pod's uid as the instance" {
    holds 'all(kind("DaemonSet"); .spec.updateStrategy == {type: "OnDelete"})' -f "$chart/ci/cgroup-values.yaml"
    holds 'pods | component("node") | .spec | (.volumes[] | select(.name == "shm").emptyDir)
            == {medium: "Memory", sizeLimit: "4Gi"}
        and any(.containers[0].volumeMounts[]; . == {name: "shm", mountPath: "/dev/shm"})
        and any(.containers[0].env[]; .name == "POD_UID" and .valueFrom.fieldRef.fieldPath == "metadata.uid")
        and any(.containers[0].env[]; .name == "NODE_NAME" and .valueFrom.fieldRef.fieldPath == "spec.nodeName")'
}

@test "a key in a pool replaces poolDefaults', and leaves the other pools alone" {
    run -0 ask '[kind("DaemonSet").spec.template.spec | "\(.volumes[] | select(.name == "shm").emptyDir.sizeLimit) \(
            .tolerations // [] | length) \(.priorityClassName)"] | join("; ")' --set poolDefaults.shmSize=1Gi \
        --set poolDefaults.priorityClassName=low --set-json \
        'pools=[{"name":"a","shmSize":"2Gi","tolerations":[{"operator":"Exists"}]},{"name":"b"}]'
    [ "$output" = "2Gi 1 low; 1Gi 0 low" ]
}

@test "a pool's checks are the default ones with its own changes, as the agent reads them" {
    checks='named("ConfigMap"; "tidegate-node-day-checks").data["checks.json"] | fromjson.checks'
    run -0 ask "$checks | map(.name) | join(\" \")" -f "$chart/ci/full-values.yaml"
    [ "$output" = "ecc gpu leftovers memory munge root scratch spool tmp" ]
    # A key of a check replaces that key, the others stay.
    holds "$checks"' | map(select(.name == "ecc")) == [{name: "ecc", command: ["tidegate-node", "check", "ecc"],
        period: 600, fail: {times: 1}, clear: "boot"}]' -f "$chart/ci/full-values.yaml"
    holds "$checks"' | map(select(.name == "scratch")) == [{name: "scratch", period: 30, deadline: 5, clear: "person",
        command: ["/etc/tidegate/check-scripts/scratch.sh", "/scratch"]}]' -f "$chart/ci/full-values.yaml"
    # The other pool has what the chart has, but for what is off for all.
    run -0 ask 'named("ConfigMap"; "tidegate-node-0-checks").data["checks.json"] | fromjson.checks | map(.name)
        | join(" ")' -f "$chart/ci/full-values.yaml" --set poolDefaults.checks.munge=null
    [ "$output" = "ecc gpu leftovers memory root spool tmp" ]
    run -0 ask 'named("ConfigMap"; "tidegate-node-gpu-checks").data["checks.json"] | fromjson.checks | map(.name)
        | join(" ")' -f "$chart/ci/cgroup-values.yaml"
    [ "$output" = "ecc gpu leftovers memory munge root spool" ]
}

@test "programs of the site's own are mounted executable where prolog, epilog and checks look for them" {
    holds 'pods | component("node") | select(.name == "DaemonSet tidegate-node-day").spec
        | ([.volumes[] | select(.configMap.defaultMode == 493) | .configMap.name] | sort)
            == ["tidegate-node-day-check-scripts", "tidegate-node-day-epilog", "tidegate-node-day-prolog"]
        and ([.containers[0].volumeMounts[] | select(.mountPath | startswith("/etc/tidegate/")).mountPath] | sort)
            == ["/etc/tidegate/check-scripts", "/etc/tidegate/checks", "/etc/tidegate/epilog", "/etc/tidegate/prolog"]' \
        -f "$chart/ci/full-values.yaml"
    holds 'named("ConfigMap"; "tidegate-node-day-prolog").data == {"10-clean": "#!/bin/sh\nrm -rf /scratch/*\n"}' \
        -f "$chart/ci/full-values.yaml"
    holds 'named("ConfigMap"; "tidegate-node-hpc-prolog").data == {}'
}

@test "the agent is PID 1 of a compute pod, and gets what it needs by its environment" {
    holds 'all(pods | component("node") | .spec.containers[0]; .command == ["/usr/bin/tidegate-node", "run"]
        and (has("args") | not))' -f "$chart/ci/cgroup-values.yaml"
    env='pods | component("node") | .spec.containers[0].env | map({(.name): .value}) | add'
    holds "$env"' | .TIDEGATE_AGENTS == "$(TIDEGATE_BRIDGE_SERVICE_HOST):6821" and .TIDEGATE_BRIDGE_UID == "64030"
        and .TIDEGATE_GRACE == "30" and .TIDEGATE_RESERVE_CPUS == "0" and .TIDEGATE_RESERVE_MEMORY_MIB == "512"
        and .TIDEGATE_SOCKETS == "package" and .TIDEGATE_GRES == "no"
        and .TIDEGATE_CHECKS == "/etc/tidegate/checks/checks.json" and .TIDEGATE_STATE == "/var/lib/tidegate"'
    # A key of the reserve leaves the other as it is.
    holds '[pods | component("node") | .spec.containers[0].env | map({(.name): .value}) | add
        | [.TIDEGATE_RESERVE_CPUS, .TIDEGATE_RESERVE_MEMORY_MIB, .TIDEGATE_SOCKETS]]
        == [["2", "512", "numa"], ["0", "512", "package"]]' -f "$chart/ci/full-values.yaml"
    holds '[pods | component("node") | .spec.containers[0].env | map({(.name): .value}) | add | .TIDEGATE_GRES]
        == ["no", "yes"]' -f "$chart/ci/cgroup-values.yaml"
    # Without a bridge nobody would resume a node that waits for its checks.
    holds "$env"' | .TIDEGATE_AGENTS == ""' --set bridge.replicas=0
}

@test "agents reach the bridge by its Service, and nobody else reaches that port" {
    holds 'named("Service"; "tidegate-bridge").spec.ports | any(.[]; .name == "agents" and .port == 6821
        and .targetPort == "agents")'
    holds 'named("Deployment"; "tidegate-bridge").spec.template.spec.containers[0].ports
        | any(.[]; .name == "agents" and .containerPort == 6821)'
    holds '(pods | select(.name == "DaemonSet tidegate-node-hpc").labels) as $node
        | (pods | select(.name == "Deployment tidegate-bridge").labels) as $bridge
        | named("NetworkPolicy"; "tidegate-bridge").spec
        | (.podSelector.matchLabels | to_entries | all(.[]; $bridge[.key] == .value))
        and .ingress[0].ports == [{port: "agents"}]
        and (.ingress[0].from[0].podSelector.matchLabels | to_entries | all(.[]; $node[.key] == .value))
        and (.ingress[0].from[0].podSelector.matchLabels["app.kubernetes.io/component"] == "node")
        and .ingress[1] == {ports: [{port: "http"}]}'
    holds '[kind("NetworkPolicy")] == []' --set bridge.networkPolicy=false
}

@test "what the agent keeps is on the node, apart by namespace, release and pool" {
    holds '[pods | component("node") | .spec.volumes[] | select(.name == "node-state").hostPath] == [
        {path: "/var/lib/tidegate/tidegate/tidegate/cpu", type: "DirectoryOrCreate"},
        {path: "/var/lib/tidegate/tidegate/tidegate/gpu", type: "DirectoryOrCreate"}]' -f "$chart/ci/cgroup-values.yaml"
}

@test "a pool's wish for proof and for features from labels is in its Pool" {
    holds '[kind("Pool").spec | {qualify, featureLabels}] == [{qualify: false, featureLabels: []},
        {qualify: true, featureLabels: []}]' -f "$chart/ci/cgroup-values.yaml"
    holds 'named("Pool"; "day").spec.featureLabels
        == ["node.kubernetes.io/instance-type", "feature.node.kubernetes.io/"]' -f "$chart/ci/full-values.yaml"
}

@test "slurm.conf: prolog and epilog ask the agent, and a refused batch job is not held" {
    for file in "$chart"/ci/*-values.yaml; do
        run -0 conf -f "$file"
        for line in Prolog=/usr/libexec/tidegate/prolog Epilog=/usr/libexec/tidegate/epilog \
            PrologEpilogTimeout=300 PropagateResourceLimitsExcept=MEMLOCK; do
            grep -qx "$line" <<<"$output"
        done
        grep -qE '^SchedulerParameters=nohold_on_prolog_fail(,|$)' <<<"$output"
    done
    run -0 conf
    grep -qx 'SchedulerParameters=nohold_on_prolog_fail,bf_interval=5,bf_max_time=30,sched_interval=5' <<<"$output"
    [[ $output != *GresTypes* ]]
    run -0 conf -f "$chart/ci/cgroup-values.yaml"
    grep -qx GresTypes=gpu <<<"$output"
}

@test "users and groups are what was asked for" {
    run -0 ask 'named("ConfigMap"; "tidegate-users").data | .passwd + .group' -f "$chart/ci/full-values.yaml"
    [ "$output" = "alice:x:1000:1000:Alice A, room 1:/home/alice:/bin/bash
bob:x:1001:2000::/home/other/bob:/bin/sh
alice:x:1000:
chem:x:2000:alice
phys:x:2001:alice,bob" ]
}

@test "the CRD of an upgrade is the CRD of the install, and fits the Pools" {
    holds '(named("CustomResourceDefinition"; "pools.tidegate.dev")) as $crd
        | (named("ConfigMap"; "tidegate-crd-upgrade").data["pools.json"] | fromjson) == $crd'
    holds '(kind("CustomResourceDefinition").spec.versions[0].schema.openAPIV3Schema.properties.spec) as $schema
        | [kind("Pool").spec] | length == 2 and all((($schema.required - keys) == [])
            and ((keys - ($schema.properties | keys)) == [])
            and (.confinement | IN($schema.properties.confinement.enum[])))' -f "$chart/ci/cgroup-values.yaml"
    holds '[.[] | select(.metadata.annotations["helm.sh/hook"]) | .metadata.annotations | .["helm.sh/hook"],
        .["helm.sh/hook-delete-policy"]] | unique == ["before-hook-creation,hook-succeeded", "pre-upgrade"]'
}

@test "images and pull secrets go where they are said to" {
    run -0 ask '[pods | containers.image] | unique | join(" ")' -f "$chart/ci/full-values.yaml"
    [ "$output" = "elsewhere.example.org/tidegate-controller@sha256:0123 \
registry.example.org/hpc/tidegate-bridge:7 registry.example.org/hpc/tidegate-node:7" ]
    holds 'all(pods; .spec.imagePullSecrets == [{name: "pull"}] and all(containers; .imagePullPolicy == "Always"))' \
        -f "$chart/ci/full-values.yaml"
    run -0 ask '[pods | containers.image] | unique | map(sub(".*:"; "")) | unique[]'
    [ "$output" = "$(cat "$top/VERSION")" ]
}

@test "drain of a node waits for no pod of ours unless it is told to" {
    holds '[kind("PodDisruptionBudget").spec] | length == 3
        and all(.maxUnavailable == 1 and .unhealthyPodEvictionPolicy == "AlwaysAllow")'
}
