#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# discover_hosts.sh - prints the currently available hosts, one `host:slots` per line.
#
# horovodrun calls it about once a second. This one prints a file that you edit while the job runs;
# replace it by whatever knows your machines (a cloud's API, a batch system, a directory of files).
cat "${HOSTS_FILE:-hosts.txt}"
