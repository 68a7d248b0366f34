#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# between.sh PYTHON [RESULTS] - allreduces and training steps between two "machines": network
# namespaces joined by a veth pair, unshaped and with the rate limited by tc (tbf) in both
# directions. Peers in the same processes, by turns: gloo and DDP with gloo.
#
# PYTHON has Horovod and PyTorch (tools/install.sh torch DIR). Needs root, ip and tc; says so and
# ends well where they are missing. The environment may say: RATES ("0 3000 1000" Mbit/s, 0: not
# limited), RANKS ("1 2" in each namespace), TURNS (5), MODELS ("cnn layers transformer"), PROGRAMS
# ("ops step"; "ddp" is torch_ddp.py, with the options in DDP), COMPRESSION ("bf16 fp16": steps with
# these, too).
set -eu
python=$1
results=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
rates=${RATES:-0 3000 1000}
ranks=${RANKS:-1 2}
turns=${TURNS:-5}
models=${MODELS:-cnn layers transformer}
programs=${PROGRAMS:-ops step}
. "$here/namespaces.sh"
namespaces_make between 10.78.0

port=29420
key=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
start() { # namespace, rank, local rank, ranks in each, what to run
    namespace=$1 rank=$2 local=$3 each=$4
    shift 4
    ip netns exec "$namespace" env WORLD_SIZE=$((2 * each)) RANK="$rank" LOCAL_RANK="$local" \
        LOCAL_WORLD_SIZE="$each" MASTER_ADDR=10.78.0.1 MASTER_PORT=$port HOROVOD_KEY="$key" \
        OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=veth0 "$python" "$@"
}
job() { # ranks in each, what to run; the first rank prints
    each=$1
    shift
    port=$((port + 1))
    pids=
    rank=1
    while [ $rank -lt $((2 * each)) ]; do
        place=$a
        [ $rank -lt "$each" ] || place=$b
        start "$place" $rank $((rank % each)) "$each" "$@" &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    start "$a" 0 0 "$each" "$@"
    for pid in $pids; do
        wait "$pid"
    done
}

for each in $ranks; do
    for rate in $rates; do
        namespaces_limit "$rate"
        line="$rate Mbit/s"
        [ "$rate" != 0 ] || line="line not limited"
        echo "== $each x $each ranks, $line"
        json=
        [ -z "$results" ] || json="--json $results/between-$each-$rate"
        for program in $programs; do
            case $program in
            ops) set -- torch_ops.py --line ;;
            step)
                set -- torch_step.py --interface veth0 --models $models
                [ -z "${COMPRESSION:-}" ] || set -- "$@" --compression $COMPRESSION
                ;;
            ddp) set -- torch_ddp.py ${DDP:-} ;;
            esac
            file=$1
            shift
            job "$each" "$here/$file" --turns "$turns" "$@" ${json:+$json-$program.json}
        done
    done
done
