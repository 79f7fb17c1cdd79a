"""Pages of metrics equal those of Prometheus' client library."""

from __future__ import annotations

from collections.abc import Iterable

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from plimsoll.common.counters import Histogram, MetricCounter
from plimsoll.common.metrics import CounterFamily, GaugeFamily, MetricRegistry, ProcessMetrics, format_value

BOUNDS = (0.5, 1.0, 2.0)
VALUES = st.integers(-(10**12), 10**12) | st.floats()
NAMES = ("zone", "a", "a1")
LABELS = st.tuples(*(st.text(st.characters(exclude_categories=["Cs"]), max_size=6) for _ in NAMES))


class _Given(Collector):
    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def library_page(*families: Metric) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(*families))
    return generate_latest(registry).decode()


@given(st.dictionaries(LABELS, VALUES, max_size=4), VALUES, st.text("ab\\\n\"'", max_size=8))
def test_gauges_and_counters(samples: dict[tuple[str, ...], float], value: float, help: str) -> None:
    ours, theirs = GaugeFamily("g", help, labels=NAMES), GaugeMetricFamily("g", help, labels=NAMES)
    for labels, number in samples.items():
        ours.add(labels, number, time=1234.5)
        theirs.add_metric(labels, number, timestamp=1234.5)
    counted = CounterFamily("c_total", help, value=value)
    page = ours.render() + counted.render()
    assert page == library_page(theirs, CounterMetricFamily("c", help, value=value))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.1, 0.5, 0.7, 1.0, 1.9, 2.0, 2.1, 9.0]))))
def test_observations(seen: list[tuple[str, float]]) -> None:
    counter, histogram = MetricCounter("c_total", "C.", ("x",)), Histogram("h", "H.", BOUNDS, ("x",))
    library = CollectorRegistry()
    other_counter = prometheus_client.Counter("c_total", "C.", ["x"], registry=library)
    other_histogram = prometheus_client.Histogram("h", "H.", ["x"], buckets=BOUNDS, registry=library)
    for label, value in seen:
        counter.add(label)
        histogram.at(label).observe(value)
        other_counter.labels(label).inc()
        other_histogram.labels(label).observe(value)
    theirs = [line for line in generate_latest(library).decode().splitlines() if "_created" not in line]
    assert (counter.family().render() + histogram.family().render()).splitlines() == theirs


@given(VALUES)
def test_numbers(value: float) -> None:
    assert format_value(value) == floatToGoString(value)  # type: ignore[no-untyped-call]


def test_the_figures_of_the_process_are_those_of_the_library() -> None:
    library = CollectorRegistry()
    prometheus_client.ProcessCollector(registry=library)
    prometheus_client.PlatformCollector(registry=library)
    theirs = {f.name: f for f in text_string_to_metric_families(generate_latest(library).decode())}
    page = MetricRegistry(ProcessMetrics()).render().decode()
    ours = {family.name: family for family in text_string_to_metric_families(page)}
    assert ours.keys() == theirs.keys()
    for name, family in ours.items():
        assert (family.type, family.documentation) == (theirs[name].type, theirs[name].documentation)
        assert [sample.labels for sample in family.samples] == [s.labels for s in theirs[name].samples]
    started = [found["process_start_time_seconds"].samples[0].value for found in (ours, theirs)]
    assert abs(started[0] - started[1]) < 2


def test_a_collector_can_be_removed() -> None:
    metrics = ProcessMetrics()
    registry = MetricRegistry(metrics)
    registry.unregister(metrics)
    assert registry.render() == b""
