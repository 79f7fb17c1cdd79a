"""Event recorder of the scheduler (`events.k8s.io/v1`).

`record` never waits: a bounded queue drops the oldest event when it is full and counts it, and nothing
depends on events. Repeated events are one Event whose series counts, written at most once a minute. While
bindings are in progress (`is_busy`), events are written slowly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta, ObjectReference
from plimsoll.api.timestamps import format_micro_time
from plimsoll.client.client import Client
from plimsoll.client.endpoints import EVENTS_V1, LEASES, POD_GROUPS
from plimsoll.common.tasks import at_most
from plimsoll.errors import ApiError, InputError
from plimsoll.scheduler.binding.pod_conditions import shorten
from plimsoll.scheduler.preemption.result import Preemption

LOG = logging.getLogger("plimsoll.scheduler")

NORMAL, WARNING = "Normal", "Warning"
_ROOT = EVENTS_V1.root + "/namespaces/"
_MERGE = "application/merge-patch+json"
#: Seconds between two writes of one series; between two events while bindings are in progress.
_SERIES_SECONDS = 60.0
_PACE_SECONDS = 0.02
#: Time without events after which a series ends, as in kube-scheduler (seconds).
_FINISHED_SECONDS = 360.0
_SERIES_MAX = 4096
_LEASE = ObjectMeta(name="plimsoll-scheduler", namespace="kube-system")


@dataclass(slots=True)
class _Series:
    """Event and its series."""

    path: str
    name: str
    body: dict[str, Any]
    count: int = 1
    written_count: int = 0  #: count that the API has
    observed_at: float = 0.0
    written_at: float = 0.0
    queued: bool = False


class SchedulerEventRecorder:
    """Recorder that writes events one after the other, in `run`."""

    def __init__(
        self,
        client: Client,
        *,
        controller: str = "plimsoll",
        instance: str = "",
        lease: ObjectMeta = _LEASE,
        limit: int = 5_000,
        is_busy: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.dropped = 0  #: events dropped because the queue was full
        self.failed = 0  #: events that the API refused
        self.written = 0
        self._client = client
        self._controller = controller
        self._instance = instance or f"{controller}-0"
        self._lease = lease
        self._is_forbidden = False
        self._limit = max(1, limit)
        self._is_busy = is_busy
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._queue: deque[_Series] = deque()
        self._series: OrderedDict[tuple[str, str, str], _Series] = OrderedDict()
        self._last_name = 0
        self._pending = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    # -- events

    def scheduled(self, pod: Pod, node: str) -> None:
        text = f"Successfully assigned {pod.metadata.full_name} to {node}"
        self.record(pod, "Scheduled", "Binding", text)

    def failed_scheduling(self, pod: Pod, message: str) -> None:
        self.record(pod, "FailedScheduling", "Scheduling", message, type=WARNING)

    def preempted(self, victim: Pod, preemption: Preemption) -> None:
        preemptor = preemption.group or preemption.pod
        text = f"Preempted by {preemption.preemptor_type} {preemptor.metadata.uid} on node {preemption.node}"
        if preemption.group is None:
            related = ObjectReference.to_version(preemptor.metadata, "Pod")
        else:
            related = ObjectReference.to_version(preemptor.metadata, POD_GROUPS.kind, POD_GROUPS.api_version)
        self.record(victim, "Preempted", "Preempting", text, related=related)

    def awaiting_devices(self, pod: Pod, node: str) -> None:
        text = f"waiting for binding conditions for device on node {node}"
        self.record(pod, "BindingConditionsPending", "Scheduling", text)

    def problem(self, reason: str, action: str, note: str) -> None:
        """Record a problem of the scheduler itself, as an event about its lease."""
        regarding = ObjectReference.to(self._lease, LEASES.kind, LEASES.api_version)
        self._record(regarding, reason, action, note, WARNING)

    def record(
        self,
        pod: Pod,
        reason: str,
        action: str,
        note: str,
        *,
        type: str = NORMAL,
        related: ObjectReference | None = None,
    ) -> None:
        """Record an event about a pod; it is written later."""
        regarding = ObjectReference.to_version(pod.metadata, "Pod")
        self._record(regarding, reason, action, note, type, related)

    def _record(
        self,
        regarding: ObjectReference,
        reason: str,
        action: str,
        note: str,
        type: str,
        related: ObjectReference | None = None,
    ) -> None:
        note, now = shorten(note), self._clock()
        key = (regarding.uid, reason, note)
        series = self._series.get(key)
        if series is not None and now - series.observed_at < _FINISHED_SECONDS:
            series.count += 1
            series.observed_at = now
            self._series.move_to_end(key)
        else:
            series = self._new_series(regarding, reason, action, note, type, related, now)
            self._series[key] = series
            while len(self._series) > _SERIES_MAX:
                self._series.popitem(last=False)
        if not series.queued and (not series.written_count or now - series.written_at >= _SERIES_SECONDS):
            self._enqueue(series)

    def _new_series(
        self,
        regarding: ObjectReference,
        reason: str,
        action: str,
        note: str,
        type: str,
        related: ObjectReference | None,
        now: float,
    ) -> _Series:
        event_time = self._now()
        self._last_name = max(self._last_name + 1, int(event_time.timestamp() * 1e9))
        namespace = regarding.namespace or "default"
        name = f"{regarding.name[:236]}.{self._last_name:x}"
        body = {
            "apiVersion": EVENTS_V1.api_version,
            "kind": EVENTS_V1.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": format_micro_time(event_time.timestamp()),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": note,
            "type": type,
        }
        if related is not None:
            body["related"] = related
        return _Series(f"{_ROOT}{namespace}/events", name, body, observed_at=now)

    def _enqueue(self, series: _Series) -> None:
        if len(self._queue) >= self._limit:
            oldest = self._queue.popleft()
            oldest.queued = False
            self.dropped += 1
        series.queued = True
        self._queue.append(series)
        self._pending.set()

    # -- writing

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            if not self._queue:
                self._pending.clear()
                await self._pending.wait()
            if self._is_busy():
                await self._sleep(_PACE_SECONDS)
            if self._queue:
                await self._write(self._queue.popleft())

    async def flush(self, seconds: float) -> None:
        """Write the remaining events within the given time."""
        async with at_most(seconds):
            while self._queue:
                await self._write(self._queue.popleft())

    async def _write(self, series: _Series) -> None:
        series.queued = False
        count, first = series.count, not series.written_count
        series.written_at = self._clock()
        try:
            if first:
                await self._create(series)
            if count > 1:
                await self._update_count(series, count)
            self.written += 1
            series.written_count = count
        except InputError as error:
            self.failed += 1
            missing = isinstance(error, ApiError) and error.code == 404
            if missing and not first:
                series.written_count = 0  # expired in the API: created again on the next occurrence
            # A namespace that is being deleted, or a quota, refuses with 403 as well.
            is_forbidden = isinstance(error, ApiError) and error.code == 403 and " cannot " in str(error)
            if is_forbidden and not self._is_forbidden:
                self._is_forbidden = True
                rule = EVENTS_V1.rbac_rule("create", "patch", "update")
                LOG.error("no permission to write events: pods have none; add to the role: %s", rule)
            LOG.debug("event %s was not written: %s", series.name, error)

    async def _create(self, series: _Series) -> None:
        try:
            await self._client.call("POST", series.path, body=codec.encode(series.body), harmless=False)
        except ApiError as error:
            if error.code != 409:  # exists: an earlier response was lost
                raise

    async def _update_count(self, series: _Series, count: int) -> None:
        patch = {"series": {"count": count, "lastObservedTime": format_micro_time(self._now().timestamp())}}
        await self._client.call(
            "PATCH",
            f"{series.path}/{series.name}",
            body=codec.encode(patch),
            content_type=_MERGE,
            harmless=True,
        )
