"""Which pods matter more.

Owns the order in which pods are spared: by priority, then by how long they have been running. Pods that have
not started yet are the youngest.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod

#: Later than every time that can be written.
_NOT_YET = "~"


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def started_at(pod: Pod) -> str:
    """When a pod was started, as a text that sorts by time (the API server writes whole seconds, in UTC)."""
    return pod.status.start_time or _NOT_YET


def most_important_first(pods: Iterable[Pod]) -> list[Pod]:
    """Highest priority first, and among equals the one that has been running longest."""
    return sorted(pods, key=lambda pod: (-priority_of(pod), started_at(pod)))
