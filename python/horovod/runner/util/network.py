# SPDX-License-Identifier: Apache-2.0
"""Addresses and interfaces of this machine."""

import fcntl
import socket
import struct

from horovod.runner.util.threads import execute_function_multithreaded

_SIOCGIFADDR = 0x8915
PORT_TRIES = 64


def local_addresses():
    """IPv4 addresses by interface, of those that have one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def get_local_host_addresses():
    return set(local_addresses().values())


def get_local_intfs(nic=None):
    """Interfaces with a loopback address; those among `nic` (a name or several) if given."""
    wanted = {nic} if isinstance(nic, str) else set(nic) if nic else None
    return {
        name
        for name, address in local_addresses().items()
        if (address.startswith("127.") if wanted is None else name in wanted)
    }


def resolve_host_address(host_name):
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def get_host_address(host_name):
    return resolve_host_address(host_name)


def route_to(host_name):
    """Our address on the way to a host; None if there is no way, or its name is unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host_name, 9))  # sends nothing
        except OSError:
            return None
        return probe.getsockname()[0]


def filter_local_addresses(all_host_names):
    """Those of the names that are not this machine."""
    own = get_local_host_addresses()
    arguments = [[name] for name in all_host_names]
    resolved = execute_function_multithreaded(resolve_host_address, arguments)
    return [
        name
        for index, name in enumerate(all_host_names)
        if not resolved[index] or resolved[index] not in own
    ]


def get_driver_ip(nics):
    """The address of one of these interfaces by which others reach us; a loopback if need be."""
    own = local_addresses()
    candidates = [own[nic] for nic in sorted(nics) if nic in own] if nics else list(own.values())
    if not candidates:
        raise RuntimeError(f"Cannot find an IPv4 address of the interfaces {sorted(nics or [])}.")
    return next((a for a in candidates if not a.startswith("127.")), candidates[0])


def find_port(server_factory):
    """A server on a free port that the system chooses, and that port."""
    error = None
    for _ in range(PORT_TRIES):
        try:
            server = server_factory(("127.0.0.1", 0))
            return server, server.socket.getsockname()[1]
        except OSError as trouble:
            error = trouble
    raise RuntimeError("Unable to find a port to bind to.") from error
