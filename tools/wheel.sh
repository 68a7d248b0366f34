#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh - build the portable wheel dist/horovod-*-cp310-abi3-manylinux_2_28_x86_64.whl.
#
# The tag is a promise: check_portable.py confirms that nothing newer than glibc 2.28 is needed, and a
# size limit keeps the install quick.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
platform=manylinux_2_28_x86_64
limit_bytes=3145728

venv=$(tools/venv.sh wheel)
PATH=$venv/bin:$PATH
CC=$root/tools/zigcc.sh
ZIG_PYTHON=$venv/bin/python
# __builtin_cpu_supports() needs a table that gcc's support library has and zig's lacks.
LDFLAGS=$(gcc -print-libgcc-file-name)
export PATH CC ZIG_PYTHON LDFLAGS

rm -rf build/wheel dist
mkdir -p build/wheel dist
echo "wheel: building with zig cc (the first time it compiles its C library stubs)"
"$venv/bin/python" -m build --wheel --no-isolation --outdir build/wheel \
    -C "build-dir=$root/build/wheel/cmake" . >build/wheel/log 2>&1 || {
    tail -n 40 build/wheel/log >&2
    exit 1
}
"$venv/bin/wheel" tags --remove --platform-tag "$platform" build/wheel/*.whl >/dev/null
wheel=$(ls build/wheel/*.whl)

"$venv/bin/python" tools/check_portable.py "$wheel" 2.28
size=$(stat -c %s "$wheel")
if [ "$size" -gt "$limit_bytes" ]; then
    echo "wheel: $size bytes, more than $limit_bytes" >&2
    exit 1
fi
mv "$wheel" dist/
echo "wheel: dist/$(basename "$wheel"), $size bytes"
