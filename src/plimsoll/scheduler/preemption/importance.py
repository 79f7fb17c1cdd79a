"""Order of importance of pods: by priority, then by start time; pods that have not started are the
youngest.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod

#: Later than every timestamp.
_NOT_YET = "~"


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def started_at(pod: Pod) -> str:
    """Return the start time as a text that sorts by time (the API server writes seconds, in UTC)."""
    return pod.status.start_time or _NOT_YET


def most_important_first(pods: Iterable[Pod]) -> list[Pod]:
    """Sort key: highest priority first, then the earliest start."""
    return sorted(pods, key=lambda pod: (-priority_of(pod), started_at(pod)))
