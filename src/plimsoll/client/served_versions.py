"""Versions at which an API server serves the kinds of `resource.k8s.io`, and PodGroups.

Callers use the endpoints of the preferred version everywhere. If a server does not have one, `ServedVersions`
finds another version by API discovery, and the client converts what it sends and receives: kube-apiserver
1.34 and later serve v1 by default, but v1beta2 and v1beta1 can be the only ones that are enabled, and the
versions of DeviceTaintRule (v1alpha3, v1beta2, v1) and PodGroup depend on the release.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from plimsoll.api import codec, pod_group_versions, resource_versions
from plimsoll.api.kinds import find_kind, resource_key
from plimsoll.api.resource_versions import Unconvertible
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.responses import read_tree
from plimsoll.errors import ApiError, InputError

#: Sends a GET request and returns the body of the response.
Get = Callable[[str], Awaitable[bytes]]


Tree = dict[str, Any]


class _Conversion(NamedTuple):
    """Supported versions of a group, most recent first, and the conversions to and from the preferred one."""

    versions: tuple[str, ...]
    read: Callable[[Tree], Tree | Unconvertible]
    write: Callable[[Tree, str, str], Tree]


_CONVERSIONS = {
    resource_versions.GROUP: _Conversion(
        resource_versions.VERSIONS, resource_versions.to_v1, resource_versions.from_v1
    ),
    pod_group_versions.GROUP: _Conversion(
        pod_group_versions.VERSIONS, pod_group_versions.to_v1alpha2, pod_group_versions.from_v1alpha2
    ),
}


def readable_versions(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the versions of a kind that a client can read as the preferred one."""
    return _CONVERSIONS[endpoint.group].versions if _is_convertible(endpoint) else (endpoint.version,)


class ServedVersions:
    """Endpoints that a server has instead of the preferred ones; shared by all clients of a connection."""

    def __init__(self) -> None:
        self._found: dict[Endpoint, Endpoint] = {}

    def find(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint to use, as far as it is known."""
        return self._found.get(endpoint, endpoint) if self._found else endpoint

    async def rediscover(
        self, endpoint: Endpoint, tried: Endpoint, error: ApiError, get: Get
    ) -> Endpoint | None:
        """Return another endpoint of a kind after an error of the one that was tried; None if the error has
        another cause.
        """
        if not _is_unserved(error) or not _is_convertible(endpoint):
            return None
        found = await _discover(endpoint, get)
        if found is None or found == tried:
            return None
        if found == endpoint:
            self._found.pop(endpoint, None)
        else:
            self._found[endpoint] = found
        return found


def encode_for(tree: Any, endpoint: Endpoint, served: Endpoint) -> Any:
    """Return a request body in the version of an endpoint that is used instead."""
    if served == endpoint or not isinstance(tree, dict):
        return tree
    return _CONVERSIONS[endpoint.group].write(tree, endpoint.kind, served.version)


def decode_from(raw: bytes, endpoint: Endpoint, served: Endpoint) -> bytes | None:
    """Return an object in the version of the preferred endpoint; None if it cannot be expressed there."""
    if served == endpoint:
        return raw
    tree = read_tree(raw)
    if tree.get("kind") != endpoint.kind:
        return raw
    converted = _CONVERSIONS[endpoint.group].read(tree)
    if isinstance(converted, Unconvertible):
        return None
    return codec.encode({**converted, "apiVersion": endpoint.api_version})


def require_decoded(raw: bytes, endpoint: Endpoint, served: Endpoint) -> bytes:
    """Return an object in the version of the preferred endpoint; raise InputError if that is impossible."""
    converted = decode_from(raw, endpoint, served)
    if converted is None:
        raise InputError(f"{endpoint.kind} of {served.api_version} cannot be read as {endpoint.api_version}")
    return converted


def _is_unserved(error: ApiError) -> bool:
    """Return whether a path does not exist; the Status of a missing object names it."""
    return error.code == 404 and not (error.details or {}).get("name")


def _is_convertible(endpoint: Endpoint) -> bool:
    """Return whether an endpoint is of the preferred version of a kind that other versions can stand for."""
    if endpoint.group not in _CONVERSIONS:
        return False
    try:
        kind = find_kind(resource_key(endpoint.group, endpoint.plural))
    except KeyError:
        return False
    return kind.versions[0] == endpoint.version and endpoint.version in _CONVERSIONS[endpoint.group].versions


async def _discover(endpoint: Endpoint, get: Get) -> Endpoint | None:
    """Return the most recent supported version that has a kind; None if there is none."""
    try:
        group = read_tree(await get(f"/apis/{endpoint.group}"))
        offered = {str(each.get("version", "")) for each in group.get("versions") or ()}
        for version in _CONVERSIONS[endpoint.group].versions:
            if version not in offered:
                continue
            resources = read_tree(await get(f"/apis/{endpoint.group}/{version}")).get("resources") or ()
            if any(each.get("name") == endpoint.plural for each in resources):
                return endpoint.at(version)
    except ApiError:
        return None
    return None
