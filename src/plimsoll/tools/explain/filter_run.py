"""`FilterRun`: one scheduling attempt that records which rule removed which nodes.

All rules except devices are evaluated for all nodes at once; devices are evaluated node by node, once per
distinct node state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.cycle import build_filters, schedule_one
from plimsoll.scheduler.devices import DynamicResourcesFilter, NewId, NodeFit
from plimsoll.scheduler.filter_result import FilterResult
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FilterRemoval:
    """Nodes removed by one rule."""

    rule: Filter
    rows: Mask


@dataclass(frozen=True, slots=True)
class FilterRun:
    """Result of an attempt: a placement, or the refusals by node."""

    pod_info: PodInfo
    outcome: Placement | FitError
    taken: tuple[FilterRemoval, ...] = ()
    #: Node -> reasons about devices and charges.
    refused: Mapping[int, tuple[NodeReason, ...]] | None = None
    devices: DynamicResourcesFilter | None = None


def run_filters(pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> FilterRun:
    """Run all filters for a pod, as `schedule_one` does, and record the refusals."""
    new_id = throwaway_ids()
    rules = build_filters(pod_info, snapshot, settings, new_id)
    if isinstance(rules, NodeReason):
        return FilterRun(pod_info, FitError(pod_info, len(snapshot), ((rules, 0),)))
    filter_result = FilterResult(pod_info, snapshot)
    taken: list[FilterRemoval] = []
    refused: dict[int, tuple[NodeReason, ...]] = {}
    for rule in rules:
        before = filter_result.feasible.copy()
        filter_result.apply(rule)
        removed = before & ~filter_result.feasible
        if not removed.any():
            continue
        if isinstance(rule, DynamicResourcesFilter):
            refused.update((row, _refusal(rule, row)) for row in np.flatnonzero(removed).tolist())
        else:
            taken.append(FilterRemoval(rule, removed))
    if filter_result.devices is not None:
        for row in np.flatnonzero(filter_result.feasible).tolist():
            answer = filter_result.devices.search(row)
            if isinstance(answer, NodeFit):
                break
            filter_result.exclude(row, answer)
            refused[row] = answer
    if filter_result.feasible.any():
        placement = schedule_one(pod_info, snapshot, settings, new_id)
        assert isinstance(placement, Placement), "a feasible node gives a placement"
        return FilterRun(pod_info, placement)
    return FilterRun(pod_info, filter_result.fit_error(), tuple(taken), refused, filter_result.devices)


def _refusal(rule: DynamicResourcesFilter, row: int) -> tuple[NodeReason, ...]:
    """Return the refusal of a node by a cached result or by the claims themselves."""
    answer = rule.search_uncached(row)
    assert not isinstance(answer, NodeFit), "a cached refusal is a refusal"
    return answer


def throwaway_ids() -> NewId:
    """Return a generator of share IDs for one evaluation."""
    numbers: Iterator[int] = count()
    return lambda: f"share-{next(numbers)}"
