#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh [--fix] - formatting, Python lint, layers and licence lines; --fix formats in place.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
base=$(tools/venv.sh base)
PATH=$base/bin:$PATH

c_files() {
    find include src launcher sim bindings tests bench examples -type f -name '*.[ch]' -o -type f -name '*.inc' 2>/dev/null
}

if [ "${1:-}" = --fix ]; then
    c_files | xargs -r clang-format -i
    ruff check --fix --quiet .
    ruff format --quiet .
    exit 0
fi

failed=0
check() {
    echo "lint: $1"
    shift
    "$@" || failed=1
}
c_format() { c_files | xargs -r clang-format --dry-run -Werror --ferror-limit=1; }

check "C formatting" c_format
check "Python lint" ruff check --quiet .
check "layers" python tools/check_layers.py
check "system calls" python tools/check_calls.py
check "licence lines" python tools/check_spdx.py
exit $failed
