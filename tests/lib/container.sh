# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Sourced by every script that runs containers. Sets
#   CONTAINER       docker or podman: the caller's choice, else the one that works
#   TIDEGATE_CACHE  what is costly to make and outlives the working tree
# and ends the script with a sentence when there is neither tool.

TIDEGATE_CACHE=${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}

if [[ -z ${CONTAINER:-} ]]; then
    if docker info >/dev/null 2>&1; then
        CONTAINER=docker
    elif podman info >/dev/null 2>&1; then
        CONTAINER=podman
    else
        echo "${0##*/}: neither 'docker info' nor 'podman info' works for $(id -un):" \
            "install podman (or start docker), or set CONTAINER to the one to use" >&2
        exit 69
    fi
fi
export CONTAINER TIDEGATE_CACHE

# image_exists NAME: whether the image is in the local store.
image_exists() {
    "$CONTAINER" image inspect "$1" >/dev/null 2>&1
}
