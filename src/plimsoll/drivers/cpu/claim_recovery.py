"""Recovery of a driver's claims after checkpoint and CDI files were lost, from containers and the cluster.

Runs once after the start, as soon as the containers are known and the API server responds. Until then the
CPUs that containers name are withheld. Recovered claims are prepared again, which writes their checkpoint,
CDI and metadata files; those that the cluster does not confirm lose their CPUs, and their containers are
moved to the shared pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.claim_lookup import ClaimLookup
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.state.cpu_state import CPUState
from plimsoll.drivers.cpu.state.recovery import recover_claim
from plimsoll.errors import ApiError
from plimsoll.protocols.dra import ClaimRef

_log = logging.getLogger("plimsoll.cpu.recovery")

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 15.0


class ClaimRecovery:
    """Recovers the claims of one driver; `prepare` prepares a claim as if the node had requested it."""

    def __init__(self, lookup: ClaimLookup, prepare: Callable[[ClaimRef], Awaitable[object]]) -> None:
        self._lookup = lookup
        self._prepare = prepare
        self._error = ""

    @property
    def findings(self) -> tuple[NodeFinding, ...]:
        if not self._error:
            return ()
        what = f"claims of running containers cannot be recovered yet: {self._error}"
        fix = "let the driver's account list resourceclaims; their CPUs are withheld meanwhile"
        return (NodeFinding(FindingSeverity.WARNING, what, fix),)

    async def run(self, state: CPUState, enforcer: Enforcer) -> None:
        """Recover the claims, with retries; returns when that is done."""
        delay = _FIRST_DELAY
        while state.recovering:
            if not enforcer.linked:
                await asyncio.sleep(_FIRST_DELAY)
                continue
            try:
                self._error = await self._recover(state, enforcer)
            except ApiError as error:
                self._error = str(error)
            if self._error:
                _log.warning("recovering claims failed: %s", self._error)
                await asyncio.sleep(delay)
                delay = min(_LONGEST_DELAY, delay * 2)

    async def _recover(self, state: CPUState, enforcer: Enforcer) -> str:
        trees = await self._lookup.list_allocated(state.settings.node)
        views = enforcer.containers()
        recovered = {}
        for uid, tree in trees.items():
            if uid in state.allocations and uid not in state.unverified:
                continue
            users = [view for view in views if uid in view.claims]
            if (allocation := recover_claim(tree, users, state.context)) is not None:
                recovered[uid] = allocation
        rejected = sorted(state.unverified - recovered.keys())
        if problem := await asyncio.to_thread(state.restore_claims, recovered):
            return problem
        for uid in rejected:
            _log.warning("claim %s is in the environment of a container, and not allocated here", uid)
        for uid, allocation in recovered.items():
            if uid not in state.allocations:  # released meanwhile
                continue
            _log.warning("claim %s (%s): recovered CPUs %s", allocation.ref, uid, allocation.assigned)
            if not allocation.disputed:
                await self._prepare(allocation.ref)
        return ""
