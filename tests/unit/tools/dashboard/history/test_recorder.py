"""History of a live dashboard: recorded, served as JSON, and there again after a restart."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from plimsoll.tools.dashboard.history.recorder import HistoryRecorder
from plimsoll.tools.dashboard.history.samples import Sample
from plimsoll.tools.dashboard.history.store import HistoryStore
from plimsoll.tools.dashboard.service import DashboardService
from tests.dumps import big_cluster, make_cluster_state
from tests.unit.tools.dashboard.pages import DashboardClient, visit

NOW = 1_800_000_000


def test_samples_of_a_service_survive_a_restart(tmp_path: Path) -> None:
    async def record() -> None:
        service = DashboardService(make_cluster_state(big_cluster(2)))
        times = iter((NOW, NOW + 60))
        store = HistoryStore(tmp_path / "history.db")
        recorder = HistoryRecorder(store, service.take_sample, clock=lambda: next(times))
        await recorder.record()
        await recorder.record()
        store.close()
        await service.close()

    asyncio.run(record())
    again = HistoryStore(tmp_path / "history.db")
    assert again.series()["times"] == [NOW, NOW + 60]
    assert again.series("node-0000")["resources"]["cpu"]["line"] == [64000, 64000]
    again.close()


def test_a_failed_sample_does_not_end_the_recorder(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    taken = 0

    async def take(now: int) -> Sample:
        nonlocal taken
        taken += 1
        if taken == 1:
            raise ValueError("broken")
        if taken == 3:
            raise asyncio.CancelledError
        return Sample(now, 1, 0, {})

    store = HistoryStore()
    recorder = HistoryRecorder(store, take, interval=0, clock=lambda: NOW)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(recorder.run())
    assert "no sample for the history: broken" in caplog.text
    assert store.series()["times"] == [NOW]
    store.close()


def test_a_dump_has_no_history() -> None:
    async def scenario(client: DashboardClient) -> None:
        found = await client.get("api/history")
        assert found == {"recorded": False, "times": [], "resources": {}}
        status, text = await client.ask("api/history?since=x")
        assert (status, text) == (400, '{"error":"since: \'x\' is not an integer"}')

    visit(make_cluster_state(big_cluster(1)), scenario)


def test_without_a_page_only_metrics_and_history_are_served() -> None:
    async def scenario(client: DashboardClient) -> None:
        for path in ("metrics", "api/history", "readyz"):
            assert (await client.ask(path))[0] == 200, path
        for path in ("", "api/nodes", "assets/app/main.js"):
            assert (await client.ask(path))[0] == 404, path

    visit(make_cluster_state(big_cluster(1)), scenario, page=False)
