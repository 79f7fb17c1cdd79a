"""Differences between two readings of a machine.

The memory of a virtual machine is not constant: with a balloon the kernel takes pages away and gives them
back all the time, and `MemTotal` of NUMA nodes, or of the machine, follows. Such a reading is not a change of
the machine. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from plimsoll.api.quantity import ZERO
from plimsoll.ledger.units import MEMORY
from plimsoll.node.machine.machine import Machine, NumaNode, format_cpus

#: Differences of memory below one part in this many are noise.
_NOISE = 100


def without_noise(before: Machine, now: Machine) -> Machine:
    """Return a new reading of a machine without small differences of memory.

    Shrinking total memory always counts: memory that does not exist must not be allocated to pods.
    """
    known = {node.id: node for node in before.numa}
    now = replace(now, numa=tuple(_without_noise(known.get(node.id), node) for node in now.numa))
    if now.memory > before.memory and _is_noise(before.memory, now.memory):
        now = replace(now, capacity={**now.capacity, MEMORY: before.capacity[MEMORY]})
    return now


def _without_noise(before: NumaNode | None, now: NumaNode) -> NumaNode:
    if before is not None and _is_noise(before.memory, now.memory):
        return replace(now, memory=before.memory)
    return now


def _is_noise(before: int, now: int) -> bool:
    return abs(now - before) * _NOISE < before


def describe_changes(before: Machine, now: Machine) -> str:
    """Describe the changes that the Node shows, as `cpu 4 -> 8, memory 8Gi -> 16Gi`; "" if there are none.

    The distribution of memory over NUMA nodes is not part of a Node.
    """
    return ", ".join(_changes(before, now))


def _changes(before: Machine, now: Machine) -> Iterator[str]:
    for name in dict.fromkeys((*before.capacity, *now.capacity)):
        old, new = before.capacity.get(name), now.capacity.get(name)
        if old != new:
            yield f"{name} {old or ZERO} -> {new or ZERO}"
    if before.cpus != now.cpus:
        yield f"CPUs {format_cpus(before.cpus)} -> {format_cpus(now.cpus)}"
    for each in fields(Machine):
        if each.name in ("capacity", "cpus", "numa"):
            continue
        old_value, new_value = getattr(before, each.name), getattr(now, each.name)
        if old_value != new_value:
            plain = isinstance(new_value, str | int)
            yield f"{each.name} {old_value} -> {new_value}" if plain else each.name
    if _layout(before) != _layout(now):
        yield "NUMA nodes"


def _layout(machine: Machine) -> list[NumaNode]:
    return [replace(node, memory=0) for node in machine.numa]
