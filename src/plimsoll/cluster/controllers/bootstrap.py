"""What every cluster begins with: its namespaces and the priority classes of the system.

Owns making them where they are missing; running it again changes nothing.
"""

from __future__ import annotations

from typing import Any

from plimsoll.cluster.client import Client
from plimsoll.cluster.client.endpoints import NAMESPACES, PRIORITY_CLASSES, Endpoint
from plimsoll.errors import ApiError

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = {
    "system-cluster-critical": (
        2_000_000_000,
        "For pods the cluster cannot do without, which may move to another node.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "For pods their node cannot do without, which may not be moved.",
    ),
}


async def bootstrap(client: Client) -> None:
    """Create what is missing."""
    for name in _NAMESPACES:
        await _ensure(
            client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    for name, (value, text) in _PRIORITIES.items():
        tree = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": text,
        }
        await _ensure(client, PRIORITY_CLASSES, tree)


async def _ensure(client: Client, endpoint: Endpoint, tree: dict[str, Any]) -> None:
    try:
        await client.create(endpoint, tree)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
