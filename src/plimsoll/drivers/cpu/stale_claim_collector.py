"""Giving up claims that nobody will ever release.

Owns `Leftovers`: it asks the cluster about claims and gives up those that `stale` says may go, and at the
start of a driver those that another one has released meanwhile. Promises: a claim that a container uses, or
of which that is not known, is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.stale_claims import StaleClaims, holds_devices
from plimsoll.drivers.cpu.state.cpu_state import CpuBook, unfiled
from plimsoll.drivers.plugin import ClaimError
from plimsoll.errors import ApiError
from plimsoll.protocols.dra import ClaimRef

_log = logging.getLogger("plimsoll.cpu.leftovers")

#: Between two looks for claims that nobody will ever release.
LOOK_SECONDS = 60.0
#: How long the start of a driver waits for the cluster's word about claims.
_ASK_SECONDS = 3.0


class Leftovers:
    """The claims of one driver that may be left over; `release` gives one up."""

    def __init__(
        self,
        client: Client,
        release: Callable[[ClaimRef], Awaitable[ClaimError | None]],
        *,
        stale: StaleClaims | None = None,
        every: float = LOOK_SECONDS,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._release = release
        self._stale = stale or StaleClaims()
        self._every = every
        self._clock = clock

    async def released_elsewhere(self, settings: CpuSettings) -> list[str]:
        """Claims on record that neither the cluster nor a CDI file knows: another driver was here."""
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                refs = await asyncio.to_thread(unfiled, settings)
                return [ref.uid for ref in refs if not await self._is_allocated(ref)]
        except (ApiError, TimeoutError) as error:
            _log.debug("claims cannot be looked at: %s", error)
            return []

    async def keep_clear(self, book: CpuBook, enforcer: Enforcer) -> None:
        """Give up what is left over, for ever."""
        await self._let_leave(book, enforcer)
        while True:
            await asyncio.sleep(self._every)
            if not enforcer.linked:
                continue  # who uses what is not known
            holdings = list(book.holdings.values())
            try:
                stale = await self._stale.look(holdings, _used(enforcer), self._is_allocated, self._clock())
            except ApiError as error:
                _log.debug("claims cannot be looked at: %s", error)
                continue
            for ref in stale:
                await self._give_up(ref)

    async def _let_leave(self, book: CpuBook, enforcer: Enforcer) -> None:
        """Give up what another driver has released, once it is known that no container uses it."""
        while book.leaving:
            if not enforcer.linked:
                await asyncio.sleep(0.1)
                continue
            await asyncio.to_thread(book.stay, book.leaving & _used(enforcer))
            for uid in book.leaving:
                if (holding := book.holdings.get(uid)) is not None:  # else it was released meanwhile
                    await self._give_up(holding.ref)
                # Also if that has failed: it is looked at like any other then.
                await asyncio.to_thread(book.stay, {uid})

    async def _give_up(self, ref: ClaimRef) -> None:
        _log.warning("claim %s (%s) is gone and unused: its CPUs are given back", ref, ref.uid)
        if refusal := await self._release(ref):
            _log.error("claim %s: %s", ref, refusal)

    async def _is_allocated(self, ref: ClaimRef) -> bool:
        try:
            return holds_devices(await self._client.get(RESOURCE_CLAIMS, ref.name, ref.namespace), ref.uid)
        except ApiError as error:
            if error.code == 404:
                return False
            raise


def _used(enforcer: Enforcer) -> set[str]:
    """Claims that containers use."""
    return {uid for view in enforcer.containers() for uid in view.claims}
