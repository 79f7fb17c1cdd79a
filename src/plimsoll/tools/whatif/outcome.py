"""What came of scheduling in memory.

Owns the values: where pods went (`ScheduledPod`), why others wait (`PendingPod`), who had to go
(`EvictedPod`), all of it together (`WhatifOutcome`), and what differs between two states (`StateDifference`,
by `compare_states`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from plimsoll.api.core import Pod
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement

#: Namespace and name.
Name = tuple[str, str]


def name_of(pod: Pod) -> Name:
    return pod.metadata.namespace, pod.metadata.name


def stem_of(name: Name) -> Name:
    """What the pods of one workload have in common."""
    stem, _, number = name[1].rpartition("-")
    return (name[0], stem) if stem and number.isdecimal() else name


def by_number(name: Name) -> tuple[str, str, int, str]:
    """The order people expect: web-2 before web-10."""
    stem, hyphen, number = name[1].rpartition("-")
    if hyphen and number.isdecimal() and len(number) < 10:
        return name[0], stem, int(number), name[1]
    return name[0], name[1], -1, ""


def full_name(name: Name) -> str:
    return "/".join(name)


@dataclass(frozen=True, slots=True)
class ScheduledPod:
    """A pod has a node, and its claims have devices."""

    pod: Name
    node: str
    devices: tuple[str, ...] = ()  #: what its claims were given just now, as driver/pool/device
    charges: Mapping[str, int] = field(default_factory=dict)  #: what the node's book grew by, in whole units
    placement: Placement | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod has no node: why, in one line, and the value that line was made of."""

    pod: Name
    why: str
    cause: FitError | NodeReason | None = field(default=None, compare=False, repr=False)


class EvictionReason(Enum):
    """Why a pod had to leave its node."""

    PREEMPTED = "preempted"
    DRAINED = "drained"
    NODE_TAINT = "node taint"
    DEVICE_TAINT = "device taint"
    NODE_GONE = "node gone"


@dataclass(frozen=True, slots=True)
class EvictedPod:
    """A pod had to leave its node; one with a controller is made again and waits for a place."""

    pod: Name
    node: str
    because: EvictionReason
    by: str = ""  #: the pod it made room for, or the taint
    comes_back: bool = True
    after: int = 0  #: seconds for which a taint is tolerated
    bare: bool = False  #: whether it has no controller, and is told as if somebody made it again by hand


@dataclass(frozen=True, slots=True)
class WhatifOutcome:
    """What one round of scheduling did; pods in the order in which they were decided about."""

    placed: tuple[ScheduledPod, ...] = ()
    pending: tuple[PendingPod, ...] = ()
    evicted: tuple[EvictedPod, ...] = ()

    @property
    def all_placed(self) -> bool:
        return not self.pending

    def where(self) -> Mapping[Name, str | None]:
        """Pod -> its node, None for those that wait."""
        return {**{each.pod: each.node for each in self.placed}, **{each.pod: None for each in self.pending}}


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where a pod stands: on a node, or waiting and why; `gone` if there is no such pod (any more)."""

    node: str = ""
    why: str = ""
    gone: bool = False
    devices: tuple[str, ...] = ()


#: All pods that have not ended, by name.
PodPlacements = Mapping[Name, PodPlacement]


@dataclass(frozen=True, slots=True)
class PodMove:
    """A pod that stands elsewhere after than before."""

    pod: Name
    before: PodPlacement
    after: PodPlacement


@dataclass(frozen=True, slots=True)
class StateDifference:
    """Two states side by side: only the pods that differ, in the order of their names."""

    moves: tuple[PodMove, ...] = ()

    @property
    def newly_pending(self) -> tuple[PodMove, ...]:
        """Pods that had a node and have none."""
        return tuple(m for m in self.moves if m.before.node and not m.after.node and not m.after.gone)

    @property
    def newly_placed(self) -> tuple[PodMove, ...]:
        return tuple(m for m in self.moves if m.after.node and not m.before.node)


def compare_states(before: PodPlacements, after: PodPlacements) -> StateDifference:
    """What differs between two states; a pod that is in only one of them is gone in the other."""
    absent = PodPlacement(gone=True)
    moves = []
    for name in sorted({*before, *after}, key=by_number):
        one, other = before.get(name, absent), after.get(name, absent)
        if (one.node, one.gone) != (other.node, other.gone):
            moves.append(PodMove(name, one, other))
    return StateDifference(tuple(moves))
