"""Metrics in Prometheus' text format: families of samples, their registry, and the figures of the process.

The client library would cost each process 2 MB of memory, because it imports an HTTP server. A test compares
pages with those of the library.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isinf, isnan
from pathlib import Path
from typing import ClassVar, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: From this number of digits on, Go formats a number with an exponent.
_EXPONENT_DIGITS = 6
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class MetricFamily:
    """All samples of a metric, each rendered when it is added. `value` is that of a metric without labels."""

    __slots__ = ("_help", "_lines", "labels", "name")
    kind: ClassVar[str]

    def __init__(
        self, name: str, help: str, *, labels: Sequence[str] = (), value: float | None = None
    ) -> None:
        self.name = name
        self._help, self.labels = help, tuple(labels)
        self._lines: list[str] = []
        if value is not None:
            self.add((), value)

    def add(self, labels: Sequence[str], value: float, *, time: float | None = None) -> None:
        """Add a sample with the values of the labels; `time` is in seconds since the epoch."""
        when = "" if time is None else f" {int(time * 1000)}"
        self._lines.append(f"{self.name}{format_labels(self.labels, labels)} {format_value(value)}{when}\n")

    def render(self, *, is_continued: bool = False) -> str:
        """Return the lines; those that describe the metric only if the page does not have them yet."""
        if is_continued:
            return "".join(self._lines)
        head = f"# HELP {self.name} {self._help.translate(_HELP)}\n# TYPE {self.name} {self.kind}\n"
        return head + "".join(self._lines)


class GaugeFamily(MetricFamily):
    """Values that rise and fall."""

    __slots__ = ()
    kind = "gauge"


class CounterFamily(MetricFamily):
    """Values that only rise; the name usually ends in `_total`."""

    __slots__ = ()
    kind = "counter"


class HistogramFamily(MetricFamily):
    """Observations counted in buckets."""

    __slots__ = ()
    kind = "histogram"

    def add_buckets(
        self, labels: Sequence[str], bounds: Iterable[float], counts: Iterable[int], total: float
    ) -> None:
        """Add the buckets of one combination of labels: observations up to each bound, then those above."""
        seen, lines, names = 0, self._lines, (*self.labels, "le")
        for bound, count in zip((*bounds, inf), counts, strict=True):
            seen += count
            values = (*labels, format_value(bound))
            lines.append(f"{self.name}_bucket{format_labels(names, values)} {format_value(seen)}\n")
        shown = format_labels(self.labels, labels)
        lines.append(f"{self.name}_count{shown} {format_value(seen)}\n")
        lines.append(f"{self.name}_sum{shown} {format_value(total)}\n")


def format_labels(names: Sequence[str], values: Sequence[str]) -> str:
    """Format the labels of a sample, in the order of their names."""
    if not names:
        return ""
    ordered = sorted(zip(names, values, strict=True))
    pairs = [f'{name}="{value.translate(_VALUE)}"' for name, value in ordered]
    return "{" + ",".join(pairs) + "}"


def format_value(value: float) -> str:
    """Format a number as Go does."""
    number = float(value)
    if isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if isnan(number):
        return "NaN"
    text = repr(number)
    digits = text.find(".")
    if number > 0 and digits > _EXPONENT_DIGITS:
        mantissa = f"{text[0]}.{text[1:digits]}{text[digits + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{digits - 1:02d}"
    return text


class MetricCollector(Protocol):
    """Source of families, asked at every scrape."""

    def collect(self) -> Iterable[MetricFamily]: ...


class MetricRegistry:
    """Collectors of one page, in the order of their registration."""

    def __init__(self, *collectors: MetricCollector) -> None:
        self._collectors = list(collectors)

    def register(self, collector: MetricCollector) -> None:
        self._collectors.append(collector)

    def unregister(self, collector: MetricCollector) -> None:
        self._collectors.remove(collector)

    def collect(self) -> Iterator[MetricFamily]:
        for collector in list(self._collectors):
            yield from collector.collect()

    def parts(self) -> Iterator[bytes]:
        """Yield the page family by family; several of one name in a row are parts of one family."""
        last = ""
        for family in self.collect():
            yield family.render(is_continued=family.name == last).encode()
            last = family.name

    def render(self) -> bytes:
        return b"".join(self.parts())


class ProcessMetrics:
    """Memory, CPU time and files of this process and its Python, under the client libraries' names."""

    def collect(self) -> Iterator[MetricFamily]:
        version = platform.python_version_tuple()
        info = GaugeFamily(
            "python_info",
            "Python platform information",
            labels=("implementation", "major", "minor", "patchlevel", "version"),
        )
        info.add((platform.python_implementation(), *version, platform.python_version()), 1)
        yield info
        try:
            fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            boot = next(
                line
                for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()
                if line.startswith("btime ")
            )
            files = len(os.listdir("/proc/self/fd"))
        except (OSError, StopIteration):  # not Linux
            return
        import resource  # noqa: PLC0415 - Windows has none

        page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
        started = float(boot.split()[1]) + int(fields[19]) / tick
        cpu = (int(fields[11]) + int(fields[12])) / tick
        yield GaugeFamily(
            "process_virtual_memory_bytes", "Virtual memory size in bytes.", value=int(fields[20])
        )
        yield GaugeFamily(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            value=int(fields[21]) * page,
        )
        yield GaugeFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            value=started,
        )
        yield CounterFamily(
            "process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", value=cpu
        )
        yield GaugeFamily("process_open_fds", "Number of open file descriptors.", value=files)
        yield GaugeFamily(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            value=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
