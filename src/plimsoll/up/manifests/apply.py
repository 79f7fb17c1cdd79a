"""Writing one object to a cluster: server-side apply, status included.

`Applier` discovers the kinds that the cluster serves. Used by `LocalCluster.apply` and `plimsoll up -f`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.client import Client, Endpoint
from plimsoll.client.discovery import Served, discover
from plimsoll.errors import InputError

Tree = dict[str, Any]


class Applier:
    """Writes objects as one field manager."""

    def __init__(self, client: Client, manager: str) -> None:
        self._client = client
        self._manager = manager
        self._served: list[Served] = []

    async def find(self, word: str) -> Endpoint:
        """Return the kind for a name: `pods`, `Pod`, `resourceclaims.resource.k8s.io`."""
        for attempt in (1, 2):
            for item in self._served:
                endpoint = item.endpoint
                names = (endpoint.plural, endpoint.kind, f"{endpoint.plural}.{endpoint.group}")
                if word.lower() in (each.lower() for each in names):
                    return endpoint
            if attempt == 1:
                self._served = await discover(self._client)
        raise InputError(f"{word}: the cluster serves no such kind")

    async def endpoint_of(self, tree: Mapping[str, Any]) -> Endpoint:
        """Return the endpoint of an object at its own version; InputError if the kind is unknown."""
        api_version, kind = str(tree.get("apiVersion", "")), str(tree.get("kind", ""))
        group, _, version = api_version.rpartition("/")
        for attempt in (1, 2):
            for item in self._served:
                if (item.endpoint.group, item.endpoint.kind) == (group, kind) and version in item.versions:
                    return item.endpoint.at(version)
            if attempt == 1:
                self._served = await discover(self._client)
        same = [item for item in self._served if item.endpoint.kind == kind]
        versions = [item.endpoint.at(each).api_version for item in same for each in item.versions]
        fix = f"; use {' or '.join(versions)}" if versions else ""
        if not api_version:
            raise InputError(f"apiVersion: must be given{fix}")
        raise InputError(f"{api_version} {kind}: the cluster serves no such kind{fix}")

    async def apply(self, tree: Mapping[str, Any], namespace: str = "default") -> Tree:
        """Create or change an object and its status; an object without a name is created each time."""
        endpoint = await self.endpoint_of(tree)
        name, place = name_of(tree), namespace_of(tree, namespace)
        if not name:
            return await self._client.create(endpoint, tree, place)
        bare = {key: value for key, value in tree.items() if key != "status"}
        result = await self._write(endpoint, name, bare, place)
        if tree.get("status"):
            result = await self.apply_status(tree, namespace)
        return result

    async def apply_status(self, tree: Mapping[str, Any], namespace: str = "default") -> Tree:
        """Change the status of an existing object."""
        endpoint = await self.endpoint_of(tree)
        body = {key: tree[key] for key in ("apiVersion", "kind", "status")}
        return await self._write(endpoint, name_of(tree), body, namespace_of(tree, namespace), "status")

    async def _write(
        self, endpoint: Endpoint, name: str, body: Tree, namespace: str, subresource: str = ""
    ) -> Tree:
        return await self._client.patch(
            endpoint,
            name,
            body,
            namespace,
            subresource=subresource,
            type="apply",
            field_manager=self._manager,
            force=True,
        )


def metadata_of(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of an object; empty if there are none."""
    metadata = tree.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def name_of(tree: Mapping[str, Any]) -> str:
    return str(metadata_of(tree).get("name") or "")


def namespace_of(tree: Mapping[str, Any], namespace: str = "default") -> str:
    """Return the namespace of an object, or the given default."""
    return str(metadata_of(tree).get("namespace") or namespace)
