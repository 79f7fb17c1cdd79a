"""How long each rule takes, measured on one attempt in many.

Owns `Probe`. The cycle is pure and knows no clock; so for one attempt in a hundred every rule and every
scorer is asked once more, by itself, with a clock beside it. What is found out goes into the metrics under
the names that kube-scheduler gives its plugins; it changes no decision.
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

EVERY = 100
SUCCESS = "Success"


class Probe:
    """Measures; `due` says when it is time."""

    def __init__(
        self, metrics: Metrics, every: int = EVERY, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._metrics = metrics
        self._every = every
        self._clock = clock
        self._count = 0

    @property
    def due(self) -> bool:
        """Whether this attempt is one of those; counts them."""
        self._count += 1
        return self._count % self._every == 1

    def measure(self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> None:
        """Ask every rule and every scorer about a task."""
        clock, began = self._clock, self._clock()
        rules: list[Filter] = []
        for kind in FILTERS:
            start = clock()
            rule = kind.pre_filter(pod_info, snapshot)
            self._plugin(kind.rule.value, "PreFilter", clock() - start)
            if isinstance(rule, NodeReason):
                return  # no node will do: nothing else is asked
            if rule is not None:
                rules.append(rule)
        self._point("PreFilter", settings.name, clock() - began)
        began, left = clock(), snapshot.alive.copy()
        for rule in rules:
            start = clock()
            left &= rule.filter()
            self._plugin(rule.rule.value, "Filter", clock() - start)
        if pod_info.claims:
            start = clock()
            left &= DynamicResourcesFilter(pod_info, snapshot, new_id, settings).candidates()
            self._plugin(Rule.DEVICES.value, "Filter", clock() - start)
        self._point("Filter", settings.name, clock() - began)
        if not left.any():
            return
        began = clock()
        for scorer in SCORERS:
            start = clock()
            read = scorer.read(pod_info, snapshot, settings) if settings.weights[scorer.name] else None
            if read is not None:
                read.scores(left)
                self._plugin(scorer.name, "Score", clock() - start)
        self._point("Score", settings.name, clock() - began)

    def _plugin(self, plugin: str, point: str, seconds: float) -> None:
        self._metrics.plugin.at(plugin, point, SUCCESS).observe(seconds)

    def _point(self, point: str, profile: str, seconds: float) -> None:
        self._metrics.extension_point.at(point, SUCCESS, profile).observe(seconds)
