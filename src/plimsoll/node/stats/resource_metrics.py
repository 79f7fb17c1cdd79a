"""Metrics of `/metrics/resource`, under the kubelet's names and labels. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.api.core import Pod
from plimsoll.node.containers import ContainerInfo
from plimsoll.node.stats.usage import UsageSample

_NANOSECONDS = 1e9
_POD = ["namespace", "pod"]
_CONTAINER = ["container", *_POD]


class _ResourceMetrics(Collector):
    """Collector of one sample."""

    def __init__(self, sample: UsageSample, running: Sequence[tuple[Pod, Sequence[ContainerInfo]]]) -> None:
        self._sample = sample
        self._running = running

    def collect(self) -> list[Metric]:
        sample, machine = self._sample, self._sample.machine
        cpu = CounterMetricFamily(
            "container_cpu_usage_seconds",
            "Cumulative cpu time consumed by the container in core-seconds",
            labels=_CONTAINER,
        )
        memory = GaugeMetricFamily(
            "container_memory_working_set_bytes",
            "Current working set of the container in bytes",
            labels=_CONTAINER,
        )
        start = GaugeMetricFamily(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds",
            labels=_CONTAINER,
        )
        pod_cpu = CounterMetricFamily(
            "pod_cpu_usage_seconds", "Cumulative cpu time consumed by the pod in core-seconds", labels=_POD
        )
        pod_memory = GaugeMetricFamily(
            "pod_memory_working_set_bytes", "Current working set of the pod in bytes", labels=_POD
        )
        when = sample.time
        for pod, states in self._running:
            labels = [pod.metadata.namespace, pod.metadata.name]
            usage = sample.pods.get(pod.metadata.uid)
            if usage is not None and usage.cpu is not None:
                pod_cpu.add_metric(labels, usage.cpu / _NANOSECONDS, timestamp=when)
            if usage is not None and usage.memory is not None:
                pod_memory.add_metric(labels, usage.memory, timestamp=when)
            for state in states:
                used = sample.containers.get(state.id)
                if used is None:
                    continue
                own = [state.name, *labels]
                start.add_metric(own, state.started_at, timestamp=when)
                if used.cpu is not None:
                    cpu.add_metric(own, used.cpu / _NANOSECONDS, timestamp=when)
                if used.memory is not None:
                    memory.add_metric(own, used.memory, timestamp=when)
        node_cpu = CounterMetricFamily(
            "node_cpu_usage_seconds", "Cumulative cpu time consumed by the node in core-seconds", labels=[]
        )
        if machine.cpu is not None:
            node_cpu.add_metric([], machine.cpu / _NANOSECONDS, timestamp=when)
        node_memory = GaugeMetricFamily(
            "node_memory_working_set_bytes", "Current working set of the node in bytes", labels=[]
        )
        if machine.memory is not None:
            node_memory.add_metric([], machine.memory, timestamp=when)
        error = GaugeMetricFamily(
            "resource_scrape_error",
            "1 if there was an error while getting container metrics, 0 otherwise",
            value=0 if machine.cpu is not None else 1,
        )
        return [cpu, memory, start, node_cpu, node_memory, pod_cpu, pod_memory, error]


def write_resource_metrics(
    sample: UsageSample, running: Sequence[tuple[Pod, Sequence[ContainerInfo]]]
) -> str:
    """Write the metrics of a sample for these pods and their running containers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ResourceMetrics(sample, running))
    return generate_latest(registry).decode()
