"""Search for a joint placement of a group where scheduling one pod after the other finds none.

Depth first over members and nodes with a step limit, on the snapshot with the members placed so far assumed.
Any member can be next, because the order decides which devices a member gets. Choices that lead to the same
state are tried once: members with equal signatures are interchangeable, a failed state is not searched again,
and of nodes with the same free resources that suit the same members only the first is tried (for members
without claims and without constraints on other pods). Members with the fewest nodes come first, and nodes
that suit the fewest members, then the fullest, come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import placement_volumes
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.gang.attempt import GroupAttempt
from plimsoll.scheduler.pod_claims import uses_devices
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.unschedulable_cache import pod_signature

#: Placements of a state, sorted: class, row and devices of each member.
_State: TypeAlias = "tuple[tuple[int, int, tuple[str, ...]], ...]"
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
        self._failed: set[_State] = set()
        self._classes: list[_MemberClass] = []
        self._merges_nodes = not any(map(_depends_on_choice, self._members))
        self.steps = 0
        self.is_exhausted = False  #: whether the search ended early, so that nothing is known

    def turns(self) -> Generator[None, bool | None, bool]:
        """Search, in turns; if a placement is found, it stays assumed in the attempt.

        The caller sends True to end the search. It also ends if the cluster changes between two turns: what
        it knows about nodes no longer holds.
        """
        self._classes = yield from self._classify()
        possible = sum(len(each.pods) for each in self._classes)
        if possible < self._needed or (self._merges_nodes and len(self._classes) == 1):
            return False  # members that are alike fit in any order, or not at all
        used = [0] * len(self._classes)
        state: _State = ()
        stack = [(state, -1, self._choices(used))]
        while stack:
            state, number, choices = stack[-1]
            choice = next(choices, None)
            if choice is None:
                self._failed.add(state)
                stack.pop()
                if stack:
                    used[number] -= 1
                    self._attempt.undo()
                continue
            self.steps += 1
            if self.steps > self._limit:
                self.is_exhausted = True
                return False
            number, placement = choice
            more = tuple(sorted((*state, (number, placement.row, _devices(placement)))))
            if more not in self._failed:
                self._attempt.assume(placement)
                used[number] += 1
                if len(more) >= self._needed:
                    return True
                stack.append((more, number, self._choices(used)))
            ends = yield
            if ends or not self._attempt.is_unchanged():
                self.is_exhausted = True
                return False
        return False

    def _classify(self) -> Generator[None, bool | None, list[_MemberClass]]:
        """Group the members that fit somewhere by signature, those with the fewest nodes first."""
        found: dict[bytes, _MemberClass] = {}
        readable = [each for pod in self._members if isinstance(each := self._attempt.read(pod), PodInfo)]
        users = Counter(claim.metadata.uid for each in readable for claim in each.claims)
        for pod_info in readable:
            self._merges_nodes = self._merges_nodes and not pod_info.claims
            signature = _signature(pod_info, users)
            if signature in found:
                found[signature].pods.append(pod_info.stored)
                continue
            feasible = self._feasible(pod_info.stored)
            if feasible is not None:
                found[signature] = _MemberClass([pod_info.stored], feasible, [])
            if (yield) or not self._attempt.is_unchanged():
                self.is_exhausted = True
                return []
        classes = sorted(found.values(), key=lambda one: int(np.count_nonzero(one.feasible)))
        if classes:
            suits = np.sum([one.feasible for one in classes], axis=0)
            rows = np.flatnonzero(suits).tolist()
            order = {row: (int(suits[row]), self._free_share(row), row) for row in rows}
            for one in classes:
                one.rows = sorted(np.flatnonzero(one.feasible).tolist(), key=order.__getitem__)
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

    def _choices(self, used: Sequence[int]) -> Iterator[tuple[int, Placement]]:
        """Yield the placements of the next member of each class; `used` counts those that are placed."""
        for number, each in enumerate(self._classes):
            if used[number] == len(each.pods):
                continue
            result = self._attempt.filter(each.pods[used[number]])
            if result is not None:
                rows = self._distinct(each.rows, result.feasible) if self._merges_nodes else each.rows
                for placement in self._attempt.placements_in(result, rows):
                    yield number, placement

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


def _signature(pod_info: PodInfo, users: Mapping[str, int]) -> bytes:
    """Return a key of members that are interchangeable; the names of claims of their own do not matter."""
    if any(users[claim.metadata.uid] > 1 for claim in pod_info.claims):
        return pod_signature(pod_info)
    pod = pod_info.pod
    unnamed = replace(pod, spec=replace(pod.spec, resource_claims=()))
    return pod_signature(pod_info, unnamed)


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
        or bool(placement_volumes(spec))
        or any(container.ports for container in (*spec.init_containers, *spec.containers))
    )
