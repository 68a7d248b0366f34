#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh [--fix] - formatting, Python lint and types, layers, names and licence lines; --fix formats.
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
mypy_check() { "$(tools/venv.sh lint)/bin/mypy" --no-error-summary; }
c_format() { c_files | xargs -r clang-format --dry-run -Werror --ferror-limit=1; }

check "C formatting" c_format
check "Python lint" ruff check --quiet .
check "types of the public Python names" mypy_check
check "layers" python tools/check_layers.py
check "names" python tools/check_names.py
check "system calls" python tools/check_calls.py
check "licence lines" python tools/check_spdx.py
check "containers and manifests" tools/check_deploy.sh
exit $failed
