"""Collector of stale claims, which will never be unprepared.

`StaleClaimCollector` looks up claims in the API and releases those that `StaleClaimTracker` considers stale
and, at start, those that another driver has released meanwhile. Claims that were adopted from a CDI file get
their names; one that the cluster does not have is stale like any other. A claim that a container uses, or may
use, is never released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.claim_lookup import ClaimLookup, has_allocated_devices, read_ref
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
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
    """Finds and releases stale claims of one driver; `release` releases one claim.

    `names` returns the names of claims that the plugin directory has, by UID. `on_change` is called when the
    set of deallocated claims has changed.
    """

    def __init__(
        self,
        lookup: ClaimLookup,
        release: Callable[[ClaimRef], Awaitable[ClaimError | None]],
        *,
        names: Callable[[], Mapping[str, ClaimRef]],
        on_change: Callable[[], None] = lambda: None,
        stale: StaleClaimTracker | None = None,
        interval: float = CHECK_INTERVAL_SECONDS,
        clock: Callable[[], float],
    ) -> None:
        self._lookup = lookup
        self._release = release
        self._names = names
        self._on_change = on_change
        self._stale = stale or StaleClaimTracker()
        self._interval = interval
        self._clock = clock
        #: Claims without a name that the cluster does not have.
        self._absent: frozenset[str] = frozenset()
        #: Reason why claims without a name could not be looked up, "" if they could.
        self._lookup_error = ""

    @property
    def deallocated(self) -> frozenset[str]:
        """Claims that the cluster does not count: deallocated and unused, at the last check."""
        return self._stale.deallocated

    @property
    def findings(self) -> tuple[NodeFinding, ...]:
        if not self._lookup_error:
            return ()
        what = f"claims adopted from CDI files cannot be looked up: {self._lookup_error}"
        fix = "let the driver's account list resourceclaims, or release them: plimsoll driver cpu forget UID"
        return (NodeFinding(FindingSeverity.WARNING, what, fix),)

    async def released_elsewhere(self, settings: CpuSettings) -> list[str]:
        """Return checkpointed claims without allocation and CDI file: another driver has released them."""
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT_SECONDS):
                refs = await asyncio.to_thread(find_claims_without_cdi_file, settings)
                unnamed = await self._lookup.find([ref.uid for ref in refs if not ref.name])
                return [
                    ref.uid
                    for ref in refs
                    if not (
                        await self._lookup.is_allocated(ref)
                        if ref.name
                        else has_allocated_devices(unnamed.get(ref.uid, {}), ref.uid)
                    )
                ]
        except (ApiError, TimeoutError) as error:
            _log.debug("reading claims failed: %s", error)
            return []

    async def run(self, state: CPUState, enforcer: Enforcer) -> None:
        """Release stale claims until cancelled."""
        await self._release_claims_released_elsewhere(state, enforcer)
        while True:
            await self._check(state, enforcer)
            await asyncio.sleep(self._interval)

    async def is_allocated(self, ref: ClaimRef) -> bool:
        """Report whether the cluster has allocated a claim; raises ApiError if that cannot be determined."""
        if ref.name:
            return await self._lookup.is_allocated(ref)
        return has_allocated_devices((await self._lookup.find([ref.uid])).get(ref.uid, {}), ref.uid)

    async def _check(self, state: CPUState, enforcer: Enforcer) -> None:
        before = self.deallocated
        try:
            await self._name_claims(state)
            if not enforcer.linked:
                return  # usage by containers is unknown
            stale = await self._stale.update(
                list(state.allocations.values()),
                _list_used_claims(enforcer),
                self._is_known,
                self._clock(),
            )
        except ApiError as error:
            _log.debug("reading claims failed: %s", error)
            return
        if self.deallocated != before:
            self._on_change()
        for ref in stale:
            await self._release_stale(ref)

    async def _name_claims(self, state: CPUState) -> None:
        """Find the names of adopted claims, in the plugin directory or in the cluster."""
        unnamed = {uid for uid, allocation in state.allocations.items() if not allocation.ref.name}
        self._absent, self._lookup_error = frozenset(), ""
        if not unnamed:
            return
        names = dict(await asyncio.to_thread(self._names))
        found = {uid: names[uid] for uid in unnamed if uid in names}
        if missing := unnamed - found.keys():
            try:
                trees = await self._lookup.find(missing)
            except ApiError as error:
                if error.code not in (401, 403):
                    raise
                self._lookup_error = str(error)
            else:
                found |= {uid: read_ref(tree) for uid, tree in trees.items()}
                self._absent = frozenset(missing - trees.keys())
        if found:
            await asyncio.to_thread(state.name_claims, found)
            for ref in found.values():
                _log.info("claim %s is %s", ref.uid, ref)
            self._on_change()

    async def _is_known(self, ref: ClaimRef) -> bool:
        """Report whether a claim is allocated; one without a name is unless the cluster lacks it."""
        return await self._lookup.is_allocated(ref) if ref.name else ref.uid not in self._absent

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
        label = f"{ref} ({ref.uid})" if ref.name else ref.uid
        _log.warning("claim %s is deallocated and unused: releasing its CPUs", label)
        if refusal := await self._release(ref):
            _log.error("claim %s: %s", label, refusal)


def _list_used_claims(enforcer: Enforcer) -> set[str]:
    """Return the UIDs of claims that containers use."""
    return {uid for view in enforcer.containers() for uid in view.claims}
