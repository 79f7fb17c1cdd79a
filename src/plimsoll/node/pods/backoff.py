"""How long a container that ended, or a step that failed, is left alone before the next try.

Owns the arithmetic of CrashLoopBackOff as the kubelet has it: the first restart comes at once, the second
after `first` seconds counted from the end of the container, and each further one after twice the wait, up to
`most`; a container that ran for longer than `reset` begins anew. Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Every span of time in a pod's life, in seconds. Tests make them short."""

    crash_first: float = 10.0
    crash_most: float = 300.0
    crash_reset: float = 600.0
    #: Between two tries of a step that failed: preparing, making the sandbox or a container, releasing.
    retry_first: float = 1.0
    retry_most: float = 60.0
    #: The least a container is given to end by itself, and what it gets if its pod vanished from the API.
    grace_least: float = 2.0
    grace_vanished: float = 2.0
    #: Grace where a pod names none.
    grace_default: float = 30.0
    #: How long a second of a probe's or a hook's settings is.
    second: float = 1.0
    #: How long values for the environment of a container may take to be read.
    reading: float = 10.0


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a container waits after its next end; `since` is when it was last started."""

    seconds: float
    since: float


def next_wait(known: Wait | None, finished_at: float, now: float, timing: Timing) -> Wait:
    """The wait that counts from a restart made now, of a container that ended at `finished_at`."""
    if known is None or finished_at - known.since > timing.crash_reset:
        return Wait(timing.crash_first, now)
    return Wait(min(known.seconds * 2, timing.crash_most), now)


def restart_at(known: Wait | None, finished_at: float, timing: Timing) -> float:
    """When a container that ended at `finished_at` may be restarted."""
    if known is None or finished_at - known.since > timing.crash_reset:
        return finished_at
    return finished_at + known.seconds


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that failed: why, how often in a row, and when last.

    `waits_for` are the UIDs of the claims whose release ends the back-off.
    """

    reason: str
    message: str
    count: int = 1
    at: float = 0.0
    waits_for: frozenset[str] = frozenset()

    def again_at(self, timing: Timing) -> float:
        doubled = timing.retry_first * (1 << min(self.count - 1, 32))
        return self.at + min(doubled, timing.retry_most)


def fail(
    known: Failure | None,
    reason: str,
    message: str,
    now: float,
    waits_for: frozenset[str] = frozenset(),
) -> Failure:
    """A failure that comes after `known`."""
    return Failure(reason, message, 1 if known is None else known.count + 1, now, waits_for)
