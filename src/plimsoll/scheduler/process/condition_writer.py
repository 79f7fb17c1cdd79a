"""Conditions of pending pods, written a few at a time, so that they never delay bindings.

Owns `Notices`. What is told last about a pod counts: a pod that is tried ten times while its turn comes is
written once. A condition that says the same already is not written; a pod that is not pending any more, or
bound by the time the write arrives, gets none; a write that fails for want of an answer is made again after a
moment, because a pod that sleeps may not be tried again for long; one that is refused is logged and
forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from plimsoll.api.core import Pod
from plimsoll.errors import ApiError, LeaseLostError, UnreachableError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.pod_conditions import plan_condition
from plimsoll.scheduler.process.api_writer import ApiWriter, write_time

LOG = logging.getLogger("plimsoll.scheduler")

_WORKERS = 8
#: How long a server that gave no answer is left alone (seconds).
_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Notice:
    """What a pod is told: the reason and message of PodScheduled=False, and the node it was promised.

    `nominated` is the node, "" takes a promise back, None leaves it as it is.
    """

    pod: Pod
    reason: str
    message: str
    nominated: str | None = None


class Notices:
    """Conditions on their way to pods; to be used on one loop."""

    def __init__(
        self,
        writer: ApiWriter,
        *,
        workers: int = _WORKERS,
        pause: float = _PAUSE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._writer = writer
        self._limit = workers
        self._pause = pause
        self._now = now
        self._waiting: dict[str, Notice] = {}
        self._writing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.written = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def tell(self, notice: Notice) -> None:
        """Have a pod told, soon; whatever else it was about to be told is out of date."""
        key = pod_key(notice.pod)
        before = self._waiting.get(key)
        if before is not None and notice.nominated is None and before.nominated is not None:
            notice = Notice(notice.pod, notice.reason, notice.message, before.nominated)
        self._waiting[key] = notice
        if len(self._tasks) < self._limit:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def drop(self, key: str) -> None:
        """A pod waits no longer."""
        self._waiting.pop(key, None)
        self._writing.discard(key)

    async def stop(self, seconds: float = 0.0) -> None:
        """Write what waits for so long, then leave it."""
        if self._tasks and seconds > 0:
            await asyncio.wait(self._tasks, timeout=seconds)
        self._waiting.clear()
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _work(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            notice = self._waiting.pop(key)
            self._writing.add(key)
            answered = await _carefully(self._write(notice), notice.pod)
            wanted = key in self._writing
            self._writing.discard(key)
            if wanted and not answered:
                self._waiting.setdefault(key, notice)
                await asyncio.sleep(self._pause)

    async def _write(self, notice: Notice) -> None:
        """Write the condition, but never to a pod that is bound meanwhile."""
        now, pod = write_time(self._now()), notice.pod
        while True:
            patch = plan_condition(pod, notice.reason, notice.message, now, notice.nominated)
            if patch is None:
                return
            self.written += 1
            try:
                await self._writer.patch_status(pod, patch)
                return
            except ApiError as error:
                if error.code != 409:
                    raise
            fresh = await self._writer.read_pod(pod)
            if fresh is None or fresh.spec.node_name:
                return
            pod = fresh


async def _carefully(work: Awaitable[None], pod: Pod) -> bool:
    """Whether there was an answer, whatever it was."""
    try:
        await work
    except LeaseLostError:
        return True  # nothing more is written
    except ApiError as error:
        if error.code not in (404, 409):  # gone, or another pod of its name
            meta = pod.metadata
            LOG.warning("pod %s/%s could not be told why it waits: %s", meta.namespace, meta.name, error)
        return not (isinstance(error, UnreachableError) or error.code == 429 or error.code >= 500)
    return True
