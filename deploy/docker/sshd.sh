#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sshd.sh - an sshd on port 2222 that runs without root and lets in one key: PUBLIC_KEY or /keys/id.pub.
set -eu
folder=$HOME/sshd
mkdir -p "$folder" "$HOME/.ssh"
chmod 700 "$folder" "$HOME/.ssh"
[ -f "$folder/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$folder/host"
cp "${PUBLIC_KEY:-/keys/id.pub}" "$HOME/.ssh/authorized_keys"
chmod 600 "$HOME/.ssh/authorized_keys"
exec /usr/sbin/sshd -D -e -p 2222 -h "$folder/host" -f /dev/null -o PidFile=none \
    -o UsePAM=no -o PasswordAuthentication=no -o StrictModes=no
