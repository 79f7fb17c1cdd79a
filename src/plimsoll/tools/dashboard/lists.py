"""Lists of devices, pools, claims, pods and namespaces, page by page.

Owns the answers to `/api/devices`, `/api/pools`, `/api/claims`, `/api/pods` and `/api/namespaces`
(docs/dashboard.md, "The JSON"). A search text is looked for in what is shown, whatever the case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.errors import ApiError
from plimsoll.tools.picture import Picture
from plimsoll.tools.top.claims import claim_rows
from plimsoll.tools.top.devices import device_rows
from plimsoll.tools.top.namespaces import namespace_rows
from plimsoll.tools.top.pools import pool_rows

Tree = dict[str, Any]
#: Rows of a page, if nothing is said, and at most.
USUAL, MOST = 200, 5000


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


def page(rows: Sequence[Tree], wish: Wish, texts: Callable[[Tree], str]) -> Tree:
    """The rows that match, and how many there are in all."""
    found = [row for row in rows if wish.search in texts(row)] if wish.search else rows
    return {"total": len(found), "items": list(found[wish.offset : wish.offset + wish.limit])}


def all_text(tree: Any) -> str:
    """Every text in a tree, to search in."""
    if isinstance(tree, str):
        return tree.lower()
    if isinstance(tree, Mapping):
        return " ".join(all_text(each) for each in tree.values())
    if isinstance(tree, list | tuple):
        return " ".join(map(all_text, tree))
    return ""


def list_devices(picture: Picture, wish: Wish) -> Tree:
    rows = device_rows(picture, wish.node)
    kept = [row for row in rows if wish.state in ("", row.state)]
    if wish.search:
        return page([row.as_json() for row in kept], wish, all_text)
    shown = kept[wish.offset : wish.offset + wish.limit]
    return {"total": len(kept), "items": [row.as_json() for row in shown]}


def list_pools(picture: Picture) -> Tree:
    rows = [row.as_json() for row in pool_rows(picture)]
    return {"total": len(rows), "items": rows}


def list_claims(picture: Picture, wish: Wish) -> Tree:
    rows = [
        row.as_json()
        for row in claim_rows(picture)
        if wish.namespace in ("", row.namespace) and wish.state in ("", row.state)
    ]
    return page(rows, wish, all_text)


def list_namespaces(picture: Picture) -> Tree:
    rows = [row.as_json() for row in namespace_rows(picture)]
    return {"total": len(rows), "items": rows}


def list_pods(picture: Picture, wish: Wish) -> tuple[Tree, list[Pod]]:
    """The page, and the pods of it that wait and whose reason is still to be told."""
    pods = picture.waiting if wish.state == "pending" else picture.pods
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
