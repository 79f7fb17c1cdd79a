"""Recorder of core v1 Events, as shown by `kubectl describe`.

Guarantees: the same event about the same object is one Event with a count, also across restarts; an event
that cannot be written is dropped, because nothing depends on it.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time
from plimsoll.client.client import Client
from plimsoll.client.endpoints import EVENTS
from plimsoll.common.clock import Clock
from plimsoll.errors import ApiError

_log = logging.getLogger("plimsoll.controllers")
#: Longest message of an Event.
_LONGEST_MESSAGE = 1024

#: Events whose counts are remembered.
_MOST_COUNTS = 4096

NORMAL, WARNING = "Normal", "Warning"


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Event about an object."""

    regarding: ObjectReference
    reason: str
    message: str
    component: str
    type: str = NORMAL
    host: str = ""  #: node of the component
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)


class EventRecorder:
    """Recorder that writes events with one client."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()  #: by namespace and name

    async def record(self, record: EventRecord) -> None:
        """Write an event, or count it if it exists; a failure is logged."""
        event = build_event(record, format_time(self._clock.now()))
        key = event["metadata"]["namespace"], event["metadata"]["name"]
        try:
            self._counts[key] = await self._write(event, self._counts.pop(key, 0))
        except ApiError as error:
            _log.debug("event %s about %s dropped: %s", record.reason, record.regarding.name, error)
        while len(self._counts) > _MOST_COUNTS:
            self._counts.popitem(last=False)

    async def _write(self, event: dict[str, Any], count: int) -> int:
        """Write an event that was recorded `count` times as far as is known; return its count."""
        if count:
            try:
                await self._patch(event, count + 1)
                return count + 1
            except ApiError as error:
                if error.code != 404:  # it has expired
                    raise
        try:
            await self._client.create(EVENTS, event, event["metadata"]["namespace"])
            return 1
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        # Of an earlier process. Nodes may not read events, but the response to a patch has the count.
        known = (await self._patch(event)).get("count")
        count = (known if isinstance(known, int) else 1) + 1
        await self._patch(event, count)
        return count

    async def _patch(self, event: dict[str, Any], count: int = 0) -> dict[str, Any]:
        more = {"lastTimestamp": event["lastTimestamp"], **({"count": count} if count else {})}
        return await self._client.patch(
            EVENTS, event["metadata"]["name"], more, event["metadata"]["namespace"]
        )


def build_event(record: EventRecord, now: str) -> dict[str, Any]:
    """Build the Event object of a record; its name is a hash of its content, so that it exists once."""
    regarding = record.regarding
    parts = (regarding.kind, regarding.uid, record.type, record.reason, record.message, record.component)
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{regarding.name[:230]}.{digest}",
            "namespace": regarding.namespace or "default",
            **({"annotations": dict(record.annotations)} if record.annotations else {}),
        },
        "involvedObject": codec.to_tree(regarding),
        "reason": record.reason,
        "message": record.message[:_LONGEST_MESSAGE],
        "source": {"component": record.component, **({"host": record.host} if record.host else {})},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": record.type,
        "reportingComponent": record.component,
        "reportingInstance": record.host,
    }
