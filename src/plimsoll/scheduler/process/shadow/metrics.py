"""Prometheus metrics of shadow mode."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.common.counters import MetricCounter
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.process.shadow.comparison import ShadowComparison


class ShadowMetrics:
    """Counts of comparisons, on the page of the scheduler's metrics."""

    def __init__(self, metrics: Metrics, pending: Callable[[], int]) -> None:
        self.outcomes = MetricCounter(
            "plimsoll_shadow_pods_total",
            "Number of pods compared with the binding of another scheduler, by outcome.",
            ("outcome", "raced", "profile"),
        )
        self.differences = MetricCounter(
            "plimsoll_shadow_differences_total",
            "Number of pods that would have been scheduled elsewhere, later or sooner, by plugin.",
            ("outcome", "plugin"),
        )
        metrics.register(self.outcomes, self.differences)
        metrics.watch(
            "plimsoll_shadow_pending_pods", "Number of pods that the other scheduler has not bound.", pending
        )

    def add(self, found: ShadowComparison, profile: str, *, raced: bool) -> None:
        """Count a comparison."""
        outcome = found.outcome.value
        self.outcomes.add(outcome, "true" if raced else "false", profile)
        for plugin in (found.plugins or ("",)) if found.outcome.is_difference else ():
            self.differences.add(outcome, plugin)
