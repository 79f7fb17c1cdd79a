"""Objects that every cluster starts with: namespaces, system priority classes, legacy token tracking.

Idempotent: only missing objects are created.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES, PRIORITY_CLASSES, Endpoint
from plimsoll.controllers.namespace import DEFAULT_NAMESPACES
from plimsoll.errors import ApiError

_TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
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
    """Create the objects that are missing."""
    for name in DEFAULT_NAMESPACES:
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
    # kube-controller-manager deletes unused legacy tokens and reads since when their use is tracked.
    since = datetime.now(UTC).date().isoformat()
    metadata = {"name": _TRACKING, "namespace": "kube-system"}
    tracking = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"since": since}}
    await _ensure(client, CONFIG_MAPS, tracking)


async def _ensure(client: Client, endpoint: Endpoint, tree: dict[str, Any]) -> None:
    try:
        await client.create(endpoint, tree)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
