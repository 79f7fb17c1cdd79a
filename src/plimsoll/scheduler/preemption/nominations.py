"""Nominated pods and their nodes.

A pod whose victims are terminating is nominated to their node; until it is scheduled, its capacity is
reserved from pods of the same or lower priority (`filter_node`). Nominations come from
`status.nominatedNodeName` and from our own preemptions, which apply before they are written. The nomination
of a pod that is bound, assumed or deleted must be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.importance import most_important_first
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Nomination:
    """Pod and its nominated node."""

    pod: Pod
    node: str
    written: bool  #: whether the pod's status contains it
    victims: frozenset[str] = frozenset()  #: keys of pods that are being evicted


class Nominations:
    """Nominated pods of a cluster."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}
        self._by_node: dict[str, dict[str, Nomination]] = {}
        #: Incremented whenever a nomination is added or removed.
        self.version = 0

    def __len__(self) -> int:
        return len(self._by_pod)

    # -- changes

    def update(self, pod: Pod) -> None:
        """Apply a new or changed pod."""
        key, name = pod_key(pod), pod.status.nominated_node_name
        if pod.spec.node_name or pod.has_terminated:
            self.drop(key)
            return
        known = self._by_pod.get(key)
        if known is not None and not known.written and name != known.node:
            self._put(replace(known, pod=pod))  # not written to the API yet
        elif name:
            victims = known.victims if known is not None and known.node == name else frozenset()
            self._put(Nomination(pod, name, True, victims))
        else:
            self.drop(key)

    def nominate(self, pod: Pod, node: str, victims: Iterable[Pod] = ()) -> None:
        """Nominate a pod to a node; it waits for `victims` to terminate."""
        written = pod.status.nominated_node_name == node
        self._put(Nomination(pod, node, written, frozenset(map(pod_key, victims))))

    def drop(self, key: str) -> None:
        """Remove a nomination, if there is one."""
        known = self._by_pod.pop(key, None)
        if known is None:
            return
        self.version += 1
        here = self._by_node[known.node]
        del here[key]
        if not here:
            del self._by_node[known.node]

    def _put(self, nomination: Nomination) -> None:
        key = pod_key(nomination.pod)
        self.drop(key)
        self.version += 1
        self._by_pod[key] = nomination
        self._by_node.setdefault(nomination.node, {})[key] = nomination

    # -- queries

    def get(self, key: str) -> Nomination | None:
        return self._by_pod.get(key)

    def at(self, node: str, priority: int, exclude: str = "") -> list[Pod]:
        """Return the pods nominated to a node with at least this priority, without the pod `exclude`."""
        here = self._by_node.get(node)
        if not here:
            return []
        found = (each.pod for key, each in here.items() if key != exclude)
        return most_important_first(pod for pod in found if pod.priority >= priority)

    def lower_at(self, node: str, priority: int) -> list[Pod]:
        """Return the pods of lower priority nominated to a node."""
        here = self._by_node.get(node, {})
        return [each.pod for each in here.values() if each.pod.priority < priority]

    def filter_node(self, pod_info: PodInfo, row: int, snapshot: Snapshot) -> tuple[NodeReason, ...]:
        """Return why a pod does not fit on a node together with the pods nominated to it."""
        if not self._by_node:
            return ()
        others = self.at(snapshot.node(row).metadata.name, pod_info.priority, pod_info.key)
        if not others:
            return ()
        node_filter = NodeFilter(pod_info, snapshot, pod_info.profile, static=False)
        with NodeSimulation(snapshot, row, node_filter.nominated_claims(others)) as simulation:
            answer = node_filter.run_among(others, simulation)
        return () if isinstance(answer, NodeFit) else answer
