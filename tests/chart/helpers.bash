# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# shellcheck disable=SC2016,SC2154 # jq's variables; what bats sets
#
# Loaded by the chart's tests. Needs helm, jq, python3 with yaml, yamllint, kubectl; no cluster.

top=$(readlink -f "$BATS_TEST_DIRNAME/../..")
chart=$top/charts/tidegate
PATH=${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}/bin:$PATH
bats_require_minimum_version 1.5.0

# render [OPTION]...: the YAML of release tidegate in namespace tidegate. The version is given
# because a helm that was built from its module takes itself for a very old cluster.
render() {
    helm template tidegate "$chart" -n tidegate --kube-version 1.34.0 --include-crds "$@"
}

# objects [OPTION]...: the same as one JSON array, rendered once for all tests.
objects() {
    local file
    file=$BATS_SUITE_TMPDIR/$(printf '%s\0' "$@" | sha256sum | cut -c1-32)
    if [[ ! -e $file ]]; then
        render "$@" >"$file.yaml" || return
        python3 -c '
import json, sys, yaml
json.dump([o for o in yaml.load_all(sys.stdin, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if o], sys.stdout)' \
            <"$file.yaml" >"$file.new" || return
        mv "$file.new" "$file"
    fi
    cat "$file"
}

# ask FILTER [OPTION]...: jq's answer about the objects, without quotes.
ask() {
    local filter=$1
    shift
    objects "$@" | jq -r "$common $filter"
}

# holds FILTER [OPTION]...: passes if jq says true of the objects; shows what is wrong by `fail` in it.
holds() {
    local filter=$1
    shift
    objects "$@" | jq -e "$common $filter" >/dev/null
}

# Used by filters: kind(K) objects of a kind; named(K; N) one of them; pods: {name, spec} of every
# template; containers: of one of these, the initial ones too.
common='
def kind($k): .[] | select(.kind == $k);
def named($k; $n): kind($k) | select(.metadata.name == $n);
def pods: .[] | select(.spec.template?) | {name: "\(.kind) \(.metadata.name)", labels: .spec.template.metadata.labels,
    notes: .spec.template.metadata.annotations, spec: .spec.template.spec};
def containers: .spec.initContainers[]?, .spec.containers[];
def component($c): select(.labels["app.kubernetes.io/component"] == $c);
'

# refused TEXT [OPTION]...: passes if rendering fails and says TEXT.
refused() {
    local text=$1
    shift
    run render "$@"
    echo "$output"
    [[ $status != 0 && $output == *"$text"* ]]
}
