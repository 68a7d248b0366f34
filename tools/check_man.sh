#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_man.sh - every function of the public header is in the manual page, and no other; the page
# formats without a warning where mandoc or groff is there to tell.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
page=$root/docs/man/hvd.3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Declarations may be broken over lines and by comments.
tr '\n' ' ' <"$root/include/horovod/hvd.h" | sed 's|/\*[^*]*\*/||g' | tr ';' '\n' |
    sed -n 's/.*HVD_API .*[ *]\(hvd_[a-z_]*\)(.*/\1/p' | sort -u >"$folder/declared"
sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.Fn \(hvd_[a-z_]*\).*/\1/p' "$page" |
    sort -u >"$folder/documented"
failed=0
if ! diff "$folder/declared" "$folder/documented" >"$folder/diff"; then
    echo "man: hvd.h (<) and hvd.3 (>) differ:" >&2
    cat "$folder/diff" >&2
    failed=1
fi
if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$page" >&2 || failed=1
elif command -v groff >/dev/null; then
    groff -mdoc -Tutf8 -ww "$page" 2>"$folder/warnings" >/dev/null
    [ ! -s "$folder/warnings" ] || { cat "$folder/warnings" >&2; failed=1; }
fi
echo "man: $(wc -l <"$folder/declared") functions"
exit $failed
