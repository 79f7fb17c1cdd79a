"""`AuditFacts`: lookups shared by the checks, computed once.

Also knows which kinds the cluster state contains: without slices nothing is known about devices, and checks
that need them are skipped.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from plimsoll.allocator.allocation_check import PublishedDevice
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import device_forms
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.request_policies import resolve_request_policies
from plimsoll.api.resource import (
    Device,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from plimsoll.controllers.pod_utils import is_finished
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.node_resources import NodeResourceGuess, guess_node_resources
from plimsoll.tools.cluster_state.objects import key_of

T = TypeVar("T")
Key = tuple[str, str]
#: Kinds that checks can need; a cluster state read from files has those with at least one object.
NEEDED: dict[str, type[Any]] = {
    "pods": Pod,
    "nodes": Node,
    "resourceslices": ResourceSlice,
    "resourceclaims": ResourceClaim,
    "deviceclasses": DeviceClass,
    "resourceclaimtemplates": ResourceClaimTemplate,
}


@dataclass(slots=True)
class PoolFacts:
    """Pool as described by its slices."""

    id: PoolId
    generation: int = 0  #: the newest
    slices: list[ResourceSlice] = field(default_factory=list)  #: of the newest generation
    old: list[ResourceSlice] = field(default_factory=list)  #: of older ones
    devices: dict[str, tuple[ResourceSlice, Device]] = field(default_factory=dict)  #: of the newest

    @property
    def node(self) -> str:
        """The only node of its slices, or ""."""
        nodes = {each.spec.node_name or "" for each in self.slices}
        return nodes.pop() if len(nodes) == 1 else ""


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One allocation result and its claim."""

    claim: ResourceClaim
    result: DeviceRequestAllocationResult

    @property
    def name(self) -> str:
        return self.claim.metadata.full_name


class AuditFacts:
    """Indexed objects of a cluster state."""

    def __init__(self, cluster_state: ClusterState, now: float, *, live: bool = False) -> None:
        """`now` in seconds since 1970. `live`: kinds without objects are really empty."""
        self.cluster_state = cluster_state
        self.now = now
        self.live = live
        self._computed: dict[str, Any] = {}

    def compute_once(self, what: str, make: Callable[[], T]) -> T:
        """Return the value cached under this name, computing it on first use."""
        if what not in self._computed:
            self._computed[what] = make()
        known: T = self._computed[what]
        return known

    # -- known kinds

    def lacks(self, needs: tuple[str, ...]) -> str:
        """Return why a check that needs these kinds cannot run; "" if it can."""
        gaps = {gap.kind: gap for gap in self.cluster_state.objects.gaps if gap.whole}
        for plural in needs:
            if not self.live and not self._all(NEEDED[plural]):
                return f"the input has no {plural}"
            if plural in gaps:
                return str(gaps[plural])
        return ""

    def _all(self, kind: type[Any]) -> list[Any]:
        return self.cluster_state.objects.all(kind)

    # -- objects

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.cluster_state.nodes}

    @cached_property
    def pods(self) -> dict[Key, Pod]:
        """All pods, terminated or not."""
        return {pod.metadata.key: pod for pod in self._all(Pod)}

    @cached_property
    def bound(self) -> list[Pod]:
        """Bound pods that have not terminated, by name."""
        pods = [pod for pod in self.pods.values() if pod.spec.node_name and not is_finished(pod)]
        return sorted(pods, key=key_of)

    @cached_property
    def claims(self) -> dict[Key, ResourceClaim]:
        return {claim.metadata.key: claim for claim in sorted(self._all(ResourceClaim), key=key_of)}

    @cached_property
    def templates(self) -> dict[Key, ResourceClaimTemplate]:
        return {each.metadata.key: each for each in sorted(self._all(ResourceClaimTemplate), key=key_of)}

    @cached_property
    def classes(self) -> dict[str, DeviceClass]:
        return {each.metadata.name: each for each in sorted(self._all(DeviceClass), key=key_of)}

    @cached_property
    def rules(self) -> list[DeviceTaintRule]:
        return sorted(self._all(DeviceTaintRule), key=key_of)

    @cached_property
    def slices(self) -> list[ResourceSlice]:
        return sorted(self._all(ResourceSlice), key=key_of)

    # -- derived data

    @cached_property
    def pools(self) -> dict[PoolId, PoolFacts]:
        """Pools of all slices, by name."""
        found: dict[PoolId, PoolFacts] = {}
        resolved: dict[int, tuple[Device, ...]] = {}  # by identity: machines of one type share their devices
        for each in self.slices:
            spec = each.spec
            id = PoolId(spec.driver, spec.pool.name)
            pool = found.setdefault(id, PoolFacts(id, spec.pool.generation))
            if spec.pool.generation > pool.generation:
                pool.old += pool.slices
                pool.slices, pool.devices = [], {}
                pool.generation = spec.pool.generation
            if spec.pool.generation < pool.generation:
                pool.old.append(each)
                continue
            pool.slices.append(each)
            devices = resolved.get(builtins.id(spec.devices))
            if devices is None:
                devices = resolved[builtins.id(spec.devices)] = resolve_request_policies(spec.devices or ())
            for device in devices:
                pool.devices.setdefault(device.name, (each, device))
        return dict(sorted(found.items()))

    def device(self, id: DeviceId) -> Device | None:
        """Return a device as currently published."""
        pool = self.pools.get(id.pool_id)
        found = None if pool is None else pool.devices.get(id.device)
        return None if found is None else found[1]

    def find_device(self, id: DeviceId) -> PublishedDevice | None:
        """Return a device as currently published, with the slice that selectors are evaluated on."""
        pool = self.pools.get(id.pool_id)
        found = None if pool is None else pool.devices.get(id.device)
        if found is None:
            return None
        view = self._views.get(found[0].metadata.name)
        if view is None:
            view = self._views[found[0].metadata.name] = SliceView(found[0])
        positions = self._positions.get(builtins.id(view.devices))
        if positions is None:
            positions = {device.name: index for index, device in reversed([*enumerate(view.devices)])}
            self._positions[builtins.id(view.devices)] = positions
        return PublishedDevice(view, positions[id.device])

    @cached_property
    def _views(self) -> dict[str, SliceView]:
        """Views of slices, by name."""
        return {}

    @cached_property
    def _positions(self) -> dict[int, dict[str, int]]:
        """Positions of devices by name, by the identity of the devices of a view, which slices share."""
        return {}

    def node_resources(self, driver: str, device: Device) -> tuple[NodeResourceGuess, ...]:
        """Return the node resources that an entire published device represents."""
        key = (driver, builtins.id(device))  # machines of one type share their devices
        found = self._node_resources.get(key)
        if found is None:
            found = self._node_resources[key] = tuple(guess_node_resources(driver, device))
        return found

    def may_represent_resources(self, pool: PoolFacts) -> bool:
        """Return whether a device of a pool represents a node resource or has mappings."""
        for slice in pool.slices:
            key = (pool.id.driver, id(slice.spec.devices))  # machines of one type share their devices
            known = self._representing.get(key)
            if known is None:
                known = self._representing[key] = any(
                    self.node_resources(pool.id.driver, device) or device_forms(device)
                    for device in slice.spec.devices or ()
                )
            if known:
                return True
        return False

    @cached_property
    def _representing(self) -> dict[tuple[str, int], bool]:
        return {}

    @cached_property
    def _node_resources(self) -> dict[tuple[str, int], tuple[NodeResourceGuess, ...]]:
        return {}

    @cached_property
    def held(self) -> dict[DeviceId, list[HeldDevice]]:
        """Devices allocated to claims, with the allocation results."""
        found: dict[DeviceId, list[HeldDevice]] = {}
        for claim in self.claims.values():
            for result in claim.allocation_results:
                found.setdefault(DeviceId.of(result), []).append(HeldDevice(claim, result))
        return found

    @cached_property
    def users(self) -> dict[Key, list[Pod]]:
        """Pods that use each claim and have not terminated."""
        found: dict[Key, list[Pod]] = {}
        for pod in sorted(filter(uses_claims, self.pods.values()), key=key_of):
            if not is_finished(pod):
                for name in dict.fromkeys(resolve_claim_names(pod).values()):
                    found.setdefault((pod.metadata.namespace, name), []).append(pod)
        return found

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """Return the existing claims of a pod, each once."""
        if not uses_claims(pod):
            return ()
        known = self._claims_of.get(id(pod))
        if known is None:
            names = dict.fromkeys(resolve_claim_names(pod).values())
            found = (self.claims.get((pod.metadata.namespace, name)) for name in names)
            known = self._claims_of[id(pod)] = tuple(claim for claim in found if claim is not None)
        return known

    @cached_property
    def _claims_of(self) -> dict[int, tuple[ResourceClaim, ...]]:
        return {}


def is_live(cluster_state: ClusterState) -> bool:
    """Return whether a cluster state was read from a cluster, where every kind is known to be complete."""
    return cluster_state.origin.startswith(("http://", "https://"))


def subject_of(thing: Any) -> str:
    """Return `Kind/namespace/name`."""
    return f"{type(thing).__name__}/{thing.metadata.full_name}"
