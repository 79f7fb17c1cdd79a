"""Counters and histograms agree with prometheus-client."""

from __future__ import annotations

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from plimsoll.common.counters import Histogram, MetricCounter, exponential

BOUNDS = (0.5, 1.0, 2.0)


class Shown(Collector):
    def __init__(self, *kept: MetricCounter | Histogram) -> None:
        self._kept = kept

    def collect(self):  # type: ignore[no-untyped-def]
        return [each.family() for each in self._kept]


def page(registry: CollectorRegistry) -> list[str]:
    """Return the metrics without creation times, which we do not keep."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0.1, 0.5, 0.7, 1.0, 1.9, 2.0, 2.1, 9.0]))
    )
)
def test_the_page_equals_that_of_prometheus_client(seen: list[tuple[str, float]]) -> None:
    counter, histogram = MetricCounter("c_total", "C.", ("x",)), Histogram("h", "H.", BOUNDS, ("x",))
    registry, theirs = CollectorRegistry(), CollectorRegistry()
    other_counter = prometheus_client.Counter("c_total", "C.", ["x"], registry=theirs)
    other_histogram = prometheus_client.Histogram("h", "H.", ["x"], buckets=BOUNDS, registry=theirs)
    for label, value in seen:
        counter.add(label)
        histogram.at(label).observe(value)
        other_counter.labels(label).inc()
        other_histogram.labels(label).observe(value)
    registry.register(Shown(counter, histogram))
    assert page(registry) == page(theirs)


def test_metrics_without_labels_start_at_zero() -> None:
    registry = CollectorRegistry()
    registry.register(Shown(MetricCounter("c_total", "C."), Histogram("h", "H.", BOUNDS)))
    assert "c_total 0.0" in page(registry)
    assert "h_count 0.0" in page(registry)


def test_exponential_bounds() -> None:
    assert exponential(1, 2, 4) == (1, 2, 4, 8)
