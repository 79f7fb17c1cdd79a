"""Feasible nodes of one attempt, and the reasons why others were excluded."""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit
from plimsoll.scheduler.devices.exact import is_selector_error
from plimsoll.scheduler.devices.selector_errors import SelectorErrorIndex
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.volume_binding import VolumeBindingFilter
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SAMPLED_FROM
from plimsoll.scheduler.reasons import NodeReason, ReasonCounts
from plimsoll.scheduler.result import NO_VOLUMES, FitError, PodVolumes
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class FilterResult:
    """Feasible nodes after the filters applied so far."""

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, observer: CycleObserver | None = None) -> None:
        self.pod_info = pod_info
        self.snapshot = snapshot
        self._observer = observer
        self.feasible: Mask = snapshot.alive.copy()
        self.nodes = len(snapshot)
        self.devices: DynamicResourcesFilter | None = None
        self._volumes: VolumeBindingFilter | None = None
        self._excluded: list[tuple[Filter, Mask]] = []
        self._before_devices = self.feasible  #: nodes that passed all filters but devices
        self.blocked_by_nomination = False  #: whether capacity reserved for nominated pods excluded a node
        self._excluded_nodes: dict[int, tuple[NodeReason, ...]] = {}

    def restrict(self, allowed: Mask) -> None:
        """Leave out all other nodes, as if they did not exist."""
        self.feasible &= allowed
        self.nodes = int(np.count_nonzero(self.snapshot.alive & allowed))
        self._excluded = [(rule, removed & allowed) for rule, removed in self._excluded]

    def apply(self, rule: Filter) -> None:
        """Exclude the nodes that a filter rejects; devices are left to `filter_devices` and to searches."""
        if isinstance(rule, DynamicResourcesFilter):
            self.devices = rule
        else:
            self._exclude_rejected(rule, rule.filter())
            if isinstance(rule, VolumeBindingFilter):
                self._volumes = rule

    def find_volumes(self, row: int) -> PodVolumes:
        """Return the volumes to bind for the pod on a feasible node."""
        found = NO_VOLUMES if self._volumes is None else self._volumes.find_volumes(row)
        assert isinstance(found, PodVolumes), "the node passed the filter"
        return found

    def sample(self, count: int) -> Mask | None:
        """Return the next nodes to score: `count` feasible ones, in turns; None if no node is feasible.

        Nodes without the devices are excluded after that, when they are searched: then the next ones follow.
        """
        if not self.feasible.any():
            return None
        if count >= len(self.snapshot):
            return self.feasible
        feasible = np.flatnonzero(self.feasible)
        if len(feasible) <= count:
            return self.feasible
        start = int(np.searchsorted(feasible, self.snapshot.next_start_row))
        sample = np.zeros_like(self.feasible)
        sample[np.roll(feasible, -start)[:count]] = True
        return sample

    def filter_devices(self) -> None:
        """Exclude the nodes on which no device search can succeed."""
        if self.devices is not None:
            self._before_devices = self.feasible.copy()
            self._exclude_rejected(self.devices, self.devices.candidates())

    def find_selector_error(self) -> NodeReason | None:
        """Return the first CEL error that a device search meets, on any node that passed the other filters.

        As kube-scheduler, which stops at a number of feasible nodes, it does not search all nodes.
        """
        if self.devices is None or not self.pod_info.unallocated_claims:
            return None
        failing = self.snapshot.index(SelectorErrorIndex).failing_nodes(self.pod_info, self.snapshot)
        if failing is None:
            return None
        for row in np.flatnonzero(failing & self._before_devices)[:SAMPLED_FROM].tolist():
            answer = self.search(self.devices, row)
            for reason in () if isinstance(answer, NodeFit) else answer:
                if is_selector_error(reason):
                    self.exclude(row, (reason,))
                    return reason
        return None

    def _exclude_rejected(self, rule: Filter, passed: Mask) -> None:
        removed = self.feasible & ~passed
        if removed.any():
            self._excluded.append((rule, removed))
            self.feasible &= passed
        if self._observer is not None:
            self._observer.on_filter(rule, removed)

    def exclude(self, row: int, reasons: tuple[NodeReason, ...]) -> None:
        """Exclude one node for the reasons an exact check gave."""
        self._excluded_nodes[row] = reasons
        self.feasible[row] = False
        if self._observer is not None:
            self._observer.on_node_excluded(row, reasons)

    def search(self, devices: DynamicResourcesFilter, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Search devices on one node."""
        answer = devices.search(row)
        if self._observer is not None:
            self._observer.on_device_search(row, isinstance(answer, NodeFit))
        return answer

    def search_all(self) -> NodeReason | None:
        """Search devices on every feasible node; return the first error, which ends the attempt."""
        if self.devices is None:
            return None
        for row in np.flatnonzero(self.feasible).tolist():
            answer = self.search(self.devices, row)
            if not isinstance(answer, NodeFit):
                for reason in answer:
                    if reason.code is VerdictCode.ERROR:
                        return reason
                self.exclude(row, answer)
        return None

    def fit_error(self) -> FitError:
        """Summarize why no node fits, and on which nodes preemption may help."""
        counts, resolvable = ReasonCounts(), np.zeros_like(self.feasible)
        for rule, removed in self._excluded:
            resolvable |= rule.resolvable_nodes(removed)
            for reason, nodes in rule.count_reasons(removed):
                counts.add(reason, nodes)
        for row, reasons in self._excluded_nodes.items():
            resolvable[row] = all(reason.resolvable for reason in reasons)
            for reason in reasons:
                counts.add(reason)
        return FitError(self.pod_info, self.nodes, tuple(counts.items()), resolvable)
