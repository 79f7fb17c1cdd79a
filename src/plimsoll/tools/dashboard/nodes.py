"""`NodeRowCache` and the responses of `/api/overview`, `/api/nodes` and `/api/nodes/NAME`.

Rows are recomputed only where something changed. Formats are in docs/dashboard.md, "JSON API". Amounts are
integers in ledger units: milli for cpu, units for the rest.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from plimsoll.allocator.availability import FREE, PARTLY, TAKEN
from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import ApiError
from plimsoll.tools.amounts import format_exact, resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.missing_kinds import summarize_gaps
from plimsoll.tools.dashboard.changes import ChangeScope
from plimsoll.tools.dashboard.devices import DeviceCache, newest_slices
from plimsoll.tools.dashboard.pod_details import detail_node_pods
from plimsoll.tools.dashboard.topology import cpus_of_claim, read_topology
from plimsoll.tools.top.devices import device_rows
from plimsoll.tools.top.node_reports import totals_of
from plimsoll.tools.top.nodes import NodeRow, ResourceRow, holders, node_rows
from plimsoll.tools.top.physical import COUNTED, availability_of, group_devices
from plimsoll.tools.top.uncounted_notes import note_uncounted

COLUMNS = ("line", "requests", "claims", "overhead", "free", "uncounted")
ZONE = "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class NodeRowCache:
    """Rows of all nodes, kept until something affects them."""

    def __init__(self) -> None:
        self._node_rows: dict[str, NodeRow] = {}
        self._stale: set[str] = set()
        self._all_stale = True

    def invalidate(self, scope: ChangeScope) -> None:
        """Mark the affected nodes for recomputation."""
        self._stale |= scope.nodes
        self._all_stale |= scope.everywhere

    def rows(self, cluster_state: ClusterState) -> list[NodeRow]:
        """Return the rows of all nodes by name."""
        if self._all_stale:
            self._node_rows = {node_row.name: node_row for node_row in node_rows(cluster_state)}
        elif self._stale:
            fresh = {node_row.name: node_row for node_row in node_rows(cluster_state, names=self._stale)}
            for name in self._stale:
                if name in fresh:
                    self._node_rows[name] = fresh[name]
                else:
                    self._node_rows.pop(name, None)
        self._stale, self._all_stale = set(), False
        return [self._node_rows[name] for name in sorted(self._node_rows)]


# -- cluster


def overview(cluster_state: ClusterState, nodes: NodeRowCache, devices: DeviceCache) -> dict[str, Any]:
    """Return counts and totals; the service adds live status and findings."""
    rows = nodes.rows(cluster_state)
    drivers = {
        driver: sum(by_node.values(), Counter[str]())
        for driver, by_node in devices.counts(cluster_state).items()
    }
    counted = sum(drivers.values(), Counter[str]())
    totals = totals_of(rows)
    return {
        "origin": cluster_state.origin,
        "profile": cluster_state.profile.name,
        "counts": {
            "nodes": len(rows),
            "nodesReady": sum(node_row.ready for node_row in rows),
            "nodesPast": sum(bool(node_row.past) for node_row in rows),
            "nodesPastUncounted": sum(bool(node_row.past_uncounted) for node_row in rows),
            "pods": len(cluster_state.pods),
            "pending": len(cluster_state.pending),
            "claims": len(cluster_state.objects.all(ResourceClaim)),
            "classes": len(cluster_state.snapshot.classes),
            "devices": counted["all"],
            "devicesFree": counted[FREE],
            "devicesPartly": counted[PARTLY],
            "devicesTaken": counted[TAKEN],
        },
        "drivers": [{"driver": driver, **count} for driver, count in drivers.items()],
        "resources": [row.resource for row in totals],
        "totals": {
            row.resource: _with_texts(row, closed=sum(_closed(node_row, row.resource) for node_row in rows))
            for row in totals
        },
        "gaps": summarize_gaps(cluster_state.objects.gaps),
        "notCounted": note_uncounted(cluster_state, rows).as_json(),
        "assumedMapping": (
            None if cluster_state.assumed_mappings is None else cluster_state.assumed_mappings.describe()
        ),
    }


def _closed(node_row: NodeRow, resource: str) -> int:
    """Return the free amount of a resource on a node that accepts no pods."""
    if node_row.ready and not node_row.unschedulable:
        return 0
    return sum(max(0, row.free) for row in node_row.rows if row.resource == resource)


def _with_texts(row: ResourceRow, **others: int) -> dict[str, Any]:
    numbers = {**{column: getattr(row, column) for column in COLUMNS}, **others}
    return {**numbers, "text": {name: format_exact(row.resource, amount) for name, amount in numbers.items()}}


# -- all nodes


def all_nodes(cluster_state: ClusterState, nodes: NodeRowCache, devices: DeviceCache) -> dict[str, Any]:
    """Return the nodes column by column, to keep thousands of nodes small; missing resources are 0."""
    rows, counts = nodes.rows(cluster_state), devices.counts(cluster_state)
    resources = sorted({row.resource for node_row in rows for row in node_row.rows}, key=resource_order)
    columns: dict[str, dict[str, list[int]]] = {
        name: {column: [0] * len(rows) for column in COLUMNS if column != "free"} for name in resources
    }
    for index, node_row in enumerate(rows):
        for row in node_row.rows:
            for column, amounts in columns[row.resource].items():
                amounts[index] = getattr(row, column)
    names = [node_row.name for node_row in rows]
    return {
        "names": names,
        "ready": [node_row.ready for node_row in rows],
        "unschedulable": [node_row.unschedulable for node_row in rows],
        "pods": [node_row.pods for node_row in rows],
        "resources": resources,
        "columns": columns,
        "devices": {
            driver: {
                state: [by_node[name][state] if name in by_node else 0 for name in names]
                for state in COUNTED[:-1]
            }
            for driver, by_node in counts.items()
            if not by_node.keys().isdisjoint(names)
        },
    }


# -- one node


def one_node(cluster_state: ClusterState, name: str, known: DeviceCache) -> dict[str, Any]:
    """Return everything about a node. Raise ApiError 404 if it does not exist."""
    found = node_rows(cluster_state, names=[name])
    node = cluster_state.objects.find(Node, "", name)
    if not found or node is None:
        raise ApiError(404, "NotFound", f"node {name} not found")
    node_row = found[0]
    pods = sorted(_pods_on(cluster_state, name), key=lambda pod: pod.metadata.key)
    claims = _claims_on(cluster_state, name, pods)
    held = holders(cluster_state, name)
    devices = device_rows(cluster_state, name)
    physical = group_devices(devices, known.counters(cluster_state))
    availability = availability_of(cluster_state, physical)
    tree = codec.to_tree(node)
    spec, status = tree.get("spec", {}), tree.get("status", {})
    return {
        "name": name,
        "ready": node_row.ready,
        "unschedulable": node_row.unschedulable,
        "created": node.metadata.creation_timestamp,
        "zone": node.metadata.labels.get(ZONE),
        "instanceType": node.metadata.labels.get(INSTANCE_TYPE),
        "nodeInfo": status.get("nodeInfo", {}),
        "labels": dict(sorted(node.metadata.labels.items())),
        "taints": spec.get("taints", []),
        "conditions": status.get("conditions", []),
        "podCount": node_row.pods,
        "podLine": node_row.pod_line,
        "rows": [{"resource": row.resource, **_with_texts(row)} for row in node_row.rows],
        "holders": [
            {**each.as_json(), "amount": each.amount, "text": format_exact(each.resource, each.amount)}
            for each in held
        ],
        "devices": [row.as_json() for row in devices],
        "physical": [each.as_json(availability) for each in physical],
        "pods": detail_node_pods(cluster_state, name, pods, held),
        "claims": [_claim(claim, pods) for claim in claims],
        "topology": read_topology(cluster_state, name, claims),
        "notCounted": note_uncounted(cluster_state, found).as_json(),
    }


def _pods_on(cluster_state: ClusterState, name: str) -> list[Pod]:
    row = cluster_state.snapshot.row_of(name)
    return [] if row is None else cluster_state.snapshot.pods_at(row)


def _claims_on(cluster_state: ClusterState, name: str, pods: list[Pod]) -> list[ResourceClaim]:
    """Return the claims used by pods of a node and those that hold devices of its pools, by name."""
    pools = {(each.spec.driver, each.spec.pool.name) for each in newest_slices(cluster_state, node=name)}
    used = {(pod.metadata.namespace, claim) for pod in pods for claim in resolve_claim_names(pod).values()}
    found = []
    for claim in cluster_state.objects.all(ResourceClaim):
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        here = any((result.driver, result.pool) in pools for result in results)
        if here or claim.metadata.key in used:
            found.append(claim)
    return sorted(found, key=lambda each: each.metadata.key)


def _claim(claim: ResourceClaim, pods: list[Pod]) -> dict[str, Any]:
    allocation = claim.status.allocation
    names = Counter(
        f"{result.driver}/{result.pool}/{result.device}"
        for result in (allocation.devices.results if allocation is not None else ())
    )
    uids = {consumer.uid for consumer in claim.status.reserved_for}
    return {
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "devices": sorted(names),
        "cpus": str(cpus_of_claim(claim)) or None,
        "pods": [pod.metadata.name for pod in pods if pod.metadata.uid in uids],
    }
