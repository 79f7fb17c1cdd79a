"""Events do not last: an hour after they were last seen they go, as in Kubernetes.

Owns looking for them, a few at a time so that requests are answered in between.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.context import Context
from plimsoll.apiserver.storage import Stored
from plimsoll.apiserver.validation.timestamps import write_time

EVENT_LIFE = timedelta(hours=1)
PAUSE_SECONDS = 60.0
_AT_ONCE = 200


async def expire_events(context: Context, life: timedelta = EVENT_LIFE) -> int:
    """Delete the events that nobody has seen for so long; how many there were."""
    store, before, gone = context.store, write_time(context.now() - life), 0
    after = None
    while True:
        page = store.list("events", after=after, limit=_AT_ONCE)
        for stored in page.items:
            tree = codec.decode_tree(stored.raw)
            if last_seen(tree) < before and _is_current(context, stored):
                store.delete(stored.key, tree, stored.revision)
                gone += 1
        if not page.remaining:
            return gone
        after = (page.items[-1].key.namespace, page.items[-1].key.name)
        await asyncio.sleep(0)


async def keep_expiring(context: Context) -> None:
    """Look for old events again and again."""
    while True:
        await expire_events(context)
        await asyncio.sleep(PAUSE_SECONDS)


def last_seen(event: dict[str, Any]) -> str:
    """When an event (as it is stored) was last seen; times in this form compare as texts."""
    series = event.get("series")
    seen = series.get("lastObservedTime") if isinstance(series, dict) else None
    times = (
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        seen,
    )
    return max((time for time in times if isinstance(time, str)), default="")


def _is_current(context: Context, stored: Stored) -> bool:
    return context.store.get(stored.key) == stored
