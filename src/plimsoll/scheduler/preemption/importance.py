"""Importance of pods: by priority, then by start time."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod

#: Later than every timestamp.
_NOT_YET = "~"


def started_at(pod: Pod) -> str:
    """Return the start time as a sortable text; pods that have not started come last."""
    return pod.status.start_time or _NOT_YET


def most_important_first(pods: Iterable[Pod]) -> list[Pod]:
    """Return pods by priority, highest first, then by start time."""
    return sorted(pods, key=lambda pod: (-pod.priority, started_at(pod)))
