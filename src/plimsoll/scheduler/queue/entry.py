"""Queue entries: pods in the scheduling queue, their states and attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from plimsoll.api.core import Pod
from plimsoll.scheduler.reasons import Rule


class QueueState(Enum):
    """State of a pod in the queue."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"  #: has scheduling gates
    HELD = "held"  #: one of its claims is missing
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class QueuedPodInfo:
    """Pod popped for a scheduling attempt."""

    pod: Pod
    key: str
    attempts: int  #: this one included
    queued_at: int  #: when it was first added
    first_tried_at: int


@dataclass(slots=True)
class QueueEntry:
    """Pod in the queue, with its state and the history of its attempts."""

    key: str
    pod: Pod
    queued_at: int
    since: int  #: when it was added or last failed
    number: int = 0  #: order among those with equal `since`
    state: QueueState = QueueState.ACTIVE
    attempts: int = 0
    failures: int = 0  #: attempts in which no node fit
    errors: int = 0  #: consecutive attempts that ended in an error
    first_tried_at: int | None = None
    due: int = 0  #: when its back-off ends
    eager: int = 0  #: remaining attempts before the back-off ends
    early: bool = False  #: whether the current attempt is one of those
    rules: frozenset[Rule] = frozenset()
    needs_capacity: bool = True  #: whether node capacity for its claims' charges was short
    watched: tuple[tuple[str, str], ...] = ()  #: claims a held pod waits for, by namespace and name
    # -- in flight
    changed: frozenset[Rule] = field(default_factory=frozenset)  #: rules affected by updates in flight
    activated: bool = False
    removed: bool = False
    readded: Pod | None = None  #: pod added under the same key after removal

    @property
    def priority(self) -> int:
        return self.pod.priority
