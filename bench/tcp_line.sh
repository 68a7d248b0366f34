#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tcp_line.sh PROGRAM [JSON] - bench/tcp_line between two network namespaces joined by a line whose
# rate tc (tbf) limits in both directions. Needs root; says so and ends well where that is missing.
# RATE_MBIT (1000), BYTES (64 MiB) and ROUNDS (7) may be set.
set -eu
program=$1
json=${2:-}
rate=${RATE_MBIT:-1000}
bytes=${BYTES:-67108864}
rounds=${ROUNDS:-7}
. "$(dirname "$0")/namespaces.sh"
namespaces_make tcp_line 10.77.0
namespaces_limit "$rate"

key=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
rank() {
    ip netns exec "$1" env WORLD_SIZE=2 RANK="$2" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
        MASTER_ADDR=10.77.0.1 MASTER_PORT=29411 HOROVOD_KEY="$key" \
        "$program" veth0 "$rate" "$bytes" "$rounds" $3
}
rank "$b" 1 "" &
other=$!
rank "$a" 0 "$json"
wait $other
