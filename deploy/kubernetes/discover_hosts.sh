#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# discover_hosts.sh - the pods behind a headless service, as horovodrun --host-discovery-script wants
# them. SERVICE: its name; SLOTS: processes per pod.
set -eu
getent ahostsv4 "${SERVICE:-horovod-workers}" | awk -v slots="${SLOTS:-1}" \
    '$2 == "STREAM" && !seen[$1]++ { print $1 ":" slots }'
