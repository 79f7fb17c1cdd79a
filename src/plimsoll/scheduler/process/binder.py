"""Concurrent bindings in the background.

Every started placement ends with exactly one call of `done`, even after an internal error, unless it is
cancelled or the lease is lost. At most `limit` are in progress, where pods that share a claim count once; the
rest wait in order. `drain` waits for all of them and cancels the remainder, which the next leader resumes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from plimsoll.api.resource import ResourceClaim
from plimsoll.common.tasks import at_most, start_task
from plimsoll.errors import LeaseLostError
from plimsoll.scheduler.binding.attempts import OnClaim
from plimsoll.scheduler.binding.bind import bind_pod
from plimsoll.scheduler.binding.permit import BindPermit
from plimsoll.scheduler.binding.placeholders import PlaceholderBinder
from plimsoll.scheduler.binding.result import BindFailure, BindPoint, BindStep, BindSuccess
from plimsoll.scheduler.binding.volumes import VolumeBinder
from plimsoll.scheduler.binding.writer import BindingWriter, retry_until_answered
from plimsoll.scheduler.extended_resources import is_in_memory
from plimsoll.scheduler.result import Placement

LOG = logging.getLogger("plimsoll.scheduler")

OnPoint = Callable[[Placement, BindPoint, float, BindFailure | None], None]
OnFinished = Callable[[Placement, BindSuccess | BindFailure], None]


class BindingSlots:
    """Slots of the bindings in progress.

    All pods that share a claim have one slot together, so that one claim whose writes are slow does not take
    them all. A binding that waits for its devices, its volumes or the pods of its group has none meanwhile.
    """

    def __init__(self, limit: int, on_free: Callable[[], None]) -> None:
        """Create slots; `on_free` is called when one becomes free and none was."""
        self._limit = max(1, limit)
        self._on_free = on_free
        self._taken: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        return len(self._taken) >= self._limit

    def take(self, placement: Placement) -> None:
        self._taken[_slot_of(placement)] += 1

    def free(self, placement: Placement) -> None:
        key, was_full = _slot_of(placement), self.is_full
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]
        if was_full and not self.is_full:
            self._on_free()

    @contextmanager
    def waiting(self, placement: Placement) -> Iterator[None]:
        """Give up the slot of a placement for a while; what it takes back may be one too many."""
        self.free(placement)
        try:
            yield
        finally:
            self.take(placement)


def _slot_of(placement: Placement) -> str:
    """Return the first claim that the pod may share with others, or the pod."""
    claims = placement.pod_info.claims
    shared = (each.metadata.uid for each in claims if each.status.allocation is not None)
    return next(shared, placement.pod_info.key)


class PodBinder:
    """Runner of bindings on one event loop."""

    def __init__(
        self,
        writer: BindingWriter,
        on_claim: OnClaim,
        done: OnFinished,
        *,
        find_conflict: Callable[[str, Sequence[ResourceClaim]], str] = lambda node, claims: "",
        on_point: OnPoint = lambda placement, point, seconds, failed: None,
        limit: int = 128,
        make_volume_binder: Callable[[Placement], VolumeBinder] | None = None,
        make_placeholder_binder: Callable[[Placement], PlaceholderBinder | None] = lambda placement: None,
        on_free: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create a binder; `find_conflict` returns a device on the node that other claims also hold, or
        "". `on_point` receives the duration of each extension point. `on_free` is called when the binder is
        not full any more.
        """
        self._writer = writer
        self._on_claim = on_claim
        self._done = done
        self._find_conflict = find_conflict
        self._on_point = on_point
        self._clock = clock
        self._make_volume_binder = make_volume_binder
        self._make_placeholder_binder = make_placeholder_binder
        self._on_free = on_free
        self._slots = BindingSlots(limit, self._on_slot_free)
        self._queued: deque[Placement] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of bindings in progress or queued."""
        return len(self._tasks) + len(self._queued)

    @property
    def is_full(self) -> bool:
        """True if one more binding would be queued."""
        return self._slots.is_full

    def start(self, placement: Placement, permit: BindPermit | None = None) -> None:
        """Bind a placement as soon as the limit allows; with a permit at once, because others wait for it."""
        if self.is_full and permit is None:
            self._queued.append(placement)
            return
        self._slots.take(placement)
        start_task(self._tasks, self._run(placement, permit))

    async def drain(self, seconds: float) -> int:
        """Wait for all bindings, at most `seconds`; return how many were cancelled."""
        async with at_most(seconds):
            while self._tasks:
                await asyncio.wait(self._tasks)
        cancelled = list(self._tasks)
        unfinished = len(cancelled) + len(self._queued)
        self._queued.clear()
        for task in cancelled:
            task.cancel()
        for task in cancelled:
            with suppress(asyncio.CancelledError):
                await task
        return unfinished

    async def _run(self, placement: Placement, permit: BindPermit | None) -> None:
        """Bind one placement; queued ones start when its slot is free."""
        try:
            result = await self._bind(placement, permit)
        except LeaseLostError:
            return  # the next leader resumes it
        finally:
            self._slots.free(placement)
        self._done(placement, result)

    def _on_slot_free(self) -> None:
        while self._queued and not self.is_full:
            self.start(self._queued.popleft())
        if not self.is_full:
            self._on_free()

    async def _bind(self, placement: Placement, permit: BindPermit | None) -> BindSuccess | BindFailure:
        volumes, placeholders = self._volume_binder(placement), self._make_placeholder_binder(placement)
        try:
            return await bind_pod(
                placement,
                self._writer,
                self._on_claim,
                find_conflict=partial(self._find_conflict, placement.node),
                volumes=volumes,
                placeholders=placeholders,
                on_point=self._measure(placement),
                permit=permit,
                waiting=partial(self._slots.waiting, placement),
            )
        except LeaseLostError:
            raise
        except Exception as error:  # the pod must not be lost
            LOG.exception("binding %s failed", placement.pod_info.key)
            if permit is not None:
                permit.fail(placement, f"{type(error).__name__}: {error}")
            if volumes is not None:
                await volumes.fence()
            if placeholders is not None:
                await placeholders.undo()
            return await self._fence_after_error(placement, error)

    def _volume_binder(self, placement: Placement) -> VolumeBinder | None:
        if not placement.volumes or self._make_volume_binder is None:
            return None
        return self._make_volume_binder(placement)

    def _measure(self, placement: Placement) -> Callable[[BindPoint, BindFailure | None], None]:
        """Return a receiver of the points of one binding, which measures the time between them."""
        last = self._clock()

        def on_point(point: BindPoint, failed: BindFailure | None) -> None:
            nonlocal last
            now = self._clock()
            self._on_point(placement, point, now - last, failed)
            last = now

        return on_point

    async def _fence_after_error(self, placement: Placement, error: Exception) -> BindSuccess | BindFailure:
        """Fence the objects of a binding that failed unexpectedly, so that no write of it can land later."""
        for claim in placement.pod_info.claims:
            if is_in_memory(claim):
                continue  # if it was created, the next attempt deletes it
            fresh = await retry_until_answered(self._writer, self._writer.fence_claim, claim)
            if fresh is not None:
                self._on_claim(fresh)
        pod = await retry_until_answered(self._writer, self._writer.fence_pod, placement.pod_info.pod)
        if pod is not None and pod.spec.node_name == placement.node:
            return BindSuccess(placement.node)
        return BindFailure(BindStep.BINDING, f"{type(error).__name__}: {error}", settled=False)
