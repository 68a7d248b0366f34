#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh STACK DIR - build this tree and install it into a virtual environment at DIR.
#
# The environment is thin: it sees the packages of the cached stack (tools/venv.sh) and holds only
# Horovod, so that it is made in a second and clones do not disturb each other.
# DIR/bin/python and DIR/bin/horovodrun are what to run.
set -eu
stack=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
base=$("$root/tools/venv.sh" "$stack")

if [ "$(cat "$dir/stack" 2>/dev/null || true)" != "$base" ]; then
    rm -rf "$dir"
    "$base/bin/python" -m venv --without-pip "$dir"
    packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
    echo "import site; site.addsitedir('$(packages "$base")')" >"$(packages "$dir")/stack.pth"
    echo "$base" >"$dir/stack"
fi

PATH=$dir/bin:$base/bin:$PATH
export PATH
"$dir/bin/python" -m pip install -qq --disable-pip-version-check --no-warn-script-location \
    --no-deps --no-build-isolation --force-reinstall \
    -C "build-dir=$root/build/install" "$root" >&2
