"""Claims as nodes name them, read from the API.

Owns the step from a name and a UID to an `AllocatedClaim`, or to a `Refusal` in the words that users know.
Promises: nothing that a node or an API server says gets past it as anything but one of the two.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from plimsoll.api import codec
from plimsoll.api.resource import ResourceClaim
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.drivers.plugin.driver import AllocatedClaim, Refusal
from plimsoll.errors import DecodeError, InputError
from plimsoll.protocols.dra import ClaimRef

#: A node waits for 45 seconds, and a driver needs some of them.
READ_SECONDS = 20.0

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?")


def check_ref(ref: ClaimRef) -> Refusal | None:
    """Whether these can be names at all: they become parts of paths."""
    for what, text, pattern in (
        ("namespace", ref.namespace, _NAME),
        ("name", ref.name, _NAME),
        ("UID", ref.uid, _UID),
    ):
        if not pattern.fullmatch(text):
            return Refusal(
                f"claim {str(ref)[:200]!r}: {text[:200]!r} is no {what} of a claim", "BadReference"
            )
    return None


async def read_claim(
    client: Client, ref: ClaimRef, driver: str, *, timeout: float = READ_SECONDS
) -> AllocatedClaim | Refusal:
    """The claim with this UID, from the API."""
    if (refusal := check_ref(ref)) is not None:
        return refusal
    try:
        async with asyncio.timeout(timeout):
            raw = await client.get_raw(RESOURCE_CLAIMS, ref.name, ref.namespace)
    except TimeoutError:
        return Refusal(f"retrieve claim {ref}: no answer in {timeout:g} s", "Unreachable")
    except InputError as error:
        return Refusal(f"retrieve claim {ref}: {error}", "NotRead")
    return look(raw, ref, driver)


def look(raw: bytes, ref: ClaimRef, driver: str) -> AllocatedClaim | Refusal:
    """What the API says about a claim, as a driver sees it. Pure."""
    try:
        tree: Any = codec.decode_tree(raw)
        claim = codec.convert(tree, ResourceClaim)
    except DecodeError as error:
        return Refusal(f"retrieve claim {ref}: {error}", "NotRead")
    except RecursionError:
        return Refusal(f"retrieve claim {ref}: it is nested too deeply", "NotRead")
    allocation = claim.status.allocation
    if allocation is None:
        return Refusal(f"claim {ref} not allocated", "NotAllocated")
    if claim.metadata.uid != ref.uid:
        return Refusal(f"claim {ref} got replaced", "Replaced")
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
