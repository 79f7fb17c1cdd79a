"""Services whose variables containers get, read when a container is created.

The last known Services of a namespace are used while the API server does not respond.

DIFF: for the process runtime the variables of the Service `kubernetes` have the address of the API server
itself, since nothing routes the addresses of Services on a node without a service proxy
(test_the_api_server_is_named_by_its_own_address).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from plimsoll.api import codec
from plimsoll.client.endpoints import ENDPOINTS, SERVICES, Endpoint
from plimsoll.client.responses import ObjectList
from plimsoll.common.json_tree import branch, items, text
from plimsoll.errors import ApiError, InputError
from plimsoll.node.pods.service_variables import API_NAMESPACE, API_SERVICE, service_variables

_SECONDS = 5.0


class ServiceClient(Protocol):
    """Client of the API server."""

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]: ...

    async def list(self, endpoint: Endpoint, namespace: str | None = None) -> ObjectList: ...


class ServiceReader:
    """Reader of Services; `direct`: containers reach the API server at its own address only."""

    def __init__(self, client: ServiceClient, *, direct: bool) -> None:
        self._client = client
        self._direct = direct
        self._known: dict[str, list[dict[str, Any]]] = {}

    async def variables(self, namespace: str, *, links: bool) -> dict[str, str]:
        """Return the variables for a container; InputError if its Services have never been read."""
        try:
            async with asyncio.timeout(_SECONDS):
                self._known[namespace] = await self._read(namespace)
        except (ApiError, TimeoutError) as error:
            if namespace not in self._known:
                problem = f"services cannot be read, cannot construct envvars: {error or 'timeout'}"
                raise InputError(problem) from None
        return service_variables(self._known[namespace], namespace, links=links)

    async def _read(self, namespace: str) -> list[dict[str, Any]]:
        listing = await self._client.list(SERVICES, namespace)
        found = [codec.decode_tree(raw) for raw in listing.items]
        if namespace != API_NAMESPACE:
            found += await self._find(SERVICES)
        if self._direct:
            endpoints = await self._find(ENDPOINTS)
            found = [_with_endpoint(each, endpoints[0]) if endpoints else each for each in found]
        return found

    async def _find(self, endpoint: Endpoint) -> list[dict[str, Any]]:
        try:
            return [await self._client.get(endpoint, API_SERVICE, API_NAMESPACE)]
        except ApiError as error:
            if error.code != 404:
                raise
            return []


def _with_endpoint(service: dict[str, Any], endpoints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Service of the API server with an address and port of the server; others unchanged."""
    metadata = branch(service, "metadata")
    if (text(metadata, "namespace"), text(metadata, "name")) != (API_NAMESPACE, API_SERVICE):
        return service
    for subset in items(endpoints, "subsets"):
        for address in items(subset, "addresses"):
            ports = [{**each} for each in items(subset, "ports")]
            return {**service, "spec": {"clusterIP": text(address, "ip"), "ports": ports}}
    return service
