"""`AuditFacts`: lookups shared by the checks, computed once.

Also knows which kinds the cluster state contains: without slices nothing is known about devices, and checks
that need them are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from typing import Any, TypeVar

from msgspec import Struct

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
    ResourceSliceSpec,
)
from plimsoll.api.timestamps import parse_time
from plimsoll.controllers.pod_utils import is_finished
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.tools.audit.identity_cache import IdentityCache
from plimsoll.tools.class_mappings import ClassMapping, suggest_mappings
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.node_resources import NodeResourceGuess, guess_node_resources
from plimsoll.tools.cluster_state.objects import key_of

#: Seconds that controllers get before a missing action is reported.
GRACE_SECONDS = 300.0

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
    has_partitions: bool = False  #: whether a device consumes counters

    @property
    def node(self) -> str:
        """The only node of its slices, or ""."""
        nodes = {each.spec.node_name or "" for each in self.slices}
        return nodes.pop() if len(nodes) == 1 else ""

    @property
    def on_node(self) -> str:
        return f"on {self.node}" if self.node else "of its nodes"

    @property
    def is_complete(self) -> bool:
        """True if the newest generation has all its slices."""
        return all(each.spec.pool.resource_slice_count == len(self.slices) for each in self.slices)

    def describe_completion(self) -> str:
        """Describe what is to be done so that the newest generation becomes complete."""
        return (
            f"wait until the driver {self.on_node} has published all slices of generation {self.generation}, "
            "or restart it"
        )


class HeldDevice(Struct, frozen=True):
    """One allocation result, its claim, and the device as currently published."""

    claim: ResourceClaim
    result: DeviceRequestAllocationResult
    id: DeviceId
    slice: ResourceSlice | None  #: None if the device is not published
    device: Device | None

    @property
    def name(self) -> str:
        return self.claim.metadata.full_name


class PodClaims(Struct, frozen=True):
    """Pod that uses claims."""

    pod: Pod
    names: Mapping[str, str]  #: names of its claims, by their names in the pod
    claims: tuple[ResourceClaim, ...]  #: that exist, each once


class AuditFacts:
    """Indexed objects of a cluster state."""

    def __init__(self, cluster_state: ClusterState, now: float, *, live: bool = False) -> None:
        """`now` in seconds since 1970. `live`: kinds without objects are really empty."""
        self.cluster_state = cluster_state
        self.now = now
        self.live = live
        self._computed: dict[Hashable, Any] = {}
        self._positions: IdentityCache[dict[str, int]] = IdentityCache()
        self._node_resources: IdentityCache[tuple[NodeResourceGuess, ...]] = IdentityCache()
        self._representing: IdentityCache[bool] = IdentityCache()

    @cached_property
    def latest(self) -> float:
        """Latest time at which the objects are known to be as they are: now for a live cluster, for files the
        newest timestamp in them.
        """
        if self.live:
            return self.now
        found = map(_latest_time, self.cluster_state.objects)
        return min(self.now, max((each for each in found if each is not None), default=self.now))

    def compute_once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return the value cached under this name, computing it on first use."""
        if what not in self._computed:
            self._computed[what] = make()
        known: T = self._computed[what]
        return known

    def suggest_mappings(self, device_class: str, driver: str) -> tuple[ClassMapping, ...]:
        """Return the annotations that count the claims of a class for devices of a driver."""
        return self.compute_once(
            f"mappings of {device_class} for {driver}",
            lambda: suggest_mappings(self.cluster_state, device_class, driver),
        )

    # -- known kinds

    def lacks(self, needs: tuple[str, ...]) -> str:
        """Return why a check that needs these kinds cannot run; "" if it can."""
        gaps = {gap.kind: gap for gap in self.cluster_state.objects.gaps if gap.whole}
        for plural in needs:
            if not self.live and not self.cluster_state.objects.by_key(NEEDED[plural]):
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
    def pods(self) -> Mapping[Key, Pod]:
        """All pods but placeholders, terminated or not."""
        pods = self.cluster_state.objects.by_key(Pod)
        if not any(map(is_placeholder, pods.values())):
            return pods
        return {key: pod for key, pod in pods.items() if not is_placeholder(pod)}

    @cached_property
    def bound(self) -> list[Pod]:
        """Bound pods that have not terminated."""
        return [pod for pod in self.pods.values() if pod.spec.node_name and not is_finished(pod)]

    @cached_property
    def bound_by_node(self) -> dict[str, list[Pod]]:
        """Bound pods that have not terminated, by node."""
        found: dict[str, list[Pod]] = {}
        for pod in self.bound:
            found.setdefault(pod.spec.node_name, []).append(pod)
        return found

    @cached_property
    def claims(self) -> dict[Key, ResourceClaim]:
        claims = self.cluster_state.objects.by_key(ResourceClaim)
        return {key: claims[key] for key in sorted(claims)}

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
        resolved: IdentityCache[tuple[tuple[Device, ...], bool]] = IdentityCache()
        for each in self.slices:
            spec = each.spec
            id = PoolId(spec.driver, spec.pool.name)
            pool = found.setdefault(id, PoolFacts(id, spec.pool.generation))
            if spec.pool.generation > pool.generation:
                pool.old += pool.slices
                pool.slices, pool.devices, pool.has_partitions = [], {}, False
                pool.generation = spec.pool.generation
            if spec.pool.generation < pool.generation:
                pool.old.append(each)
                continue
            pool.slices.append(each)
            devices, partitions = resolved.get(spec.devices, partial(_read_devices, spec))
            pool.has_partitions |= partitions
            for device in devices:
                pool.devices.setdefault(device.name, (each, device))
        return dict(sorted(found.items()))

    def published(self, id: DeviceId) -> tuple[ResourceSlice, Device] | tuple[None, None]:
        """Return a device as currently published, with its slice."""
        pool = self.pools.get(id.pool_id)
        return (None, None) if pool is None else pool.devices.get(id.device, (None, None))

    def device(self, id: DeviceId) -> Device | None:
        """Return a device as currently published."""
        return self.published(id)[1]

    def find_device(self, id: DeviceId) -> PublishedDevice | None:
        """Return a device as currently published, with the slice that selectors are evaluated on."""
        slice, _ = self.published(id)
        if slice is None:
            return None
        view = self._views.get(slice.metadata.name)
        if view is None:
            view = self._views[slice.metadata.name] = SliceView(slice)
        devices = view.devices
        positions = self._positions.get(
            devices, lambda: {device.name: index for index, device in reversed([*enumerate(devices)])}
        )
        return PublishedDevice(view, positions[id.device])

    @cached_property
    def _views(self) -> dict[str, SliceView]:
        """Views of slices, by name."""
        return {}

    def node_resources(self, driver: str, device: Device) -> tuple[NodeResourceGuess, ...]:
        """Return the node resources that an entire published device represents."""
        return self._node_resources.get(device, lambda: guess_node_resources(driver, device), driver)

    def may_represent_resources(self, pool: PoolFacts) -> bool:
        """Return whether a device of a pool represents a node resource or has mappings."""
        driver = pool.id.driver
        for slice in pool.slices:
            devices = slice.spec.devices or ()
            if self._representing.get(devices, partial(self._represent, driver, devices), driver):
                return True
        return False

    def _represent(self, driver: str, devices: tuple[Device, ...]) -> bool:
        return any(self.node_resources(driver, device) or device_forms(device) for device in devices)

    @cached_property
    def allocated(self) -> dict[Key, list[HeldDevice]]:
        """Allocation results of each claim that has any, by name."""
        found: dict[Key, list[HeldDevice]] = {}
        for key, claim in self.claims.items():
            for result in claim.allocation_results:
                id = DeviceId.of(result)
                held = HeldDevice(claim, result, id, *self.published(id))
                found.setdefault(key, []).append(held)
        return found

    @cached_property
    def held(self) -> dict[DeviceId, list[HeldDevice]]:
        """Devices allocated to claims, with the allocation results."""
        found: dict[DeviceId, list[HeldDevice]] = {}
        for held in self.allocated.values():
            for each in held:
                found.setdefault(each.id, []).append(each)
        return found

    @cached_property
    def pods_with_claims(self) -> list[PodClaims]:
        """Pods that use claims and have not terminated, by name."""
        pods, claims = self.pods, self.claims
        found = []
        for key in sorted([key for key, pod in pods.items() if uses_claims(pod) and not is_finished(pod)]):
            pod = pods[key]
            names = resolve_claim_names(pod)
            existing = []
            for name in names.values() if len(names) < 2 else dict.fromkeys(names.values()):
                claim = claims.get((key[0], name))
                if claim is not None:
                    existing.append(claim)
            found.append(PodClaims(pod, names, tuple(existing)))
        return found

    @cached_property
    def bound_with_claims(self) -> list[PodClaims]:
        """Those of them that are bound."""
        return [each for each in self.pods_with_claims if each.pod.spec.node_name]

    @cached_property
    def users(self) -> dict[Key, list[Pod]]:
        """Pods that use each claim and have not terminated."""
        found: dict[Key, list[Pod]] = {}
        for each in self.pods_with_claims:
            for name in dict.fromkeys(each.names.values()):
                found.setdefault((each.pod.metadata.namespace, name), []).append(each.pod)
        return found

    def describe_users(self, claim: ResourceClaim) -> tuple[str, ...]:
        """Return lines with the first pods that use a claim."""
        return tuple(
            f"used by Pod/{pod.metadata.full_name} on {pod.spec.node_name or 'no node'}"
            for pod in self.users.get(claim.metadata.key, ())[:3]
        )


def _read_devices(spec: ResourceSliceSpec) -> tuple[tuple[Device, ...], bool]:
    """Return the devices of a slice, and whether one consumes counters."""
    devices = resolve_request_policies(spec.devices or ())
    return devices, any(device.consumes_counters for device in devices)


def _latest_time(thing: Any) -> float | None:
    """Return the newest time at which an object was known to change."""
    texts = [thing.metadata.creation_timestamp]
    if isinstance(thing, Pod | Node):
        texts += [condition.last_transition_time for condition in thing.status.conditions]
    if isinstance(thing, Node):
        texts += [condition.last_heartbeat_time for condition in thing.status.conditions]
    if isinstance(thing, ResourceClaim) and thing.status.allocation is not None:
        texts.append(thing.status.allocation.allocation_timestamp)
    return max((time for time in map(parse_time, texts) if time is not None), default=None)


def shared(compute: Callable[[AuditFacts], T]) -> Callable[[AuditFacts], T]:
    """Decorate a function whose result several checks read, so that it is computed once."""

    @wraps(compute)
    def read(facts: AuditFacts) -> T:
        return facts.compute_once(compute, partial(compute, facts))

    return read


def is_live(cluster_state: ClusterState) -> bool:
    """Return whether a cluster state was read from a cluster, where every kind is known to be complete."""
    return cluster_state.origin.startswith(("http://", "https://"))


def subject_of(thing: Any) -> str:
    """Return `Kind/namespace/name`."""
    return f"{type(thing).__name__}/{thing.metadata.full_name}"
