"""Namespace rows: what the pods and claims of each namespace use.

The amounts of all namespaces add up to what all ledgers have charged. Devices are counted per class, each
once however many claims of the namespace share it; shares are counted separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.claims import find_requested_class
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.top.pods import pod_rows


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """Usage of one namespace."""

    namespace: str
    pods: int  #: bound to a node
    pending: int
    claims: int
    allocated: int  #: allocated claims
    amounts: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)  #: requests, claims, overhead
    devices: Mapping[str, int] = field(default_factory=dict)  #: class -> devices, each counted once
    shares: Mapping[str, int] = field(default_factory=dict)  #: class -> shares among them

    def as_json(self) -> dict[str, Any]:
        resources = []
        for name in sorted(self.amounts, key=resource_order):
            requests, claims, overhead = self.amounts[name]
            units = {"requests": requests, "claims": claims, "overhead": overhead}
            units["total"] = sum(self.amounts[name])
            resources.append({"resource": name, **{key: format_amount(name, n) for key, n in units.items()}})
        return {
            "namespace": self.namespace,
            "pods": self.pods,
            "pending": self.pending,
            "claims": self.claims,
            "allocatedClaims": self.allocated,
            "resources": resources,
            "devices": dict(self.devices),
            "shares": dict(self.shares),
        }


def namespace_rows(cluster_state: ClusterState, namespace: str = "") -> list[NamespaceRow]:
    """Return the rows of all namespaces that have pods or claims, by name."""
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
    rows = []
    for name in sorted({*pods, *claims}):
        bound, pending = pods.get(name, (0, 0))
        own = claims.get(name, [])
        held = sum(claim.status.allocation is not None for claim in own)
        rows.append(NamespaceRow(name, bound, pending, len(own), held, amounts.get(name, {}), *_devices(own)))
    return rows


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
