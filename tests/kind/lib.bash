# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The kind tests' words. A *.bats file begins with
#
#   setup() { load lib; }
#   teardown() { leave_as_found; }
#
# and works on the release that tests/kind/run has installed. What a user does is done in the login
# pod as alice, what an admin of Slurm does in the controller pod, what an admin of Kubernetes does
# with kubectl from here, and what an accident does, by the container tool.
#
# shellcheck disable=SC2016,SC2034 # expanded in pods; used by the tests

bats_require_minimum_version 1.5.0
top=$(readlink -f "$BATS_TEST_DIRNAME/../..")
# shellcheck source=tests/lib/container.sh
. "$top/tests/lib/container.sh"
eval "$("$top/tests/kind/cluster" env)"
chart=$top/charts/tidegate
values=$top/tests/kind/values.yaml
version=$(cat "$top/VERSION")
control_plane=${TIDEGATE_KIND_CLUSTER:-tidegate}-control-plane
# The nodes of the pool; no test touches the control plane.
workers=("${control_plane/%control-plane/worker}"{,2,3})
X=${workers[0]} Y=${workers[1]} Z=${workers[2]}
cordoned='tidegate/k8s: node is cordoned in Kubernetes'
silent='tidegate/k8s: node is NotReady in Kubernetes and slurmd does not answer'
ring=/usr/share/tidegate/examples/ring

# ---- who does it --------------------------------------------------------------------------------

k() { kubectl -n tidegate "$@"; }
login() { k exec -i deploy/tidegate-login -c login -- "$@"; }
controller() { k exec -i deploy/tidegate-controller -c slurmctld -- "$@"; }
in_node() { "$CONTAINER" exec -i "$@"; }
compute_pod() { # NODE
    k get pods -l app.kubernetes.io/component=node --field-selector "spec.nodeName=$1" \
        -o jsonpath='{.items[0].metadata.name}'
}
# upgrade [OPTION]...: of the release, with the values it was installed with.
upgrade() { helm upgrade tidegate "$chart" -n tidegate -f "$values" --timeout 3m "$@"; }

# ---- waiting ------------------------------------------------------------------------------------

now() { echo "$EPOCHREALTIME"; }
# seconds FROM [TO]: between two times of now(), with two digits.
seconds() { awk -v a="$1" -v b="${2:-$EPOCHREALTIME}" 'BEGIN { printf "%.2f", b - a }'; }
# less A B: whether the number A is below B.
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
say() { echo "# $*" >&3; }

# eventually SECONDS CMD...: CMD succeeds within that time. Tells what it said last when not.
eventually() {
    local limit=$1 said end=$((SECONDS + $1))
    shift
    until said=$("$@" 2>&1); do
        if ((SECONDS >= end)); then
            echo "not within $limit s: $*"
            echo "$said"
            return 1
        fi
        sleep 0.2
    done
}

# What may stand in a condition for `slurm`, below. Sent to the pod, where asking Slurm is cheap.
slurm_words='
state_of() { sinfo -h -n "$1" -O "StateComplete:|,Reason:|" | head -n 1 | sed "s/+dynamic_norm//"; }
# node_is NODE STATE [REASON]: the whole state, as a regular expression, and the whole reason.
node_is() {
    local line state reason
    line=$(state_of "$1")
    IFS="|" read -r state reason _ <<<"$line"
    echo "$1 is $state, reason \"$reason\""
    [[ $state =~ ^($2)$ && ($# -lt 3 || $reason == "$3") ]]
}
job_is() { # JOB STATE
    local state
    state=$(squeue -h -t all -j "$1" -O State:20 | sort -u | xargs)
    echo "job $1 is $state"
    [[ $state =~ ^($2)$ ]]
}
registered_here() { scontrol -o show node "$1" | grep -q " InstanceId=$2\b"; } # NODE POD_UID
queue_empty() { local queue; queue=$(squeue -h); echo "$queue"; [[ -z $queue ]]; }
'

# slurm SECONDS CONDITION [ARG]...: until it is so, in the login pod, looking each 0.1 s; prints
# the time at which it was seen. 0 seconds: it is so now.
slurm() {
    login bash -c "$slurm_words"'
        end=$((SECONDS + $1)) limit=$1
        shift
        until said=$("$@" 2>&1); do
            if ((SECONDS >= end)); then
                echo "not within $limit s: $*; $said" >&2
                exit 1
            fi
            sleep 0.1
        done
        echo "$EPOCHREALTIME"' slurm "$@"
}
is() { slurm 0 "$@" >/dev/null; }
becomes() { slurm "$@" >/dev/null; }

all_idle() {
    local node
    for node in "${workers[@]}"; do slurm "$1" node_is "$node" idle >/dev/null || return; done
}

# job_field JOB FIELD: as scontrol shows it.
job_field() { login scontrol -o show job "$1" | grep -oP "(?<= $2=)\S*" | sort -u; }
extra_of() { controller sinfo -h -n "$1" -O 'Extra:|' | head -n 1 | sed 's/|$//'; }
pool_number() { k get pool hpc -o jsonpath="{.status.$1}"; }
pool_shows() { # FIELD NUMBER
    local have
    have=$(pool_number "$1")
    echo "pool hpc: $1 is $have"
    [[ $have == "$2" ]]
}

# ---- nodes --------------------------------------------------------------------------------------

container_state() { "$CONTAINER" inspect -f '{{.State.Status}}' "$1"; }
ready_is() { # NODE REGEX
    local status
    status=$(kubectl get node "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')
    echo "$1: Ready is $status"
    [[ $status =~ ^($2)$ ]]
}
is_cordoned() { [[ $(kubectl get node "$1" -o jsonpath='{.spec.unschedulable}') == true ]]; }

# A process of the control plane is stopped and continued, as by a machine that hangs.
hang() { in_node "$control_plane" pkill -STOP -x "$1"; }
go_on() { in_node "$control_plane" pkill -CONT -x "$1"; }
# In slurmctld's container without asking the API server. Root, as on any controller host.
direct() {
    in_node "$control_plane" sh -c 'exec nsenter -t "$(pgrep -o -x slurmctld)" -a -- "$@"' sh "$@"
}

# ---- the bridge ---------------------------------------------------------------------------------

# The leader's pod, by the Lease; its holder is POD_UID.
leader() { k get lease tidegate-bridge -o jsonpath='{.spec.holderIdentity}' | sed 's/_[^_]*$//'; }
bridge_pods() { k get pods -l app.kubernetes.io/component=bridge -o name | sed 's|^pod/||'; }
# kill_bridge POD: its tidegated, with SIGKILL, from the node; waits for one that is being restarted.
kill_bridge() {
    local uid
    uid=$(k get pod "$1" -o jsonpath='{.metadata.uid}')
    eventually 30 in_node "$control_plane" sh -c '
        killed=1
        for pid in $(pgrep -x tidegated); do
            if tr "\0" "\n" <"/proc/$pid/environ" | grep -qx "POD_UID=$1"; then
                kill -KILL "$pid"
                killed=0
            fi
        done
        exit $killed' sh "$uid"
}

# bridge_acts [NODE]: the bridge sees and does: a cordon of a node arrives, and its end.
bridge_acts() {
    local node=${1:-$Y}
    kubectl cordon "$node"
    becomes 40 node_is "$node" 'idle\+drain' "$cordoned"
    kubectl uncordon "$node"
    becomes 40 node_is "$node" idle
}

# restart_bridge: new pods, none of the old ones left.
restart_bridge() {
    k delete pod -l app.kubernetes.io/component=bridge --wait=true --timeout=60s
    k rollout status deploy/tidegate-bridge --timeout=60s
}

# replace_slurmd NODE: its pod, until the new one has registered.
replace_slurmd() {
    local uid old
    old=$(compute_pod "$1")
    k delete pod "$old" --wait=true --timeout=60s
    eventually 30 new_slurmd "$1" "$old"
    uid=$(k get pod "$(compute_pod "$1")" -o jsonpath='{.metadata.uid}')
    eventually 60 registered "$1" "$uid"
}
new_slurmd() {
    local pod
    pod=$(compute_pod "$1")
    [[ -n $pod && $pod != "$2" ]]
}
registered() { controller scontrol -o show node "$1" | grep -q " InstanceId=$2\b"; }

replace_controller() { # [OPTION OF kubectl delete]...
    local old
    old=$(k get pods -l app.kubernetes.io/component=controller -o jsonpath='{.items[0].metadata.name}')
    k delete pod "$old" --wait=false "$@"
    eventually 60 another_controller "$old"
    k rollout status deploy/tidegate-controller --timeout=90s
}
another_controller() {
    local pods
    pods=$(k get pods -l app.kubernetes.io/component=controller -o jsonpath='{.items[*].metadata.name}')
    [[ -n $pods && $pods != *"$1"* ]]
}

# ---- the end of each test -----------------------------------------------------------------------

show_all() {
    echo "--- what there was when it failed"
    kubectl get nodes
    k get pods -o wide
    k get pools
    login bash -c 'sinfo -N -O NodeList:20,StateComplete:50,Reason:70; squeue -l; tidegate nodes'
    k logs -l app.kubernetes.io/component=bridge -c tidegated --tail 25 --prefix
    k logs -l app.kubernetes.io/component=controller -c slurmctld --tail 25
}

# Nodes run and take pods and jobs, nobody holds one, and no job is left.
leave_as_found() {
    local node line
    [[ -n ${BATS_TEST_COMPLETED:-} ]] || show_all 2>&1 || :
    for node in "${workers[@]}"; do
        if [[ $(container_state "$node") != running ]]; then
            "$top/tests/kind/cluster" start-node "$node"
        fi
        if is_cordoned "$node"; then kubectl uncordon "$node"; fi
    done
    login scancel -u alice
    for node in "${workers[@]}"; do
        line=$(controller sinfo -h -n "$node" -O 'StateComplete:|,Reason:|' | head -n 1)
        # What the bridge or slurmctld wrote is the bridge's to end.
        if [[ ${line%%|*} =~ drain|down|fail &&
            ! $line =~ \|(tidegate/|Not\ responding|Node\ unexpectedly) ]]; then
            controller scontrol update nodename="$node" state=resume
        fi
    done
    becomes 60 queue_empty
    all_idle 60
    login find /home/alice -mindepth 1 -delete
}
