"""Durations of plugins and extension points, under kube-scheduler's names.

One attempt in ten is measured, as in kube-scheduler: measuring costs a tenth of an attempt. The duration of a
plugin at an extension point is the sum over all nodes, with one observation per attempt: for DynamicResources
at Filter it includes all device searches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.binding.result import BindFailure, BindPoint, BindStep
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement

SAMPLE_INTERVAL = 10
SUCCESS, SKIP = VerdictCode.SUCCESS.value, "Skip"
PRE_FILTER, FILTER, POST_FILTER, SCORE, RESERVE = "PreFilter", "Filter", "PostFilter", "Score", "Reserve"
BINDER = "DefaultBinder"


class PluginTimer(CycleObserver):
    """Observer that measures the time between the steps of an attempt."""

    needs_all_steps: ClassVar[bool] = False

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
        self._seconds: dict[tuple[str, str], float] = {}
        self._skipped: set[tuple[str, str]] = set()

    def start(self) -> PluginTimer | None:
        """Count an attempt; return the observer if the attempt is measured."""
        self._count += 1
        if self._count % self._interval != 1 % self._interval:
            return None
        self._seconds.clear()
        self._skipped.clear()
        return self

    def finish(self, profile: str, outcome: Placement | FitError | NodeReason) -> None:
        """Record the durations of an attempt."""
        totals: dict[str, float] = {}
        for (_, point), seconds in self._seconds.items():
            totals[point] = totals.get(point, 0.0) + seconds
        # An attempt without a placement fails at Filter, or at PreFilter if no node was considered.
        failed_at = None if isinstance(outcome, Placement) else FILTER if FILTER in totals else PRE_FILTER
        codes = _codes(outcome)
        for (plugin, point), seconds in self._seconds.items():
            status = codes.get(plugin, SUCCESS) if point == failed_at else SUCCESS
            if (plugin, point) in self._skipped:
                status = SKIP
            self._metrics.plugin.at(plugin, point, status).observe(seconds)
        for point, seconds in totals.items():
            status = _worst(codes.values()) if point == failed_at else SUCCESS
            self._metrics.extension_point.at(point, status, profile).observe(seconds)

    def on_start(self) -> None:
        self._last = self._clock()

    def on_pre_filter(self, rule: Rule, prepared: Filter | NodeReason | None) -> None:
        if prepared is None:
            self._skipped.add((rule.value, PRE_FILTER))
        self._add(rule.value, PRE_FILTER)

    def on_filter(self, rule: Filter, removed: Mask) -> None:
        self._add(rule.rule.value, FILTER)

    def on_device_search(self, row: int, found: bool) -> None:
        self._add(Rule.DEVICES.value, FILTER)

    def on_score(self, scorer: str, weight: int, scores: Column) -> None:
        self._add(scorer, SCORE)

    def _add(self, plugin: str, point: str) -> None:
        """Add the time since the last step."""
        now = self._clock()
        key = (plugin, point)
        self._seconds[key] = self._seconds.get(key, 0.0) + now - self._last
        self._last = now


def record_point(
    metrics: Metrics, point: str, plugin: str, profile: str, seconds: float, status: str = SUCCESS
) -> None:
    """Record an extension point at which one plugin works."""
    metrics.extension_point.at(point, status, profile).observe(seconds)
    metrics.plugin.at(plugin, point, status).observe(seconds)


def record_binding(
    metrics: Metrics, placement: Placement, point: BindPoint, seconds: float, failed: BindFailure | None
) -> None:
    """Record a point of a binding.

    Claims and volumes are written before the pod is bound, and released on failure; the time for both counts
    for each of their plugins, an error for the one that failed.
    """
    plugins = [BINDER] if point is BindPoint.BIND else _working_plugins(placement)
    if not plugins:
        return
    status = SUCCESS if failed is None else VerdictCode.ERROR.value
    profile = placement.pod_info.pod.spec.scheduler_name
    metrics.extension_point.at(point.value, status, profile).observe(seconds)
    late = failed is not None and failed.step is BindStep.VOLUMES and point is BindPoint.PRE_BIND
    for plugin in plugins:
        is_other = point is not BindPoint.BIND and late != (plugin == Rule.VOLUME_BINDING.value)
        metrics.plugin.at(plugin, point.value, SUCCESS if is_other else status).observe(seconds)


def _working_plugins(placement: Placement) -> list[str]:
    """Return the plugins that write something for a pod before it is bound."""
    found = [Rule.VOLUME_BINDING.value] if placement.volumes else []
    return [*found, Rule.DEVICES.value] if placement.pod_info.claims else found


def _codes(outcome: Placement | FitError | NodeReason) -> dict[str, str]:
    """Return the status of each plugin that rejected the pod or a node, in kube-scheduler's words."""
    found: dict[str, list[str]] = {}
    for reason, _ in outcome.reasons if isinstance(outcome, FitError) else ():
        found.setdefault(reason.rule.value, []).append(reason.code.value)
    return {plugin: _worst(codes) for plugin, codes in found.items()}


def _worst(codes: Iterable[str]) -> str:
    """Return the status of several nodes: an error, else one that preemption can change."""
    order = (VerdictCode.ERROR, VerdictCode.UNSCHEDULABLE, VerdictCode.UNRESOLVABLE)
    known = set(codes)
    return next((code.value for code in order if code.value in known), VerdictCode.UNSCHEDULABLE.value)
