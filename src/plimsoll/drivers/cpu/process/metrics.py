"""What a CPU driver says about itself to Prometheus: the Go driver's metrics under their names, and ours.

Owns `SPECS`, the list of all of them, and `CpuMetrics`, which counts what happens and asks for the rest at
every scrape: gauges are right from the first moment after a restart, because they are what the driver's book
says and not what was counted. Names, types, helps and buckets of the first eight are the Go driver's, so that
its dashboards go on working.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.common.counters import Counter, Histogram
from plimsoll.drivers.cpu.observer import ERROR, SUCCESS, Observer

STABILITY = "ALPHA"
_RESULTS = (SUCCESS, ERROR, "unknown")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CPUS = tuple(float(1 << power) for power in range(11))


@dataclass(frozen=True, slots=True)
class Spec:
    """A metric: what it is called and what it means."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


ALLOCATED = Spec(
    "dra_cpu_allocated_cpus", "gauge", "Number of CPUs currently allocated to prepared resource claims."
)
AVAILABLE = Spec(
    "dra_cpu_available_cpus",
    "gauge",
    "Number of CPUs available for allocation after reserved and active claim CPUs are excluded.",
)
RESERVED = Spec("dra_cpu_reserved_cpus", "gauge", "Number of CPUs reserved and excluded from DRA management.")
CLAIMS = Spec(
    "dra_cpu_resource_claims_active",
    "gauge",
    "Number of resource claims currently recorded as active by the allocation store.",
)
PREPARED = Spec(
    "dra_cpu_prepare_claims_total",
    "counter",
    "Total number of per-claim PrepareResourceClaims results.",
    ("result",),
)
RELEASED = Spec(
    "dra_cpu_unprepare_claims_total",
    "counter",
    "Total number of per-claim UnprepareResourceClaims results.",
    ("result",),
)
DURATION = Spec(
    "dra_cpu_prepare_claim_duration_seconds",
    "histogram",
    "Duration of per-claim prepare operations in seconds.",
)
ASSIGNED = Spec(
    "dra_cpu_claim_allocated_cpus",
    "histogram",
    "Number of CPUs allocated for each newly successful claim allocation.",
)
DEVICE_CPUS = Spec("plimsoll_cpu_device_cpus", "gauge", "CPUs of a device that can be claimed.", ("device",))
DEVICE_FREE = Spec(
    "plimsoll_cpu_device_free_cpus", "gauge", "CPUs of a device that nobody holds.", ("device",)
)
SHARED = Spec("plimsoll_cpu_shared_cpus", "gauge", "CPUs that containers without claims run on.")
OFFLINE = Spec("plimsoll_cpu_offline_cpus", "gauge", "CPUs of the machine that are offline.")
SKIPPED = Spec("plimsoll_cpu_skipped_cpus", "gauge", "Online CPUs whose place in the machine is not known.")
DISPUTED = Spec(
    "plimsoll_cpu_disputed_claims", "gauge", "Claims whose CPUs the record and other witnesses disagree on."
)
CONTAINERS = Spec(
    "plimsoll_cpu_containers", "gauge", "Containers the driver knows, by how they are pinned.", ("pin",)
)
LINK = Spec("plimsoll_cpu_link_up", "gauge", "Whether a peer is there: kubelet, nri or cgroups.", ("peer",))
EVENTS = Spec(
    "plimsoll_cpu_events_total", "counter", "What has happened since the start, by kind.", ("event",)
)
FINDINGS = Spec(
    "plimsoll_cpu_findings",
    "gauge",
    "What the driver found when it compared its record, by severity.",
    ("severity",),
)
TOPOLOGY = Spec("plimsoll_cpu_topology_changes_total", "counter", "How often CPUs came or went.")
HEALTHY = Spec("plimsoll_cpu_healthy", "gauge", "Whether /healthz says that all is well.")
SPECS = (
    *(ALLOCATED, AVAILABLE, RESERVED, CLAIMS, PREPARED, RELEASED, DURATION, ASSIGNED),
    *(DEVICE_CPUS, DEVICE_FREE, SHARED, OFFLINE, SKIPPED, DISPUTED, CONTAINERS, LINK, EVENTS, FINDINGS),
    *(TOPOLOGY, HEALTHY),
)


def descriptors() -> list[dict[str, Any]]:
    """All metrics as `introspect metrics` lists them."""
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
class CpuState:
    """How a driver stands now, in numbers; `devices` has size and free CPUs by device."""

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


class CpuMetrics(Collector, Observer):
    """Counts as an observer, and asks for the state at every scrape."""

    def __init__(self, state: Callable[[], CpuState]) -> None:
        self._state = state
        self._prepared = Counter(PREPARED.name, PREPARED.help, PREPARED.labels)
        self._released = Counter(RELEASED.name, RELEASED.help, RELEASED.labels)
        for result in _RESULTS:
            self._prepared.add(result, count=0)
            self._released.add(result, count=0)
        self._duration = Histogram(DURATION.name, DURATION.help, _SECONDS)
        self._assigned = Histogram(ASSIGNED.name, ASSIGNED.help, _CPUS)
        self._topology = Counter(TOPOLOGY.name, TOPOLOGY.help)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

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

    def collect(self) -> Iterator[Metric]:
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
            yield GaugeMetricFamily(spec.name, spec.help, value=value)
        for counted in (self._prepared, self._released, self._duration, self._assigned, self._topology):
            yield counted.family()
        yield _gauge(DEVICE_CPUS, {name: size for name, (size, _) in state.devices.items()})
        yield _gauge(DEVICE_FREE, {name: free for name, (_, free) in state.devices.items()})
        yield _gauge(CONTAINERS, state.containers)
        yield _gauge(LINK, state.links)
        yield _gauge(FINDINGS, state.findings)
        events = CounterMetricFamily(EVENTS.name.removesuffix("_total"), EVENTS.help, labels=EVENTS.labels)
        for name, count in state.events.items():
            events.add_metric([name], count)
        yield events

    async def expose(self) -> AsyncIterator[bytes]:
        """The page for a scrape."""
        yield generate_latest(self.registry)


def _known(result: str) -> str:
    """Results are a few words, whatever a driver says."""
    return result if result in _RESULTS else "unknown"


def _gauge(spec: Spec, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
    for label, value in values.items():
        family.add_metric([label], value)
    return family
