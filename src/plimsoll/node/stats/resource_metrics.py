"""Metrics of `/metrics/resource`, under the kubelet's names and labels. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Pod
from plimsoll.common.metrics import CounterFamily, GaugeFamily, MetricFamily
from plimsoll.node.containers import ContainerInfo
from plimsoll.node.stats.usage import UsageSample

_NANOSECONDS = 1e9
_POD = ["namespace", "pod"]
_CONTAINER = ["container", *_POD]


def _resource_metrics(
    sample: UsageSample, running: Sequence[tuple[Pod, Sequence[ContainerInfo]]]
) -> list[MetricFamily]:
    machine = sample.machine
    cpu = CounterFamily(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed by the container in core-seconds",
        labels=_CONTAINER,
    )
    memory = GaugeFamily(
        "container_memory_working_set_bytes",
        "Current working set of the container in bytes",
        labels=_CONTAINER,
    )
    start = GaugeFamily(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds",
        labels=_CONTAINER,
    )
    pod_cpu = CounterFamily(
        "pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", labels=_POD
    )
    pod_memory = GaugeFamily(
        "pod_memory_working_set_bytes", "Current working set of the pod in bytes", labels=_POD
    )
    when = sample.time
    for pod, states in running:
        labels = [pod.metadata.namespace, pod.metadata.name]
        usage = sample.pods.get(pod.metadata.uid)
        if usage is not None and usage.cpu is not None:
            pod_cpu.add(labels, usage.cpu / _NANOSECONDS, time=when)
        if usage is not None and usage.memory is not None:
            pod_memory.add(labels, usage.memory, time=when)
        for state in states:
            used = sample.containers.get(state.id)
            if used is None:
                continue
            own = [state.name, *labels]
            start.add(own, state.started_at, time=when)
            if used.cpu is not None:
                cpu.add(own, used.cpu / _NANOSECONDS, time=when)
            if used.memory is not None:
                memory.add(own, used.memory, time=when)
    node_cpu = CounterFamily(
        "node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", labels=[]
    )
    if machine.cpu is not None:
        node_cpu.add([], machine.cpu / _NANOSECONDS, time=when)
    node_memory = GaugeFamily(
        "node_memory_working_set_bytes", "Current working set of the node in bytes", labels=[]
    )
    if machine.memory is not None:
        node_memory.add([], machine.memory, time=when)
    error = GaugeFamily(
        "resource_scrape_error",
        "1 if there was an error while getting container metrics, 0 otherwise",
        value=0 if machine.cpu is not None else 1,
    )
    return [cpu, memory, start, node_cpu, node_memory, pod_cpu, pod_memory, error]


def write_resource_metrics(
    sample: UsageSample, running: Sequence[tuple[Pod, Sequence[ContainerInfo]]]
) -> str:
    """Write the metrics of a sample for these pods and their running containers."""
    return "".join(family.render() for family in _resource_metrics(sample, running))
