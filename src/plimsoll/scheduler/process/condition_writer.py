"""Writer of the PodScheduled condition of pending pods, with a few workers so that bindings are not delayed.

Only the latest update of a pod is written. Unchanged conditions are not written; a pod that has been bound
gets none. A write without a response is retried, because the next attempt of the pod may be late; a refused
write is logged and dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from plimsoll.api.core import Pod
from plimsoll.api.timestamps import format_time
from plimsoll.common.tasks import start_task
from plimsoll.errors import ApiError, LeaseLostError, UnreachableError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.pod_conditions import plan_condition
from plimsoll.scheduler.process.api_writer import ApiWriter

LOG = logging.getLogger("plimsoll.scheduler")

_WORKERS = 8
#: Messages of a pod that are remembered.
_KEPT_MESSAGES = 4
#: Delay before a write without a response is retried (seconds).
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """Reason and message of PodScheduled=False, and the nominated node.

    `nominated` is the node, "" clears the nomination, None leaves it unchanged.
    """

    pod: Pod
    reason: str
    message: str
    nominated: str | None = None


class ConditionWriter:
    """Queue and workers for condition updates, on one event loop."""

    def __init__(
        self,
        writer: ApiWriter,
        *,
        workers: int = _WORKERS,
        pause: float = _RETRY_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._writer = writer
        self._limit = workers
        self._pause = pause
        self._now = now
        self._pending: dict[str, ConditionUpdate] = {}
        self._writing: set[str] = set()
        self._messages: dict[str, deque[str]] = {}  # the latest of each pod
        self.tasks: set[asyncio.Task[None]] = set()
        self.written = 0

    def __len__(self) -> int:
        return len(self._pending)

    def enqueue(self, update: ConditionUpdate) -> None:
        """Queue an update; it replaces a pending one of the same pod."""
        key = pod_key(update.pod)
        before = self._pending.get(key)
        if before is not None and update.nominated is None and before.nominated is not None:
            update = ConditionUpdate(update.pod, update.reason, update.message, before.nominated)
        self._pending[key] = update
        self._messages.setdefault(key, deque(maxlen=_KEPT_MESSAGES)).append(update.message)
        if len(self.tasks) < self._limit:
            start_task(self.tasks, self._run())

    def drop(self, key: str) -> None:
        """Drop the pending update of a pod."""
        self._pending.pop(key, None)
        self._writing.discard(key)
        self._messages.pop(key, None)

    def has_written(self, key: str, message: str) -> bool:
        """Return whether a message is among the latest of a pod."""
        return message in self._messages.get(key, ())

    async def stop(self, seconds: float = 0.0) -> None:
        """Write pending updates for at most `seconds`, then drop them."""
        if self.tasks and seconds > 0:
            await asyncio.wait(self.tasks, timeout=seconds)
        self._pending.clear()
        for task in list(self.tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while self._pending:
            key = next(iter(self._pending))
            update = self._pending.pop(key)
            self._writing.add(key)
            is_answered = await _is_answered(self._write(update), update.pod)
            is_current = key in self._writing
            self._writing.discard(key)
            if is_current and not is_answered:
                self._pending.setdefault(key, update)
                await asyncio.sleep(self._pause)

    async def _write(self, update: ConditionUpdate) -> None:
        """Write the condition, but never to a pod that was bound meanwhile."""
        now, pod = format_time(self._now().timestamp()), update.pod
        while True:
            patch = plan_condition(pod, update.reason, update.message, now, update.nominated)
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


async def _is_answered(work: Awaitable[None], pod: Pod) -> bool:
    """Await a write; return whether there was a response."""
    try:
        await work
    except LeaseLostError:
        return True  # nothing more is written
    except ApiError as error:
        if error.code not in (404, 409):  # gone, or another pod of its name
            meta = pod.metadata
            LOG.warning("writing the condition of pod %s/%s failed: %s", meta.namespace, meta.name, error)
        return not (isinstance(error, UnreachableError) or error.code == 429 or error.code >= 500)
    return True
