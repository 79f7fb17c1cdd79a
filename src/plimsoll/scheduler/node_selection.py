"""Which of the nodes that are left a pod goes to.

Owns the order in which nodes are asked about devices: best score first, and among equals the next after the
one that was chosen last, so that equal nodes take turns. Usually the first one asked says yes. How well the
alternatives of prioritized lists are served, and how large the devices are that are handed out, is known only
after asking: until then a node counts with the best it can still do, and asking goes on until no node can
beat the best one found, or as many have said yes as the settings allow to explore.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from plimsoll.ledger.columns import Column
from plimsoll.scheduler.devices import BEST, NO_CLAIMS, Fit
from plimsoll.scheduler.devices.alternatives_score import count_points, score_points
from plimsoll.scheduler.devices.waste import score_sizes
from plimsoll.scheduler.filter_result import Sieve
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.profile import Scoring, Settings
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_RULED_OUT = -1


class Promises(Protocol):
    """Room that is promised to other pods, which are on no book yet (`preemption.nominations`)."""

    def why_not(self, task: Task, place: int, snapshot: Snapshot) -> tuple[NodeReason, ...]:
        """Why a pod that fits on a node would not beside those the node is promised to; empty if it would."""


def choose_node(
    task: Task,
    snapshot: Snapshot,
    settings: Settings,
    sieve: Sieve,
    scores: Column,
    promises: Promises | None = None,
) -> Placement | None:
    """The best node that has the devices; None if none has, and then the sieve is empty."""
    devices = sieve.devices
    feasible = int(np.count_nonzero(sieve.left))
    ranked = settings.rank_weight if devices is not None and _has_lists(task) else 0
    wasteful = settings.waste_weight if task.waiting else 0
    bounds = devices.ranks() if devices is not None and ranked else None
    hopes = scores if bounds is None else scores + ranked * bounds
    if wasteful:
        hopes = hopes + wasteful * BEST
    hopes = np.where(sieve.left, hopes, np.int64(_RULED_OUT))
    explore = settings.explore if ranked or wasteful else 1
    stock = bool(ranked) and settings.scoring is Scoring.STOCK  # then ranks are relative to those of others
    found: list[tuple[int, int, Fit]] = []  # score without waste, place, fit
    searched = 0
    while len(found) < explore:
        place = _best(hopes, snapshot.turn)
        hope = int(hopes[place])
        if hope == _RULED_OUT or (found and not stock and max(score for score, _, _ in found) >= hope):
            break
        hopes[place] = _RULED_OUT
        fit = NO_CLAIMS
        if devices is not None:
            searched += 1
            answer = devices.attempt(place)
            if not isinstance(answer, Fit):
                sieve.refuse(place, answer)
                continue
            fit = answer
        if promises is not None and (crowded := promises.why_not(task, place, snapshot)):
            sieve.refuse(place, crowded)
            sieve.crowded = True
            continue
        found.append((int(scores[place]) + (0 if stock else ranked * fit.rank), place, fit))
    if not found:
        return None
    sizes = score_sizes([fit for _, _, fit in found]) if wasteful and len(found) > 1 else [0] * len(found)
    totals = [score + wasteful * size for (score, _, _), size in zip(found, sizes, strict=True)]
    if stock:
        points = score_points([count_points(task.claims, fit.allocations) for _, _, fit in found])
        totals = [total + ranked * each for total, each in zip(totals, points, strict=True)]
    _, place, fit = found[totals.index(max(totals))]
    name = snapshot.node(place).metadata.name
    return Placement(task, place, name, fit.allocations, fit.bills, feasible, searched)


def _has_lists(task: Task) -> bool:
    return any(request.first_available for claim in task.waiting for request in claim.spec.devices.requests)


def _best(hopes: Column, turn: int) -> int:
    """The place with the most hope; of several, the first from `turn` on."""
    best = int(hopes.argmax())
    if best >= turn or turn >= len(hopes):
        return best
    later = turn + int(hopes[turn:].argmax())
    return later if hopes[later] == hopes[best] else best
