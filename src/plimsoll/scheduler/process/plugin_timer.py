"""Plugin durations, sampled: one attempt in a hundred is observed with a clock.

The durations are exposed under kube-scheduler's plugin names.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.reasons import Rule

SAMPLE_INTERVAL = 100
SUCCESS = "Success"


class PluginTimer(CycleObserver):
    """Observer that measures the time between the steps of an attempt."""

    def __init__(
        self,
        metrics: Metrics,
        interval: int = SAMPLE_INTERVAL,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._metrics = metrics
        self._interval = interval
        self._clock = clock
        self._count = 0
        self._last = 0.0
        self._totals: dict[str, float] = {}

    def start(self) -> PluginTimer | None:
        """Count an attempt; return the observer if the attempt is sampled."""
        self._count += 1
        self._totals.clear()
        return self if self._count % self._interval == 1 else None

    def finish(self, profile: str) -> None:
        """Record the durations of the extension points."""
        for point, seconds in self._totals.items():
            self._metrics.extension_point.at(point, SUCCESS, profile).observe(seconds)

    def on_start(self) -> None:
        self._last = self._clock()

    def on_pre_filter(self, rule: Rule) -> None:
        self._record(rule.value, "PreFilter")

    def on_filter(self, rule: Filter, removed: Mask) -> None:
        self._record(rule.rule.value, "Filter")

    def on_score(self, scorer: str, weight: int, scores: Column) -> None:
        self._record(scorer, "Score")

    def _record(self, plugin: str, point: str) -> None:
        """Record the time since the last step."""
        now = self._clock()
        self._metrics.plugin.at(plugin, point, SUCCESS).observe(now - self._last)
        self._totals[point] = self._totals.get(point, 0.0) + now - self._last
        self._last = now
