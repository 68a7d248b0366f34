#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh - build, install into an environment of its own, and train a small model on two ranks.
#
# Trains examples/pytorch/pytorch_mnist.py on the digits images that scikit-learn carries, so it
# downloads no data. Without the PyTorch part it runs a C example instead, and says so.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
ranks=${RANKS:-2}
script=examples/pytorch/pytorch_mnist.py
run=build/demo/bin/horovodrun

if [ -f "$script" ]; then
    echo "demo: preparing an environment with PyTorch (slow only the first time)"
    tools/install.sh torch build/demo
    echo "demo: horovodrun -np $ranks python $script"
    PATH=$root/build/demo/bin:$PATH exec "$run" -np "$ranks" python "$script" "$@"
fi

example=$(find examples/c -name '*.c' 2>/dev/null | sort | head -n 1)
if [ -z "$example" ]; then
    echo "demo: $script and examples/c do not exist yet: nothing to show" >&2
    exit 1
fi
name=$(basename "$example" .c)
echo "demo: $script does not exist yet; showing the C example $example instead"
base=$(tools/venv.sh base)
PATH=$base/bin:$PATH
cmake --preset release >/dev/null
cmake --build --preset release -- --quiet
exec build/release/horovodrun -np "$ranks" "build/release/examples/c/$name"
