"""Probe of the API server: its version, and which fields it stores. The log has them in one line.

The facts are read once before anything is scheduled, and again every minute, because they change when the
API server is restarted with other feature gates or upgraded. A fact that a probe does not show keeps its last
value: an API server that does not answer for a while has not changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice

from plimsoll.api.forms import read_device_class
from plimsoll.api.resource import ResourceSlice
from plimsoll.client.client import Client
from plimsoll.client.discovery import read_minor_version
from plimsoll.client.stored_fields import PROBE_SECONDS, StoredFields, probe_stored_fields
from plimsoll.common.structured_log import log_event
from plimsoll.common.tasks import at_most
from plimsoll.errors import InputError
from plimsoll.scheduler.process.context import SchedulerContext

LOG = logging.getLogger("plimsoll.scheduler")

NOT_CHARGED = "not charged: mappings of devices are not stored, and no DeviceClass has an annotation"
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
        self._logged: Mapping[str, object] = {}

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
        self._log_changes()

    def _log_changes(self) -> None:
        """Log what the server stores and serves, and what follows from it, when it has changed."""
        facts = describe_server(self._context)
        if facts != self._logged:
            self._logged = facts
            has_devices = any(True for _ in self._context.snapshot.all(ResourceSlice))
            is_warning = has_devices and facts["claims"] == NOT_CHARGED
            level = logging.WARNING if is_warning else logging.INFO
            log_event(LOG, "API server", level, **facts)


def describe_server(context: SchedulerContext) -> dict[str, object]:
    """Return what the server stores, drops and serves, and how claims are charged there."""
    stored, settings = context.stored_fields, context.settings
    names = {None: "unknown", True: "stored", False: "dropped"}
    policies = map(read_device_class, context.snapshot.classes.values())
    charging = sum(bool(policy.rules) for policy in policies)
    if stored.mappings is False and not charging:
        claims = NOT_CHARGED
    elif stored.charges is False:
        shown = "annotations" if settings.placeholders.mode == "Off" else "annotations and placeholder pods"
        claims = f"charges are recorded in {shown}"
    else:
        claims = "charges are recorded in the status of pods where it keeps them, else in annotations"
    return {
        "version": f"1.{context.server_minor}",
        "charges": names[stored.charges],
        "mappings": names[stored.mappings],
        "consumable_capacity": names[stored.consumable_capacity],
        "not_served": [kind.endpoint.resource for kind in context.informers.unserved],
        "classes_that_charge": str(charging),
        "claims": claims,
    }
