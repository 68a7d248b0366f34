#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_wheel_aarch64.sh [WHEEL] - run the launcher of the wheel for 64-bit ARM, and load its library,
# under qemu's user emulation with the C library of Debian's libc6-arm64-cross. tools/wheel.sh has
# compared processor and tag before. Without qemu it says so and is content.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
wheel=${1:-$(ls dist/horovod-*_aarch64.whl)}
libc=/usr/aarch64-linux-gnu
if ! command -v qemu-aarch64-static >/dev/null || [ ! -e $libc/lib/libc.so.6 ]; then
    echo "check_wheel: no qemu-user-static or libc6-arm64-cross here: $wheel was not run"
    exit 0
fi
scratch=$root/build/check_wheel_aarch64
rm -rf "$scratch"
mkdir -p "$scratch"
python3 -m zipfile -e "$wheel" "$scratch"
run() { qemu-aarch64-static -L $libc "$@"; }

launcher=$(ls "$scratch"/horovod-*.data/scripts/horovodrun)
chmod +x "$launcher"
run "$launcher" --version
# The example is linked to the library as the wheel carries it, and one rank runs through it.
zig=$(ls "$(tools/venv.sh wheel)"/lib/python3*/site-packages/ziglang/zig)
"$zig" cc --target=aarch64-linux-gnu.2.28 -fno-sanitize=undefined -I"$scratch/horovod/include" \
    examples/c/train.c -o "$scratch/train" -L"$scratch/horovod/lib" -lhorovod \
    -Wl,-rpath,"$scratch/horovod/lib" -lm
run "$scratch/train"
# Two emulated ranks, started by the launcher of this machine: shared memory, then sockets.
if [ -x build/release/horovodrun ]; then
    for disable in 0 1; do
        HOROVOD_SHM_DISABLE=$disable build/release/horovodrun -np 2 \
            qemu-aarch64-static -L $libc "$scratch/train"
    done
fi
echo "check_wheel: $(basename "$wheel"): its launcher and its library run under qemu"
