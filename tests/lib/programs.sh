# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Sourced. need_programs NAME...: installs the Debian packages of those names for the programs that are
# missing, or says in one line what to install and ends the script.

need_programs() {
    local missing=() program as=()
    for program in "$@"; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    ((${#missing[@]})) || return 0
    [[ $EUID == 0 ]] || as=(sudo)
    if "${as[@]}" apt-get update -q >&2 &&
        "${as[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -yq --no-install-recommends "${missing[@]}" >&2; then
        return
    fi
    echo "${0##*/}: ${missing[*]} is missing, which the tests are run with and written in:" \
        "apt-get install ${missing[*]}" >&2
    exit 69
}
