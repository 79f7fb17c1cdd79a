"""Lists of devices, pools, claims, pods and namespaces, page by page.

Owns the answers to `/api/devices`, `/api/pools`, `/api/claims`, `/api/pods` and `/api/namespaces`
(docs/dashboard.md, "The JSON"). A search text is looked for in what is shown, whatever the case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import ApiError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.changes import Touched
from plimsoll.tools.dashboard.devices import DeviceBooks
from plimsoll.tools.top.claims import claim_row, state_of
from plimsoll.tools.top.devices import DeviceRow, device_rows
from plimsoll.tools.top.namespaces import namespace_rows
from plimsoll.tools.top.pools import PoolRow

Tree = dict[str, Any]
T = TypeVar("T", DeviceRow, PoolRow)
#: Rows of a page, if nothing is said, and at most.
USUAL, MOST = 200, 10_000


@dataclass(frozen=True, slots=True)
class Wish:
    """Which rows are wanted."""

    search: str = ""
    state: str = ""
    node: str = ""
    namespace: str = ""
    offset: int = 0
    limit: int = USUAL


def read_wish(query: Mapping[str, str]) -> Wish:
    """The wish of a query; ApiError 400 that names what cannot be read."""
    return Wish(
        query.get("q", "")[:200].strip().lower(),
        query.get("state", ""),
        query.get("node", ""),
        query.get("namespace", ""),
        _number(query, "offset", 0, 10**9),
        _number(query, "limit", USUAL, MOST),
    )


def _number(query: Mapping[str, str], name: str, usual: int, most: int) -> int:
    text = query.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise ApiError(400, "BadRequest", f"{name}: {text[:40]!r} is not a whole number")
    return min(int(text), most)


class Namespaces:
    """What each namespace takes, kept until something touches it: it is a sum over everything."""

    def __init__(self) -> None:
        self._rows: list[Tree] | None = None

    def touch(self, touched: Touched) -> None:
        if touched.kinds & {"Pod", "ResourceClaim", "ResourceSlice", "DeviceClass", "Node"}:
            self._rows = None

    def rows(self, cluster_state: ClusterState) -> list[Tree]:
        if self._rows is None:
            self._rows = [row.as_json() for row in namespace_rows(cluster_state)]
        return self._rows


def page(rows: Sequence[T], wish: Wish, text: Callable[[T], str]) -> Tree:
    """The rows that match, page by page, and how many there are in all."""
    found = [row for row in rows if wish.search in text(row).lower()] if wish.search else rows
    shown = found[wish.offset : wish.offset + wish.limit]
    return {"total": len(found), "items": [row.as_json() for row in shown]}


def list_devices(cluster_state: ClusterState, wish: Wish, known: DeviceBooks) -> Tree:
    rows = device_rows(cluster_state, wish.node) if wish.node else known.devices(cluster_state)
    if wish.state:
        rows = [row for row in rows if row.state == wish.state]
    return page(rows, wish, _device_text)


def _device_text(row: DeviceRow) -> str:
    held = "".join(f" {each.namespace}/{each.claim} {' '.join(each.pods)}" for each in row.holders)
    return f"{row.driver}/{row.pool}/{row.device} {row.node} {row.state}{held}"


def list_pools(cluster_state: ClusterState, wish: Wish, known: DeviceBooks) -> Tree:
    rows = [row for row in known.pools(cluster_state) if wish.node in ("", row.node)]
    if wish.state:
        rows = [row for row in rows if row.standing == wish.state]
    return page(rows, wish, lambda row: f"{row.driver}/{row.pool} {row.node} {row.standing}")


def list_claims(cluster_state: ClusterState, wish: Wish) -> Tree:
    """Only the claims of the page are priced."""
    claims = [
        claim
        for claim in cluster_state.objects.all(ResourceClaim)
        if wish.namespace in ("", claim.metadata.namespace)
        and (not wish.state or wish.state == state_of(claim))
        and (not wish.search or wish.search in _claim_text(claim).lower())
    ]
    claims.sort(key=lambda claim: (claim.metadata.namespace, claim.metadata.name))
    shown = claims[wish.offset : wish.offset + wish.limit]
    return {"total": len(claims), "items": [claim_row(cluster_state, claim).as_json() for claim in shown]}


def _claim_text(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    devices = " ".join(f"{each.driver}/{each.pool}/{each.device}" for each in results)
    pods = " ".join(each.name for each in claim.status.reserved_for)
    return f"{claim.metadata.namespace}/{claim.metadata.name} {state_of(claim)} {devices} {pods}"


def list_namespaces(cluster_state: ClusterState, wish: Wish, known: Namespaces) -> Tree:
    rows = [row for row in known.rows(cluster_state) if wish.search in row["namespace"].lower()]
    return {"total": len(rows), "items": rows[wish.offset : wish.offset + wish.limit]}


def list_pods(cluster_state: ClusterState, wish: Wish) -> tuple[Tree, list[Pod]]:
    """The page, and the pods of it that wait and whose reason is still to be told."""
    pods = cluster_state.waiting if wish.state == "pending" else cluster_state.pods
    if wish.state == "running":
        pods = [pod for pod in pods if pod.spec.node_name]
    elif wish.state not in ("", "pending"):
        raise ApiError(400, "BadRequest", f"state: {wish.state[:40]!r} is neither pending nor running")
    kept = [
        pod
        for pod in pods
        if wish.namespace in ("", pod.metadata.namespace)
        and wish.node in ("", pod.spec.node_name)
        and wish.search in f"{pod.metadata.namespace}/{pod.metadata.name} {pod.spec.node_name}".lower()
    ]
    kept.sort(key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    shown = kept[wish.offset : wish.offset + wish.limit]
    rows = [
        {
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "node": pod.spec.node_name or None,
            "phase": pod.status.phase or "Pending",
            "why": "" if pod.spec.node_name else said_why(pod),
        }
        for pod in shown
    ]
    return {"total": len(kept), "items": rows}, [pod for pod in shown if not pod.spec.node_name]


def said_why(pod: Pod) -> str:
    """Why a pod waits, in the words of whoever schedules it."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    return ""
