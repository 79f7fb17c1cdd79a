"""Results of scheduling in memory: scheduled, pending and evicted pods, and the difference of two states."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement

#: Namespace and name.
Name = tuple[str, str]


#: Suffixes of generated names: of a pod, and of the ReplicaSet of a Deployment.
_GENERATED = re.compile(r"(.+?)(?:-[bcdfghjklmnpqrstvwxz2456789]{8,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}")


def stem_of(name: Name) -> Name:
    """Return the common name of the pods of a workload."""
    stem, _, number = name[1].rpartition("-")
    if stem and number.isdecimal():
        return name[0], stem
    generated = _GENERATED.fullmatch(name[1])
    return (name[0], generated[1]) if generated else name


def by_number(name: Name) -> tuple[str, str, int, str]:
    """Return the natural sort key of a name: web-2 before web-10."""
    stem, hyphen, number = name[1].rpartition("-")
    if hyphen and number.isdecimal() and len(number) < 10:
        return name[0], stem, int(number), name[1]
    return name[0], name[1], -1, ""


def full_name(name: Name) -> str:
    return "/".join(name)


@dataclass(frozen=True, slots=True)
class ScheduledPod:
    """Pod that was scheduled, with its devices and charges."""

    pod: Name
    node: str
    devices: tuple[str, ...] = ()  #: devices allocated now, as driver/pool/device
    charges: Mapping[str, int] = field(
        default_factory=dict
    )  #: increase of the charged amounts, in ledger units
    placement: Placement | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """Pod that was not scheduled: the reason in one line, and the value it was rendered from."""

    pod: Name
    why: str
    key: Hashable = None  #: of the cause, equal for pods of one cause
    cause: FitError | NodeReason | None = field(default=None, compare=False, repr=False)
    recorded: str = ""  #: message of its scheduler in the cluster, if it differs


@dataclass(frozen=True, slots=True)
class RefusedObject:
    """Added object that the API would refuse to create."""

    kind: str
    name: Name
    why: str
    owner: str = ""  #: KIND/NAME of the workload whose controller would create it


class EvictionReason(Enum):
    """Reason why a pod was evicted."""

    PREEMPTED = "preempted"
    DRAINED = "drained"
    NODE_TAINT = "node taint"
    DEVICE_TAINT = "device taint"
    NODE_GONE = "node gone"


@dataclass(frozen=True, slots=True)
class EvictedPod:
    """Pod that was evicted; one with a controller is recreated and pending."""

    pod: Name
    node: str
    because: EvictionReason
    by: str = ""  #: the preemptor, or the taint
    comes_back: bool = True
    after: int = 0  #: seconds for which a taint is tolerated
    bare: bool = False  #: True if it has no controller; reported as if recreated manually


@dataclass(frozen=True, slots=True)
class WhatifOutcome:
    """Result of one scheduling round; pods in the order they were decided."""

    placed: tuple[ScheduledPod, ...] = ()
    pending: tuple[PendingPod, ...] = ()
    evicted: tuple[EvictedPod, ...] = ()

    @property
    def all_placed(self) -> bool:
        return not self.pending

    def where(self) -> Mapping[Name, str | None]:
        """Return {pod: node}, None for pending pods."""
        return {**{each.pod: each.node for each in self.placed}, **{each.pod: None for each in self.pending}}


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Node of a pod, or the reason why it is pending; `gone` if the pod does not exist."""

    node: str = ""
    why: str = ""
    gone: bool = False
    devices: tuple[str, ...] = ()


#: All pods that have not ended, by name.
PodPlacements = Mapping[Name, PodPlacement]


ABSENT = PodPlacement(gone=True)


def moved_pods(before: PodPlacements, after: PodPlacements) -> set[Name]:
    """Return the pods whose node differs between two states, or that are in one of them only."""
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in {**before, **after})
    return {
        name
        for name, one, other in pairs
        if one is not other and (one.node, one.gone) != (other.node, other.gone)
    }
