"""Prometheus metrics of the devices, CPUs and memory held by the pods of a node. Pure.

Every metric has the label `node`; metrics of a holder also `namespace`, `pod`, `pod_uid` (with an API
connection) and `container`, as other exporters do, so that device metrics can be joined. A free device has
the same metric with empty holder labels instead of disappearing. All names start with
`plimsoll_podresources_`:

    device_info               1 for each device of a claim in a container: claim, driver, pool, device,
                              share_id, cdi_device (CDI names, comma-separated); no holder if it is free
    device_containers         number of containers that hold a device (0: free): driver, pool, device
    cdi_device_info           1 for each CDI name in a container: cdi_device, driver, pool, device, claim
    plugin_device_info        1 for each device plugin device: resource, device; no holder if it is free
    container_cpus            number of exclusive CPUs of a container
    container_memory_bytes    exclusive memory of a container: type, numa_node (comma-separated)
    container_claims          number of claims of a container
    pod_cpus, pod_memory_bytes    the same, shared by the containers of a pod (Kubernetes 1.37)
    pods, claims              numbers on the node; a claim of several pods counts once
    allocatable_cpus, allocatable_memory_bytes, allocatable_plugin_devices    allocatable to pods
    up                        1 if the kubelet responded, else 0 and none of the above
    reads_total, read_errors_total, read_rate_limited_total, read_seconds    calls to the kubelet
    api_synced                1 if pods and ResourceSlices of the node are synced (only with a kubeconfig)

Free devices are known from the node's ResourceSlices (with a kubeconfig) and from device plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.resource import ResourceSlice
from plimsoll.common.metrics import CounterFamily, GaugeFamily, MetricFamily
from plimsoll.protocols.messages import podresources_v1 as v1

PREFIX = "plimsoll_podresources_"
_POD = ("namespace", "pod", "pod_uid")
_HOLDER = (*_POD, "container")
_DEVICE = ("driver", "pool", "device")


@dataclass(frozen=True, slots=True)
class NodeObjects:
    """API objects of the node: UIDs of its pods, and published devices."""

    uids: Mapping[tuple[str, str], str] = field(default_factory=dict)
    devices: frozenset[DeviceId] = frozenset()


def read_node_objects(pods: Iterable[Pod], slices: Iterable[ResourceSlice]) -> NodeObjects:
    """Read from the objects of one node; only the newest generation of a pool counts."""
    newest: dict[PoolId, int] = {}
    specs = [slice.spec for slice in slices if slice.spec.devices]
    for spec in specs:
        pool = PoolId(spec.driver, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    devices = (
        DeviceId(spec.driver, spec.pool.name, device.name)
        for spec in specs
        for device in spec.devices or ()
        if spec.pool.generation == newest[PoolId(spec.driver, spec.pool.name)]
    )
    return NodeObjects({pod.metadata.key: pod.metadata.uid for pod in pods}, frozenset(devices))


@dataclass(slots=True)
class ExporterHealth:
    """Statistics of the calls to the kubelet."""

    up: bool = False
    reads: int = 0
    errors: int = 0
    rate_limited: int = 0
    seconds: float = 0.0
    #: None: no API connection.
    synced: bool | None = None


class _Rows:
    """Samples of one metric. Samples with equal labels (a pod that replaced a terminating one of the same
    name) are merged: Prometheus would reject all of them.
    """

    def __init__(self, node: str, name: str, about: str, labels: Sequence[str]) -> None:
        self._family = GaugeFamily(PREFIX + name, about, labels=["node", *labels])
        self._node = node
        self._values: dict[tuple[str, ...], float] = {}

    def note(self, *labels: str) -> None:
        self._values[labels] = 1

    def add(self, *labels: str, count: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + count

    def family(self) -> MetricFamily:
        for labels, value in self._values.items():
            self._family.add([self._node, *labels], value)
        return self._family


def health_metrics(node: str, health: ExporterHealth) -> Iterator[MetricFamily]:
    """Yield the metrics of the exporter itself."""
    yield _plain(node, "up", "1 if the last call to the kubelet succeeded.", int(health.up))
    for name, about, count in (
        ("reads_total", "Calls to the kubelet.", health.reads),
        ("read_errors_total", "Failed calls to the kubelet.", health.errors),
        ("read_rate_limited_total", "Rate-limited calls to the kubelet.", health.rate_limited),
    ):
        counter = CounterFamily(PREFIX + name, about, labels=["node"])
        counter.add([node], count)
        yield counter
    yield _plain(node, "read_seconds", "Duration of the last call to the kubelet.", health.seconds)
    if health.synced is not None:
        about = "1 if pods and ResourceSlices of the node are synced."
        yield _plain(node, "api_synced", about, int(health.synced))


def node_metrics(
    node: str,
    pods: Sequence[v1.PodResources],
    allocatable: v1.AllocatableResourcesResponse | None,
    known: NodeObjects,
) -> Iterator[MetricFamily]:
    """Yield the metrics of a node whose kubelet responded."""
    yield _plain(node, "pods", "Pods on the node.", len(pods))
    claims = {
        (claim.claim_namespace, claim.claim_name)
        for _, container in _containers(pods, known)
        for claim in container.dynamic_resources
    }
    yield _plain(node, "claims", "Claims used by pods on the node.", len(claims))
    yield from _show_claims(node, pods, known)
    yield from _show_plugin_devices(node, pods, allocatable, known)
    yield from _show_amounts(node, pods, known)
    if allocatable is not None:
        yield from _show_allocatable(node, allocatable)


def _containers(
    pods: Iterable[v1.PodResources], known: NodeObjects
) -> Iterator[tuple[tuple[str, str, str, str], v1.ContainerResources]]:
    for pod in pods:
        uid = known.uids.get((pod.namespace, pod.name), "")
        for container in pod.containers:
            yield (pod.namespace, pod.name, uid, container.name), container


def _show_claims(node: str, pods: Sequence[v1.PodResources], known: NodeObjects) -> Iterator[MetricFamily]:
    held = (*_HOLDER, "claim", *_DEVICE)
    about = "Devices of claims and their holders; without a holder if free."
    info = _Rows(node, "device_info", about, (*held, "share_id", "cdi_device"))
    cdi = _Rows(node, "cdi_device_info", "CDI devices and their holders.", (*held, "cdi_device"))
    holders: dict[DeviceId, set[tuple[str, ...]]] = {device: set() for device in sorted(known.devices)}
    for holder, container in _containers(pods, known):
        for claim in container.dynamic_resources:
            for device in claim.claim_resources:
                id = DeviceId(device.driver_name, device.pool_name, device.device_name)
                names = [one.name for one in device.cdi_devices]
                info.note(*holder, claim.claim_name, *id, device.share_id, ",".join(names))
                for name in names:
                    cdi.note(*holder, claim.claim_name, *id, name)
                holders.setdefault(id, set()).add(holder)
    counts = _Rows(node, "device_containers", "Containers that hold a device; 0 if it is free.", _DEVICE)
    for id, found in holders.items():
        counts.add(*id, count=len(found))
        if not found:
            info.note("", "", "", "", "", *id, "", "")
    yield from (info.family(), counts.family(), cdi.family())


def _show_plugin_devices(
    node: str,
    pods: Sequence[v1.PodResources],
    allocatable: v1.AllocatableResourcesResponse | None,
    known: NodeObjects,
) -> Iterator[MetricFamily]:
    about = "Device plugin devices and their holders; without a holder if free."
    rows = _Rows(node, "plugin_device_info", about, (*_HOLDER, "resource", "device"))
    held = set()
    for holder, container in _containers(pods, known):
        for group in container.devices:
            for id in group.device_ids:
                rows.note(*holder, group.resource_name, id)
                held.add((group.resource_name, id))
    for group in allocatable.devices if allocatable is not None else ():
        for id in group.device_ids:
            if (group.resource_name, id) not in held:
                rows.note("", "", "", "", group.resource_name, id)
    yield rows.family()


def _show_amounts(node: str, pods: Sequence[v1.PodResources], known: NodeObjects) -> Iterator[MetricFamily]:
    where = ("type", "numa_node")
    cpus = _Rows(node, "container_cpus", "Exclusive CPUs of a container.", _HOLDER)
    memory = _Rows(node, "container_memory_bytes", "Exclusive memory of a container.", (*_HOLDER, *where))
    claims = _Rows(node, "container_claims", "Claims of a container.", _HOLDER)
    for holder, container in _containers(pods, known):
        cpus.add(*holder, count=len(container.cpu_ids))
        claims.add(*holder, count=len(container.dynamic_resources))
        for block in container.memory:
            memory.add(*holder, block.memory_type, _nodes(block.topology), count=block.size)
    pod_cpus = _Rows(node, "pod_cpus", "Exclusive CPUs shared by the containers of a pod.", _POD)
    about = "Exclusive memory shared by the containers of a pod."
    pod_memory = _Rows(node, "pod_memory_bytes", about, (*_POD, *where))
    for pod in pods:
        labels = (pod.namespace, pod.name, known.uids.get((pod.namespace, pod.name), ""))
        if pod.cpu_ids:
            pod_cpus.add(*labels, count=len(pod.cpu_ids))
        for block in pod.memory:
            pod_memory.add(*labels, block.memory_type, _nodes(block.topology), count=block.size)
    for rows in (cpus, memory, claims, pod_cpus, pod_memory):
        yield rows.family()


def _show_allocatable(node: str, allocatable: v1.AllocatableResourcesResponse) -> Iterator[MetricFamily]:
    yield _plain(node, "allocatable_cpus", "Allocatable CPUs.", len(allocatable.cpu_ids))
    about = "Allocatable memory."
    memory = _Rows(node, "allocatable_memory_bytes", about, ("type", "numa_node"))
    for block in allocatable.memory:
        memory.add(block.memory_type, _nodes(block.topology), count=block.size)
    about = "Allocatable device plugin devices."
    devices = _Rows(node, "allocatable_plugin_devices", about, ("resource",))
    for group in allocatable.devices:
        devices.add(group.resource_name, count=len(group.device_ids))
    yield from (memory.family(), devices.family())


def _plain(node: str, name: str, about: str, value: float) -> MetricFamily:
    rows = _Rows(node, name, about, ())
    rows.add(count=value)
    return rows.family()


def _nodes(topology: v1.TopologyInfo) -> str:
    return ",".join(str(node.ID) for node in topology.nodes)
