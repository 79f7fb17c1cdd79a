"""Prometheus metrics of priority and fairness, under kube-apiserver's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plimsoll.apiserver.flowcontrol.queue_set import QueueSet
from plimsoll.apiserver.flowcontrol.seat_demand import SeatLimits
from plimsoll.common.counters import Buckets, Histogram, MetricCounter, gauge
from plimsoll.common.metrics import GaugeFamily, MetricFamily

_PREFIX = "apiserver_flowcontrol_"
_LABELS = ("priority_level", "flow_schema")
_SECONDS = (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_LENGTHS = (0, 10, 25, 50, 100, 250, 500, 1000)
_SEATS = (1, 2, 4, 8, 16, 32, 64, 100)


class FlowMetrics:
    """Metrics of all levels; `queue_sets` and `limits` are those of the flow controller, by level.

    Those with labels of requests are collected in parts, for `RequestMetrics.expose`.
    """

    def __init__(self, queue_sets: Mapping[str, QueueSet], limits: Mapping[str, SeatLimits]) -> None:
        self._queue_sets, self._limits = queue_sets, limits
        self.fair_fraction = 0.0
        self.rejected = MetricCounter(
            f"{_PREFIX}rejected_requests_total", "Number of rejected requests.", (*_LABELS, "reason")
        )
        self.dispatched = MetricCounter(
            f"{_PREFIX}dispatched_requests_total", "Number of requests that got seats.", _LABELS
        )
        self._wait = Histogram(
            f"{_PREFIX}request_wait_duration_seconds",
            "Time that requests waited for seats, by whether they got them.",
            _SECONDS,
            (*_LABELS, "execute"),
        )
        self._execution = Histogram(
            f"{_PREFIX}request_execution_seconds",
            "Time that requests held their seats; of watches, until the initial events are sent.",
            _SECONDS,
            (*_LABELS, "type"),
        )
        self._queue_length = Histogram(
            f"{_PREFIX}request_queue_length_after_enqueue",
            "Length of the queue after a request was added to it.",
            _LENGTHS,
            _LABELS,
        )
        self._work = Histogram(
            f"{_PREFIX}work_estimated_seats", "Estimated number of seats of requests.", _SEATS, _LABELS
        )

    def wait(self, level: str, schema: str, *, execute: bool) -> Buckets:
        return self._wait.at(level, schema, "true" if execute else "false")

    def execution(self, level: str, schema: str, *, is_watch: bool) -> Buckets:
        return self._execution.at(level, schema, "watch" if is_watch else "regular")

    def queue_length(self, level: str, schema: str) -> Buckets:
        return self._queue_length.at(level, schema)

    def work(self, level: str, schema: str) -> Buckets:
        return self._work.at(level, schema)

    def collect(self) -> Iterator[MetricFamily]:
        for counter in (self.rejected, self.dispatched):
            yield from counter.parts()
        for histogram in (self._wait, self._execution, self._queue_length, self._work):
            yield from histogram.parts()
        yield self._by_schema("current_inqueue_requests", "Number of waiting requests.", "waiting")
        yield self._by_schema(
            "current_executing_requests", "Number of requests that hold seats.", "executing"
        )
        yield self._by_schema("current_executing_seats", "Number of seats in use.", "executing_seats")
        yield from self._limit_gauges()
        yield GaugeFamily(
            f"{_PREFIX}seat_fair_frac",
            "Fair fraction of the seats that levels could use.",
            value=self.fair_fraction,
        )

    def _by_schema(self, name: str, help: str, attribute: str) -> MetricFamily:
        family = GaugeFamily(_PREFIX + name, help, labels=_LABELS)
        for level, queue_set in self._queue_sets.items():
            for schema, value in getattr(queue_set, attribute).items():
                family.add((level, schema), value)
        return family

    def _limit_gauges(self) -> Iterator[MetricFamily]:
        limits = self._limits.items()
        for name, help, values in (
            ("nominal_limit_seats", "Nominal number of seats.", {k: v.nominal for k, v in limits}),
            ("lower_limit_seats", "Lowest limit of seats, by lending.", {k: v.lower for k, v in limits}),
            ("upper_limit_seats", "Highest limit of seats, by borrowing.", {k: v.upper for k, v in limits}),
            ("current_limit_seats", "Current limit of seats.", {k: v.current for k, v in limits}),
            (
                "demand_seats_high_watermark",
                "Highest demand in the last interval.",
                {k: v.sample.highest for k, v in limits},
            ),
            (
                "demand_seats_average",
                "Average demand in the last interval.",
                {k: v.sample.average for k, v in limits},
            ),
            (
                "demand_seats_stdev",
                "Standard deviation of the demand in the last interval.",
                {k: v.sample.deviation for k, v in limits},
            ),
            ("demand_seats_smoothed", "Smoothed demand.", {k: v.smoothed for k, v in limits}),
            ("target_seats", "Target of the current limit.", {k: v.target for k, v in limits}),
        ):
            yield gauge(_PREFIX + name, help, "priority_level", values)
