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

echo "demo: preparing an environment with PyTorch (slow only the first time)"
tools/install.sh torch build/demo
PATH=$root/build/demo/bin:$PATH
# One thread per rank: the ranks share the machine's cores.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export PATH OMP_NUM_THREADS
echo "demo: one process, for comparison: python $script --single"
python "$script" --single "$@"
echo "demo: horovodrun -np $ranks python $script"
exec "$run" -np "$ranks" python "$script" "$@"
