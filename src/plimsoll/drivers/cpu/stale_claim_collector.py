"""Collector of stale claims, which will never be unprepared.

`StaleClaimCollector` looks up claims in the API and releases those that `StaleClaimTracker` considers stale
and, at start, those that another driver has released meanwhile. A claim that a container uses, or may use, is
never released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker, has_allocated_devices
from plimsoll.drivers.cpu.state.cpu_state import CPUState, find_claims_without_cdi_file
from plimsoll.drivers.plugin import ClaimError
from plimsoll.errors import ApiError
from plimsoll.protocols.dra import ClaimRef

_log = logging.getLogger("plimsoll.cpu.stale_claims")

#: Interval between checks for stale claims.
CHECK_INTERVAL_SECONDS = 60.0
#: Time that the start waits for the API.
_QUERY_TIMEOUT_SECONDS = 3.0


class StaleClaimCollector:
    """Finds and releases stale claims of one driver; `release` releases one claim."""

    def __init__(
        self,
        client: Client,
        release: Callable[[ClaimRef], Awaitable[ClaimError | None]],
        *,
        stale: StaleClaimTracker | None = None,
        interval: float = CHECK_INTERVAL_SECONDS,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._release = release
        self._stale = stale or StaleClaimTracker()
        self._interval = interval
        self._clock = clock

    async def released_elsewhere(self, settings: CpuSettings) -> list[str]:
        """Return checkpointed claims without allocation and CDI file: another driver has released them."""
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT_SECONDS):
                refs = await asyncio.to_thread(find_claims_without_cdi_file, settings)
                return [ref.uid for ref in refs if not await self._is_allocated(ref)]
        except (ApiError, TimeoutError) as error:
            _log.debug("reading claims failed: %s", error)
            return []

    async def run(self, state: CPUState, enforcer: Enforcer) -> None:
        """Release stale claims until cancelled."""
        await self._release_claims_released_elsewhere(state, enforcer)
        while True:
            await asyncio.sleep(self._interval)
            if not enforcer.linked:
                continue  # usage by containers is unknown
            allocations = list(state.allocations.values())
            try:
                stale = await self._stale.update(
                    allocations, _list_used_claims(enforcer), self._is_allocated, self._clock()
                )
            except ApiError as error:
                _log.debug("reading claims failed: %s", error)
                continue
            for ref in stale:
                await self._release_stale(ref)

    async def _release_claims_released_elsewhere(self, state: CPUState, enforcer: Enforcer) -> None:
        """Release claims that another driver has released, once it is known that no container uses them."""
        while state.released_elsewhere:
            if not enforcer.linked:
                await asyncio.sleep(0.1)
                continue
            await asyncio.to_thread(state.keep_claims, state.released_elsewhere & _list_used_claims(enforcer))
            for uid in state.released_elsewhere:
                if (allocation := state.allocations.get(uid)) is not None:  # else released meanwhile
                    await self._release_stale(allocation.ref)
                # Also after a failure: it is then treated like any other claim.
                await asyncio.to_thread(state.keep_claims, {uid})

    async def _release_stale(self, ref: ClaimRef) -> None:
        _log.warning("claim %s (%s) is deallocated and unused: releasing its CPUs", ref, ref.uid)
        if refusal := await self._release(ref):
            _log.error("claim %s: %s", ref, refusal)

    async def _is_allocated(self, ref: ClaimRef) -> bool:
        try:
            return has_allocated_devices(
                await self._client.get(RESOURCE_CLAIMS, ref.name, ref.namespace), ref.uid
            )
        except ApiError as error:
            if error.code == 404:
                return False
            raise


def _list_used_claims(enforcer: Enforcer) -> set[str]:
    """Return the UIDs of claims that containers use."""
    return {uid for view in enforcer.containers() for uid in view.claims}
