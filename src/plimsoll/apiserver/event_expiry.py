"""Events do not last: an hour after they were last seen they go, as in Kubernetes.

Owns looking for them, a few at a time so that requests are answered in between.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.storage import StoredObject
from plimsoll.apiserver.validation.timestamps import format_datetime

EVENT_TTL = timedelta(hours=1)
EXPIRY_INTERVAL_SECONDS = 60.0
_BATCH = 200


async def expire_events(context: ApiContext, ttl: timedelta = EVENT_TTL) -> int:
    """Delete the events that nobody has seen for so long; how many there were."""
    store, before, deleted = context.store, format_datetime(context.now() - ttl), 0
    after = None
    while True:
        page = store.list("events", after=after, limit=_BATCH)
        for stored in page.items:
            tree = codec.decode_tree(stored.raw)
            if last_observed_time(tree) < before and _is_current(context, stored):
                store.delete(stored.key, tree, stored.revision)
                deleted += 1
        if not page.remaining:
            return deleted
        after = (page.items[-1].key.namespace, page.items[-1].key.name)
        await asyncio.sleep(0)


async def run_event_expiry(context: ApiContext) -> None:
    """Look for old events again and again."""
    while True:
        await expire_events(context)
        await asyncio.sleep(EXPIRY_INTERVAL_SECONDS)


def last_observed_time(event: dict[str, Any]) -> str:
    """When an event (as it is stored) was last seen; times in this form compare as texts."""
    series = event.get("series")
    observed = series.get("lastObservedTime") if isinstance(series, dict) else None
    times = (
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        observed,
    )
    return max((time for time in times if isinstance(time, str)), default="")


def _is_current(context: ApiContext, stored: StoredObject) -> bool:
    return context.store.get(stored.key) == stored
