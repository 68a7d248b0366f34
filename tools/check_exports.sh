#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_exports.sh NM LIBRARY - fail if the library exports anything but hvd_* and horovod_*.
set -eu
stray=$("$1" -D --defined-only "$2" | awk '$3 !~ /^(hvd_|horovod_)/ { print $3 }')
if [ -n "$stray" ]; then
    echo "$2 exports names outside hvd_* and horovod_*:" >&2
    echo "$stray" >&2
    exit 1
fi
