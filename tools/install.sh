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

# Two installs at once would compile in the same folder.
mkdir -p "$root/build"
exec 9>"$root/build/install.lock"
flock 9

# One wheel fits every stack. The tools that built it the last time do it again: scikit-build-core
# compiles everything anew for others.
builder=$(cat "$root/build/install.tools" 2>/dev/null || true)
version() { "$1/bin/python" -V 2>/dev/null || true; }
if [ ! -f "$builder/complete" ] || [ "$(version "$builder")" != "$(version "$base")" ]; then
    builder=$base
    echo "$builder" >"$root/build/install.tools"
fi
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
PATH=$builder/bin:$PATH "$builder/bin/python" -m pip wheel -qq --disable-pip-version-check \
    --no-deps --no-build-isolation -C "build-dir=$root/build/install" -w "$wheels" "$root" >&2
"$dir/bin/python" -m pip install -qq --disable-pip-version-check --no-warn-script-location \
    --no-deps --no-index --force-reinstall "$wheels"/*.whl >&2
