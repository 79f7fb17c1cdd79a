"""Paginated lists: `/api/devices`, `/api/pools`, `/api/claims`, `/api/pods` and `/api/namespaces`.

Formats are in docs/dashboard.md, "JSON API". The search is case-insensitive over the displayed text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import ApiError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.changes import ChangeScope
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.pod_details import detail_pod
from plimsoll.tools.pod_schedulers import recorded_message
from plimsoll.tools.top.claims import claim_row, claim_state
from plimsoll.tools.top.classes import devices_of_class
from plimsoll.tools.top.devices import DeviceRow, device_rows
from plimsoll.tools.top.namespaces import namespace_rows
from plimsoll.tools.top.physical import availability_of
from plimsoll.tools.top.pools import PoolRow

Tree = dict[str, Any]
#: Default and maximum page size.
USUAL, MOST = 200, 10_000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Filter and page of a list request."""

    search: str = ""
    state: str = ""
    node: str = ""
    namespace: str = ""
    device_class: str = ""
    group: str = ""
    fixes: bool = False
    offset: int = 0
    limit: int = USUAL


def read_list_query(query: Mapping[str, str]) -> ListQuery:
    """Parse a query string. Raise ApiError 400 that names the invalid parameter."""
    return ListQuery(
        query.get("q", "")[:200].strip().lower(),
        query.get("state", ""),
        query.get("node", ""),
        query.get("namespace", ""),
        query.get("class", ""),
        _choice(query, "group", ("", "physical")),
        _choice(query, "fixes", ("", "true", "false")) == "true",
        _number(query, "offset", 0, 10**9),
        _number(query, "limit", USUAL, MOST),
    )


def read_history_query(query: Mapping[str, str]) -> tuple[int, str]:
    """Return the first time and the node of a history request; "" is the cluster. Raise ApiError 400."""
    return _number(query, "since", 0, 10**11), query.get("node", "")


def _choice(query: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    text = query.get(name, "")
    if text not in allowed:
        options = " or ".join(each for each in allowed if each)
        raise ApiError(400, "BadRequest", f"{name}: {text[:40]!r} must be {options}")
    return text


def _number(query: Mapping[str, str], name: str, usual: int, most: int) -> int:
    text = query.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise ApiError(400, "BadRequest", f"{name}: {text[:40]!r} is not an integer")
    return min(int(text), most)


class NamespaceCache:
    """Namespace rows, kept until something affects them."""

    def __init__(self) -> None:
        self._rows: list[Tree] | None = None

    def invalidate(self, scope: ChangeScope) -> None:
        if scope.kinds & {"Pod", "ResourceClaim", "ResourceSlice", "DeviceClass", "Node"}:
            self._rows = None

    def rows(self, cluster_state: ClusterState) -> list[Tree]:
        if self._rows is None:
            self._rows = [row.as_json() for row in namespace_rows(cluster_state)]
        return self._rows


def list_devices(cluster_state: ClusterState, query: ListQuery, known: DeviceCache) -> Tree:
    """Return a page of devices, or of physical devices that have a part that matches."""
    kept = devices_of_class(cluster_state, query.device_class) if query.device_class else None

    def matches(row: DeviceRow) -> bool:
        return (
            query.state in ("", row.state)
            and (kept is None or row.id in kept)
            and query.search in _device_text(row).lower()
        )

    if not query.group:
        rows = device_rows(cluster_state, query.node) if query.node else known.devices(cluster_state)
        return _page([row for row in rows if matches(row)], query)
    found = [
        each
        for each in known.physical(cluster_state)
        if any(query.node in ("", part.node) and matches(part) for part in each.parts)
    ]
    shown = found[query.offset : query.offset + query.limit]
    availability = availability_of(cluster_state, shown)
    return {
        "total": len(found),
        "items": [each.as_json(availability) for each in shown],
        "physical": sum(each.counted_states.total() for each in found),
        "devices": sum(len(each.parts) for each in found),
    }


def _page(found: Sequence[DeviceRow] | Sequence[PoolRow], query: ListQuery) -> Tree:
    shown = found[query.offset : query.offset + query.limit]
    return {"total": len(found), "items": [each.as_json() for each in shown]}


def _device_text(row: DeviceRow) -> str:
    held = "".join(f" {each.namespace}/{each.claim} {' '.join(each.pods)}" for each in row.holders)
    return f"{row.driver}/{row.pool}/{row.device} {row.node} {row.state}{held}"


def list_pools(cluster_state: ClusterState, query: ListQuery, known: DeviceCache) -> Tree:
    rows = [
        row
        for row in known.pools(cluster_state)
        if query.node in ("", row.node)
        and query.state in ("", row.standing)
        and query.search in f"{row.driver}/{row.pool} {row.node} {row.standing}".lower()
    ]
    return _page(rows, query)


def list_claims(cluster_state: ClusterState, query: ListQuery) -> Tree:
    """Return a page of claims; only these are priced."""
    claims = [
        claim
        for claim in cluster_state.objects.all(ResourceClaim)
        if query.namespace in ("", claim.metadata.namespace)
        and (not query.state or query.state == claim_state(claim))
        and (not query.search or query.search in _claim_text(claim).lower())
    ]
    claims.sort(key=lambda claim: claim.metadata.key)
    shown = claims[query.offset : query.offset + query.limit]
    return {"total": len(claims), "items": [claim_row(cluster_state, claim).as_json() for claim in shown]}


def _claim_text(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    devices = " ".join(f"{each.driver}/{each.pool}/{each.device}" for each in results)
    pods = " ".join(each.name for each in claim.status.reserved_for)
    return f"{claim.metadata.full_name} {claim_state(claim)} {devices} {pods}"


def list_namespaces(cluster_state: ClusterState, query: ListQuery, known: NamespaceCache) -> Tree:
    rows = [row for row in known.rows(cluster_state) if query.search in row["namespace"].lower()]
    return {"total": len(rows), "items": rows[query.offset : query.offset + query.limit]}


def list_pods(cluster_state: ClusterState, query: ListQuery) -> tuple[Tree, list[Pod]]:
    """Return a page of pods, and its pending pods whose reasons are still to be computed."""
    pods = cluster_state.pending if query.state == "pending" else cluster_state.pods
    if query.state == "running":
        pods = [pod for pod in pods if pod.spec.node_name]
    elif query.state not in ("", "pending"):
        raise ApiError(400, "BadRequest", f"state: {query.state[:40]!r} must be pending or running")
    kept = [
        pod
        for pod in pods
        if query.namespace in ("", pod.metadata.namespace)
        and query.node in ("", pod.spec.node_name)
        and query.search in f"{pod.metadata.full_name} {pod.spec.node_name}".lower()
    ]
    kept.sort(key=_queue_order if query.state == "pending" else lambda pod: pod.metadata.key)
    shown = kept[query.offset : query.offset + query.limit]
    rows = [
        {
            **detail_pod(cluster_state, pod),
            "why": "" if pod.spec.node_name else recorded_message(cluster_state, pod),
        }
        for pod in shown
    ]
    return {"total": len(kept), "items": rows}, [pod for pod in shown if not pod.spec.node_name]


def _queue_order(pod: Pod) -> tuple[object, ...]:
    """Return the order of the scheduling queue: highest priority first, then oldest first."""
    return -pod.priority, pod.metadata.creation_timestamp or "", *pod.metadata.key
