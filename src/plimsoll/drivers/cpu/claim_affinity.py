"""CPUs close to the other devices of a claim, from the slices of their drivers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from plimsoll.api import codec
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import ResourceSlice
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.drivers.cpu.state.cpu_state import CPUState
from plimsoll.drivers.plugin import AllocatedClaim
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger(__name__)


async def find_claim_affinity(
    client: Client, state: CPUState, claim: AllocatedClaim
) -> Mapping[str, CpuSet] | None:
    """Return the CPUs close to the other devices of a claim, if its constraints require alignment."""
    if not state.needs_affinity(claim):
        return None
    try:
        listing = await client.list(RESOURCE_SLICES)
    except ApiError as error:
        _log.warning("claim %s: reading ResourceSlices of other drivers failed: %s", claim.ref, error)
        return None
    slices = []
    for raw in listing.items:
        with suppress(InputError):  # malformed slices of other drivers are ignored
            slices.append(codec.decode(raw, ResourceSlice))
    return state.find_affinity(claim, slices)
