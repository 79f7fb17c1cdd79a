"""Queue settings and back-off times, in milliseconds.

Each failure doubles the back-off up to a maximum. Failures and errors are counted separately, as in
kube-scheduler.

DIFF: the failure count is reset when a pod has waited for twice the maximum back-off, so that a pod in a
quiet cluster is retried soon after the first event, even if that event does not help it; upstream never
resets it (test_backoff_resets_after_a_long_wait).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings of the scheduling queue; the defaults are kube-scheduler's."""

    initial_backoff_ms: int = 1000
    max_backoff_ms: int = 10_000  #: 0 disables back-off
    flush_ms: int = 300_000  #: an unschedulable pod is retried after this time without any event
    #: A woken pod is retried before its back-off ends if the active queue is empty: up to this number of
    #: failures, and this number of times per back-off. DIFF: upstream does so regardless of failures
    #: (test_a_woken_pod_skips_backoff_if_the_queue_is_empty).
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
    if settings.initial_backoff_ms > longest >> shift:  # avoids huge numbers
        return longest
    return settings.initial_backoff_ms << shift
