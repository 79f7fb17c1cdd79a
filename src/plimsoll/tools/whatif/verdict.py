"""`WhatifVerdict`: the answer to what was asked, and the side effects on other pods.

A plan asks about the pods that it adds or evicts. If it does neither (more nodes, another policy, nothing at
all), it asks about the pods that are pending. Everything else that changes is a side effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from plimsoll.tools.columns import format_count
from plimsoll.tools.whatif.outcome import (
    ABSENT,
    EvictedPod,
    EvictionReason,
    Name,
    PodPlacements,
    by_number,
    full_name,
)


class AskedPods(Enum):
    """Pods that a plan asks about."""

    ADDED = "added"
    EVICTED = "evicted"
    BOTH = "added and evicted"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class WhatifVerdict:
    """Placement of the pods that were asked about, then the side effects; each list by name."""

    about: AskedPods
    scheduled: tuple[Name, ...] = ()
    pending: tuple[Name, ...] = ()
    deleted: tuple[Name, ...] = ()  #: evicted, and not recreated because they have no controller
    refused: tuple[Name, ...] = ()  #: pods that the API would refuse to create
    blocked: tuple[Name, ...] = ()  #: pods that a drain cannot evict
    preempted: tuple[Name, ...] = ()  #: others that would run without the change
    newly_pending: tuple[Name, ...] = ()  #: others that would be scheduled without the change
    newly_scheduled: tuple[Name, ...] = ()  #: others that would be pending without the change
    still_pending: tuple[Name, ...] = ()  #: others, pending with and without the change

    @property
    def all_scheduled(self) -> bool:
        return not (self.pending or self.deleted or self.refused or self.blocked)

    @property
    def asked(self) -> frozenset[Name]:
        return frozenset((*self.scheduled, *self.pending, *self.deleted, *self.refused, *self.blocked))

    def text(self) -> str:
        """Return the answer in one line."""
        if self.blocked:
            rest = replace(self, blocked=())
            blocks = f"the drain blocks: {format_count(len(self.blocked), 'pod')} cannot be evicted"
            return f"{blocks}; {rest.text()}" if rest.asked else blocks
        word = "" if self.about is AskedPods.PENDING else f"{self.about.value} "
        asked, scheduled = len(self.asked), len(self.scheduled)
        if not asked:
            return "no pods evicted" if self.about is AskedPods.EVICTED else "no pending pods"
        states = (
            (self.scheduled, "scheduled", "scheduled"),
            (self.pending, "pending", "pending"),
            (self.deleted, "deleted", "deleted"),
            (self.refused, "refused by the API", "not created"),
        )
        for names, one, many in states:
            if len(names) == asked and (asked == 1 or names is not self.pending):
                return f"the {word}pod is {one}" if asked == 1 else f"all {asked} {word}pods are {many}"
        others = "".join(f", {len(names)} {many}" for names, _, many in states[1:] if names)
        return f"{scheduled} of {asked} {word}pods scheduled{others}"

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about.value,
            "text": self.text(),
            "allScheduled": self.all_scheduled,
            "scheduled": _names(self.scheduled),
            "pending": _names(self.pending),
            "deleted": _names(self.deleted),
            "refused": _names(self.refused),
            "notEvicted": _names(self.blocked),
        }

    def side_effects_as_json(self) -> dict[str, list[str]]:
        return {
            "preempted": _names(self.preempted),
            "newlyPending": _names(self.newly_pending),
            "newlyScheduled": _names(self.newly_scheduled),
            "stillPending": _names(self.still_pending),
        }


def judge(
    now: Mapping[Name, str],
    states: tuple[PodPlacements, PodPlacements],
    *,
    added: Collection[Name],
    displaced: Collection[Name],
    drains: bool,
    evicted: Iterable[EvictedPod],
    nodes: Collection[str],
    refused: Iterable[Name] = (),
    blocked: Collection[Name] = (),
) -> WhatifVerdict:
    """Answer a plan from the states without and with it; `nodes` are the nodes with it.

    `added` and `displaced` are the pods that the plan adds and evicts, `refused` and `blocked` those that it
    cannot add and evict, `evicted` those evicted in the end.
    """
    before, after = states
    refused = set(refused)
    if added or displaced or drains or refused:
        asked = {*added, *displaced}
        is_new, is_old = bool(added or refused), bool(displaced or blocked)
        kind = AskedPods.ADDED if not is_old else AskedPods.EVICTED if not is_new else AskedPods.BOTH
        about = kind if is_new or is_old else AskedPods.EVICTED
    else:
        asked = {name for name, node in now.items() if not node and name in after}
        about = AskedPods.PENDING
    preempted = {
        each.pod
        for each in evicted
        if each.because is EvictionReason.PREEMPTED
        and each.pod not in asked
        and before.get(each.pod, ABSENT).node
    }
    pending_before, pending_after = (_pending(state) - asked - preempted for state in states)
    gone = {name for name in asked if after.get(name, ABSENT).gone}
    return WhatifVerdict(
        about,
        # An added pod may name a node that does not exist: it will never run.
        scheduled=_ordered(name for name in asked - gone if after[name].node in nodes),
        pending=_ordered(name for name in asked - gone if after[name].node not in nodes),
        deleted=_ordered(gone),
        refused=_ordered(refused),
        blocked=_ordered(blocked),
        preempted=_ordered(preempted),
        newly_pending=_ordered(pending_after - pending_before),
        newly_scheduled=_ordered(name for name in pending_before if after.get(name, ABSENT).node),
        still_pending=_ordered(pending_before & pending_after),
    )


def _pending(state: PodPlacements) -> set[Name]:
    return {name for name, placement in state.items() if not placement.node and not placement.gone}


def _ordered(names: Iterable[Name]) -> tuple[Name, ...]:
    return tuple(sorted(names, key=by_number))


def _names(names: Iterable[Name]) -> list[str]:
    return [full_name(name) for name in names]
