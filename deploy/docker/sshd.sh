#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sshd.sh - an sshd on port 2222 that runs without root and lets in one key: PUBLIC_KEY or /keys/id.pub.
#
# If the private key lies beside it, it is the host key too: a new pod with the address of an old one
# is then not taken for an impostor. Otherwise the host key is made here.
set -eu
folder=$HOME/sshd
public=${PUBLIC_KEY:-/keys/id.pub}
mkdir -p "$folder" "$HOME/.ssh"
chmod 700 "$folder" "$HOME/.ssh"
if [ -r "${public%.pub}" ]; then
    install -m 600 "${public%.pub}" "$folder/host"
elif [ ! -f "$folder/host" ]; then
    ssh-keygen -q -t ed25519 -N '' -f "$folder/host"
fi
install -m 600 "$public" "$HOME/.ssh/authorized_keys"
exec /usr/sbin/sshd -D -e -p 2222 -h "$folder/host" -f /dev/null -o PidFile=none \
    -o UsePAM=no -o PasswordAuthentication=no -o StrictModes=no
