"""Claims in the cluster, looked up by name or by UID.

A claim that was adopted from a CDI file has no name. Its name is in the metadata file of the plugin
directory, if this driver wrote one; otherwise all claims are listed, which the API cannot restrict to a UID.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import aclosing
from typing import Any

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.common.json_tree import branch, items
from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.drivers.cpu.state.recovery import is_allocated_here
from plimsoll.errors import ApiError, DecodeError
from plimsoll.protocols.dra import ClaimRef

#: Claims in a page of a list: few, since memory that a large page takes once is never returned.
_PAGE = 50


class ClaimLookup:
    """Reader of claims; every method raises ApiError if the API server does not respond or refuses."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def is_allocated(self, ref: ClaimRef) -> bool:
        """Report whether the claim with this name and UID has allocated devices of this driver."""
        try:
            tree = await self._client.get(RESOURCE_CLAIMS, ref.name, ref.namespace)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return has_allocated_devices(tree, ref.uid)

    async def find(self, uids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the claims with these UIDs, of all namespaces; absent ones do not exist in the cluster."""
        wanted = {uid: uid.encode() for uid in uids}
        found: dict[str, dict[str, Any]] = {}
        if not wanted:
            return found
        pages = self._client.pages(RESOURCE_CLAIMS, limit=_PAGE)
        async with aclosing(pages):
            async for page in pages:
                for raw in page.items:
                    # Decoded only if it may be one of them: a cluster can have many claims.
                    if any(uid in raw for uid in wanted.values()) and (tree := _decode(raw)) is not None:
                        uid = str(branch(tree, "metadata").get("uid", ""))
                        if uid in wanted:
                            found[uid] = tree
        return found

    async def list_allocated(self, node: str) -> dict[str, dict[str, Any]]:
        """Return all claims with CPUs of a node, by UID, with the fields that their recovery needs."""
        found: dict[str, dict[str, Any]] = {}
        pages = self._client.pages(RESOURCE_CLAIMS, limit=_PAGE)
        async with aclosing(pages):
            async for page in pages:
                for raw in page.items:
                    tree = _decode(raw) if DRIVER_NAME.encode() in raw else None
                    if tree is not None and is_allocated_here(tree, node):
                        found[read_ref(tree).uid] = _trim(tree)
        return found


def read_ref(tree: Mapping[str, Any]) -> ClaimRef:
    """Return the reference of a claim."""
    metadata = branch(tree, "metadata")
    return ClaimRef(*(str(metadata.get(key, "")) for key in ("namespace", "name", "uid")))


def has_allocated_devices(claim: Mapping[str, Any], uid: str) -> bool:
    """Report whether a claim has this UID and allocated devices of this driver."""
    if branch(claim, "metadata").get("uid") != uid:
        return False
    results = items(branch(claim, "status", "allocation", "devices"), "results")
    return any(result.get("driver") == DRIVER_NAME for result in results)


def _trim(claim: Mapping[str, Any]) -> dict[str, Any]:
    metadata, status = branch(claim, "metadata"), branch(claim, "status")
    return {
        "metadata": {key: metadata.get(key, "") for key in ("namespace", "name", "uid")},
        "status": {key: status[key] for key in ("allocation", "devices", "reservedFor") if key in status},
    }


def _decode(raw: bytes) -> dict[str, Any] | None:
    try:
        tree = codec.decode_tree(raw)
    except DecodeError:
        return None
    return tree if isinstance(tree, dict) else None
