"""Plugin timings, sampled.

The scheduling cycle is pure and reads no clock; so for one attempt in a hundred every filter and scorer is
run once more with a timer. The results are exposed under kube-scheduler's plugin names and change no
decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from plimsoll.scheduler.devices import DynamicResourcesFilter
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.context import new_id
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.scores import SCORERS
from plimsoll.scheduler.snapshot.snapshot import Snapshot

SAMPLE_INTERVAL = 100
SUCCESS = "Success"


class PluginTimer:
    """Sampler of plugin durations."""

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

    @property
    def is_due(self) -> bool:
        """True if this attempt is sampled; counts attempts."""
        self._count += 1
        return self._count % self._interval == 1

    def measure(self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> None:
        """Time every filter and scorer for a pod."""
        clock, started = self._clock, self._clock()
        rules: list[Filter] = []
        for kind in FILTERS:
            start = clock()
            rule = kind.pre_filter(pod_info, snapshot)
            self._plugin(kind.rule.value, "PreFilter", clock() - start)
            if isinstance(rule, NodeReason):
                return  # rejected for all nodes
            if rule is not None:
                rules.append(rule)
        self._point("PreFilter", settings.name, clock() - started)
        started, left = clock(), snapshot.alive.copy()
        for rule in rules:
            start = clock()
            left &= rule.filter()
            self._plugin(rule.rule.value, "Filter", clock() - start)
        if pod_info.claims:
            start = clock()
            left &= DynamicResourcesFilter(pod_info, snapshot, new_id, settings).candidates()
            self._plugin(Rule.DEVICES.value, "Filter", clock() - start)
        self._point("Filter", settings.name, clock() - started)
        if not left.any():
            return
        started = clock()
        for scorer in SCORERS:
            start = clock()
            read = scorer.pre_score(pod_info, snapshot, settings) if settings.weights[scorer.name] else None
            if read is not None:
                read.scores(left)
                self._plugin(scorer.name, "Score", clock() - start)
        self._point("Score", settings.name, clock() - started)

    def _plugin(self, plugin: str, point: str, seconds: float) -> None:
        self._metrics.plugin.at(plugin, point, SUCCESS).observe(seconds)

    def _point(self, point: str, profile: str, seconds: float) -> None:
        self._metrics.extension_point.at(point, SUCCESS, profile).observe(seconds)
