"""Pods that have just been found to fit nowhere, so that the next one like it is answered at once.

Owns the memory of failed attempts. An answer holds while nothing has happened that could change it: for most
pods that is while nothing was given back (taking more never helps); for pods with rules about other pods,
while nothing has changed at all. A flood of hopeless pods costs little this way.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll.api.codec import encode
from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.result import Unplaced
from plimsoll.scheduler.snapshot.index import Index
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: How many different pods are remembered.
KEPT = 1024


class Hopeless(Index):
    """Failed attempts, by everything about a pod that placement looks at."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int, Unplaced]] = {}
        self._joined = 0

    def pod_added(self, place: int, pod: Pod) -> None:
        self._joined += 1

    def node_set(self, place: int, node: Node, old: Node | None) -> None:
        self._joined += 1

    def node_removed(self, place: int, node: Node) -> None:
        self._joined += 1

    def recall(self, task: Task, snapshot: Snapshot) -> Unplaced | None:
        """What is known of pods like this one, if it still holds."""
        if not self._known:
            return None
        known = self._known.get(likeness(task))
        if known is None or known[0] != snapshot.stamp:
            return None
        if known[1] != self._joined and _heeds_others(task.pod):
            return None
        return replace(known[2], task=task)

    def remember(self, task: Task, snapshot: Snapshot, unplaced: Unplaced) -> Unplaced:
        key = likeness(task)
        self._known.pop(key, None)
        self._known[key] = (snapshot.stamp, self._joined, unplaced)
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        return unplaced


def likeness(task: Task) -> bytes:
    """Equal for pods that placement treats alike."""
    pod = task.pod
    own = (pod.metadata.namespace, pod.metadata.labels, pod.spec, task.shape)
    return encode((*own, pod.status.nominated_node_name))


def _heeds_others(pod: Pod) -> bool:
    """Whether a pod that joins could help this one."""
    affinity = pod.spec.affinity
    together = affinity is not None and affinity.pod_affinity is not None
    return together or bool(pod.spec.topology_spread_constraints)
