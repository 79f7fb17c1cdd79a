"""Pods that have just been found to fit nowhere, so that the next one like it is answered at once.

Owns the memory of failed attempts. An answer holds while nothing has happened that could change it: for most
pods that is while nothing was given back (taking more never helps); for pods with rules about other pods,
while nothing has changed at all. A flood of hopeless pods costs little this way.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll.api.codec import encode
from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: How many different pods are remembered.
KEPT = 1024


class UnschedulableCache(SnapshotIndex):
    """Failed attempts, by everything about a pod that placement looks at."""

    def __init__(self) -> None:
        self._results: dict[bytes, tuple[int, int, FitError]] = {}
        self._joined = 0

    def pod_added(self, row: int, pod: Pod) -> None:
        self._joined += 1

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        self._joined += 1

    def node_removed(self, row: int, node: Node) -> None:
        self._joined += 1

    def get(self, pod_info: PodInfo, snapshot: Snapshot) -> FitError | None:
        """What is known of pods like this one, if it still holds."""
        if not self._results:
            return None
        known = self._results.get(pod_signature(pod_info))
        if known is None or known[0] != snapshot.generation:
            return None
        if known[1] != self._joined and _heeds_others(pod_info.pod):
            return None
        return replace(known[2], pod_info=pod_info)

    def put(self, pod_info: PodInfo, snapshot: Snapshot, fit_error: FitError) -> FitError:
        key = pod_signature(pod_info)
        self._results.pop(key, None)
        self._results[key] = (snapshot.generation, self._joined, fit_error)
        if len(self._results) > KEPT:
            del self._results[next(iter(self._results))]
        return fit_error


def pod_signature(pod_info: PodInfo) -> bytes:
    """Equal for pods that placement treats alike."""
    pod = pod_info.pod
    own = (pod.metadata.namespace, pod.metadata.labels, pod.spec, pod_info.resource_signature)
    return encode((*own, pod.status.nominated_node_name))


def _heeds_others(pod: Pod) -> bool:
    """Whether a pod that joins could help this one."""
    affinity = pod.spec.affinity
    together = affinity is not None and affinity.pod_affinity is not None
    return together or bool(pod.spec.topology_spread_constraints)
