"""Counters and histograms."""

from __future__ import annotations

from plimsoll.common.counters import Histogram, MetricCounter, exponential
from plimsoll.common.metrics import MetricRegistry

BOUNDS = (0.5, 1.0, 2.0)


class Parts:
    """Collector of metrics in parts."""

    def __init__(self, *metrics: MetricCounter | Histogram) -> None:
        self._metrics = metrics

    def collect(self):  # type: ignore[no-untyped-def]
        for metric in self._metrics:
            yield from metric.parts()


def test_metrics_without_labels_start_at_zero() -> None:
    assert "c_total 0.0\n" in MetricCounter("c_total", "C.").family().render()
    assert "h_count 0.0\n" in Histogram("h", "H.", BOUNDS).family().render()


def test_a_page_of_parts_equals_that_of_whole_families() -> None:
    counter, histogram = MetricCounter("c_total", "C.", ("x",)), Histogram("h", "H.", BOUNDS, ("x",))
    for number in range(100):
        counter.add(str(number), count=number)
        histogram.at(str(number)).observe(number / 50)
    whole = counter.family().render() + histogram.family().render()
    assert MetricRegistry(Parts(counter, histogram)).render().decode() == whole


def test_exponential_bounds() -> None:
    assert exponential(1, 2, 4) == (1, 2, 4, 8)
