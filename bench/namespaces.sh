# SPDX-License-Identifier: Apache-2.0
# namespaces.sh - for other scripts to read: two "machines" on this one, namespaces $a and $b that a
# veth pair named veth0 joins. They are removed when the script ends.

# namespaces_make NAME NET - addresses NET.1 and NET.2; says so and ends the script well where root,
# ip or tc is missing.
namespaces_make() {
    if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
        echo "$1: skipped: network namespaces need root, ip and tc"
        exit 0
    fi
    a=hvd-$1-a-$$
    b=hvd-$1-b-$$
    trap namespaces_remove EXIT INT TERM
    ip netns add "$a"
    ip netns add "$b"
    ip link add veth0 netns "$a" type veth peer name veth0 netns "$b"
    for side in "$a $2.1" "$b $2.2"; do
        ip -n "${side% *}" link set lo up
        ip -n "${side% *}" addr add "${side#* }/24" dev veth0
        ip -n "${side% *}" link set veth0 up
    done
}

namespaces_remove() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
}

# namespaces_limit MBIT - the rate of the line in both directions; 0: not limited.
namespaces_limit() {
    for side in "$a" "$b"; do
        tc -n "$side" qdisc del dev veth0 root 2>/dev/null || true
        [ "$1" = 0 ] ||
            tc -n "$side" qdisc add dev veth0 root tbf rate "$1mbit" burst 256kb latency 20ms
    done
}
