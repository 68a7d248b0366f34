#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [x86_64|aarch64] - build the portable wheel dist/horovod-*-cp310-abi3-manylinux_2_28_*.whl
# for that processor (default: this machine's). Either is built on either; nothing but the C library
# is linked, so there is nothing else to cross-compile.
#
# The tag is a promise: check_portable.py confirms that nothing newer than glibc 2.28 is needed, and a
# size limit keeps the install quick.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
arch=${1:-$(uname -m)}
case $arch in
x86_64 | aarch64) ;;
*)
    echo "wheel: no wheel for $arch: x86_64 or aarch64" >&2
    exit 2
    ;;
esac
platform=manylinux_2_28_$arch
work=build/wheel-$arch
limit_bytes=3145728

venv=$(tools/venv.sh wheel)
PATH=$venv/bin:$PATH
CC=$root/tools/zigcc.sh
ZIG_PYTHON=$venv/bin/python
ZIG_TARGET=$arch-linux-gnu.2.28
export PATH CC ZIG_PYTHON ZIG_TARGET
if [ "$arch" = x86_64 ]; then
    # __builtin_cpu_supports() needs a table that gcc's support library has and zig's lacks.
    LDFLAGS=$(gcc -print-libgcc-file-name)
    export LDFLAGS
fi

rm -rf "$work" dist/horovod-*_"$arch".whl
mkdir -p "$work" dist
echo "wheel: building with zig cc (the first time it compiles its C library stubs)"
"$venv/bin/python" -m build --wheel --no-isolation --outdir "$work" \
    -C "build-dir=$root/$work/cmake" . >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    exit 1
}
"$venv/bin/wheel" tags --remove --platform-tag "$platform" "$work"/*.whl >/dev/null
wheel=$(ls "$work"/*.whl)

"$venv/bin/python" tools/check_portable.py "$wheel" 2.28
size=$(stat -c %s "$wheel")
if [ "$size" -gt "$limit_bytes" ]; then
    echo "wheel: $size bytes, more than $limit_bytes" >&2
    exit 1
fi
mv "$wheel" dist/
echo "wheel: dist/$(basename "$wheel"), $size bytes"
