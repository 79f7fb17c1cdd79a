"""Housekeeping of a node agent: periodic cleanup of what deleted pods have left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Sequence

from plimsoll.api.core import Pod
from plimsoll.common.tasks import at_most
from plimsoll.node.components import Components
from plimsoll.node.containers import RuntimeFault
from plimsoll.node.pods.backoff import StepFailure, record_failure
from plimsoll.node.pods.steps import read_claims

_log = logging.getLogger("plimsoll.node")

#: Interval of the search for orphaned claims, pods and cgroups (seconds).
HOUSEKEEPING_SECONDS = 60.0


class Housekeeping:
    """Cleanup of orphaned sandboxes, claims, cgroups and checkpoint entries of one node."""

    def __init__(
        self,
        components: Components,
        pods: Container[str],
        workers: Collection[str],
        *,
        running: Callable[[], Sequence[Pod]],
        interval: float = HOUSEKEEPING_SECONDS,
    ) -> None:
        """Create it; `pods` and `workers` have the UIDs of known pods and of those with a worker."""
        self._components = components
        self._name = components.status_reporter.name
        self._pods, self._workers = pods, workers
        self._running = running
        self._interval = interval
        self._drivers_changed = asyncio.Event()
        #: A driver call failed that no worker retries (prepare or unprepare); counts the attempts.
        self._failed_calls: StepFailure | None = None

    def on_drivers_changed(self) -> None:
        """Handle drivers that connected or disconnected."""
        self._drivers_changed.set()

    async def run(self) -> None:
        """Clean up orphans periodically."""
        while True:
            self._drivers_changed.clear()
            try:
                await self.clean_up_orphans()
            except Exception:
                _log.exception("%s: housekeeping failed; retrying later", self._name)
            await self._wait()

    async def _wait(self) -> None:
        """Wait for the next interval, or the retry of a failed driver call, which a new driver also
        triggers.
        """
        seconds = self._interval
        if self._failed_calls is not None:
            seconds = min(seconds, self._failed_calls.delay(self._components.worker_deps.timing))
        async with at_most(seconds):
            while True:
                await self._drivers_changed.wait()
                self._drivers_changed.clear()
                if self._failed_calls is not None:
                    return

    async def clean_up_orphans(self) -> None:
        """Clean up what belongs to deleted pods: sandboxes, claims, cgroups and checkpoint entries."""
        components = self._components
        if components.claim_cache.needs_rebuild:
            await self._rebuild_claims()
        for sandbox in components.runtime.sandboxes():
            if sandbox.uid not in self._pods and sandbox.uid not in self._workers:
                _log.info("%s: pod %s was deleted; stopping its containers", self._name, sandbox.name)
                await components.runtime.stop_sandbox(sandbox.uid)
                await components.claim_cache.unprepare(sandbox.uid)
                await components.runtime.remove_sandbox(sandbox.uid)
        known = {*self._workers, *(state.uid for state in components.runtime.sandboxes())}
        faults = await components.claim_cache.reconcile(known)
        if components.device_manager is not None:
            await components.device_manager.reconcile(known)
        for fault in faults:
            _log.warning("%s: claim %s: %s", self._name, fault.claim, fault.message)
        failed = "; ".join(fault.message for fault in faults)
        self._failed_calls = (
            record_failure(self._failed_calls, "", failed, 0.0)
            if faults or components.claim_cache.needs_rebuild
            else None
        )
        for uid in await asyncio.to_thread(components.cgroups.pods):
            if uid not in self._pods and uid not in self._workers:
                await asyncio.to_thread(components.cgroups.remove_pod, uid)
        # Pods that were deleted while no agent ran, and changes that could not be saved.
        await components.admission_handler.flush()

    async def _rebuild_claims(self) -> None:
        """Prepare the claims of all pods again after the checkpoint was lost; drivers see a repeated call."""
        pods = []
        for pod in self._running():
            claims = await read_claims(pod, self._components.worker_deps)
            if isinstance(claims, RuntimeFault):
                name = pod.metadata.full_name
                _log.warning("%s: pod %s: %s", self._name, name, claims.message)
                return  # all or none: claims missing from the cache would be unprepared
            pods.append((pod, claims))
        for fault in await self._components.claim_cache.rebuild(pods):
            _log.warning("%s: claim %s: %s", self._name, fault.claim, fault.message)
