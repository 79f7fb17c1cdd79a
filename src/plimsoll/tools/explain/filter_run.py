"""A pod tried on all nodes, and which rule took away which of them.

Owns `Trial`, an attempt of the scheduler with everything remembered that scheduling itself counts and throws
away. All rules but devices are asked for all nodes at once; devices are asked node by node, where nodes in
the same state answer alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.cycle import read_rules, schedule_one
from plimsoll.scheduler.devices import DevicesFilter, Fit, NewId
from plimsoll.scheduler.filter_result import Sieve
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.profile import Settings
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement, Unplaced
from plimsoll.scheduler.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Taken:
    """The places that a rule took away."""

    rule: Filter
    places: Mask


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of an attempt: a placement, or who refused."""

    task: Task
    outcome: Placement | Unplaced
    taken: tuple[Taken, ...] = ()
    #: Place -> what was said about devices and books there.
    refused: Mapping[int, tuple[NodeReason, ...]] | None = None
    devices: DevicesFilter | None = None


def try_pod(task: Task, snapshot: Snapshot, settings: Settings) -> Trial:
    """Try a pod on all nodes, as `schedule_one` does, and remember who said what."""
    new_id = throwaway_ids()
    rules = read_rules(task, snapshot, settings, new_id)
    if isinstance(rules, NodeReason):
        return Trial(task, Unplaced(task, len(snapshot), ((rules, 0),)))
    sieve = Sieve(task, snapshot)
    taken: list[Taken] = []
    refused: dict[int, tuple[NodeReason, ...]] = {}
    for rule in rules:
        before = sieve.left.copy()
        sieve.apply(rule)
        removed = before & ~sieve.left
        if not removed.any():
            continue
        if isinstance(rule, DevicesFilter):
            refused.update((place, _refusal(rule, place)) for place in np.flatnonzero(removed).tolist())
        else:
            taken.append(Taken(rule, removed))
    if sieve.devices is not None:
        for place in np.flatnonzero(sieve.left).tolist():
            answer = sieve.devices.attempt(place)
            if isinstance(answer, Fit):
                break
            sieve.refuse(place, answer)
            refused[place] = answer
    if sieve.left.any():
        placement = schedule_one(task, snapshot, settings, new_id)
        assert isinstance(placement, Placement), "a node that fits is a place"
        return Trial(task, placement)
    return Trial(task, sieve.sum_up(), tuple(taken), refused, sieve.devices)


def _refusal(rule: DevicesFilter, place: int) -> tuple[NodeReason, ...]:
    """What is said where a memory or the claims themselves speak against a place."""
    answer = rule.answer(place)
    assert not isinstance(answer, Fit), "what is remembered as refused is refused"
    return answer


def throwaway_ids() -> NewId:
    """IDs for shares that exist for the length of a question."""
    numbers: Iterator[int] = count()
    return lambda: f"share-{next(numbers)}"
