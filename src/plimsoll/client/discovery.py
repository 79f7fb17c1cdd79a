"""API discovery.

Returns one endpoint for each resource, at the server's preferred version; supports aggregated and
unaggregated discovery.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from plimsoll.client.client import Client
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.responses import read_tree
from plimsoll.errors import DecodeError

_ALL_AT_ONCE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class Served(NamedTuple):
    """Resource that the API serves, with its verbs."""

    endpoint: Endpoint
    verbs: frozenset[str]
    versions: tuple[str, ...] = ()  #: all that have it, the preferred one first


async def discover(client: Client) -> list[Served]:
    """Return all resources that the API serves."""
    found: dict[tuple[str, str], Served] = {}
    for root in ("/api", "/apis"):
        tree = read_tree((await client.call("GET", root, accept=_ALL_AT_ONCE)).body)
        if tree.get("kind") == "APIGroupDiscoveryList":
            served = list(_read_groups(tree))
        else:
            served = [item async for item in _read_each_group(client, root, tree)]
        for item in served:
            key = (item.endpoint.group, item.endpoint.plural)
            first = found.setdefault(key, item)
            found[key] = first._replace(versions=(*first.versions, item.endpoint.version))
    return list(found.values())


async def read_minor_version(client: Client) -> int:
    """Return the minor version of the API server, such as 36."""
    tree = read_tree((await client.call("GET", "/version")).body)
    minor = str(tree.get("minor", "")).rstrip("+")
    if not minor.isdecimal():
        raise DecodeError(f"/version: minor: {minor!r} is not a number")
    return int(minor)


def _read_groups(tree: dict[str, Any]) -> Iterator[Served]:
    for group in _items(tree, "items"):
        for version in _items(group, "versions"):
            for resource in _items(version, "resources"):
                kind = resource.get("responseKind")
                endpoint = Endpoint(
                    str(group.get("metadata", {}).get("name", "")),
                    str(version.get("version", "")),
                    str(resource.get("resource", "")),
                    str(kind.get("kind", "")) if isinstance(kind, dict) else "",
                    resource.get("scope") == "Namespaced",
                )
                yield Served(endpoint, frozenset(map(str, resource.get("verbs") or ())))


async def _read_each_group(client: Client, root: str, tree: dict[str, Any]) -> AsyncIterator[Served]:
    for group, version in _versions(tree):
        path = f"{root}/{group}/{version}" if group else f"{root}/{version}"
        resources = read_tree((await client.call("GET", path)).body)
        for resource in _items(resources, "resources"):
            name = str(resource.get("name", ""))
            if "/" not in name:
                kind, namespaced = str(resource.get("kind", "")), resource.get("namespaced") is True
                endpoint = Endpoint(group, version, name, kind, namespaced)
                yield Served(endpoint, frozenset(map(str, resource.get("verbs") or ())))


def _versions(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield groups and their versions, the preferred ones first."""
    if tree.get("kind") == "APIVersions":
        yield from (("", str(version)) for version in tree.get("versions") or ())
    for group in _items(tree, "groups"):
        preferred = group.get("preferredVersion")
        first = preferred.get("version") if isinstance(preferred, dict) else None
        versions = [str(version.get("version", "")) for version in _items(group, "versions")]
        for version in sorted(versions, key=lambda version: version != first):
            yield str(group.get("name", "")), version


def _items(tree: dict[str, Any], field: str) -> list[dict[str, Any]]:
    items = tree.get(field)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
