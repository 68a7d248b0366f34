#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh - build the benchmarks (gcc, optimised) and run them: bench/run.sh if it is there, else
# each program once.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
base=$(tools/venv.sh base)
PATH=$base/bin:$PATH
cmake --preset release >/dev/null
cmake --build --preset release --target horovod bench -- --quiet
if [ -x bench/run.sh ]; then
    exec bench/run.sh "$@"
fi
found=no
for program in build/release/bench/*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    found=yes
    echo "bench: $(basename "$program")"
    "$program" "$@"
done
[ "$found" = yes ] || echo "bench: there is no benchmark yet"
