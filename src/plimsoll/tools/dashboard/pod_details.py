"""Rows of pods with everything they hold: charges by resource, devices of their claims, priority and age.

Used by the page of a node and the list of pods. Amounts are integers in ledger units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.tools.amounts import format_quantity, resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.pod_status import pod_status
from plimsoll.tools.top.nodes import ResourceHolder
from plimsoll.tools.top.pods import PodRow, pod_row, rows_on

Tree = dict[str, Any]


def describe_pod(pod: Pod) -> Tree:
    """Return what a list shows of a pod itself."""
    return {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "node": pod.spec.node_name or None,
        "phase": pod.status.phase or "Pending",
        "status": pod_status(pod),
        "created": pod.metadata.creation_timestamp,
        "priority": pod.priority,
        "priorityClass": pod.spec.priority_class_name or None,
    }


def detail_pod(cluster_state: ClusterState, pod: Pod) -> Tree:
    """Return a pod with its charges and devices."""
    return {**describe_pod(pod), **_usage(cluster_state, pod_row(cluster_state, pod), ())}


def detail_node_pods(
    cluster_state: ClusterState, node: str, pods: Iterable[Pod], holders: Iterable[ResourceHolder]
) -> list[Tree]:
    """Return the pods of a node, largest first, and the pools of claims that they draw from.

    Placeholder pods are named with the pods and claims that they stand for, and listed only if they request
    more than these are charged.
    """
    snapshot = cluster_state.snapshot
    index = snapshot.row_of(node)
    if index is None:
        return []
    known = {pod.metadata.key: pod for pod in pods}
    rules: dict[tuple[str, str], list[ResourceHolder]] = {}
    for holder in holders:
        rules.setdefault((holder.namespace, holder.pod), []).append(holder)
    found = []
    for row in rows_on(cluster_state, snapshot.ledger(index)):
        pod = known.get((row.namespace, row.pod))
        head = describe_pod(pod) if pod is not None else _pool_of(row)
        found.append({**head, **_usage(cluster_state, row, rules.get((row.namespace, row.pod), ()))})
    found.sort(key=_biggest_first)
    return found


def _pool_of(row: PodRow) -> Tree:
    """Return the head of the pool of a claim, which has no pod."""
    return {"namespace": row.namespace, "name": None, "node": row.node, "claim": row.claims[0]}


def _usage(cluster_state: ClusterState, row: PodRow, holders: Iterable[ResourceHolder]) -> Tree:
    rules: dict[str, list[str]] = {}
    notes: dict[str, str] = {}
    for holder in holders:
        if holder.stands_for:
            notes["standsFor"] = holder.stands_for
        elif holder.placeholder and holder.claim in row.claims:
            notes["placeholder"] = holder.placeholder
        if holder.claim and holder.rule not in rules.setdefault(holder.resource, []):
            rules[holder.resource].append(holder.rule)
    return {
        "amounts": {name: row.amounts[name] for name in sorted(row.amounts, key=resource_order)},
        "drawn": dict(row.drawn),
        "rules": rules,
        **notes,
        "claims": list(row.claims),
        "devices": [
            device
            for name in row.claims
            for device in _devices(cluster_state.snapshot.claim(row.namespace, name))
        ],
    }


def _devices(claim: ResourceClaim | None) -> Iterable[Tree]:
    for result in claim.allocation_results if claim is not None else ():
        yield {
            "driver": result.driver,
            "pool": result.pool,
            "device": result.device,
            "claim": claim.metadata.name if claim is not None else "",
            "consumed": _texts(result.consumed_capacity),
        }


def _texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: format_quantity(amount) for name, amount in amounts.items()}


def _biggest_first(row: Tree) -> tuple[object, ...]:
    amounts: Mapping[str, tuple[int, int, int]] = row["amounts"]
    totals = [sum(amounts.get(name, (0, 0, 0))) for name in ("cpu", "memory")]
    return -len(row["devices"]), -totals[0], -totals[1], row["namespace"], row["name"] or ""
