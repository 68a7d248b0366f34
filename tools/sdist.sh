#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sdist.sh - make the source archive dist/horovod-*.tar.gz, build and install it again without a
# network, and run what was installed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
work=$root/build/sdist
base=$(tools/venv.sh base)
wheel=$(tools/venv.sh wheel)
rm -rf "$work" dist/horovod-*.tar.gz
mkdir -p "$work" dist
"$wheel/bin/python" -m build --sdist --no-isolation --outdir dist . >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    exit 1
}
archive=$(ls "$root"/dist/horovod-*.tar.gz)
echo "sdist: dist/$(basename "$archive"), $(stat -c %s "$archive") bytes"

# A network namespace of its own has no interface but loopback, and that one is down.
offline="unshare --user --map-current-user --net"
if ! $offline true 2>/dev/null; then
    echo "sdist: no network namespace can be made here: pip alone is kept from the network"
    offline=""
fi
"$base/bin/python" -m venv --without-pip "$work/venv"
packages=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
echo "import site; site.addsitedir('$packages')" >"$("$work/venv/bin/python" -c \
    'import sysconfig; print(sysconfig.get_paths()["purelib"])')/stack.pth"
PATH=$work/venv/bin:$base/bin:$PATH $offline "$work/venv/bin/python" -m pip install -qq --no-index \
    --no-deps --no-build-isolation --disable-pip-version-check "$archive"
cd "$work"
PATH=$work/venv/bin:$PATH "$work/venv/bin/python" -I "$root/tools/smoke.py"
echo "sdist: built and installed without a network, works"
