# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# need PROGRAM...: installs the Debian packages of these names where the programs are missing, or ends
# the script with a sentence that says what to install.
need() {
    local missing=() program as=()
    for program; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    ((${#missing[@]})) || return 0
    [[ $EUID == 0 ]] || as=(sudo)
    # Lists that cannot be had are no harm as long as the packages can.
    "${as[@]}" apt-get update -q >&2 || :
    "${as[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -yq --no-install-recommends "${missing[@]}" >&2 || {
        echo "${0##*/}: ${missing[*]} is missing and could not be installed; as root:" \
            "apt-get install ${missing[*]}" >&2
        exit 69
    }
}
