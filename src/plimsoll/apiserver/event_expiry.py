"""Event expiry: deletes events an hour after they were last observed (kube-apiserver's --event-ttl).

Events are checked in small batches, so that requests are handled in between.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.storage import StoredObject

EVENT_TTL = timedelta(hours=1)
EXPIRY_INTERVAL_SECONDS = 60.0
_BATCH = 200


async def expire_events(context: ApiContext, ttl: timedelta = EVENT_TTL) -> int:
    """Delete events that were last observed more than `ttl` ago; return their number."""
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
    """Expire events periodically."""
    while True:
        await expire_events(context)
        await asyncio.sleep(EXPIRY_INTERVAL_SECONDS)


def last_observed_time(event: dict[str, Any]) -> str:
    """Return the time an event was last observed; stored timestamps compare as strings."""
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
