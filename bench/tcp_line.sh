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
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    echo "tcp_line: skipped: network namespaces need root, ip and tc"
    exit 0
fi

a=hvd-bench-a-$$
b=hvd-bench-b-$$
clean() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
}
trap clean EXIT INT TERM
ip netns add "$a"
ip netns add "$b"
ip link add veth0 netns "$a" type veth peer name veth0 netns "$b"
for side in "$a 10.77.0.1" "$b 10.77.0.2"; do
    set -- $side
    ip -n "$1" link set lo up
    ip -n "$1" addr add "$2/24" dev veth0
    ip -n "$1" link set veth0 up
    tc -n "$1" qdisc add dev veth0 root tbf rate "${rate}mbit" burst 256kb latency 20ms
done

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
