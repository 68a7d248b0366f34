#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup_system.sh - install the Debian packages of tools/system_packages.txt that are missing.
#
# Quick when nothing is missing. Installs only as root or with a sudo that asks for no password;
# otherwise it says what to install. On other systems it only names what the build needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: not a Debian system; needed are gcc, clang with compiler-rt, make and cmocka" >&2
    exit 0
fi

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=""
for package in $(sed -e 's/#.*//' -e 's/[[:space:]].*//' "$here/system_packages.txt"); do
    # A Python from elsewhere brings its own venv module.
    if [ "$package" = python3-venv ] && python3 -c 'import venv, ensurepip' 2>/dev/null; then
        continue
    fi
    is_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "setup: please install:$missing" >&2
        echo "setup: for example: sudo apt-get install$missing" >&2
        exit 0
    fi
    as_root=sudo
fi
echo "setup: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq >&2
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing >&2
