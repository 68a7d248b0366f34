# SPDX-License-Identifier: Apache-2.0
"""Which interfaces ranks use. Nothing is probed: they find each other by which address answers."""

from horovod.runner.absent import refuse_names
from horovod.runner.util.network import filter_local_addresses, get_local_intfs, local_addresses

__getattr__ = refuse_names(
    __name__, "there is no search for common interfaces, hence no services that do it"
)


def get_local_interfaces(settings):
    """The interfaces of a job on this machine alone: those asked for, else the loopback."""
    found = get_local_intfs(settings.nics)
    if not found:
        raise ValueError(f"None of the interfaces {sorted(settings.nics or [])} has an address.")
    return found


def get_common_interfaces(settings, all_host_names, remote_host_names=None, fn_cache=None):
    """The interfaces asked for; else the loopback, or with other hosts all that lead outside."""
    if settings.nics:
        return set(settings.nics)
    if remote_host_names is None:
        remote_host_names = filter_local_addresses(all_host_names)
    if not remote_host_names:
        return get_local_interfaces(settings)
    return {name for name, address in local_addresses().items() if not address.startswith("127.")}
