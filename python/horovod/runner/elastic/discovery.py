# SPDX-License-Identifier: Apache-2.0
"""Which hosts there are, which of them are kept out for a while, and in which order they serve.

For programs that drive workers by themselves (ElasticDriver). horovodrun has the same rules in C.
"""

import io
import logging
import random
import threading
import time

from horovod.runner.common.util import safe_shell_exec
from horovod.runner.elastic.worker import HostUpdateResult

# Seconds that a cooldown range must lie within.
DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS = 1
DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS = 3600

_log = logging.getLogger(__name__)


class HostState:
    """Is a host blacklisted, and until when?

    cooldown_range: (lower, upper) seconds; None keeps a failed host out for good. The n-th time it
    stays out for lower * 2**n seconds and up to `lower` more at random, at most `upper`.
    """

    def __init__(self, cooldown_range=None):
        if cooldown_range:
            self._validate_cooldown_range(cooldown_range)
        self._cooldown_range = cooldown_range or None
        self._event = threading.Event()
        self._blacklisted = False
        self._blacklist_count = 0
        self._cooldown_period_end_ts = 0

    @staticmethod
    def _validate_cooldown_range(cooldown_range):
        lower, upper = cooldown_range
        if lower < DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS:
            raise ValueError(
                f"Provided cooldown lower limit: {lower} cannot be lower than default cooldown "
                f"lower limit: {DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS}"
            )
        if upper > DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS:
            raise ValueError(
                f"Provided cooldown upper limit: {upper} cannot be higher than default cooldown "
                f"upper limit: {DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS}"
            )

    def get_event(self):
        """Set when the host is blacklisted: its workers are to stop. A new one after that."""
        if self._event.is_set():
            self._event = threading.Event()
        return self._event

    def set_event(self):
        self._event.set()

    def _in_cooldown_period(self, now):
        return now < self._cooldown_period_end_ts

    def blacklist(self):
        """Keep the host out from now on. During a cooldown nothing changes."""
        self._blacklisted = True
        now = time.time()
        if self._in_cooldown_period(now):
            return
        if self._cooldown_range is not None:
            self._cooldown_period_end_ts = now + self._next_delay()
        self.set_event()

    def _next_delay(self):
        lower, upper = self._cooldown_range
        self._blacklist_count += 1
        delay = lower * 2**self._blacklist_count + random.uniform(0, 1) * lower
        return max(lower, min(upper, delay))

    def whitelist(self):
        """Let the host in again."""
        self._cooldown_period_end_ts = 0
        self._blacklisted = False

    def is_blacklisted(self):
        return self._blacklisted

    def is_resurrected(self):
        """Has its cooldown ended?"""
        has_cooldown = self._cooldown_period_end_ts > 0
        return has_cooldown and not self._in_cooldown_period(time.time())


class DiscoveredHosts:
    """Hosts with their slots, and those that may be used, oldest first. It never changes."""

    def __init__(self, host_slots, host_assignment_order):
        self._host_slots = dict(host_slots)
        self._host_assignment_order = list(host_assignment_order)

    @property
    def host_slots(self):
        return self._host_slots

    @property
    def available_hosts(self):
        return set(self._host_assignment_order)

    @property
    def host_assignment_order(self):
        return self._host_assignment_order

    def get_slots(self, host):
        return self._host_slots.get(host, 0)

    def count_available_slots(self):
        return sum(self.get_slots(host) for host in self._host_assignment_order)

    def update(self, hosts_state):
        """The same without hosts that are blacklisted by now."""
        order = [h for h in self._host_assignment_order if not hosts_state[h].is_blacklisted()]
        return DiscoveredHosts(self._host_slots, order)

    def __str__(self):
        return f"slots: {self._host_slots} order: {self._host_assignment_order}"


class _HostStates(dict):
    def __init__(self, cooldown_range):
        super().__init__()
        self._cooldown_range = cooldown_range
        HostState(cooldown_range)  # refuses a range that no host could have

    def __missing__(self, host):
        state = self[host] = HostState(self._cooldown_range)
        return state


class HostManager:
    """What the last call of the discovery has found, without hosts that failed."""

    def __init__(self, discovery, cooldown_range=None):
        self._discovery = discovery
        self._current_hosts = DiscoveredHosts({}, [])
        self._hosts_state = _HostStates(cooldown_range)

    def update_available_hosts(self):
        """Ask the discovery; returns the HostUpdateResult of all changes together."""
        found = dict(self._discovery.find_available_hosts_and_slots())
        before = self._current_hosts.host_slots
        # A host that failed has lost its place, though it may return.
        order_before = self.current_hosts.host_assignment_order
        returned = [host for host in found if self._hosts_state[host].is_resurrected()]
        if found == before and not returned:
            return HostUpdateResult.no_update
        for host in returned:
            self._hosts_state[host].whitelist()
        usable = [host for host in found if not self.is_blacklisted(host)]
        order = self.order_available_hosts(usable, order_before)
        self._current_hosts = DiscoveredHosts(found, order)
        return self._compare(before, found, returned)

    @staticmethod
    def _compare(before, found, returned):
        result = HostUpdateResult.no_update
        for host in {**before, **found}:
            change = found.get(host, 0) - before.get(host, 0)
            if host not in found or change < 0:
                result |= HostUpdateResult.removed
            elif host not in before or change > 0 or host in returned:
                result |= HostUpdateResult.added
        return result

    @property
    def current_hosts(self):
        """A DiscoveredHosts of this moment."""
        return self._current_hosts.update(self._hosts_state)

    def blacklist(self, host):
        """Keep a host out, and have its workers stopped."""
        if not self.is_blacklisted(host):
            _log.info("blacklist failing host: %s", host)
        self._hosts_state[host].blacklist()

    def is_blacklisted(self, host):
        return self._hosts_state[host].is_blacklisted()

    def get_host_event(self, host):
        """An event that is set when the host is blacklisted."""
        return self._hosts_state[host].get_event()

    @staticmethod
    def order_available_hosts(available_hosts, prev_host_assignment_order):
        """Hosts that were there keep their order, new ones follow: rank 0 stays on the oldest."""
        kept = [host for host in prev_host_assignment_order if host in available_hosts]
        return kept + [host for host in available_hosts if host not in set(kept)]


class HostDiscovery:
    """To be subclassed: finds the hosts that can be used at this moment."""

    def find_available_hosts_and_slots(self):
        """{hostname: slots}"""
        raise NotImplementedError()


class HostDiscoveryScript(HostDiscovery):
    """A program that prints a line `host` or `host:slots` for each host.

    slots: for hosts without a number.
    """

    def __init__(self, discovery_script, slots):
        super().__init__()
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self):
        found = {}
        for line in self._execute_discovery_script().splitlines():
            host, _, slots = line.strip().partition(":")
            if host:
                found[host] = self._read_slots(line, slots)
        return found

    def _read_slots(self, line, text):
        if text.strip().isdigit():
            return int(text)
        if text or self._default_slots is None:
            raise ValueError(
                f"The discovery script {self._discovery_script} printed {line!r}; expected a line "
                "`host:slots`, or `host` if --slots-per-host is given."
            )
        return self._default_slots

    def _execute_discovery_script(self):
        stdout = io.StringIO()
        code = safe_shell_exec.execute(self._discovery_script, stdout=stdout)
        if code != 0:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._discovery_script}. Exit code: {code}"
            )
        return stdout.getvalue()


class FixedHosts(HostDiscovery):
    """Hosts that change only by set()."""

    def __init__(self, host_slots):
        super().__init__()
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self):
        return self._host_slots

    def set(self, host_slots):
        self._host_slots = host_slots
