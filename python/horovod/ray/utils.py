# SPDX-License-Identifier: Apache-2.0
"""Small functions that other programs import from here, too."""

import ray

from horovod.runner.util.network import get_driver_ip, local_addresses


def map_blocking(fn, collection):
    """The results of fn(worker), which returns an object reference, for all workers."""
    return ray.get([fn(worker) for worker in collection])


def detect_nics(settings, all_host_names=None, node_workers=None):
    """The interfaces that were asked for. None: each machine uses its address on the route."""
    return set(settings.nics) if getattr(settings, "nics", None) else None


def nics_to_env_var(nics):
    """The variables that name interfaces."""
    if not nics:
        return {}
    return {"HOROVOD_GLOO_IFACE": sorted(nics)[0], "NCCL_SOCKET_IFNAME": ",".join(sorted(nics))}


def driver_address(nics=None):
    """Our address that actors on all nodes reach: that of `nics`, else the one Ray uses."""
    if nics:
        return get_driver_ip(nics)
    address = ray.util.get_node_ip_address()
    return address if address in local_addresses().values() else get_driver_ip(None)
