#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh - run every benchmark and close with the table of figures; `make bench` builds first.
#
# Results go to bench/results/: JSON of each launch, report.md, allreduce.png. The environment may
# say: BUILD (build/release), LAUNCHES (3) of each case, BUDGET_MS (700) per size and launch,
# RANKS ("2 4"), QUICK=1 for a short look that proves nothing.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
build=$root/${BUILD:-build/release}
case ${BUILD:-} in /*) build=$BUILD ;; esac
launches=${LAUNCHES:-3}
budget=${BUDGET_MS:-700}
ranks=${RANKS:-2 4}
rounds=101 ops=1000
if [ "${QUICK:-0}" = 1 ]; then
    launches=1 budget=50 rounds=9 ops=20
fi
results=$root/bench/results
mkdir -p "$results"
rm -f "$results"/*.json
cores=$(nproc)
export OMP_NUM_THREADS=1
echo "bench: $cores cores, load average $(cut -d' ' -f1-3 /proc/loadavg)"

# Both libraries, so that the baseline is not one library's weakness.
libraries=
for mpi in openmpi mpich; do
    if ! command -v "mpicc.$mpi" >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "lib$mpi-dev" $([ $mpi = openmpi ] && echo openmpi-bin || echo mpich) >/dev/null || true
    fi
    if ! command -v "mpicc.$mpi" >/dev/null; then
        echo "bench: $mpi is not there and not compared with (Debian: lib$mpi-dev)"
        continue
    fi
    "mpicc.$mpi" -O2 -shared -fPIC -o "$build/bench/mpi_$mpi.so" bench/mpi/shim.c
    libraries="$libraries $mpi"
done

# No binding: either library may use every core, and so may we. A library that can yield is told to
# when ranks outnumber cores, and not to otherwise: its best in both cases.
run_openmpi() {
    yield=0
    [ "$1" -le "$cores" ] || yield=1
    np=$1
    shift
    mpirun.openmpi -np "$np" --oversubscribe --allow-run-as-root --bind-to none \
        --mca mpi_yield_when_idle $yield --mca btl_base_warn_component_unused 0 "$@"
}
run_mpich() {
    np=$1
    shift
    mpirun.mpich -np "$np" -bind-to none "$@"
}

launch=1
while [ "$launch" -le "$launches" ]; do
    for np in $ranks; do
        for mpi in $libraries; do
            "run_$mpi" "$np" "$build/bench/allreduce" --mpi "$build/bench/mpi_$mpi.so" \
                --budget-ms "$budget" --json "$results/allreduce-$mpi-$np-$launch.json"
        done
    done
    launch=$((launch + 1))
done
echo
"$build/bench/limit"
echo
"$build/bench/negotiate" --rounds $rounds --json "$results/negotiate-2.json"
echo
bench/tcp_line.sh "$build/bench/tcp_line" "$results/tcp_line.json"
echo
"$build/bench/ranks" --ops $ops --json "$results/ranks.json"
echo
python=$(tools/venv.sh bench)/bin/python || python=python3
exec "$python" bench/report.py "$results"
