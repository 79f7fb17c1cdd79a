"""API writes of placeholder pods, and the wait for the kubelet's decision about them.

All writes of one placeholder are made one after the other. Pods are created with the name that follows from
what they stand for, so that creating one again finds the existing one, also after a crash.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec import field
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.config import Config
from plimsoll.api.core import Node, Pod
from plimsoll.client.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import ApiError
from plimsoll.ledger.placeholders import NAMESPACE, PRIORITY_CLASS
from plimsoll.scheduler.binding.placeholders import find_refusal, is_admitted
from plimsoll.scheduler.process.volume_waiters import VolumeWaiters

_PATH = PODS.path(NAMESPACE)
_JSON = "application/json"
_NO_USER = 65535
#: Attempts to create a placeholder while an earlier one of its name is being deleted, and the pause between.
_ATTEMPTS, _PAUSE_SECONDS = 50, 0.1
_HARDENED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


class PlaceholderSettings(Config, frozen=True, kw_only=True):
    """Settings of placeholder pods."""

    #: Auto: on API servers that drop the charges of claims. Off: never.
    mode: Literal["Auto", "Off"] = "Auto"
    image: str = "registry.k8s.io/pause:3.10.1"
    host_network: bool = field(default=False, name="hostNetwork")  #: spares an IP address for each of them


class PlaceholderApiWriter:
    """Writer of placeholders; implements `binding.placeholders.PlaceholderWriter`."""

    def __init__(
        self,
        client: Client,
        settings: PlaceholderSettings,
        find_node: Callable[[str], Node | None],
        find_pod: Callable[[str, str], Pod | None],
        waiters: VolumeWaiters,
    ) -> None:
        """Create a writer; `find_node` and `find_pod` read the caches, whose changes wake `waiters`."""
        self._client = client
        self._settings = settings
        self._find_node = find_node
        self._find_pod = find_pod
        self._waiters = waiters
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    def is_writing(self, name: str) -> bool:
        """Return whether a placeholder is being created or deleted."""
        return bool(self._users[name])

    async def create(self, placeholder: Pod) -> Pod:
        async with self._lock(placeholder.metadata.name):
            body = codec.encode(
                make_manifest(placeholder, self._find_node(placeholder.spec.node_name), self._settings)
            )
            for attempt in range(_ATTEMPTS):
                try:
                    return await self._call("POST", _PATH, body)
                except ApiError as error:
                    if error.code != 409 or attempt == _ATTEMPTS - 1:
                        raise
                existing = await self.read(placeholder)
                if existing is not None and _is_same(existing, placeholder):
                    return existing
                if existing is not None:
                    await self._delete(existing)
                    await asyncio.sleep(_PAUSE_SECONDS)
            raise AssertionError("unreachable")

    async def delete(self, placeholder: Pod) -> None:
        async with self._lock(placeholder.metadata.name):
            await self._delete(placeholder)

    async def read(self, placeholder: Pod) -> Pod | None:
        """Return the placeholder of this name, whatever its UID; None if there is none."""
        try:
            return await self._call("GET", f"{_PATH}/{placeholder.metadata.name}")
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def list_all(self) -> Sequence[Pod]:
        """Return all placeholders, also those that have failed."""
        listing = await self._client.list(PODS, namespace=NAMESPACE)
        return [codec.decode(raw, Pod) for raw in listing.items]

    async def wait_for_admission(self, placeholder: Pod, timeout_ms: int) -> Pod | None:
        name, uid = placeholder.metadata.name, placeholder.metadata.uid
        latest, seen = placeholder, False

        def check() -> bool:
            nonlocal latest, seen
            cached = self._find_pod(NAMESPACE, name)
            if cached is not None and cached.metadata.uid == uid:
                latest, seen = cached, True
            elif seen:
                return True  # it was deleted, or has failed: the cache has only live pods
            return is_admitted(latest)

        await self._waiters.wait_for([(NAMESPACE, name)], check, timeout_ms)
        if not find_refusal(latest):
            return latest
        fresh = await self.read(placeholder)
        return fresh if fresh is not None and fresh.metadata.uid == uid else None

    async def _delete(self, placeholder: Pod) -> None:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        if placeholder.metadata.uid:
            body["preconditions"] = {"uid": placeholder.metadata.uid}
        try:
            path = f"{_PATH}/{placeholder.metadata.name}"
            await self._client.call(
                "DELETE", path, body=codec.encode(body), content_type=_JSON, harmless=False
            )
        except ApiError as error:
            if error.code not in (404, 409):  # it is gone, or another one has its name
                raise

    async def _call(self, method: str, path: str, body: bytes | None = None) -> Pod:
        kind = _JSON if body else ""
        reply = await self._client.call(method, path, body=body, content_type=kind, harmless=False)
        return codec.decode(reply.body, Pod)

    @asynccontextmanager
    async def _lock(self, name: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]


def make_manifest(placeholder: Pod, node: Node | None, settings: PlaceholderSettings) -> dict[str, Any]:
    """Return a placeholder as it is created: it passes the restricted Pod Security Standard.

    The node is its controller, so that it is collected with the node, and `kubectl drain` evicts it.
    """
    # Admission computes the priority from the class.
    spec = replace(placeholder.spec, priority=None, host_network=settings.host_network)
    tree: dict[str, Any] = codec.to_tree(
        replace(placeholder, api_version=PODS.api_version, kind=PODS.kind, spec=spec)
    )
    if node is not None:
        tree["metadata"]["ownerReferences"] = [
            {
                "apiVersion": NODES.api_version,
                "kind": NODES.kind,
                "name": node.metadata.name,
                "uid": node.metadata.uid,
                "controller": True,
            }
        ]
    (container,) = tree["spec"]["containers"]
    container |= {"image": settings.image, "securityContext": _HARDENED}
    tree["spec"] |= {
        "priorityClassName": PRIORITY_CLASS,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NO_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return tree


def _is_same(existing: Pod, placeholder: Pod) -> bool:
    """Return whether an existing placeholder counts as this one."""
    if existing.metadata.deletion_timestamp is not None or existing.status.phase == "Failed":
        return False
    return (
        existing.spec.node_name == placeholder.spec.node_name
        and existing.metadata.labels == placeholder.metadata.labels
        and existing.spec.containers[0].resources.requests
        == placeholder.spec.containers[0].resources.requests
    )
