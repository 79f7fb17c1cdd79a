"""Prometheus metrics of the scheduler, under kube-scheduler's names.

In addition there are allocatable, requested and headroom of every node and resource, devices, and pauses of
the garbage collector. An observation costs a few microseconds; the page is written in chunks, so that a
scrape of 5,000 nodes does not block.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

from plimsoll.api.identity import PoolId
from plimsoll.api.resource import ResourceSlice
from plimsoll.client.stored_fields import StoredFields
from plimsoll.common.counters import Histogram, MetricCounter, exponential, gauge
from plimsoll.common.metrics import GaugeFamily, MetricFamily, MetricRegistry, ProcessMetrics
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.units import CPU, PODS
from plimsoll.scheduler.reasons import Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Nodes per chunk of the metrics page.
_CHUNK_NODES = 100
#: Highest attempt count with a label of its own.
_MOST_ATTEMPTS = 15
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
#: Result of a pod group that preempts.
WAITING_ON_PREEMPTION = "waiting_on_preemption"
_ATTEMPTS = (*map(str, range(_MOST_ATTEMPTS)), f"{_MOST_ATTEMPTS}+")


class Metrics:
    """Collector of all scheduler metrics; `expose` renders them."""

    def __init__(self, snapshot: Snapshot, lengths: Callable[[], Mapping[str, int]]) -> None:
        self._snapshot = snapshot
        self._lengths = lengths
        self._refused: dict[str, tuple[frozenset[Rule], str]] = {}
        self._counters: tuple[MetricCounter, ...] = ()
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._families: list[Callable[[], MetricFamily]] = []
        seconds, fine = exponential(0.001, 2, 15), exponential(0.0001, 2, 12)
        self.attempts = MetricCounter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            ("result", "profile"),
        )
        self.attempt = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
            seconds,
            ("result", "profile"),
        )
        self.algorithm = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds.",
            exponential(0.00001, 2, 20),
        )
        self.group_attempts = MetricCounter(
            "scheduler_podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by the result.",
            ("result", "profile"),
        )
        self.group_attempt = Histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds.",
            seconds,
            ("result", "profile"),
        )
        self.group_algorithm = Histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Pod group scheduling algorithm latency in seconds.",
            seconds,
        )
        self.extension_point = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of an extension point, sampled.",
            fine,
            ("extension_point", "status", "profile"),
        )
        self.plugin = Histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at an extension point, sampled.",
            exponential(0.00001, 1.5, 20),
            ("plugin", "extension_point", "status"),
        )
        self.lead_time = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time it enters the queue.",
            exponential(0.01, 2, 20),
            ("attempts",),
        )
        self.tries = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            exponential(1, 2, 5),
        )
        self.victims = Histogram(
            "scheduler_preemption_victims",
            "Number of selected preemption victims.",
            exponential(1, 2, 7),
        )
        self.preemptions = MetricCounter(
            "scheduler_preemption_attempts_total", "Total preemption attempts in the cluster till now"
        )
        self.incoming = MetricCounter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ("queue", "event"),
        )
        self.claim_creates = MetricCounter(
            "scheduler_resourceclaim_creates_total",
            "Number of ResourceClaims creation requests within scheduler.",
            ("status",),
        )
        self.steps = MetricCounter(
            "plimsoll_binding_failures_total", "Number of failed bindings, by step.", ("step",)
        )
        self.placeholders_created = MetricCounter(
            "plimsoll_placeholders_created_total", "Number of placeholder pods created for bound pods."
        )
        self.placeholders_rejected = MetricCounter(
            "plimsoll_placeholders_rejected_total",
            "Number of placeholder pods of bound pods that a kubelet rejected: the node is overcommitted.",
        )
        self.pauses = Histogram(
            "plimsoll_gc_pause_seconds",
            "Pauses of Python's garbage collector.",
            fine,
            ("generation",),
        )
        self._scheduled: dict[str, tuple[Callable[[float], None], tuple[str, str]]] = {}
        self._lead_times = [self.lead_time.at(label).observe for label in _ATTEMPTS]
        self.registry = MetricRegistry()
        self.registry.register(self)
        self.registry.register(ProcessMetrics())

    # -- observing

    def decided(self, seconds: float) -> None:
        """Observe the duration of the scheduling algorithm."""
        self.algorithm.at().observe(seconds)

    def scheduled(self, profile: str, seconds: float, lead_time: float, attempts: int) -> None:
        """Observe a pod that was bound."""
        known = self._scheduled.get(profile)
        if known is None:
            labels = (SCHEDULED, profile)
            known = self._scheduled[profile] = (self.attempt.at(*labels).observe, labels)
        observe, labels = known
        observe(seconds)
        self.attempts.add(*labels)
        self._lead_times[min(attempts, _MOST_ATTEMPTS)](lead_time)
        self.tries.at().observe(attempts)

    def failed(self, result: str, profile: str, seconds: float) -> None:
        """Observe a failed attempt: `unschedulable` or `error`."""
        self.attempts.add(result, profile)
        self.attempt.at(result, profile).observe(seconds)

    def group_attempted(self, result: str, profile: str, seconds: float) -> None:
        """Observe an attempt of a pod group."""
        self.group_attempts.add(result, profile)
        self.group_attempt.at(result, profile).observe(seconds)

    def refused(self, key: str, rules: frozenset[Rule], profile: str) -> None:
        """Record the rules that reject a pending pod."""
        self._refused[key] = (rules, profile)

    def cleared(self, key: str) -> None:
        """Remove a pod from the unschedulable ones."""
        self._refused.pop(key, None)

    def watch(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read at every scrape."""
        self._gauges.append((name, help, value))

    def add_family(self, collect: Callable[[], MetricFamily]) -> None:
        """Add a metric with labels that is read at every scrape."""
        self._families.append(collect)

    def register(self, *counters: MetricCounter) -> None:
        """Add counters of another part of the process."""
        self._counters += counters

    # -- exposing

    def collect(self) -> Iterator[MetricFamily]:
        for metric in vars(self).values():
            if isinstance(metric, MetricCounter | Histogram):
                yield metric.family()
        for counter in self._counters:
            yield counter.family()
        yield gauge("scheduler_pending_pods", "Number of pending pods, by queue.", "queue", self._lengths())
        yield self._unschedulable()
        sizes = {"nodes": len(self._snapshot), "assumed_pods": len(self._snapshot.assumed)}
        yield gauge("scheduler_cache_size", "Number of nodes and assumed pods.", "type", sizes)
        for name, help, value in self._gauges:
            yield GaugeFamily(name, help, value=value())
        for collect in self._families:
            yield collect()

    def _unschedulable(self) -> GaugeFamily:
        family = GaugeFamily(
            "scheduler_unschedulable_pods",
            "Number of unschedulable pods by the plugin that rejected them, each counted once.",
            labels=["plugin", "profile"],
        )
        counts: Counter[tuple[str, str]] = Counter()
        for rules, profile in self._refused.values():
            counts.update((rule.value, profile) for rule in rules)
        for labels, count in counts.items():
            family.add(labels, count)
        return family

    async def expose(self) -> AsyncIterator[bytes]:
        """Yield the metrics page in chunks."""
        yield self.registry.render()
        for piece in devices_page(self._snapshot):
            await asyncio.sleep(0)
            yield piece
        for piece in ledger_page(self._snapshot):
            await asyncio.sleep(0)
            yield piece


def describe_stored_fields(stored: StoredFields) -> MetricFamily:
    """Return a gauge of the fields that the API server stores."""
    values = {name: -1.0 if fact is None else float(fact) for name, fact in asdict(stored).items()}
    return gauge(
        "plimsoll_server_stores_field",
        "Whether the API server stores (1) or drops (0) a field; -1 if unknown.",
        "field",
        values,
    )


_LEDGER: tuple[tuple[str, str, Callable[[NodeLedger], Mapping[str, int]]], ...] = (
    ("allocatable", "Allocatable amount of a resource on a node.", lambda ledger: ledger.allocatable),
    ("requested", "Amount charged by pods and claims.", lambda ledger: _requested(ledger)),
    ("headroom", "Amount left below the node's line.", lambda ledger: ledger.headroom()),
)


def ledger_page(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield allocatable, requested and headroom of every node and resource; CPU in cores."""
    for name, help, amounts in _LEDGER:
        metric = f"plimsoll_ledger_{name}"
        yield f"# HELP {metric} {help}\n# TYPE {metric} gauge\n".encode()
        rows = list(snapshot.rows())
        for start in range(0, len(rows), _CHUNK_NODES):
            lines: list[str] = []
            for row in rows[start : start + _CHUNK_NODES]:
                if snapshot.nodes[row] is None:
                    continue  # removed since the scrape started
                ledger = snapshot.ledger(row)
                head = f'{metric}{{node="{ledger.name}",resource="'
                lines += [f'{head}{r}"}} {_amount(r, v)}\n' for r, v in amounts(ledger).items()]
            yield "".join(lines).encode()


def devices_page(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the number of published and allocated devices by driver."""
    pools: dict[PoolId, int] = {}
    for slice in snapshot.all(ResourceSlice):
        key = PoolId(slice.spec.driver, slice.spec.pool.name)
        pools[key] = pools.get(key, 0) + len(slice.spec.devices or ())
    yield b"# HELP plimsoll_devices Devices in ResourceSlices, and those allocated in full or in part.\n"
    yield b"# TYPE plimsoll_devices gauge\n"
    published: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for pool, count in pools.items():
        published[pool.driver] += count
        held[pool.driver] += min(count, len(snapshot.state.pool(pool)))
    yield "".join(_states(published, held)).encode()


def _states(published: Mapping[str, int], held: Mapping[str, int]) -> Iterable[str]:
    for driver in sorted(published):
        for state, count in (("published", published[driver]), ("held", held[driver])):
            yield f'plimsoll_devices{{driver="{driver}",state="{state}"}} {count}\n'


def _requested(ledger: NodeLedger) -> dict[str, int]:
    return {name: used for name, used in ledger.requested.items() if used} | {PODS: len(ledger)}


def _amount(resource: str, amount: int) -> str:
    if resource != CPU:
        return str(amount)
    whole, milli = divmod(abs(amount), 1000)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{milli:03d}" if milli else f"{sign}{whole}"
