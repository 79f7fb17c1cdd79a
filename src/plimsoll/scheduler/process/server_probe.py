"""Probe of the API server: its version, and which fields it stores.

The facts are read once before anything is scheduled, and again every minute, because they change when the
API server is restarted with other feature gates or upgraded. A fact that a probe does not show keeps its last
value: an API server that does not answer for a while has not changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from plimsoll.api.resource import ResourceSlice
from plimsoll.client.client import Client
from plimsoll.client.discovery import read_minor_version
from plimsoll.client.stored_fields import PROBE_SECONDS, StoredFields, probe_stored_fields
from plimsoll.common.tasks import at_most
from plimsoll.errors import InputError
from plimsoll.scheduler.process.context import SchedulerContext

LOG = logging.getLogger("plimsoll.scheduler")

#: Longest wait for the first facts before pods are scheduled without them (seconds).
_START_SECONDS = 0.3
#: Slices that are read: their devices show what the server stored.
_MAX_SLICES = 20


class ServerProbe:
    """Probe that keeps `server_minor` and `stored_fields` of the context up to date, in `run`."""

    def __init__(self, client: Client, context: SchedulerContext) -> None:
        self._client = client
        self._context = context
        self._finished = asyncio.Event()  # the first probe
        self._due = asyncio.Event()
        #: Called with the previous and the current fields when they differ.
        self.on_changed: Callable[[StoredFields, StoredFields], None] = lambda old, new: None

    async def run(self) -> None:
        """Probe the server every minute until cancelled; the caches must have synced."""
        while True:
            await self.probe()
            self._finished.set()
            async with at_most(PROBE_SECONDS):
                await self._due.wait()
            self._due.clear()

    def probe_soon(self) -> None:
        """Probe now: there may be pods that show more."""
        self._due.set()

    async def wait_for_first(self) -> None:
        """Wait for the end of the first probe, for a short time at most."""
        async with at_most(_START_SECONDS):
            await self._finished.wait()

    async def probe(self) -> None:
        """Probe the server once; errors leave the facts as they are."""
        context = self._context
        try:
            context.server_minor = await read_minor_version(self._client)
            slices = islice(context.snapshot.all(ResourceSlice), _MAX_SLICES)
            found = await probe_stored_fields(self._client, context.informers.pods(), slices)
        except InputError as error:
            LOG.warning("probing the API server failed: %s", error)
            return
        old, new = context.stored_fields, context.stored_fields.updated(found)
        if new != old:
            context.stored_fields = new
            self.on_changed(old, new)
