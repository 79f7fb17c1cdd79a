"""PodResources responses as tables and trees. Pure. Unprintable characters are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.message import Message

from plimsoll.api.cpuset import CpuSet
from plimsoll.api.quantity import format_bytes
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.tools.colors import printable
from plimsoll.tools.columns import format_table

_NONE = "-"
#: Name of the row for resources that the containers of a pod share.
_POD = "*"


def tree_of(message: Message) -> dict[str, Any]:
    """Convert a message to a tree without unset fields."""
    return {field.json_name: _value(value) for field, value in message.ListFields()}


def _value(value: Any) -> Any:
    if isinstance(value, Message):
        return tree_of(value)
    if isinstance(value, str | int):
        return value
    return [_value(item) for item in value]


def pod_lines(pods: Iterable[v1.PodResources], *, wide: bool = False) -> Iterator[str]:
    """Yield one row per container; `wide`: one per device."""
    head: tuple[str, ...] = ("NAMESPACE", "POD", "CONTAINER", "CPUS", "MEMORY", "CLAIMS", "DEVICES")
    if wide:
        head = (*head[:5], "CLAIM", "DRIVER", "POOL", "DEVICE", "SHARE", "CDI")
    rows = [head]
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        if pod.cpu_ids or pod.memory:
            own = (pod.namespace, pod.name, _POD, span(pod.cpu_ids), memory_text(pod.memory))
            rows.append((*own, *[_NONE] * (len(head) - len(own))))
        for container in pod.containers:
            cpus, memory = span(container.cpu_ids), memory_text(container.memory)
            start = pod.namespace, pod.name, container.name, cpus, memory
            rest = _wide(container) if wide else [_narrow(container)]
            rows += [(*start, *cells) for cells in rest]
    return format_table([printable(cell) for cell in row] for row in rows)


def _narrow(container: v1.ContainerResources) -> tuple[str, ...]:
    claims = [claim.claim_name for claim in container.dynamic_resources]
    devices = [
        f"{device.driver_name}/{device.pool_name}/{device.device_name}"
        for claim in container.dynamic_resources
        for device in claim.claim_resources
    ]
    devices += [f"{group.resource_name}={_join(group.device_ids)}" for group in container.devices]
    return _join(claims), _join(devices)


def _wide(container: v1.ContainerResources) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for claim in container.dynamic_resources:
        for device in claim.claim_resources:
            cdi = _join([one.name for one in device.cdi_devices])
            where = (device.driver_name, device.pool_name, device.device_name)
            rows.append((claim.claim_name, *where, device.share_id or _NONE, cdi))
        if not claim.claim_resources:
            rows.append((claim.claim_name, *[_NONE] * 5))
    for group in container.devices:
        rows += [(_NONE, group.resource_name, _NONE, id, _NONE, _NONE) for id in group.device_ids]
    return rows or [(_NONE,) * 6]


def allocatable_lines(answer: v1.AllocatableResourcesResponse) -> Iterator[str]:
    """Yield rows for the CPUs, and for each memory type and device resource by NUMA node."""
    rows = [
        ("RESOURCE", "AMOUNT", "NUMA", "IDS"),
        ("cpu", str(len(answer.cpu_ids)), _NONE, span(answer.cpu_ids)),
    ]
    for block in answer.memory:
        rows.append((block.memory_type, format_bytes(block.size), _nodes(block.topology), _NONE))
    for group in answer.devices:
        ids = group.device_ids
        rows.append((group.resource_name, str(len(ids)), _nodes(group.topology), _join(ids)))
    return format_table([printable(cell) for cell in row] for row in rows)


def span(numbers: Iterable[int]) -> str:
    """Format CPUs in kernel list format: 0-3,8."""
    return str(CpuSet(numbers)) or _NONE


def memory_text(blocks: Iterable[v1.ContainerMemory]) -> str:
    """Sum up memory by type over all NUMA nodes."""
    sums: dict[str, int] = {}
    for block in blocks:
        sums[block.memory_type] = sums.get(block.memory_type, 0) + block.size
    texts = (
        format_bytes(size) if kind == "memory" else f"{kind}={format_bytes(size)}"
        for kind, size in sums.items()
    )
    return ",".join(texts) or _NONE


def _nodes(topology: v1.TopologyInfo) -> str:
    return span(node.ID for node in topology.nodes)


def _join(texts: Sequence[str]) -> str:
    return ",".join(texts) or _NONE
