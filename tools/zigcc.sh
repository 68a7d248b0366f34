#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# zigcc.sh - the C compiler of the portable wheel: clang with its own C library stubs, so that the
# result runs on every Linux with glibc 2.28 or later, whatever this machine has.
# ZIG_PYTHON names the Python whose environment holds the package `ziglang`.
exec "${ZIG_PYTHON:-python3}" -m ziglang cc -target "${ZIG_TARGET:-x86_64-linux-gnu.2.28}" \
    -fno-sanitize=undefined "$@"
