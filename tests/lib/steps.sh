# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Sourced by scripts that take a while, so that a person sees which step runs and what it took:
#
#   steps 2                         how many there will be
#   step 'node image'               step 1/2 node image
#   step 'cluster'                  step 1/2 node image: 12 s
#                                   step 2/2 cluster
#   (exit)                          step 2/2 cluster: 50 s      or: FAILED after 50 s (status 1)
#
# All of it goes to stderr. A script that is run by a step of another is indented below it. The
# last step ends with the script, or with step_end. This file takes the EXIT trap: define a
# function `cleanup` to have it called there.

steps_total=0 steps_count=0 steps_name='' steps_since=0 steps_indent=${STEPS_INDENT-}
export STEPS_INDENT="$steps_indent  "

steps() {
    steps_total=$1 steps_count=0
}

step() {
    step_end
    steps_count=$((steps_count + 1)) steps_name="step $steps_count/$steps_total $*"
    steps_since=$SECONDS
    printf '%s%s\n' "$steps_indent" "$steps_name" >&2
}

step_end() {
    [[ -n $steps_name ]] || return 0
    printf '%s%s: %s\n' "$steps_indent" "$steps_name" "${1:-$((SECONDS - steps_since)) s}" >&2
    steps_name=
}

steps_exit() {
    local status=$?
    if ((status)); then
        step_end "FAILED after $((SECONDS - steps_since)) s (status $status)"
    else
        step_end
    fi
    if declare -F cleanup >/dev/null; then cleanup; fi
    return "$status"
}
trap steps_exit EXIT
