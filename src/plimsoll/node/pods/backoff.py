"""Back-off of crashed containers and failed steps.

CrashLoopBackOff as in the kubelet: the first restart is immediate, the second waits `crash_first` seconds
from the exit of the container, and each further one twice as long, up to `crash_max`; a container that ran
for longer than `crash_reset` starts over. A wait ends if the wall clock is set back behind its start. Pure:
time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTiming:
    """Durations of a pod's lifecycle, in seconds. Tests shorten them."""

    crash_first: float = 10.0
    crash_max: float = 300.0
    crash_reset: float = 600.0
    #: Back-off of a failed step: preparing claims, creating the sandbox or a container, releasing.
    retry_first: float = 1.0
    retry_max: float = 60.0
    #: Minimum grace period of a container, and the grace period after its pod was removed from the API.
    grace_min: float = 2.0
    grace_removed: float = 2.0
    #: Grace period of a pod that specifies none.
    grace_default: float = 30.0
    #: Length of one second of a probe's or hook's settings.
    second: float = 1.0
    #: Timeout for reading the objects that a container's environment refers to.
    reading: float = 10.0


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """Back-off of a container after its next exit; `since` is its last start."""

    seconds: float
    since: float


def next_backoff(
    known: RestartBackoff | None, finished_at: float, now: float, timing: PodTiming
) -> RestartBackoff:
    """Return the back-off after a restart at `now` of a container that exited at `finished_at`."""
    if known is None or finished_at - known.since > timing.crash_reset:
        return RestartBackoff(timing.crash_first, now)
    return RestartBackoff(min(known.seconds * 2, timing.crash_max), now)


def restart_at(known: RestartBackoff | None, finished_at: float, timing: PodTiming) -> float:
    """Return the time at which a container that exited at `finished_at` may be restarted."""
    if known is None or finished_at - known.since > timing.crash_reset:
        return finished_at
    return finished_at + known.seconds


@dataclass(frozen=True, slots=True)
class StepFailure:
    """Failed step: the reason, the number of consecutive failures, and the time of the last.

    `waits_for` are the UIDs of the claims whose release ends the back-off.
    """

    reason: str
    message: str
    count: int = 1
    at: float = 0.0
    waits_for: frozenset[str] = frozenset()

    def delay(self, timing: PodTiming) -> float:
        """Return the time between the failure and the next attempt."""
        doubled = timing.retry_first * (1 << min(self.count - 1, 32))
        return min(doubled, timing.retry_max)

    def waits_until(self, now: float, timing: PodTiming) -> float | None:
        """Return the time of the next attempt, None if it is due."""
        again = self.at + self.delay(timing)
        return again if self.at <= now < again else None


def record_failure(
    known: StepFailure | None,
    reason: str,
    message: str,
    now: float,
    waits_for: frozenset[str] = frozenset(),
) -> StepFailure:
    """Return a failure that follows `known`."""
    return StepFailure(reason, message, 1 if known is None else known.count + 1, now, waits_for)
