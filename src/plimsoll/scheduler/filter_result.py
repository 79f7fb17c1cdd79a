"""The nodes that are left for a pod, and which rule took away the others.

Owns the bookkeeping of an attempt: rules take nodes away, all at once or one by one; `sum_up` says how many
fell to which reason, in numbers that do not depend on how the rules were ordered for those that pass.
"""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.devices import DevicesFilter, Fit
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import Unplaced
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class Sieve:
    """What is left of the nodes."""

    def __init__(self, task: Task, snapshot: Snapshot) -> None:
        self.task = task
        self.snapshot = snapshot
        self.left: Mask = snapshot.alive.copy()
        self.devices: DevicesFilter | None = None
        self._taken: list[tuple[Filter, Mask]] = []
        self.crowded = False  #: whether room promised to others stood in the way
        self._single: dict[int, tuple[NodeReason, ...]] = {}

    def apply(self, rule: Filter) -> None:
        """Take away the nodes that break a rule; of devices, those where no search can succeed."""
        if isinstance(rule, DevicesFilter):
            self.devices = rule
            passed = rule.candidates()
        else:
            passed = rule.feasible()
        removed = self.left & ~passed
        if removed.any():
            self._taken.append((rule, removed))
            self.left &= passed

    def refuse(self, place: int, reasons: tuple[NodeReason, ...]) -> None:
        """Take away one node that an exact question was answered with no for."""
        self._single[place] = reasons
        self.left[place] = False

    def ask_all(self) -> NodeReason | None:
        """Take away every node that has no devices for the pod; an error anywhere ends the attempt."""
        if self.devices is None:
            return None
        for place in np.flatnonzero(self.left).tolist():
            answer = self.devices.attempt(place)
            if not isinstance(answer, Fit):
                for reason in answer:
                    if reason.code is Code.ERROR:
                        return reason
                self.refuse(place, answer)
        return None

    def sum_up(self) -> Unplaced:
        """Why no node is left, and where it would be otherwise if other pods were gone."""
        reasons: dict[str, tuple[NodeReason, int]] = {}
        resolvable = np.zeros_like(self.left)

        def count(reason: NodeReason, number: int) -> None:
            text = render(reason)
            reasons[text] = (reason, reasons.get(text, (reason, 0))[1] + number)

        for rule, removed in self._taken:
            resolvable |= rule.resolvable(removed)
            for reason, number in rule.tally(removed):
                count(reason, number)
        for place, found in self._single.items():
            resolvable[place] = all(reason.resolvable for reason in found)
            for reason in found:
                count(reason, 1)
        return Unplaced(self.task, len(self.snapshot), tuple(reasons.values()), resolvable)
