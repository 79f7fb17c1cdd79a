"""The kinds that controllers read and the rest of Plimsoll does not.

Owns read projections of namespaces, quotas, leases, volume claims and services, and the few fields of pods
and templates that only controllers look at. Like the views of `api`, they never lose anything: objects are
changed by patches.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.core import Pod, PodSpec, ResourceRequirements
from plimsoll.api.meta import Condition, Int, ObjectMeta, Wire
from plimsoll.api.quantity import Quantity


class WatchedPodSpec(PodSpec, frozen=True):
    active_deadline_seconds: Int | None = None


class WatchedPod(Pod, frozen=True):
    """A pod with what quotas select by."""

    spec: WatchedPodSpec = WatchedPodSpec()


class TemplateSpec(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None  #: copied into claims as it is


class Template(Wire, frozen=True):
    """A ResourceClaimTemplate to copy from."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class NamespaceSpec(Wire, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ScopeRequirement(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Wire, frozen=True):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Wire, frozen=True):
    hard: dict[str, Quantity] = msgspec.field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Wire, frozen=True):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LeaseSpec(Wire, frozen=True):
    holder_identity: str = ""
    renew_time: str | None = None


class Lease(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class VolumeClaimSpec(Wire, frozen=True):
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    resources: ResourceRequirements = ResourceRequirements()


class VolumeClaimStatus(Wire, frozen=True):
    allocated_resources: dict[str, Quantity] = msgspec.field(default_factory=dict)
    current_volume_attributes_class_name: str | None = None


class VolumeClaim(Wire, frozen=True):
    """A PersistentVolumeClaim."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeClaimStatus = VolumeClaimStatus()


class ServicePort(Wire, frozen=True):
    node_port: Int = 0


class ServiceSpec(Wire, frozen=True):
    type: str = ""
    ports: tuple[ServicePort, ...] = ()
    allocate_load_balancer_node_ports: bool | None = None


class Service(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
