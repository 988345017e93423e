# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The component cluster, for use inside tests/component/sandbox. A *.bats file begins with
#
#   setup_file() { cluster_up; bridge_up a; }
#   setup() { load lib; }
#   teardown() { nodes_away; }
#
# A node here is a Node object (node_up makes it Ready, nobody renews it) and a slurmd of that name
# with a port of its own (slurmd_up), or the whole of a slurmd pod with its agent and an address of its own
# (agent_up; such a file calls pods_up in place of cluster_up). What a person does, root does, by kubectl and
# scontrol.

IP=10.99.0.1
RUN=/run/tidegate
API=https://$IP:6443
BIN=$TIDEGATE_CACHE/bin
NS=tidegate
export PATH=$BIN:$PATH KUBECONFIG=$RUN/kubeconfig SLURM_CONF=$RUN/slurm.conf
export TIDEGATE_BRIDGE_URL=http://127.0.0.1:8080

# ---- waiting ------------------------------------------------------------------------------------

now_ms() {
    local us=${EPOCHREALTIME/[.,]/}
    echo "${us%???}"
}

# eventually SECONDS CMD...: CMD succeeds within that time. Tells what it said last when not.
eventually() {
    local said until
    until=$(($(now_ms) + $1 * 1000))
    shift
    until said=$("$@" 2>&1); do
        if (($(now_ms) > until)); then
            echo "not within the time: $*"
            echo "$said"
            return 1
        fi
        sleep 0.03
    done
}

# always SECONDS CMD...: CMD succeeds each time it is tried during that time.
always() {
    local said until
    until=$(($(now_ms) + $1 * 1000))
    shift
    while (($(now_ms) < until)); do
        if ! said=$("$@" 2>&1); then
            echo "no longer so: $*"
            echo "$said"
            return 1
        fi
        sleep 0.2
    done
}

# ---- processes ----------------------------------------------------------------------------------

# spawn NAME CMD...: in the background, its output in $LOGS/NAME.log.
spawn() {
    local name=$1
    shift
    # bats waits for whoever holds its descriptors
    "$@" >>"$LOGS/$name.log" 2>&1 </dev/null 3>&- 4>&- 5>&- &
    echo $! >"$RUN/$name.pid"
    disown # else the shell reports how it died
}

pid_of() { cat "$RUN/$1.pid"; }
runs() { [[ -e /proc/$(pid_of "$1") ]]; }
signal() { kill "-$2" "$(pid_of "$1")"; } # signal NAME SIGNAL

# stop NAME [SIGNAL]: and waits until it is gone.
stop() {
    local pid
    pid=$(pid_of "$1")
    kill "-${2:-TERM}" "$pid"
    eventually 20 test ! -e "/proc/$pid"
}

port_open() { (: <"/dev/tcp/$IP/$1") 2>/dev/null; }

# ---- Kubernetes ---------------------------------------------------------------------------------

etcd_up() {
    spawn etcd etcd --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380
}

make_keys() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca \
        -addext keyUsage=critical,keyCertSign \
        -keyout "$RUN/ca.key" -out "$RUN/ca.crt" 2>/dev/null
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=apiserver \
        -CA "$RUN/ca.crt" -CAkey "$RUN/ca.key" -addext "subjectAltName=IP:$IP" \
        -addext basicConstraints=critical,CA:FALSE \
        -keyout "$RUN/api.key" -out "$RUN/api.crt" 2>/dev/null
    openssl ecparam -name prime256v1 -genkey -noout -out "$RUN/sa.key"
    cat >"$RUN/tokens.csv" <<EOF
admin-token,admin,admin,system:masters
visitor-token,visitor,visitor
EOF
}

# kubeconfig FILE USER
write_kubeconfig() {
    cat >"$1" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$API", certificate-authority: $RUN/ca.crt}}]
users: [{name: $2, user: {token: $2-token}}]
contexts: [{name: test, context: {cluster: test, user: $2}}]
current-context: test
EOF
}

apiserver_up() {
    spawn apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
        --bind-address="$IP" --advertise-address="$IP" --endpoint-reconciler-type=none \
        --tls-cert-file="$RUN/api.crt" --tls-private-key-file="$RUN/api.key" \
        --token-auth-file="$RUN/tokens.csv" --authorization-mode=RBAC \
        --service-account-issuer=https://test --service-account-key-file="$RUN/sa.key" \
        --service-account-signing-key-file="$RUN/sa.key" --service-cluster-ip-range=10.98.0.0/24 \
        --disable-admission-plugins=TaintNodesByCondition --profiling=false --v=0
}
apiserver_ready() { [[ $(api GET /readyz) == ok ]]; }

# controller_manager_up: only what judges nodes by their Leases, and fast.
controller_manager_up() {
    spawn controller-manager kube-controller-manager --kubeconfig="$KUBECONFIG" \
        --controllers=node-lifecycle-controller --leader-elect=false --secure-port=0 \
        --node-monitor-period=500ms --node-monitor-grace-period=4s
}

# api METHOD PATH [BODY]: as the cluster's admin. A PATCH is a merge patch.
api() {
    local type=application/json
    [[ $1 == PATCH ]] && type=application/merge-patch+json
    curl -sS --fail-with-body -m 5 --cacert "$RUN/ca.crt" -H 'Authorization: Bearer admin-token' \
        -H "Content-Type: $type" -X "$1" ${3:+-d "$3"} "$API$2"
}

# The chart's own objects: CRD, RBAC, service accounts, pools and Slurm's configuration.
chart() {
    local part parts=()
    for part in "$@"; do parts+=(--show-only "templates/$part"); done
    helm template tidegate charts/tidegate -n $NS --kube-version 1.34 "${parts[@]}" \
        --set "slurm.slurmdTimeout=10,slurm.credExpire=5${CHART_VALUES:+,$CHART_VALUES}" \
        --set-json 'slurm.schedulerParameters=["sched_interval=2","bf_interval=2"]'
}

kube_up() {
    make_keys
    write_kubeconfig "$KUBECONFIG" admin
    write_kubeconfig "$RUN/visitor" visitor
    etcd_up
    apiserver_up
    eventually 60 apiserver_ready
    api POST /api/v1/namespaces '{"metadata":{"name":"'$NS'"}}' >/dev/null
    kubectl apply -f charts/tidegate/crds >/dev/null
    kubectl wait --for=condition=Established crd/pools.tidegate.dev --timeout=20s >/dev/null
    chart bridge/rbac.yaml serviceaccounts.yaml slurm/configmap.yaml | kubectl apply -f - >/dev/null
    # The API takes objects of a new kind a moment after it says Established.
    chart pool/pools.yaml >"$RUN/pools.yaml"
    eventually 10 kubectl apply -f "$RUN/pools.yaml"
    # A cluster has one node at least, else the bridge takes the list for a failed look-up.
    kube_node_up control-plane '{}'
    kubectl create token -n $NS tidegate-bridge --duration 1h >"$RUN/bridge-token"
}

# ---- Slurm --------------------------------------------------------------------------------------

AS_SLURM=(setpriv --reuid slurm --regid slurm --clear-groups)
as_alice() { setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }

# The chart's slurm.conf; for slurmds that share one file system with paths of their own, and without what
# needs an agent.
slurm_conf() {
    kubectl get configmap -n $NS tidegate-slurm -o 'jsonpath={.data.slurm\.conf}' | sed "
        s/@SLURMCTLD_IP@/$IP/
        s|^\(StateSaveLocation\)=.*|\1=$RUN/state|" >"$SLURM_CONF"
    [[ -n ${PODS:-} ]] || sed -i "
        /^\(Prolog\|Epilog\)=/d
        s|^\(SlurmdSpoolDir\)=.*|\1=$RUN/spool/%n|
        s|^\(SlurmdPidFile\)=.*|\1=$RUN/slurmd-%n.slurm-pid|" "$SLURM_CONF"
    kubectl get configmap -n $NS tidegate-slurm -o 'jsonpath={.data.cgroup\.conf}' >"$RUN/cgroup.conf"
    kubectl get configmap -n $NS tidegate-slurm -o 'jsonpath={.data.mpi\.conf}' >"$RUN/mpi.conf"
}

slurmctld_up() {
    spawn slurmctld "${AS_SLURM[@]}" slurmctld -D -v
}
slurmctld_ready() { scontrol ping | grep -q 'is UP'; }

slurm_up() {
    install -d -o slurm -g slurm "$RUN/state" /run/slurmctld
    install -d -m 755 "$RUN/spool" /run/munge
    (umask 077 && head -c 128 /dev/urandom >"$RUN/munge.key")
    spawn munged munged -F --key-file "$RUN/munge.key" --seed-file "$RUN/munge.seed"
    slurm_conf
    eventually 10 test -S /run/munge/munge.socket.2
    slurmctld_up
    eventually 20 slurmctld_ready
}

# slurmd_up NAME: as the node image starts it, in a PID namespace: stop slurmd-NAME KILL takes the job
# steps along, as a pod that dies does.
slurmd_up() {
    local file=$RUN/$1.port
    [[ -e $file ]] || echo $((7000 + $(find "$RUN" -name '*.port' | wc -l))) >"$file"
    rm -rf "$RUN/spool/$1"
    spawn "slurmd-$1" unshare --pid --fork --kill-child --mount-proc tini -s -- slurmd -D -b -Z -N "$1" --conf-server "$IP:6817" --instance-id "pod-$1" \
        --conf "Feature=hpc CPUs=2 RealMemory=2000 Port=$(cat "$file")"
}

# slurmd_crash NAME: killed with all its steps, and back as a new pod would be. Slurm takes it for a crash
# when the new slurmd is younger than the old one's last sign of life, in whole seconds.
slurmd_crash() {
    stop "slurmd-$1" KILL
    sleep 2
    slurmd_up "$1"
}

node_line() { scontrol -o show node "$1"; }
# The state without the mark of dynamic nodes, which all have.
node_state() { node_line "$1" | sed -n 's/.* State=\([^ ]*\).*/\1/p' | sed 's/+DYNAMIC_NORM//'; }
node_reason() { node_line "$1" | sed -n 's/.* Reason=\(.*\) \[[^ ]*\].*/\1/p'; }
node_extra() { node_line "$1" | sed -n 's/.* Extra=\(.*\) InstanceId=[^ ]* *$/\1/p'; }

# state_is NAME STATE [REASON]: STATE is a pattern.
state_is() {
    local state reason
    state=$(node_state "$1")
    reason=$(node_reason "$1")
    echo "$1 is $state, reason \"$reason\""
    # shellcheck disable=SC2053 # a pattern
    [[ $state == $2 && ($# -lt 3 || $reason == "$3") ]]
}

job_state() { scontrol -o show job "$1" | sed -n 's/.* JobState=\([^ ]*\).*/\1/p'; }
job_node() { scontrol -o show job "$1" | sed -n 's/.* NodeList=\([^ ]*\).*/\1/p'; }
job_is() {
    local state
    state=$(job_state "$1")
    echo "job $1 is $state on $(job_node "$1")"
    [[ $state == "$2" ]]
}
# submit [SBATCH OPTION]... SECONDS: a job that sleeps; prints its number.
submit() {
    as_alice sbatch --parsable -D / -o /dev/null -n1 --mem=100 "${@:1:$#-1}" --wrap "sleep ${*: -1}"
}

# ---- nodes --------------------------------------------------------------------------------------

kube_node_up() { # NAME [LABELS AS JSON]
    local labels=${2:-'{"tidegate.dev/pool":"hpc"}'}
    api POST /api/v1/nodes "{\"metadata\":{\"name\":\"$1\",\"labels\":$labels}}" >/dev/null
    kube_ready "$1" True
}

# kube_ready NAME True|False|Unknown: what the kubelet, or the node controller, would write.
kube_ready() {
    local now
    now=$(date -u +%FT%TZ)
    api PATCH "/api/v1/nodes/$1/status" '{"status":{"conditions":[{"type":"Ready","status":"'"$2"'",
        "reason":"Test","lastHeartbeatTime":"'"$now"'","lastTransitionTime":"'"$now"'"}]}}' >/dev/null
}

# kubelet_up NODE: renews the node's Lease every half second, as a kubelet does.
kubelet_up() {
    api POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases \
        '{"metadata":{"name":"'"$1"'"},"spec":{"holderIdentity":"'"$1"'","leaseDurationSeconds":4}}' >/dev/null 2>&1 || : # it may be there
    # shellcheck disable=SC2016 # expanded by the inner shell
    spawn "kubelet-$1" bash -c '. tests/component/lib.bash
        while :; do
            api PATCH "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/$0" \
                "{\"spec\":{\"renewTime\":\"$(date -u +%FT%T.%6NZ)\"}}"
            sleep 0.5
        done' "$1"
}
kubelets_away() {
    local file
    for file in "$RUN"/kubelet-*.pid; do
        [[ -e $file ]] || continue
        if runs "$(basename "$file" .pid)"; then stop "$(basename "$file" .pid)"; fi
        rm "$file"
    done
    # what is left there would be a kubelet that no longer renews
    api DELETE /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases >/dev/null
}

# nodes_up NAME...: in Kubernetes and in Slurm, IDLE.
nodes_up() {
    local name
    for name; do
        kube_node_up "$name"
        slurmd_up "$name"
    done
    for name; do eventually 15 state_is "$name" IDLE; done
}

forget_in_slurm() {
    scontrol update nodename="$1" state=down reason='test is over'
    scontrol delete nodename="$1"
}

# nodes_away: all nodes and jobs, so that the next test finds an empty cluster.
nodes_away() {
    local file name
    scancel --full --signal=KILL --state=RUNNING
    scancel --quiet -u alice
    for file in "$RUN"/slurmd-*.pid; do
        [[ -e $file ]] || continue
        name=$(basename "$file" .pid)
        if runs "$name"; then stop "$name" KILL; fi
        rm "$file"
    done
    api DELETE "/api/v1/namespaces/$NS/pods?labelSelector=app.kubernetes.io/component=node" '{"gracePeriodSeconds":0}' >/dev/null
    kubectl delete nodes --field-selector metadata.name!=control-plane --wait=false >/dev/null
    for name in $(scontrol -o show nodes | sed -n 's/^NodeName=\([^ ]*\).*/\1/p'); do
        eventually 15 forget_in_slurm "$name"
    done
}

# ---- pods with an agent -------------------------------------------------------------------------

# Where the agents find the bridge: the address of a Service, behind which it is left to chance whether a
# or b answers.
AGENTS=10.98.0.21:6821

pods_up() {
    PODS=1 cluster_up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    mkdir -p /run/netns "$RUN/pods"
    nft -f - <<EOF
table ip service {
    chain prerouting {
        type nat hook prerouting priority dstnat
        ip daddr ${AGENTS%:*} tcp dport 6821 dnat to $IP : numgen random mod 2 map { 0 : 6821, 1 : 6822 }
    }
}
EOF
}

pod_ip() { echo "10.99.1.$(cat "$RUN/pods/$1/number")"; }

# pod_net NAME: a network namespace with the pod's address, that reaches all others.
pod_net() {
    local link ip
    mkdir -p "$RUN/pods/$1/state" "$RUN/pods/$1/checks"
    find "$RUN/pods" -mindepth 1 -maxdepth 1 | wc -l >"$RUN/pods/$1/number"
    link=pod$(cat "$RUN/pods/$1/number")
    ip=$(pod_ip "$1")
    ip netns add "$1"
    ip link add "$link" type veth peer name eth0 netns "$1"
    ip link set "$link" up
    ip route add "$ip" dev "$link" src "$IP"
    ip -n "$1" link set lo up
    ip -n "$1" link set eth0 up
    ip -n "$1" address add "$ip/32" dev eth0
    ip -n "$1" route add default via "$IP" dev eth0 onlink
}

# pod_object NAME: the Pod as the DaemonSet makes it, new each time; prints its uid.
pod_object() {
    local ip path=/api/v1/namespaces/$NS/pods
    ip=$(pod_ip "$1")
    api DELETE "$path/slurmd-$1" '{"gracePeriodSeconds":0}' >/dev/null 2>&1 || :
    api POST "$path" '{"metadata":{"name":"slurmd-'"$1"'","labels":{"app.kubernetes.io/component":"node"}},
        "spec":{"nodeName":"'"$1"'","serviceAccountName":"tidegate-node","terminationGracePeriodSeconds":30,
            "containers":[{"name":"slurmd","image":"x"}]}}' | jq -r .metadata.uid
    api PATCH "$path/slurmd-$1/status" '{"status":{"phase":"Running","podIP":"'"$ip"'","podIPs":[{"ip":"'"$ip"'"}],
        "conditions":[{"type":"Ready","status":"True"}]}}' >/dev/null
}
# pod_ready NAME True|False: what the kubelet says of its container.
pod_ready() {
    api PATCH "/api/v1/namespaces/$NS/pods/slurmd-$1/status" \
        '{"status":{"conditions":[{"type":"Ready","status":"'"$2"'"}]}}' >/dev/null
}
# pod_delete NAME: as the API server does it: the object goes once its kubelet says so (pod_gone).
pod_delete() { kubectl delete pod -n $NS "slurmd-$1" --wait=false >/dev/null; }
pod_gone() { api DELETE "/api/v1/namespaces/$NS/pods/slurmd-$1" '{"gracePeriodSeconds":0}' >/dev/null; }

# agent_start NAME [VARIABLE=VALUE]...: the pod's container. What it keeps (TIDEGATE_STATE) lies in
# $RUN/pods/NAME/state, its checks in $RUN/pods/NAME/checks/checks.json.
agent_start() {
    spawn "slurmd-$1" tests/component/pod "$1" env -u SLURM_CONF NODE_NAME="$1" POD_UID="$(cat "$RUN/pods/$1/uid")" \
        POOL=hpc SLURMCTLD_IP=$IP TIDEGATE_AGENTS=$AGENTS TIDEGATE_BRIDGE_UID="$(id -u slurm)" \
        TIDEGATE_GRACE=30 TIDEGATE_RESERVE_CPUS=0 TIDEGATE_RESERVE_MEMORY_MIB=0 TIDEGATE_GRES=no \
        TIDEGATE_CHECKS=/etc/tidegate/checks/checks.json TIDEGATE_STATE=/var/lib/tidegate \
        "${@:2}" "$TIDEGATE_BUILD/tidegate-node" run
}
# agent_up NAME [VARIABLE=VALUE]...: a new pod: object and container.
agent_up() {
    [[ -e /run/netns/$1 ]] || pod_net "$1"
    pod_object "$1" >"$RUN/pods/$1/uid"
    agent_start "$@"
}
# agent_pid NAME: PID 1 of the pod. agent_signal NAME SIGNAL.
agent_pid() { pgrep -P "$(pid_of "slurmd-$1")"; }
agent_signal() { kill "-$2" "$(agent_pid "$1")"; }
# in_pod NAME CMD...: beside the agent.
in_pod() { nsenter --target "$(agent_pid "$1")" --all "${@:2}"; }

# agents_up NAME...: in Kubernetes and in Slurm, with agents, IDLE.
agents_up() {
    local name
    for name; do
        kube_node_up "$name"
        agent_up "$name"
    done
    for name; do eventually 30 state_is "$name" IDLE; done
}

# ---- the bridge ---------------------------------------------------------------------------------

bridge_port() { echo $((8080 + $(printf '%d' "'$1") - 97)); } # a: 8080, b: 8081

# bridge_start ID [--agents] [OPTION]...: with the rights of the chart's service account, as SlurmUser. Nodes
# have no agents, or with --agents they have.
bridge_start() {
    local agents=(--agents-listen none)
    if [[ ${2:-} == --agents ]]; then
        agents=(--agents-listen "$IP:$(($(bridge_port "$1") - 8080 + 6821))" --agents-period 1)
        set -- "$1" "${@:3}"
    fi
    spawn "bridge-$1" "${AS_SLURM[@]}" \
        "$TIDEGATE_BUILD/tidegated" --namespace $NS --identity "bridge-$1" \
        --listen "0.0.0.0:$(bridge_port "$1")" --kube-server "$API" --kube-ca "$RUN/ca.crt" \
        --kube-token "$RUN/bridge-token" --resume-hold 1 --down-confirm 1 \
        "${agents[@]}" "${@:2}"
}
bridge_view() { curl -sS --fail-with-body -m 5 "http://127.0.0.1:$(bridge_port "$1")/v1/nodes"; }
bridge_leads() { bridge_view "$1" | jq -e '.leader and .kubernetes.fresh and .slurm.fresh'; }
# bridge_up ID [OPTION]...: started, and acting.
bridge_up() {
    bridge_start "$@"
    eventually 30 bridge_leads "$1"
}
# metric ID NAME[{LABELS}]: of the bridge's /metrics.
metric() { curl -sS "http://127.0.0.1:$(bridge_port "$1")/metrics" | awk -v name="$2" '$1 == name { print $2 }'; }
metric_is() { [[ $(metric "$1" "$2") == "$3" ]]; }
# How often it was changed in Slurm, by slurmctld's own log.
changes_of() { grep -cE "update_node: node $1 state set to" "$LOGS/slurmctld.log"; }

cluster_up() {
    kube_up
    slurm_up
}
