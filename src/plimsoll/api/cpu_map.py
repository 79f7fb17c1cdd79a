"""CPU topology of a machine in the annotation `plimsoll.dev/cpu-topology`.

A CPU driver sets the annotation on one ResourceSlice of its pool; the dashboard reads it to draw the machine.
DRA devices for groups of CPUs do not list their CPUs. CPU sets use the kernel's list format; cores with the
same location are grouped:

    {"groups":[{"socket":0,"numa":0,"l3":0,"cores":["0,4","1,5"]}],"reserved":"0","shared":"","offline":""}

`parse_cpu_map` accepts untrusted input. docs/dashboard.md, "CPU map".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.errors import InputError

ANNOTATION = "plimsoll.dev/cpu-topology"
#: Limits of the text and of the number of CPUs.
MAX_BYTES = 128 * 1024
MAX_CPUS = 8192


@dataclass(frozen=True, slots=True)
class CpuLocation:
    """Location of a CPU; unknown values are -1. `core` is the lowest CPU of its core."""

    socket: int
    numa: int
    l3: int
    core: int


@dataclass(frozen=True, slots=True)
class CpuMap:
    """Online CPUs by number.

    `reserved` are for the system; `shared` cannot be claimed either; `offline` are offline CPUs. `kinds` are
    core types, if they differ.
    """

    locations: Mapping[int, CpuLocation]
    reserved: CpuSet = EMPTY
    shared: CpuSet = EMPTY
    offline: CpuSet = EMPTY
    kinds: Mapping[int, str] = field(default_factory=dict)


def format_cpu_map(machine: CpuMap) -> str:
    """Format a map; equal maps have equal texts."""
    groups: dict[tuple[int, int, int], dict[int, list[int]]] = {}
    for cpu, location in sorted(machine.locations.items()):
        cores = groups.setdefault((location.socket, location.numa, location.l3), {})
        cores.setdefault(location.core, []).append(cpu)
    tree: dict[str, Any] = {
        "groups": [
            {
                "socket": socket,
                "numa": numa,
                "l3": l3,
                "cores": [str(CpuSet(cpus)) for _, cpus in sorted(groups[socket, numa, l3].items())],
            }
            for socket, numa, l3 in sorted(groups)
        ],
        "reserved": str(machine.reserved),
        "shared": str(machine.shared),
        "offline": str(machine.offline),
    }
    if machine.kinds:
        tree["kinds"] = {
            kind: str(CpuSet(cpu for cpu, each in machine.kinds.items() if each == kind))
            for kind in sorted(set(machine.kinds.values()))
        }
    return codec.encode(tree).decode()


def parse_cpu_map(text: str) -> CpuMap | None:
    """Parse a map; None if the text is invalid."""
    if len(text) > MAX_BYTES:
        return None
    try:
        tree = codec.decode_tree(text)
        locations: dict[int, CpuLocation] = {}
        for group in tree["groups"]:
            socket, numa, l3 = (_number(group.get(key, -1)) for key in ("socket", "numa", "l3"))
            for core in group["cores"]:
                cpus = _cpus(core)
                first = min(cpus)
                locations |= {cpu: CpuLocation(socket, numa, l3, first) for cpu in cpus}
                if len(locations) > MAX_CPUS:
                    return None
        reserved, shared, offline = (_cpus(tree.get(key, "")) for key in ("reserved", "shared", "offline"))
        kinds = {cpu: str(kind)[:40] for kind, cpus in tree.get("kinds", {}).items() for cpu in _cpus(cpus)}
    except (InputError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return CpuMap(locations, reserved, shared, offline, kinds) if locations else None


def _cpus(text: Any) -> CpuSet:
    if not isinstance(text, str):
        raise ValueError("no set of CPUs")
    found = CpuSet.parse(text)
    if len(found) > MAX_CPUS:
        raise ValueError("too many CPUs")
    return found


def _number(value: Any) -> int:
    if type(value) is not int or not -1 <= value < 2**31:
        raise ValueError("no number of a socket, node or cache")
    return value
