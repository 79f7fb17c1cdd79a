"""Probe of the API server by the scheduler: facts before pods are scheduled, and changes later."""

from __future__ import annotations

import asyncio
import time
from unittest.mock import patch

from plimsoll.client.stored_fields import StoredFields
from plimsoll.errors import UnreachableError
from plimsoll.scheduler.process import server_probe as server_probe_module
from tests.unit.scheduler.process.scheduler_cluster import scheduler_cluster


async def test_stored_fields_are_known_before_pods_are_scheduled() -> None:
    async with scheduler_cluster() as row:
        await row.pod("p")
        process = await row.start()
        assert process.context.stored_fields == StoredFields(True, True, True)


async def test_changes_are_reported_and_unknown_facts_keep_their_last_value() -> None:
    async with scheduler_cluster() as row:
        process = await row.start()
        changes = []
        process.server_probe.on_changed = lambda old, new: changes.append((old, new))
        first = process.context.stored_fields
        for found in (StoredFields(charges=False), StoredFields(), StoredFields(charges=True)):

            async def answer(*_: object, found: StoredFields = found) -> StoredFields:
                return found

            with patch.object(server_probe_module, "probe_stored_fields", answer):
                await process.server_probe.probe()
        dropped, stored = first.updated(StoredFields(False)), first.updated(StoredFields(True))
        assert changes == [(first, dropped), (dropped, stored)]


async def test_a_server_that_does_not_answer_the_probe_delays_nothing() -> None:
    async def hang(*_: object) -> StoredFields:
        await asyncio.sleep(3600)
        raise AssertionError

    async def refuse(*_: object) -> StoredFields:
        raise UnreachableError("refused", sent=False)

    for answer in (hang, refuse):
        async with scheduler_cluster() as row:
            await row.node("n")
            await row.pod("p")
            with patch.object(server_probe_module, "probe_stored_fields", answer):
                started = time.monotonic()
                process = await row.start()
                assert await row.bound("p") == "n"
                assert time.monotonic() - started < 10
            assert process.context.stored_fields == StoredFields()
