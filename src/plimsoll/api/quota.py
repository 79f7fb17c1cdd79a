"""Typed views of ResourceQuota and LimitRange, and of the objects that quotas count (core `v1`).

Shared by admission and the quota controller. Volume claims and services have only the fields that are
counted.
"""

from __future__ import annotations

from plimsoll.api.meta import Int, ObjectMeta, Wire
from plimsoll.api.quantity import Quantity
from plimsoll.api.storage import PersistentVolumeClaim, PersistentVolumeClaimStatus

# -- quotas


class ScopedResourceSelectorRequirement(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Wire, frozen=True):
    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Wire, frozen=True):
    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Wire, frozen=True):
    """Usage; None if it was never computed."""

    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


# -- limits


class LimitRangeItem(Wire, frozen=True):
    type: str = ""
    max: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}
    max_limit_request_ratio: dict[str, Quantity] = {}


class LimitRangeSpec(Wire, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


# -- counted objects


class ModifyVolumeStatus(Wire, frozen=True):
    target_volume_attributes_class_name: str = ""


class CountedVolumeClaimStatus(PersistentVolumeClaimStatus, frozen=True):
    allocated_resources: dict[str, Quantity] = {}
    modify_volume_status: ModifyVolumeStatus | None = None


class CountedVolumeClaim(PersistentVolumeClaim, frozen=True):
    """A PersistentVolumeClaim, with the status that quotas count."""

    status: CountedVolumeClaimStatus = CountedVolumeClaimStatus()


class CountedServicePort(Wire, frozen=True):
    node_port: Int = 0


class CountedServiceSpec(Wire, frozen=True):
    type: str = ""
    ports: tuple[CountedServicePort, ...] = ()
    allocate_load_balancer_node_ports: bool | None = None


class CountedService(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CountedServiceSpec = CountedServiceSpec()
