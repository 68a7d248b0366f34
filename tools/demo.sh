#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh - build, install into an environment of its own, and train a small model on two ranks.
#
# Trains examples/pytorch/pytorch_mnist.py on the digits images that scikit-learn carries, so it
# downloads no data. Needs a C compiler and Python; everything else comes from PyPI.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
ranks=${RANKS:-2}
script=examples/pytorch/pytorch_mnist.py
run=build/demo/bin/horovodrun

echo "demo: preparing an environment with PyTorch from PyPI"
tools/venv.sh torch >/dev/null
echo "demo: compiling Horovod and installing it into build/demo"
tools/install.sh torch build/demo
PATH=$root/build/demo/bin:$PATH
# One thread per rank: the ranks share the machine's cores.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export PATH OMP_NUM_THREADS
echo "demo: one process, for comparison: python $script --single"
python "$script" --single "$@"
echo "demo: horovodrun -np $ranks python $script"
"$run" -np "$ranks" python "$script" "$@"
cat <<END

demo: what to try next
  . build/demo/bin/activate                 # horovodrun and horovod, as installed for this demo
  horovodrun -np 4 python $script
  horovodrun --check-build                  # what this build can use here
  less examples/pytorch/README.md           # more examples to copy from
  make docs                                 # all pages as a site; docs/README.md lists them
END
