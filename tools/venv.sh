#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# venv.sh STACK - make sure the virtual environment of a stack exists, and print its folder.
#
# A stack is a file tools/requirements/STACK.txt. Environments lie in the user's cache under a name
# that holds the hash of the requirements and of the Python version, so that every clone reuses them
# and a changed requirement makes a new one. They never hold Horovod itself: see tools/install.sh.
# PYTHON chooses the interpreter (default python3).
set -eu
stack=$1
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/horovod-venvs
requirements=$here/requirements/$stack.txt
if [ ! -f "$requirements" ]; then
    echo "venv: no such stack: $stack" >&2
    exit 2
fi

version=$("$python" -c 'import platform, sys
print(sys.implementation.name, platform.python_version(), sys.base_prefix)')
included=$(sed -n 's/^-r *//p' "$requirements")
hash=$( (echo "$version"; cd "$here/requirements" && cat "$stack.txt" $included) | sha256sum | cut -c1-12)
venv=$cache/$stack-$hash

mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9
if [ ! -f "$venv/complete" ]; then
    echo "venv: installing the packages of tools/requirements/$stack.txt into $venv (once; may take minutes)" >&2
    rm -rf "$venv"
    # Make room: environments that nobody has used for a month.
    find "$cache" -mindepth 2 -maxdepth 2 -name complete -mtime +30 | while read -r old; do
        rm -rf "${old%/complete}"
    done
    "$python" -m venv "$venv" >&2
    # Distributions bring pips that are too old for tools/install.sh (pip install -C).
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check "pip>=23.1" >&2
    # Python compiles the modules that are imported; pip would compile all of them.
    "$venv/bin/python" -m pip install -qq --no-compile --disable-pip-version-check \
        -r "$requirements" >&2
fi
touch "$venv/complete"
echo "$venv"
