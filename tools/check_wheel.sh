#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_wheel.sh [WHEEL] - install the wheel on every Python from 3.10 to 3.13 that is here, in a
# fresh environment with no compiler to be found, and use it: tools/smoke.py and horovodrun.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
wheel=${1:-$(ls dist/horovod-*_"$(uname -m)".whl)}
scratch=$root/build/check_wheel
rm -rf "$scratch"
# A PATH without compilers: only what the smoke test itself calls.
mkdir -p "$scratch/bin"
for tool in sh env cat; do
    ln -s "$(command -v $tool)" "$scratch/bin/$tool"
done

# Version managers put wrappers on PATH that answer only for the chosen versions: ask each Python
# that can be found for its version and its real place.
find_python() {
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        real=$("$candidate" -c 'import sys; print(sys.executable, "%d.%d" % sys.version_info[:2])' \
            2>/dev/null) || continue
        [ "${real##* }" = "$1" ] || continue
        echo "${real% *}"
        return 0
    done
    return 1
}

tried=0
for version in 3.10 3.11 3.12 3.13; do
    python=$(find_python $version) || {
        echo "check_wheel: no Python $version here"
        continue
    }
    venv=$scratch/venv-$version
    "$python" -m venv "$venv"
    start=$(date +%s%N)
    PATH=$venv/bin:$scratch/bin CC=/nonexistent "$venv/bin/python" -m pip install -qq \
        --disable-pip-version-check --only-binary :all: "$wheel"
    elapsed_ms=$((($(date +%s%N) - start) / 1000000))
    PATH=$venv/bin:$scratch/bin "$venv/bin/python" -I "$root/tools/smoke.py"
    echo "check_wheel: Python $version: installed in $elapsed_ms ms, works"
    tried=$((tried + 1))
done
if [ "$tried" = 0 ]; then
    echo "check_wheel: no Python to try the wheel on" >&2
    exit 1
fi
