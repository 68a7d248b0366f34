# SPDX-License-Identifier: Apache-2.0
"""A name for this host that differs between its containers."""

import hashlib
import os
import socket

NAMESPACE_PATH = "/proc/self/ns"


def _namespaces():
    """Of each namespace of this process its link, as in "net:[4026531992]"."""
    if not os.path.exists(NAMESPACE_PATH):
        return ""
    links = {}
    for name in os.listdir(NAMESPACE_PATH):
        try:
            links[name] = os.readlink(os.path.join(NAMESPACE_PATH, name))
        except OSError:
            continue
    return " ".join(links[name] for name in sorted(links))


def _hash(string):
    return hashlib.md5(string.encode("utf-8"), usedforsecurity=False).hexdigest()


def host_hash(salt=None):
    """SHORT_HOST_NAME-HASH of host name, namespaces and salt."""
    hostname = socket.gethostname()
    whole = f"{hostname}-{_namespaces()}"
    if salt:
        whole = f"{whole}-{salt}"
    return f"{hostname.split('.')[0]}-{_hash(whole)}"
