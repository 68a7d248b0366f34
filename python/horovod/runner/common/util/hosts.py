# SPDX-License-Identifier: Apache-2.0
"""Hosts, their slots, and which rank runs where."""

import re
from dataclasses import dataclass

INVALID_HOST = "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."


@dataclass
class HostInfo:
    """A host and how many ranks it takes."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string):
        text = host_string.strip()
        match = re.fullmatch(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]+)", text)
        if match is None:
            raise ValueError(INVALID_HOST)
        return HostInfo(match.group(1).strip("[]"), int(match.group(2)))


@dataclass
class SlotInfo:
    """Everything that a rank is told about its place."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int = None
    local_size: int = None
    cross_size: int = None

    def to_response_string(self):
        fields = (
            self.rank,
            self.size,
            self.local_rank,
            self.local_size,
            self.cross_rank,
            self.cross_size,
        )
        return ",".join(str(field) for field in fields)


INVALID_SLOT_INFO = SlotInfo(
    hostname="", rank=-1, local_rank=-1, cross_rank=-1, size=-1, local_size=-1, cross_size=-1
)


def parse_hosts(hosts_string):
    """Of "a:2,b:2": a list of HostInfo. ValueError if it is anything else."""
    return [HostInfo.from_string(item) for item in hosts_string.split(",")]


def parse_hosts_and_slots(hosts):
    """Of "a:2,b:2": the names in order, and a dict of slots by name."""
    names, slots = [], {}
    for host in parse_hosts(hosts):
        if host.hostname in slots:
            slots[host.hostname] += host.slots
            continue
        names.append(host.hostname)
        slots[host.hostname] = host.slots
    return names, slots


def parse_host_files(filename):
    """Of a host file (comments, blank lines, `slots=`, `max_slots=`): text for parse_hosts()."""
    found = []
    with open(filename, encoding="utf-8") as file:
        for line in file:
            words = re.sub(r"\s*=\s*", "=", line.split("#")[0]).split()
            if not words:
                continue
            name, _, count = words[0].partition(":")
            for word in words[1:]:
                if word.startswith("slots="):
                    count = word[len("slots=") :]
            found.append(f"{name}:{count or 1}")
    text = ",".join(found)
    parse_hosts(text)
    return text


def get_host_assignments(hosts, min_num_proc, max_num_proc=None):
    """One SlotInfo per rank: hosts are filled in order until max_num_proc ranks are placed."""
    slots = []
    per_host = []
    for host in hosts:
        room = host.slots
        if max_num_proc is not None:
            room = min(room, max_num_proc - len(slots))
        per_host.append(max(room, 0))
        for local_rank in range(max(room, 0)):
            slots.append(SlotInfo(host.hostname, len(slots), local_rank, -1))
    if len(slots) < min_num_proc:
        raise ValueError(
            f"Requested more processes ({min_num_proc}) than there are available slots "
            f"({len(slots)})"
        )
    seen = {}
    for slot in slots:
        slot.cross_rank = seen.setdefault(slot.local_rank, 0)
        seen[slot.local_rank] += 1
    sizes = [count for count in per_host for _ in range(count)]
    for slot, local_size in zip(slots, sizes, strict=True):
        slot.size = len(slots)
        slot.local_size = local_size
        slot.cross_size = seen[slot.local_rank]
    return slots
