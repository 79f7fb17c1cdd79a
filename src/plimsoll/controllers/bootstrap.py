"""Objects that every cluster starts with: namespaces, system priority classes, legacy token tracking, and the
Service of the API server.

Idempotent: only missing objects are created, and the endpoints of the API server updated.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.storage import (
    DEFAULT_CLASS,
    HOST_PATH_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    StorageClass,
    find_default_class,
)
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    PRIORITY_CLASSES,
    SERVICE_CIDRS,
    SERVICES,
    STORAGE_CLASSES,
    Endpoint,
)
from plimsoll.controllers.object_views import DEFAULT_NAMESPACES
from plimsoll.errors import ApiError

_NAME = "kubernetes"
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


async def ensure_default_class(client: Client) -> None:
    """Create the StorageClass `standard` of the host-path provisioner, unless there is a default class."""
    listing = await client.list(STORAGE_CLASSES)
    if find_default_class(codec.decode(raw, StorageClass) for raw in listing.items) is not None:
        return
    tree = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": HOST_PATH_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
        "allowVolumeExpansion": True,
    }
    await _ensure(client, STORAGE_CLASSES, tree)


async def publish_api_server(client: Client, address: str, port: int, *, cidr: str, service_ip: str) -> None:
    """Create the Service `kubernetes` and point its endpoints to this address of the API server.

    kube-apiserver does this itself, so that programs in pods find the API. Without a service proxy, nothing
    routes the Service's address.
    """
    await _ensure(client, SERVICE_CIDRS, _tree("networking.k8s.io/v1", "ServiceCIDR", spec={"cidrs": [cidr]}))
    https = {"name": "https", "protocol": "TCP"}
    spec = {
        "clusterIP": service_ip,
        "ports": [{**https, "port": 443, "targetPort": port}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    service = _tree("v1", "Service", labels, spec=spec)
    await _create_or_patch(client, SERVICES, service, {"spec": {"ports": spec["ports"]}})
    # Otherwise kube-controller-manager would mirror the Endpoints to another slice.
    skip = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    subsets = [{"addresses": [{"ip": address}], "ports": [{**https, "port": port}]}]
    addresses = _tree("v1", "Endpoints", skip, subsets=subsets)
    await _create_or_patch(client, ENDPOINTS, addresses, {"subsets": subsets})
    named = {"kubernetes.io/service-name": _NAME}
    family = "IPv6" if ":" in address else "IPv4"
    endpoints = [{"addresses": [address], "conditions": {"ready": True}}]
    current = {"endpoints": endpoints, "ports": [{**https, "port": port}]}
    published = _tree("discovery.k8s.io/v1", "EndpointSlice", named, addressType=family, **current)
    await _create_or_patch(client, ENDPOINT_SLICES, published, current)


def _tree(version: str, kind: str, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": _NAME}
    if labels:
        metadata |= {"namespace": "default", "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


async def _create_or_patch(
    client: Client, endpoint: Endpoint, tree: dict[str, Any], patch: dict[str, Any]
) -> None:
    """Create an object in the default namespace, or patch the existing one if it differs."""
    current = await _find(client, endpoint, _NAME, "default")
    if current is None:
        await client.create(endpoint, tree, "default")
    elif not _includes(current, patch):
        await client.patch(endpoint, _NAME, patch, "default")


async def _ensure(client: Client, endpoint: Endpoint, tree: dict[str, Any]) -> None:
    """Create an object that is missing. To look for it first is cheaper than a create that is refused."""
    metadata = tree["metadata"]
    if await _find(client, endpoint, metadata["name"], metadata.get("namespace", "")) is not None:
        return
    try:
        await client.create(endpoint, tree)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def _find(client: Client, endpoint: Endpoint, name: str, namespace: str) -> Any:
    try:
        return codec.decode_tree(await client.get_raw(endpoint, name, namespace))
    except ApiError as error:
        if error.reason != "NotFound":
            raise
        return None


def _includes(current: Any, patch: dict[str, Any]) -> bool:
    """Return whether a merge patch would change nothing."""
    return isinstance(current, dict) and all(
        _includes(current.get(name), value) if isinstance(value, dict) else current.get(name) == value
        for name, value in patch.items()
    )
