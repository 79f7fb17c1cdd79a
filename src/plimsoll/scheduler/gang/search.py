"""Search for a joint placement of a group where scheduling one pod after the other finds none.

Depth first over members and nodes with a step limit, on the snapshot with the members placed so far assumed.
Any member can be next, because the order decides which devices a member gets. Choices that lead to the same
state are tried once: members with equal signatures are interchangeable, a failed state is not searched again,
and of nodes with the same free resources that suit the same members only the first is tried (for members
without claims and without constraints on other pods). Members with the fewest nodes come first, and nodes
that suit the fewest members, then the fullest, come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.gang.attempt import GroupAttempt
from plimsoll.scheduler.pod_claims import uses_devices
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.unschedulable_cache import pod_signature

#: Steps (nodes tried for a member) of one search.
STEPS = 1000


@dataclass(slots=True)
class _MemberClass:
    """Members that scheduling treats alike."""

    pods: list[Pod]
    feasible: Mask  #: on the snapshot without the group
    rows: list[int]  #: in the order in which they are tried


class GroupSearch:
    """One search; `steps` and `is_exhausted` describe how it ended."""

    def __init__(
        self, attempt: GroupAttempt, members: Iterable[Pod], needed: int, limit: int = STEPS
    ) -> None:
        """Create a search for a placement of at least `needed` members."""
        self._attempt = attempt
        self._needed = needed
        self._limit = limit
        self._members = tuple(members)
        self._failed: set[tuple[tuple[int, int, tuple[str, ...]], ...]] = set()
        self._classes: list[_MemberClass] = []
        self._merges_nodes = not any(map(_depends_on_choice, self._members))
        self.steps = 0
        self.most = 0  #: largest number of members placed at once

    @property
    def is_exhausted(self) -> bool:
        """True if the limit ended the search: nothing is known."""
        return self.steps >= self._limit

    def run(self) -> bool:
        """Search; if a placement is found, it stays assumed in the attempt."""
        self._classes = self._classify()
        possible = sum(len(each.pods) for each in self._classes)
        return possible >= self._needed and self._place([0] * len(self._classes), ())

    def _classify(self) -> list[_MemberClass]:
        """Group the members that fit somewhere by signature, those with the fewest nodes first."""
        found: dict[bytes, _MemberClass] = {}
        for pod in self._members:
            pod_info = self._attempt.read(pod)
            if isinstance(pod_info, NodeReason):
                continue
            signature = pod_signature(pod_info)
            if signature in found:
                found[signature].pods.append(pod)
                continue
            feasible = self._feasible(pod)
            if feasible is not None:
                found[signature] = _MemberClass([pod], feasible, [])
        classes = sorted(found.values(), key=lambda each: int(np.count_nonzero(each.feasible)))
        if classes:
            suits = np.sum([each.feasible for each in classes], axis=0)
            for each in classes:
                rows = np.flatnonzero(each.feasible).tolist()
                each.rows = sorted(rows, key=lambda row: (int(suits[row]), self._free_share(row), row))
        return classes

    def _feasible(self, pod: Pod) -> Mask | None:
        """Return the nodes on which a member may fit once others are placed; None if there are none."""
        if depends_on_pods(pod):
            return self._attempt.rows
        result = self._attempt.filter(pod)
        return None if result is None else result.feasible.copy()

    def _free_share(self, row: int) -> int:
        """Return the free part of a node's CPU and memory, in thousandths."""
        ledger = self._attempt.snapshot.ledger(row)
        headroom = ledger.headroom()
        return sum(
            1000 * headroom.get(name, 0) // amount
            for name in ("cpu", "memory")
            if (amount := ledger.allocatable.get(name, 0))
        )

    def _place(self, used: list[int], state: tuple[tuple[int, int, tuple[str, ...]], ...]) -> bool:
        """Place further members; `used` counts those of each class, `state` describes their placements."""
        self.most = max(self.most, len(state))
        if len(state) >= self._needed:
            return True
        if state in self._failed:
            return False
        left = sum(len(each.pods) for each in self._classes) - len(state)
        if len(state) + left < self._needed:
            return False
        for number, each in enumerate(self._classes):
            if used[number] < len(each.pods) and self._try(number, used, state):
                return True
            if self.is_exhausted:
                return False
        self._failed.add(state)
        return False

    def _try(self, number: int, used: list[int], state: tuple[tuple[int, int, tuple[str, ...]], ...]) -> bool:
        """Place one member of a class on each node in turn, then the rest."""
        each = self._classes[number]
        result = self._attempt.filter(each.pods[used[number]])
        if result is None:
            return False
        rows = self._distinct(each.rows, result.feasible) if self._merges_nodes else each.rows
        for placement in self._attempt.placements_in(result, rows):
            self.steps += 1
            if self.is_exhausted:
                return False
            self._attempt.assume(placement)
            used[number] += 1
            more = tuple(sorted((*state, (number, placement.row, _devices(placement)))))
            if self._place(used, more):
                return True
            used[number] -= 1
            self._attempt.undo()
        return False

    def _distinct(self, rows: Sequence[int], feasible: Mask) -> list[int]:
        """Return the feasible rows without those that equal an earlier one."""
        snapshot = self._attempt.snapshot
        first: dict[object, int] = {}
        for row in rows:
            if feasible[row]:
                suits = tuple(bool(each.feasible[row]) for each in self._classes)
                free = frozenset(snapshot.ledger(row).headroom().items())
                first.setdefault((suits, free), row)
        return list(first.values())


def _devices(placement: Placement) -> tuple[str, ...]:
    return tuple(sorted(placement.devices))


def depends_on_pods(pod: Pod) -> bool:
    """Return whether other pods decide on which nodes a pod may run."""
    return pod.spec.affinity is not None or bool(pod.spec.topology_spread_constraints)


def _depends_on_choice(pod: Pod) -> bool:
    """Return whether the choice between nodes with equal resources matters for a pod."""
    spec = pod.spec
    return (
        uses_devices(pod)
        or depends_on_pods(pod)
        or bool(spec.volumes)
        or any(container.ports for container in (*spec.init_containers, *spec.containers))
    )
