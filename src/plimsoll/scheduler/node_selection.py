"""Selection of the node for a pod among the feasible ones.

Devices are searched on the node with the best score first; nodes with equal scores take turns. The rank of
prioritized lists and the size of devices are known only after a search: until then an upper bound counts, and
the search continues until no node can exceed the best one found, or the profile's limit is reached.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.devices import MAX_SCORE, NO_CLAIMS, NodeFit
from plimsoll.scheduler.devices.scores import count_points, score_points, score_sizes
from plimsoll.scheduler.filter_result import FilterResult
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile, Scoring
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_RULED_OUT = -1


class NominationCheck(Protocol):
    """Capacity reserved for nominated pods, which are in no ledger yet (`preemption.nominations`)."""

    def filter_node(self, pod_info: PodInfo, row: int, snapshot: Snapshot) -> tuple[NodeReason, ...]:
        """Return why a pod that fits on a node does not fit together with pods nominated to it."""


def select_node(
    filter_result: FilterResult,
    settings: SchedulerProfile,
    scores: Column,
    nominations: NominationCheck | None = None,
    sample: Mask | None = None,
) -> Placement | None:
    """Return the placement on the best node that has the devices; None if none has, and all are excluded.

    `sample` are the nodes to choose from, all feasible ones without it.
    """
    pod_info, snapshot, devices = filter_result.pod_info, filter_result.snapshot, filter_result.devices
    feasible = int(np.count_nonzero(filter_result.feasible))
    ranked = settings.rank_weight if devices is not None and _has_lists(pod_info) else 0
    wasteful = settings.waste_weight if pod_info.unallocated_claims else 0
    bounds = devices.ranks() if devices is not None and ranked else None
    potential = scores if bounds is None else scores + ranked * bounds
    if wasteful:
        potential = potential + wasteful * MAX_SCORE
    potential = np.where(
        filter_result.feasible if sample is None else sample, potential, np.int64(_RULED_OUT)
    )
    explore = settings.explore if ranked or wasteful else 1
    # kube-scheduler ranks alternatives relative to other nodes.
    stock = bool(ranked) and settings.scoring is Scoring.STOCK
    found: list[tuple[int, int, NodeFit]] = []  # score without waste, row, fit
    while len(found) < explore:
        row = _best(potential, snapshot.next_start_row)
        highest = int(potential[row])
        if highest == _RULED_OUT or (found and not stock and max(score for score, _, _ in found) >= highest):
            break
        potential[row] = _RULED_OUT
        fit = NO_CLAIMS
        if devices is not None:
            answer = filter_result.search(devices, row)
            if not isinstance(answer, NodeFit):
                filter_result.exclude(row, answer)
                continue
            fit = answer
        if nominations is not None and (blocked := nominations.filter_node(pod_info, row, snapshot)):
            filter_result.exclude(row, blocked)
            filter_result.blocked_by_nomination = True
            continue
        found.append((int(scores[row]) + (0 if stock else ranked * fit.rank), row, fit))
    if not found:
        return None
    sizes = score_sizes([fit for _, _, fit in found]) if wasteful and len(found) > 1 else [0] * len(found)
    totals = [score + wasteful * size for (score, _, _), size in zip(found, sizes, strict=True)]
    if stock:
        points = score_points([count_points(pod_info.claims, fit.allocations) for _, _, fit in found])
        totals = [total + ranked * each for total, each in zip(totals, points, strict=True)]
    _, row, fit = found[totals.index(max(totals))]
    node = snapshot.node(row)
    at_node, name, volumes = pod_info.at_node(node), node.metadata.name, filter_result.find_volumes(row)
    return Placement(at_node, row, name, fit.allocations, fit.charged_claims, feasible, volumes)


def _has_lists(pod_info: PodInfo) -> bool:
    return any(
        request.first_available
        for claim in pod_info.unallocated_claims
        for request in claim.spec.devices.requests
    )


def _best(potential: Column, start: int) -> int:
    """Return the row with the highest value; of several, the first from `start` on."""
    best = int(potential.argmax())
    if best >= start or start >= len(potential):
        return best
    later = start + int(potential[start:].argmax())
    return later if potential[later] == potential[best] else best
