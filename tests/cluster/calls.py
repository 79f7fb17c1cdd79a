"""Calls to servers: expected errors, names of objects, and first events of a watch."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

import pytest

from plimsoll.client import Client, WatchEvent
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.errors import ApiError


async def refused(call: Awaitable[Any]) -> ApiError:
    """Return the error of a call that must fail."""
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def names(raws: list[bytes]) -> list[str]:
    return [json.loads(raw)["metadata"]["name"] for raw in raws]


def seen(event: WatchEvent) -> tuple[str, str]:
    return event.type, json.loads(event.raw)["metadata"]["name"]


async def take(
    client: Client, namespace: str, count: int, *, endpoint: Any = CONFIG_MAPS, **options: Any
) -> list[WatchEvent]:
    """Return the first events of a watch without bookmarks."""
    events: list[WatchEvent] = []
    if count == 0:
        return events
    async for event in client.watch(endpoint, namespace, **options):
        if event.type != "BOOKMARK":
            events.append(event)
        if len(events) == count:
            break
    return events
