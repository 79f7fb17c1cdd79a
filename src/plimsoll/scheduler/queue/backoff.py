"""Queue settings and back-off times, in milliseconds.

Each failure doubles the back-off up to a maximum. Failures and errors are counted separately, as in
kube-scheduler.

DIFF: failures are forgotten when a pod has slept for twice the longest back-off: whoever waits for long in a
quiet cluster is tried soon when something happens at last, even if the first thing that happens is not what
it needs; upstream never forgets (test_who_has_slept_for_long_begins_anew).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings of the scheduling queue; the defaults are kube-scheduler's."""

    initial_backoff_ms: int = 1000
    max_backoff_ms: int = 10_000  #: 0 disables back-off
    flush_ms: int = 300_000  #: an unschedulable pod is retried after this time without any event
    #: A pod that failed no more often than this is tried again as soon as something helps it and nothing else
    #: is to be done, before its back-off is over, so many times in one back-off. DIFF: upstream does so
    #: however often it was in vain (test_a_woken_pod_is_tried_early_if_nothing_else_is_to_be_done).
    eager_failures: int = 3
    eager_tries: int = 3
    #: Number of consecutive retries of higher-priority pods after which a pod that was tried less is popped.
    retries_in_a_row: int = 8


def backoff_ms(settings: QueueSettings, failures: int) -> int:
    """Return the back-off after a number of consecutive failures."""
    longest = settings.max_backoff_ms
    if failures <= 0 or longest <= 0:
        return 0
    shift = failures - 1
    if settings.initial_backoff_ms > longest >> shift:  # avoids a huge intermediate number
        return longest
    return settings.initial_backoff_ms << shift
