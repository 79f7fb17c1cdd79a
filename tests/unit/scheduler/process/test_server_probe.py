"""Probe of the API server by the scheduler: facts before pods are scheduled, and changes later."""

from __future__ import annotations

import asyncio
import json
import time
from unittest.mock import patch

import pytest

from plimsoll.api.forms.annotations import CLASS_KEY
from plimsoll.client.endpoints import DEVICE_CLASSES
from plimsoll.client.stored_fields import StoredFields
from plimsoll.errors import UnreachableError
from plimsoll.scheduler.process import server_probe as server_probe_module
from tests.manifests import device_class
from tests.unit.scheduler.process.scheduler_cluster import scheduler_cluster
from tests.waiting import until


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


async def test_the_log_and_metrics_have_what_the_server_stores(caplog: pytest.LogCaptureFixture) -> None:
    async def drops(*_: object) -> StoredFields:
        return StoredFields(False, False, None)

    async with scheduler_cluster() as row:
        await row.devices("n1")
        process = await row.start()
        caplog.clear()
        caplog.set_level("INFO", "plimsoll")  # a command of another test may have set it
        with patch.object(server_probe_module, "probe_stored_fields", drops):
            await process.server_probe.probe()
            await process.server_probe.probe()
            (record,) = [each for each in caplog.records if each.getMessage() == "API server"]
            assert record.levelname == "WARNING"
            assert vars(record)["fields"] == {
                "version": "1.36",
                "charges": "dropped",
                "mappings": "dropped",
                "consumable_capacity": "stored",
                "not_served": [],
                "classes_that_charge": "0",
                "claims": server_probe_module.NOT_CHARGED,
            }
            annotation = json.dumps(
                {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
            )
            charging = device_class("cpu")
            charging["metadata"]["annotations"] = {CLASS_KEY: annotation}
            await row.admin.create(DEVICE_CLASSES, charging)
            await until(lambda: "cpu" in process.context.snapshot.classes)
            await process.server_probe.probe()
        records = [each for each in caplog.records if each.getMessage() == "API server"]
        found = [vars(each)["fields"]["claims"] for each in records]
        assert "charges are recorded in annotations and placeholder pods" in found
        page = b"".join([piece async for piece in process.context.metrics.expose()])
        assert b'plimsoll_server_stores_field{field="charges"} 0.0' in page
        assert b'plimsoll_server_stores_field{field="consumable_capacity"} 1.0' in page
