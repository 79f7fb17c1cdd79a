"""Namespace rows: what the pods and claims of each namespace use.

The amounts of all namespaces add up to what all ledgers have charged; their shares are of what all nodes have
allocatable. Devices are counted per class, each once however many claims of the namespace share it; shares of
devices are counted separately. Quotas are shown as their status has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.quota import ResourceQuota
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.claims import find_requested_class
from plimsoll.ledger.units import CPU
from plimsoll.tools.amounts import percent
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import key_of
from plimsoll.tools.top.pods import Amounts, amounts_json, pod_rows


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """Resource that a ResourceQuota limits."""

    quota: str
    resource: str
    hard: Quantity
    used: Quantity | None  #: None if the quota controller has not computed it

    @property
    def is_full(self) -> bool:
        """Return whether nothing more can be created."""
        return self.used is not None and self.used >= self.hard

    def as_json(self) -> dict[str, Any]:
        used = None if self.used is None else str(self.used)
        return {"quota": self.quota, "resource": self.resource, "used": used, "hard": str(self.hard)}


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """Usage of one namespace."""

    namespace: str
    pods: int  #: bound to a node
    pending: int
    claims: int
    allocated: int  #: allocated claims
    amounts: Amounts = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)  #: class -> devices, each counted once
    shares: Mapping[str, int] = field(default_factory=dict)  #: class -> shares among them
    quotas: tuple[QuotaRow, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)  #: of all nodes

    def share(self, resource: str) -> str:
        """Return what is charged to the namespace as a percentage of what all nodes have allocatable."""
        return percent(sum(self.amounts.get(resource, (0, 0, 0))), self.allocatable.get(resource, 0))

    def as_json(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "pods": self.pods,
            "pending": self.pending,
            "claims": self.claims,
            "allocatedClaims": self.allocated,
            "resources": [
                {**tree, "share": self.share(tree["resource"])} for tree in amounts_json(self.amounts)
            ],
            "devices": dict(self.devices),
            "shares": dict(self.shares),
            "quotas": [quota.as_json() for quota in self.quotas],
        }


def namespace_rows(cluster_state: ClusterState, namespace: str = "") -> list[NamespaceRow]:
    """Return the rows of all namespaces that have pods, claims or quotas, by name."""
    pods: dict[str, list[int]] = {}
    amounts: dict[str, dict[str, tuple[int, int, int]]] = {}
    for row in pod_rows(cluster_state, namespace):
        counts = pods.setdefault(row.namespace, [0, 0])
        if row.pod:
            counts[0 if row.node else 1] += 1
        if row.node:
            total = amounts.setdefault(row.namespace, {})
            for name, parts in row.amounts.items():
                before = total.get(name, (0, 0, 0))
                total[name] = (before[0] + parts[0], before[1] + parts[1], before[2] + parts[2])
    claims: dict[str, list[ResourceClaim]] = {}
    for claim in cluster_state.objects.all(ResourceClaim):
        if namespace in ("", claim.metadata.namespace):
            claims.setdefault(claim.metadata.namespace, []).append(claim)
    quotas: dict[str, list[QuotaRow]] = {}
    for quota in sorted(cluster_state.objects.all(ResourceQuota), key=key_of):
        if namespace in ("", quota.metadata.namespace):
            quotas.setdefault(quota.metadata.namespace, []).extend(_quota_rows(quota))
    allocatable = _allocatable(cluster_state)
    rows = []
    for name in sorted({*pods, *claims, *quotas}):
        bound, pending = pods.get(name, (0, 0))
        own = claims.get(name, [])
        held = sum(claim.status.allocation is not None for claim in own)
        used = amounts.get(name, {})
        limits = tuple(quotas.get(name, ()))
        devices, shares = _devices(own)
        rows.append(
            NamespaceRow(name, bound, pending, len(own), held, used, devices, shares, limits, allocatable)
        )
    return rows


def sort_namespaces(
    rows: Iterable[NamespaceRow], sort: str, resources: Sequence[str] = ()
) -> list[NamespaceRow]:
    """Sort namespaces by name, or those first that use most: of the first resource (by default cpu), of it by
    claims, or devices.
    """
    resource = resources[0] if resources else CPU

    def key(row: NamespaceRow) -> tuple[int, str]:
        requests, claims, overhead = row.amounts.get(resource, (0, 0, 0))
        used = {"name": 0, "used": requests + claims + overhead, "claims": claims}
        return -used.get(sort, sum(row.devices.values())), row.namespace

    return sorted(rows, key=key)


def _quota_rows(quota: ResourceQuota) -> Iterator[QuotaRow]:
    hard = quota.status.hard if quota.status.hard is not None else quota.spec.hard
    used = quota.status.used or {}
    for resource in sorted(hard):
        yield QuotaRow(quota.metadata.name, resource, hard[resource], used.get(resource))


def _allocatable(cluster_state: ClusterState) -> dict[str, int]:
    total: dict[str, int] = {}
    snapshot = cluster_state.snapshot
    for row in snapshot.rows():
        for name, units in snapshot.ledger(row).allocatable.items():
            total[name] = total.get(name, 0) + units
    return total


def _devices(claims: list[ResourceClaim]) -> tuple[dict[str, int], dict[str, int]]:
    """Count devices and shares by class, without admin access."""
    devices: dict[str, set[DeviceId]] = {}
    shares: dict[str, int] = {}
    for claim in claims:
        for result in claim.allocation_results:
            if result.admin_access:
                continue
            name = find_requested_class(claim, result.request)
            devices.setdefault(name, set()).add(DeviceId.of(result))
            if result.share_id is not None:
                shares[name] = shares.get(name, 0) + 1
    return {name: len(devices[name]) for name in sorted(devices)}, dict(sorted(shares.items()))
