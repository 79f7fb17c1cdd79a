"""Cheap counters and histograms, exported to Prometheus on demand.

Single-threaded: a counter is a number in a dict and a histogram a list of numbers, without locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from plimsoll.common.metrics import CounterFamily, GaugeFamily, HistogramFamily

#: Samples in a part of a counter: about those of a histogram with one combination of labels.
_PART_SAMPLES = 32


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets, each `factor` times the previous one."""
    return tuple(first * factor**power for power in range(count))


class MetricCounter:
    """Counter with labels."""

    __slots__ = ("help", "labels", "name", "values")

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.values: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def add(self, *labels: str, count: int = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + count

    def family(self) -> CounterFamily:
        return self._family_of(self.values.items())

    def parts(self) -> Iterator[CounterFamily]:
        """Yield the family in parts of a few samples each; the counter may change in between."""
        values = list(self.values.items())
        for start in range(0, max(len(values), 1), _PART_SAMPLES):
            yield self._family_of(values[start : start + _PART_SAMPLES])

    def _family_of(self, values: Iterable[tuple[tuple[str, ...], int]]) -> CounterFamily:
        family = CounterFamily(self.name, self.help, labels=self.labels)
        for labels, value in values:
            family.add(labels, value)
        return family


class Buckets:
    """Observations of one combination of labels."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Histogram:
    """Histogram with labels."""

    __slots__ = ("_bounds", "_children", "help", "labels", "name")

    def __init__(self, name: str, help: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()) -> None:
        self.name, self.help, self.labels = name, help, labels
        self._bounds = bounds
        self._children: dict[tuple[str, ...], Buckets] = {}
        if not labels:
            self.at()

    def at(self, *labels: str) -> Buckets:
        """Return the buckets of one combination of labels; keep them to save the lookup."""
        found = self._children.get(labels)
        if found is None:
            found = self._children[labels] = Buckets(self._bounds)
        return found

    def family(self) -> HistogramFamily:
        family = self._empty_family()
        for labels, child in self._children.items():
            family.add_buckets(labels, self._bounds, child.counts, child.total)
        return family

    def parts(self) -> Iterator[HistogramFamily]:
        """Yield the family in parts, one for each combination of labels; observations may come in between."""
        if not self._children:
            yield self._empty_family()
        for labels, child in list(self._children.items()):
            family = self._empty_family()
            family.add_buckets(labels, self._bounds, child.counts, child.total)
            yield family

    def _empty_family(self) -> HistogramFamily:
        return HistogramFamily(self.name, self.help, labels=self.labels)


def gauge(
    name: str, help: str, label: str, values: Mapping[str, float] | Iterable[tuple[str, float]]
) -> GaugeFamily:
    """Build a gauge with one label from current values."""
    family = GaugeFamily(name, help, labels=[label])
    for key, value in dict(values).items():
        family.add([key], value)
    return family
