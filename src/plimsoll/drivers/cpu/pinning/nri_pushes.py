"""Unsolicited updates of running containers, sent through the plugin's own call.

`NriPushes` sends what differs from the desired cpusets: containers that shrink first, then those that grow.
Failed updates are repeated with increasing delays. A runtime that does not answer in time is sent fewer at a
time: one that is slow with many containers would otherwise never confirm any. It must not be awaited from an
event handler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf

from plimsoll.drivers.cpu.pinning.container_table import ContainerChange, ContainerTable
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.nri_messages import encode_update
from plimsoll.drivers.cpu.pinning.plan import PinSnapshot
from plimsoll.protocols.nri import NriPlugin
from plimsoll.protocols.ttrpc import UNIMPLEMENTED, TtrpcFault

_log = logging.getLogger("plimsoll.cpu.pinning")


class NriPushes:
    """Task that pushes pending updates to the runtime while `can_push` returns True."""

    def __init__(
        self,
        plugin: NriPlugin,
        containers: ContainerTable,
        snapshot: Callable[[], PinSnapshot],
        counters: Counters,
        *,
        can_push: Callable[[], bool],
        on_pushed: Callable[[], None],
        call_timeout: float,
        retry: float,
        longest: float,
    ) -> None:
        #: True if the runtime does not support unsolicited updates.
        self.unsupported = False
        self._plugin, self._containers, self._snapshot = plugin, containers, snapshot
        self._counters, self._can_push, self._on_pushed = counters, can_push, on_pushed
        self._call_timeout, self._retry, self._longest = call_timeout, retry, longest
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        #: Number of updates in one call: halved after a timeout, doubled when all have succeeded.
        self._batch = inf

    def wake(self) -> None:
        """Send pending updates soon."""
        self._wake.set()

    async def send_and_wait(self) -> None:
        """Send all pending updates and wait for them."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wake.set()
        await done

    def release_waiting(self) -> None:
        """End all `send_and_wait`, because the link is lost."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting = []

    async def run(self) -> None:
        """Send updates until cancelled."""
        pause: float | None = None
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            try:
                done = await self._push()
            except Exception:  # a bug must not stop pinning for good
                _log.exception("containers are not updated")
                done = False
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            pause = None if done else min(self._longest, (pause or self._retry / 2) * 2)

    async def _push(self) -> bool:
        """Send pending updates; return whether all succeeded."""
        succeeded = True
        # Shrink containers first, then grow others.
        for shrinking in (True, False):
            if not self._can_push():
                return True  # done at the next connection or event
            changes = [
                change
                for change in self._containers.list_changes(self._snapshot(), include_unconfirmed=True)
                if change.shrinks is shrinking
            ]
            if changes:
                succeeded = await self._push_changes(changes) and succeeded
        if succeeded:
            self._batch *= 2
        self._on_pushed()
        return succeeded

    async def _push_changes(self, changes: Sequence[ContainerChange]) -> bool:
        """Send updates in batches; return whether all succeeded."""
        succeeded, left = True, list(changes)
        while left and self._can_push():
            count = int(min(self._batch, len(left)))
            succeeded = await self._push_batch(left[:count]) and succeeded
            left = left[count:]
        return succeeded

    async def _push_batch(self, changes: Sequence[ContainerChange]) -> bool:
        answer = await self._plugin.update_containers(map(encode_update, changes), timeout=self._call_timeout)
        if isinstance(answer, TtrpcFault):
            if answer.code == UNIMPLEMENTED:
                self.unsupported = True
                _log.warning("the runtime does not support unsolicited updates of containers")
                return True
            if answer.kind == "closed":
                return True  # the next connection starts with a synchronization
            if answer.kind == "timeout":
                self._batch = max(1, len(changes) // 2)
            _log.warning("containers are not updated: %s", answer.message)
            self._counters.failed += len(changes)
            for change in changes:
                self._containers.record_failure(change, answer.message)
            return False
        failed = {message.container_id for message in answer}
        for change in changes:
            if change.view.id in failed:
                self._counters.failed += 1
                fault = self._containers.record_failure(change, "the runtime failed to update it")
                _log.warning("%s", fault)
            else:
                self._counters.changed += 1
                self._containers.record_change(change, confirmed=True)
        return not failed
