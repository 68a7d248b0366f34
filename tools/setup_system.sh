#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup_system.sh [build|test] - make sure that what the build (and the tests) need is installed.
#
# build: a C compiler and a Python with venv and headers, whoever installed them; says nothing and
# needs no root if they are there. test (the default): the packages of tools/system_packages.txt
# besides. On Debian it installs what is missing, as root or with a sudo that asks for no password;
# otherwise it prints the one command that does. Fails only if the build can't work.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wanted=${1:-test}
python=${PYTHON:-python3}

has_compiler() {
    dir=$(mktemp -d)
    found=1
    for cc in ${CC:-} cc gcc clang; do
        if printf '#include <stdio.h>\nint main(void) { return puts(""); }\n' |
            "$cc" -x c - -o "$dir/a" 2>/dev/null; then
            found=0
            break
        fi
    done
    rm -rf "$dir"
    return $found
}
has_python() { "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
has_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }
has_headers() {
    "$python" -c 'import os.path, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' 2>/dev/null
}

# What the build lacks, as words of the first column of system_packages.txt.
lacking=""
has_compiler || lacking="$lacking compiler"
if has_python; then
    has_venv || lacking="$lacking venv"
    has_headers || lacking="$lacking headers"
else
    lacking="$lacking python venv headers"
fi

packages_for() { sed -n "s/^$1  *\([^ ]*\).*/\1/p" "$here/system_packages.txt"; }
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# The same needs in the words of other package managers.
foreign_name() {
    case $1:$2 in
    dnf:compiler | yum:compiler | zypper:compiler) echo gcc glibc-devel ;;
    pacman:compiler) echo gcc ;;
    apk:compiler) echo gcc musl-dev linux-headers ;;
    pacman:*) echo python ;;
    *:headers) [ "$1" = apk ] && echo python3-dev || echo python3-devel ;;
    *) echo python3 ;;
    esac
}
foreign_command() {
    for manager in dnf yum zypper pacman apk; do
        command -v $manager >/dev/null 2>&1 || continue
        case $manager in
        pacman) line="pacman -S --needed" ;;
        apk) line="apk add" ;;
        *) line="$manager install" ;;
        esac
        for need in $lacking; do
            for name in $(foreign_name $manager "$need"); do
                case " $line " in *" $name "*) ;; *) line="$line $name" ;; esac
            done
        done
        echo "run: sudo $line"
        return
    done
    echo "install them with your system's package manager"
}

describe() {
    for need in $lacking; do
        case $need in
        compiler) echo "  a C compiler with the C library's headers (set CC to use a certain one)" ;;
        python) echo "  Python 3.10 or newer (set PYTHON to use a certain one)" ;;
        venv) echo "  Python's modules venv and ensurepip" ;;
        headers) echo "  Python's header files (Python.h)" ;;
        esac
    done
}

if ! command -v dpkg-query >/dev/null 2>&1; then
    if [ -n "$lacking" ]; then
        { echo "setup: missing:"; describe; echo "setup: $(foreign_command)"; } >&2
        exit 1
    fi
    if [ "$wanted" = test ]; then
        echo "setup: not a Debian system: tests that need one of these are skipped or fail:" \
            "$(packages_for test | tr '\n' ' ')" >&2
    fi
    exit 0
fi

missing=""
for need in $lacking; do
    for package in $(packages_for "$need"); do
        missing="$missing $package"
    done
done
if [ "$wanted" = test ]; then
    for package in $(packages_for test); do
        is_installed "$package" || missing="$missing $package"
    done
fi
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        [ -z "$lacking" ] || { echo "setup: missing:"; describe; } >&2
        echo "setup: run: sudo apt-get install --no-install-recommends$missing" >&2
        [ -z "$lacking" ] || exit 1
        exit 0
    fi
    as_root=sudo
fi
echo "setup: installing$missing" >&2
$as_root apt-get update -qq >&2
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
if ! has_python; then
    echo "setup: $python is still older than 3.10: set PYTHON to a newer one" >&2
    exit 1
fi
