"""Prometheus metrics of the CPU driver: the Go driver's, with their names, and additional ones.

`SPECS` lists all metrics; `CpuMetrics` counts events and reads gauges from the driver's state at every
scrape, so that they are correct right after a restart. Names, types, help texts and buckets of the first
eight are the Go driver's, so that its dashboards keep working.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.common.counters import Histogram, MetricCounter
from plimsoll.common.metrics import CounterFamily, GaugeFamily, MetricFamily, MetricRegistry, ProcessMetrics
from plimsoll.drivers.cpu.observer import ERROR, SUCCESS, Observer

STABILITY = "ALPHA"
_RESULTS = (SUCCESS, ERROR, "unknown")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CPUS = tuple(float(1 << power) for power in range(11))


@dataclass(frozen=True, slots=True)
class CpuMetricSpec:
    """Name, type, help text and labels of a metric."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


ALLOCATED = CpuMetricSpec(
    "dra_cpu_allocated_cpus", "gauge", "Number of CPUs currently allocated to prepared resource claims."
)
AVAILABLE = CpuMetricSpec(
    "dra_cpu_available_cpus",
    "gauge",
    "Number of CPUs available for allocation after reserved and active claim CPUs are excluded.",
)
RESERVED = CpuMetricSpec(
    "dra_cpu_reserved_cpus", "gauge", "Number of CPUs reserved and excluded from DRA management."
)
CLAIMS = CpuMetricSpec(
    "dra_cpu_resource_claims_active",
    "gauge",
    "Number of resource claims currently recorded as active by the allocation store.",
)
PREPARED = CpuMetricSpec(
    "dra_cpu_prepare_claims_total",
    "counter",
    "Total number of per-claim PrepareResourceClaims results.",
    ("result",),
)
RELEASED = CpuMetricSpec(
    "dra_cpu_unprepare_claims_total",
    "counter",
    "Total number of per-claim UnprepareResourceClaims results.",
    ("result",),
)
DURATION = CpuMetricSpec(
    "dra_cpu_prepare_claim_duration_seconds",
    "histogram",
    "Duration of per-claim prepare operations in seconds.",
)
ASSIGNED = CpuMetricSpec(
    "dra_cpu_claim_allocated_cpus",
    "histogram",
    "Number of CPUs allocated for each newly successful claim allocation.",
)
DEVICE_CPUS = CpuMetricSpec(
    "plimsoll_cpu_device_cpus", "gauge", "CPUs of a device that can be claimed.", ("device",)
)
DEVICE_FREE = CpuMetricSpec(
    "plimsoll_cpu_device_free_cpus", "gauge", "CPUs of a device that are not allocated.", ("device",)
)
SHARED = CpuMetricSpec("plimsoll_cpu_shared_cpus", "gauge", "CPUs that containers without claims run on.")
OFFLINE = CpuMetricSpec("plimsoll_cpu_offline_cpus", "gauge", "CPUs of the machine that are offline.")
SKIPPED = CpuMetricSpec("plimsoll_cpu_skipped_cpus", "gauge", "Online CPUs with unknown topology.")
DISPUTED = CpuMetricSpec(
    "plimsoll_cpu_disputed_claims",
    "gauge",
    "Claims with contradicting CPUs in checkpoint, CDI file or containers.",
)
CONTAINERS = CpuMetricSpec(
    "plimsoll_cpu_containers", "gauge", "Containers known to the driver, by kind of pinning.", ("pin",)
)
LINK = CpuMetricSpec(
    "plimsoll_cpu_link_up", "gauge", "Whether a peer is connected: kubelet, nri or cgroups.", ("peer",)
)
EVENTS = CpuMetricSpec("plimsoll_cpu_events_total", "counter", "Events since the start, by kind.", ("event",))
FINDINGS = CpuMetricSpec(
    "plimsoll_cpu_findings",
    "gauge",
    "Findings of the driver, by severity.",
    ("severity",),
)
TOPOLOGY = CpuMetricSpec(
    "plimsoll_cpu_topology_changes_total", "counter", "Number of times that CPUs went online or offline."
)
HEALTHY = CpuMetricSpec("plimsoll_cpu_healthy", "gauge", "Whether /healthz reports healthy.")
SPECS = (
    *(ALLOCATED, AVAILABLE, RESERVED, CLAIMS, PREPARED, RELEASED, DURATION, ASSIGNED),
    *(DEVICE_CPUS, DEVICE_FREE, SHARED, OFFLINE, SKIPPED, DISPUTED, CONTAINERS, LINK, EVENTS, FINDINGS),
    *(TOPOLOGY, HEALTHY),
)


def descriptors() -> list[dict[str, Any]]:
    """Return all metrics as listed by `introspect metrics`."""
    return [
        {
            "name": spec.name,
            "type": spec.type,
            "stability": STABILITY,
            "help": spec.help,
            "labels": list(spec.labels),
        }
        for spec in SPECS
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuMetricsSnapshot:
    """Current values of the gauges; `devices` has total and free CPUs by device."""

    allocated: int = 0
    available: int = 0
    reserved: int = 0
    claims: int = 0
    shared: int = 0
    offline: int = 0
    skipped: int = 0
    disputed: int = 0
    devices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, bool] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    healthy: bool = False


class CpuMetrics(Observer):
    """Observer that counts events, and collector that reads the state at every scrape."""

    def __init__(self, state: Callable[[], CpuMetricsSnapshot]) -> None:
        self._state = state
        self._prepared = MetricCounter(PREPARED.name, PREPARED.help, PREPARED.labels)
        self._released = MetricCounter(RELEASED.name, RELEASED.help, RELEASED.labels)
        for result in _RESULTS:
            self._prepared.add(result, count=0)
            self._released.add(result, count=0)
        self._duration = Histogram(DURATION.name, DURATION.help, _SECONDS)
        self._assigned = Histogram(ASSIGNED.name, ASSIGNED.help, _CPUS)
        self._topology = MetricCounter(TOPOLOGY.name, TOPOLOGY.help)
        self.registry = MetricRegistry()
        self.registry.register(self)
        self.registry.register(ProcessMetrics())

    # -- observing

    def prepared(self, result: str, seconds: float) -> None:
        self._prepared.add(_known(result))
        self._duration.at().observe(seconds)

    def assigned(self, cpus: int) -> None:
        self._assigned.at().observe(cpus)

    def released(self, result: str) -> None:
        self._released.add(_known(result))

    def topology_changed(self) -> None:
        self._topology.add()

    # -- updates

    def collect(self) -> Iterator[MetricFamily]:
        state = self._state()
        for spec, value in (
            (ALLOCATED, state.allocated),
            (AVAILABLE, state.available),
            (RESERVED, state.reserved),
            (CLAIMS, state.claims),
            (SHARED, state.shared),
            (OFFLINE, state.offline),
            (SKIPPED, state.skipped),
            (DISPUTED, state.disputed),
            (HEALTHY, int(state.healthy)),
        ):
            yield GaugeFamily(spec.name, spec.help, value=value)
        for counted in (self._prepared, self._released, self._duration, self._assigned, self._topology):
            yield counted.family()
        yield _gauge(DEVICE_CPUS, {name: size for name, (size, _) in state.devices.items()})
        yield _gauge(DEVICE_FREE, {name: free for name, (_, free) in state.devices.items()})
        yield _gauge(CONTAINERS, state.containers)
        yield _gauge(LINK, state.links)
        yield _gauge(FINDINGS, state.findings)
        events = CounterFamily(EVENTS.name, EVENTS.help, labels=EVENTS.labels)
        for name, count in state.events.items():
            events.add([name], count)
        yield events

    async def expose(self) -> AsyncIterator[bytes]:
        """Return the metrics page."""
        yield self.registry.render()


def _known(result: str) -> str:
    """Map unexpected results to "unknown", to bound the label values."""
    return result if result in _RESULTS else "unknown"


def _gauge(spec: CpuMetricSpec, values: Mapping[str, float]) -> GaugeFamily:
    family = GaugeFamily(spec.name, spec.help, labels=spec.labels)
    for label, value in values.items():
        family.add([label], value)
    return family
