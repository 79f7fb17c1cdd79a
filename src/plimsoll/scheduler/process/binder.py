"""Bindings in the background: many at a time, none lost.

`Bindings` runs `bind_pod` for placements that are assumed already. Every placement that is started ends with
exactly one call of `done`, also if our own code fails, unless it is cancelled or the lease is lost; at most
`limit` are under way, the rest wait in order; `drain` waits for all of them and cancels what is still under
way then (the next leader resumes it).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import LeaseLostError
from plimsoll.scheduler.binding.bind import CONDITIONS_MS, Bound, Failed, Hear, Step, bind_pod
from plimsoll.scheduler.binding.writes import Writer, ask_until_answered
from plimsoll.scheduler.result import Placement

LOG = logging.getLogger("plimsoll.scheduler")

Done = Callable[[Placement, Bound | Failed], None]


class Bindings:
    """Runs bindings; to be used on one loop."""

    def __init__(
        self,
        writer: Writer,
        heard: Hear,
        done: Done,
        *,
        find_conflict: Callable[[str, Sequence[ResourceClaim]], str] = lambda node, claims: "",
        limit: int = 128,
        timeout_ms: int = CONDITIONS_MS,
    ) -> None:
        """`find_conflict` returns the device of some claims, on a node, that others hold as well, or ""."""
        self._writer = writer
        self._heard = heard
        self._done = done
        self._find_conflict = find_conflict
        self._limit = max(1, limit)
        self._timeout_ms = timeout_ms
        self._waiting: deque[Placement] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are under way or wait."""
        return len(self._tasks) + len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether one more would have to wait."""
        return len(self._tasks) >= self._limit

    def start(self, placement: Placement) -> None:
        """Bind a placement as soon as there is room."""
        if self.full:
            self._waiting.append(placement)
            return
        task = asyncio.get_running_loop().create_task(self._work(placement))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, seconds: float) -> int:
        """Wait for all to end, but not longer than this; how many were broken off."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        broken = list(self._tasks)
        left = len(broken) + len(self._waiting)
        self._waiting.clear()
        for task in broken:
            task.cancel()
        for task in broken:
            with suppress(asyncio.CancelledError):
                await task
        return left

    async def _work(self, placement: Placement) -> None:
        """Bind one, and then whatever waits."""
        while True:
            outcome: Bound | Failed
            try:
                outcome = await bind_pod(
                    placement,
                    self._writer,
                    self._heard,
                    find_conflict=partial(self._find_conflict, placement.node),
                    timeout_ms=self._timeout_ms,
                )
            except LeaseLostError:
                return  # the next leader finds out how far it came
            except Exception as error:  # whatever it is, the pod must not be lost
                LOG.exception("binding %s failed", placement.pod_info.key)
                outcome = await self._settle(placement, error)
            self._done(placement, outcome)
            if not self._waiting:
                return
            placement = self._waiting.popleft()

    async def _settle(self, placement: Placement, error: Exception) -> Bound | Failed:
        """End whatever a binding that failed in an unexpected way may still be writing."""
        for claim in placement.pod_info.claims:
            fresh = await ask_until_answered(self._writer, self._writer.fence_claim, claim)
            if fresh is not None:
                self._heard(fresh)
        pod = await ask_until_answered(self._writer, self._writer.fence_pod, placement.pod_info.pod)
        if pod is not None and pod.spec.node_name == placement.node:
            return Bound(placement.node)
        return Failed(Step.BINDING, f"{type(error).__name__}: {error}", settled=False)
