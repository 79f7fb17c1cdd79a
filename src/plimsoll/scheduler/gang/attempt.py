"""Placements of single members on the state that the members before them left.

`GroupAttempt` assumes placements in the snapshot and takes them back in reverse order; when it is closed, the
snapshot has none of them. If an attempt takes several turns of the scheduling loop, the snapshot may change
in between. A claim that an earlier member of the same attempt allocates is allocated for the later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.cycle import reject_pod, run_filters, schedule_one
from plimsoll.scheduler.devices import NO_CLAIMS, NewId, NodeFit
from plimsoll.scheduler.filter_result import FilterResult
from plimsoll.scheduler.node_selection import NominationCheck
from plimsoll.scheduler.pod_claims import PRE_ENQUEUE_REASONS, read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile, SelectorErrors
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot

ProfileOf = Callable[[Pod], SchedulerProfile]


class GroupAttempt:
    """Members of a group that are placed for the duration of a `with` block."""

    def __init__(
        self,
        snapshot: Snapshot,
        profile_of: ProfileOf,
        new_id: NewId,
        nominations: NominationCheck | None = None,
        allowed: Mask | None = None,
    ) -> None:
        """Create an attempt; `allowed` are the rows that members may use, None for all."""
        self.snapshot = snapshot
        self._profile_of = profile_of
        self._new_id = new_id
        self._nominations = nominations
        self._allowed = allowed
        self._placed: dict[str, Placement] = {}

    def __enter__(self) -> GroupAttempt:
        self._start_row = self.snapshot.next_start_row
        self._revision = self.snapshot.revision
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._placed:
            self.undo()
        self.snapshot.next_start_row = self._start_row

    @property
    def rows(self) -> Mask:
        """Rows that members may use."""
        alive = self.snapshot.alive
        return alive.copy() if self._allowed is None else alive & self._allowed

    @property
    def placements(self) -> Sequence[Placement]:
        """Placements in the order in which they were assumed."""
        return tuple(self._placed.values())

    def is_unchanged(self) -> bool:
        """Return whether no object of the cluster has changed since the attempt began."""
        return self.snapshot.revision == self._revision

    def is_intact(self) -> bool:
        """Return whether placements and rows that members may use are still those of the attempt."""
        if self.is_unchanged():
            return True
        snapshot = self.snapshot
        self._revision = snapshot.revision
        return (self._allowed is None or len(self._allowed) == snapshot.size) and all(
            snapshot.row_of(each.node) == each.row and snapshot.assumed.get(key) is each
            for key, each in self._placed.items()
        )

    def assume(self, placement: Placement) -> None:
        self._placed[placement.pod_info.key] = placement
        self.snapshot.assume(placement)

    def undo(self) -> None:
        """Take back the last placement."""
        key, _ = self._placed.popitem()
        self.snapshot.forget(key)

    def read(self, pod: Pod) -> PodInfo | NodeReason:
        """Return a member with its claims, or the reason why it cannot be scheduled yet."""
        return read_pod_info(pod, self.snapshot, self._profile_of(pod), self._placed.keys())

    def schedule(self, pod: Pod) -> Placement | FitError | NodeReason:
        """Find the best node for a member, as for a pod on its own."""
        pod_info = self.read(pod)
        if isinstance(pod_info, NodeReason):
            held = pod_info.message in PRE_ENQUEUE_REASONS
            return pod_info if held else reject_pod(pod, self.snapshot, pod_info)
        return schedule_one(
            pod_info,
            self.snapshot,
            self._profile_of(pod),
            self._new_id,
            self._nominations,
            allowed=self._allowed,
        )

    def filter(self, pod: Pod) -> FilterResult | None:
        """Return the nodes on which a member may fit; None if there are none, or a selector fails."""
        pod_info, settings = self.read(pod), self._profile_of(pod)
        if isinstance(pod_info, NodeReason):
            return None
        result = run_filters(pod_info, self.snapshot, settings, self._new_id)
        if isinstance(result, NodeReason):
            return None
        if self._allowed is not None:
            result.restrict(self._allowed)
        result.filter_devices()
        if settings.selector_errors is SelectorErrors.PENDING and result.find_selector_error() is not None:
            return None
        return result if result.feasible.any() else None

    def placements_in(self, result: FilterResult, rows: Sequence[int]) -> Iterator[Placement]:
        """Yield the placements of a member on those of the rows that have the devices, in this order."""
        snapshot, feasible = self.snapshot, int(np.count_nonzero(result.feasible))
        for row in rows:
            if not result.feasible[row]:
                continue
            fit = NO_CLAIMS
            if result.devices is not None:
                answer = result.search(result.devices, row)
                if not isinstance(answer, NodeFit):
                    continue
                fit = answer
            if self._nominations is not None and self._nominations.filter_node(
                result.pod_info, row, snapshot
            ):
                continue
            node = snapshot.node(row)
            at_node, volumes = result.pod_info.at_node(node), result.find_volumes(row)
            yield Placement(
                at_node,
                row,
                node.metadata.name,
                fit.allocations,
                fit.charged_claims,
                feasible,
                volumes=volumes,
            )
