"""MixedAdvertisers: hardware that a device plugin and a DRA driver advertise on the same node.

The kubelet chooses the unit that a pod gets through a device plugin, and the API does not show which. While
such a pod is on a node, each of the driver's devices there may be the one that it has: none is allocated to
claims (`held_by_plugins`). While claims have devices of the driver, no pod gets the plugin's resource
(`MixedAdvertisersFilter`). Nodes that advertise the hardware in one way only are not concerned.

An extended resource and a driver belong together if they are in `KNOWN_PAIRS`, or if a DeviceClass that names
the resource in `extendedResourceName`, or in the annotation `plimsoll.dev/device-plugin-resource`, selects
devices of the driver on the node.

DIFF: kube-scheduler counts both independently, so that one unit is given out twice; `mixedAdvertisers: Allow`
does the same (test_a_device_plugin_and_a_driver_exclude_each_other).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import numpy as np

from plimsoll.allocator import AllocationFault, PoolId
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE
from plimsoll.api.resource import DeviceClass, expressions_of
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.units import is_dra_extended_resource
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import MixedAdvertisers
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Extended resources of device plugins (patterns), and the DRA drivers of the same hardware.
KNOWN_PAIRS: tuple[tuple[str, str], ...] = (
    ("nvidia.com/gpu", "gpu.nvidia.com"),
    ("nvidia.com/gpu.shared", "gpu.nvidia.com"),
    ("nvidia.com/mig-*", "gpu.nvidia.com"),
    ("amd.com/gpu", "gpu.amd.com"),
    ("gpu.intel.com/i915", "gpu.intel.com"),
    ("gpu.intel.com/xe", "gpu.intel.com"),
    ("habana.ai/gaudi", "gaudi.intel.com"),
    ("qat.intel.com/*", "qat.intel.com"),
)
#: Annotation of a DeviceClass: the extended resource by which a device plugin advertises the same devices.
PLUGIN_RESOURCE = "plimsoll.dev/device-plugin-resource"


class MixedAdvertisersMessage(ReasonMessage):
    """Message of MixedAdvertisers."""

    CLAIMED = "node(s) had {resource} that claims may hold as devices of {driver}"


class PairedClasses(SnapshotIndex):
    """Index of the device classes that name an extended resource, by the resource."""

    kinds = (DeviceClass,)

    def __init__(self) -> None:
        self.classes: dict[str, dict[str, DeviceClass]] = {}

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, DeviceClass):
            for resource in _named_resources(old):
                del self.classes[resource][old.metadata.name]
        if isinstance(new, DeviceClass):
            for resource in _named_resources(new):
                self.classes.setdefault(resource, {})[new.metadata.name] = new


def _named_resources(device_class: DeviceClass) -> set[str]:
    named = {device_class.spec.extended_resource_name, device_class.metadata.annotations.get(PLUGIN_RESOURCE)}
    return {name for name in named if name}


# -- pairs


def advertised_resources(node: Node) -> list[str]:
    """Return the extended resources that device plugins advertise on a node."""
    return [
        name
        for name, amount in node.status.allocatable.items()
        if "/" in name and not amount.is_zero() and _is_plugin_resource(name)
    ]


def _is_plugin_resource(name: str) -> bool:
    return is_dra_extended_resource(name) and not name.startswith(DEVICE_CLASS_RESOURCE)


def paired_drivers(resource: str, devices: NodeDevices, snapshot: Snapshot) -> frozenset[str]:
    """Return the drivers among those of some devices whose hardware a device plugin's resource stands for."""
    drivers = {pool.driver for pool in devices.index}
    found = {
        driver for pattern, driver in KNOWN_PAIRS if driver in drivers and fnmatchcase(resource, pattern)
    }
    for each in snapshot.index(PairedClasses).classes.get(resource, {}).values():
        expressions = expressions_of(each.spec.selectors)
        mask = devices.select(expressions, ()).mask
        found |= {devices.entries[number].id.driver for number in bit_numbers(mask)}
    return frozenset(found)


def held_by_plugins(
    snapshot: Snapshot, row: int, ledger: NodeLedger | None = None
) -> Mapping[tuple[str, str], str]:
    """Return the drivers whose devices on a node may be held by pods through a device plugin, as (node,
    driver), each with the plugin's resource. `ledger` replaces that of the node.
    """
    found: dict[tuple[str, str], str] = {}
    node = snapshot.node(row)
    advertised = advertised_resources(node)
    if not advertised:
        return found
    requested = (ledger or snapshot.ledger(row)).requested
    for resource in advertised:
        if requested.get(resource, 0) <= 0:
            continue
        devices = snapshot.inventory.devices_for(node)
        if not isinstance(devices, AllocationFault):
            drivers = sorted(paired_drivers(resource, devices, snapshot))
            found |= {(node.metadata.name, driver): resource for driver in drivers}
    return found


def claimed_driver(snapshot: Snapshot, row: int, resource: str) -> str:
    """Return the first driver whose devices on a node are allocated and may be those of a device plugin's
    resource; "" if there is none.
    """
    node = snapshot.node(row)
    if resource not in advertised_resources(node):
        return ""
    devices = snapshot.inventory.devices_for(node)
    if isinstance(devices, AllocationFault):
        return ""
    allocated = {pool.driver for pool in devices.index if _has_local_devices(snapshot, pool, devices)}
    if not allocated:
        return ""
    return min(allocated & paired_drivers(resource, devices, snapshot), default="")


def _has_local_devices(snapshot: Snapshot, pool: PoolId, devices: NodeDevices) -> bool:
    """Return whether devices of a pool that only this node can use are allocated."""
    numbers = devices.index[pool]
    return any(
        name in numbers and devices.entries[numbers[name]].view.slice.spec.node_name is not None
        for name in snapshot.state.pool(pool)
    )


# -- the filter


class MixedAdvertisersFilter(Filter):
    """Filter by extended resources whose units claims may hold already."""

    rule = Rule.MIXED_ADVERTISERS
    depends_on_pods = True
    events: ClassVar = frozenset(
        {
            EventKind.NODE_ADDED,
            NodeUpdate.ALLOCATABLE,
            EventKind.CLAIM_FREED,
            EventKind.CLASS_CHANGED,
            EventKind.SLICE_CHANGED,
        }
    )
    is_node_local = False
    pod_fields = frozenset({"containers", "init_containers"})

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot) -> None:
        super().__init__(pod_info, snapshot)
        self.resources = tuple(plugin_requests(pod_info.requests))

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        if pod_info.profile.mixed_advertisers is MixedAdvertisers.ALLOW:
            return None
        found = cls(pod_info, snapshot)
        return found if found.resources else None

    def filter(self) -> Mask:
        mask = np.ones(self.snapshot.size, dtype=np.bool_)
        for row in self._rows_with_claims():
            mask[row] = not any(claimed_driver(self.snapshot, row, name) for name in self.resources)
        return mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        found = ((name, claimed_driver(self.snapshot, row, name)) for name in self.resources)
        return tuple(
            NodeReason(
                self.rule,
                MixedAdvertisersMessage.CLAIMED,
                VerdictCode.UNSCHEDULABLE,
                {"resource": resource, "driver": driver},
            )
            for resource, driver in found
            if driver
        )

    def _rows_with_claims(self) -> set[int]:
        """Return the nodes that have allocated devices of their own."""
        found = set()
        for pool in self.snapshot.state.pools():
            for view in self.snapshot.inventory.slices_of(pool):
                row = self.snapshot.row_of(view.slice.spec.node_name or "")
                if row is not None:
                    found.add(row)
        return found

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        return waiting_pod.value(uses_device_plugin) and super().queueing_hint(event, waiting_pod)


def plugin_requests(requests: Iterable[str]) -> Iterator[str]:
    """Yield the resources of a pod's requests that a device plugin may serve."""
    yield from (name for name in requests if "/" in name and _is_plugin_resource(name))


def uses_device_plugin(pod: Pod) -> bool:
    """Return whether a pod may hold hardware through a device plugin."""
    return any(
        any(True for _ in plugin_requests(each.resources.requests))
        for each in (*pod.spec.init_containers, *pod.spec.containers)
    )
