"""`FixTrial`: a pod on one node after the steps tried so far; steps are proposed from its refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices, bit_numbers
from plimsoll.allocator.reasons.refusal import RequestRefusal
from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import (
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    expressions_of,
)
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state import ClusterState

RequestBody = ExactDeviceRequest | DeviceSubRequest


@dataclass(frozen=True, slots=True)
class FixTrial:
    """One pod on one node of a changed cluster state."""

    cluster_state: ClusterState
    settings: SchedulerProfile
    pod_info: PodInfo
    node_filter: NodeFilter
    row: int

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster_state.snapshot

    @property
    def pod(self) -> Pod:
        return self.pod_info.stored

    @property
    def node(self) -> Node:
        return self.snapshot.node(self.row)

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def devices(self) -> NodeDevices | None:
        """The devices of the node; None if their description is faulty."""
        found = self.snapshot.inventory.devices_for(self.node)
        return None if isinstance(found, AllocationFault) else found

    def find_device(self, device_class: DeviceClass, *more: DeviceSelector) -> DeviceEntry | None:
        """Return a device that a class and further selectors match, of the same node if possible."""
        selectors = expressions_of(device_class.spec.selectors), expressions_of(more)
        for row in (self.row, *self.snapshot.rows()):
            devices = self.snapshot.inventory.devices_for(self.snapshot.node(row))
            if not isinstance(devices, AllocationFault):
                for number in bit_numbers(devices.select(*selectors).mask)[:1]:
                    return devices.entries[number]
        return None

    def unserved(self, refusal: Refusal) -> Iterator[tuple[RequestRefusal, ResourceClaim, RequestBody]]:
        """Yield the requests that the node cannot serve, with their claims."""
        claims = {claim.metadata.full_name: claim for claim in self.pod_info.at_node(self.node).claims}
        for request in refusal.requests:
            claim = claims.get(request.claim)
            body = dict(device_requests(claim)).get(request.request) if claim is not None else None
            if claim is not None and body is not None and not (request.served and not refusal.together):
                yield request, claim, body
