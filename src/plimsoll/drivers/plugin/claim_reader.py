"""Claims read from the API for a node's request.

Turns a name and a UID into an `AllocatedClaim`, or into a `ClaimError` with the messages of the Go helper.
Malformed input from the node or the API server never raises.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from plimsoll.api import codec
from plimsoll.api.resource import ResourceClaim
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.errors import DecodeError, InputError
from plimsoll.protocols.dra import ClaimRef

#: The kubelet's call times out after 45 seconds; this leaves some of them to the driver.
READ_SECONDS = 20.0

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?")


def check_ref(ref: ClaimRef, *, unnamed: bool = False) -> ClaimError | None:
    """Return an error unless namespace, name and UID are valid: they become parts of file names.

    `unnamed`: a claim that is known by its UID only is valid, too.
    """
    for what, text, pattern in (
        ("namespace", ref.namespace, _NAME),
        ("name", ref.name, _NAME),
        ("UID", ref.uid, _UID),
    ):
        if unnamed and not text and what != "UID":
            continue
        if not pattern.fullmatch(text):
            return ClaimError(
                f"claim {str(ref)[:200]!r}: {text[:200]!r} is not a valid {what}", "BadReference"
            )
    return None


async def read_claim(
    client: Client, ref: ClaimRef, driver: str, *, timeout: float = READ_SECONDS
) -> AllocatedClaim | ClaimError:
    """Read the claim with this UID from the API."""
    if (refusal := check_ref(ref)) is not None:
        return refusal
    try:
        async with asyncio.timeout(timeout):
            raw = await client.get_raw(RESOURCE_CLAIMS, ref.name, ref.namespace)
    except TimeoutError:
        return ClaimError(f"retrieve claim {ref}: no response within {timeout:g} s", "Unreachable")
    except InputError as error:
        return ClaimError(f"retrieve claim {ref}: {error}", "NotRead")
    return decode_claim(raw, ref, driver)


def decode_claim(raw: bytes, ref: ClaimRef, driver: str) -> AllocatedClaim | ClaimError:
    """Decode a claim as returned by the API. Pure."""
    try:
        tree: Any = codec.decode_tree(raw)
        claim = codec.convert(tree, ResourceClaim)
    except DecodeError as error:
        return ClaimError(f"retrieve claim {ref}: {error}", "NotRead")
    except RecursionError:
        return ClaimError(f"retrieve claim {ref}: nested too deeply", "NotRead")
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimError(f"claim {ref} not allocated", "NotAllocated")
    if claim.metadata.uid != ref.uid:
        return ClaimError(f"claim {ref} got replaced", "Replaced")
    return AllocatedClaim(
        ref=ref,
        claim=claim,
        results=tuple(result for result in allocation.devices.results if result.driver == driver),
        config=tuple(
            config
            for config in allocation.devices.config
            if config.opaque is not None and config.opaque.driver == driver
        ),
        tree=tree,
    )
