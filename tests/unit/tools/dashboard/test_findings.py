"""The background audit blocks no request and misses no change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.tools.audit.audit import audit
from plimsoll.tools.audit.checks import CHECKS
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState, Gap
from plimsoll.tools.dashboard import findings
from plimsoll.tools.dashboard.findings import (
    AGAIN_SECONDS,
    KEY,
    REST_SECONDS,
    TRIES,
    BackgroundAudit,
    run_audit,
)
from plimsoll.tools.dashboard.query_worker import QueryWorker
from tests.unit.tools.dashboard.pages import DashboardClient, small, visit
from tests.waiting import DEADLINE


class FindingsFixture:
    """Findings with their own worker and a manual clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.worker = QueryWorker(small())
        self.notified = 0
        self.findings = BackgroundAudit(self._worker, self._on_counts_changed, lambda: self.now)

    async def _worker(self) -> QueryWorker:
        return self.worker

    def _on_counts_changed(self) -> None:
        self.notified += 1

    async def done(self) -> None:
        assert self.findings.task is not None
        await asyncio.wait_for(self.findings.task, DEADLINE)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Make the first check of an audit wait; returns (started, may continue)."""
    began, go_on = threading.Event(), threading.Event()

    def run(facts: Any) -> Iterator[Any]:
        began.set()
        assert go_on.wait(10)
        return iter(())

    slow = replace(CHECKS[0], id="PLM900", needs=(), run=run)
    monkeypatch.setattr(findings, "CHECKS", (slow, *CHECKS))
    monkeypatch.setattr(findings, "SHORT_SECONDS", 0.0)
    return began, go_on


async def test_findings_equal_those_of_the_audit() -> None:
    fixture = FindingsFixture()
    fixture.findings.request(1)
    await fixture.done()
    assert fixture.findings.counts == audit(small()).as_json()["summary"]
    assert fixture.notified == 1
    # The page's own question finds the answer ready.
    answer = await asyncio.wait_for(fixture.worker.ask(KEY, lambda: pytest.fail("asked again")), 1)
    assert codec.decode_tree(answer.body)["summary"] == fixture.findings.counts


async def test_the_audit_runs_again_after_changes() -> None:
    fixture = FindingsFixture()
    fixture.findings.request(1)
    await fixture.done()
    first = fixture.findings.task
    fixture.findings.request(1)
    assert fixture.findings.task is first  # nothing has changed
    await fixture.worker.catch_up(lambda _: 2)
    fixture.findings.request(2)
    assert fixture.findings.task is first  # it rests
    fixture.now += REST_SECONDS
    assert fixture.findings.timer is not None  # it is done without another query
    fixture.findings.timer.cancel()
    fixture.findings.start_if_due()
    assert fixture.findings.task is not first
    await fixture.done()
    assert fixture.findings.audited == 2
    assert fixture.notified == 1  # the same numbers


async def test_the_audit_yields_to_queries(hold: tuple[threading.Event, threading.Event]) -> None:
    began, go_on = hold
    fixture = FindingsFixture()
    fixture.findings.request(1)
    assert await asyncio.to_thread(began.wait, 10)
    asked = asyncio.create_task(fixture.worker.ask("why", lambda: {"x": 1}))
    await asyncio.sleep(0)
    assert fixture.worker.has_other_queries(KEY)
    go_on.set()
    await asyncio.wait_for(asked, DEADLINE)
    await fixture.done()
    assert fixture.findings.counts is None
    assert not fixture.worker.has_other_queries(KEY)
    fixture.findings.start_if_due()
    await fixture.done()
    assert fixture.findings.counts is None  # not yet
    fixture.now += AGAIN_SECONDS
    fixture.findings.start_if_due()
    await fixture.done()
    assert fixture.findings.counts is not None


async def test_a_postponed_audit_finishes(hold: tuple[threading.Event, threading.Event]) -> None:
    began, go_on = hold
    fixture = FindingsFixture()
    for turn in range(TRIES):
        assert fixture.findings.counts is None
        began.clear()
        go_on.clear()
        fixture.findings.request(1)
        assert await asyncio.to_thread(began.wait, 10), turn
        asked = asyncio.create_task(fixture.worker.ask(None, dict))
        await asyncio.sleep(0)
        go_on.set()
        await asked
        await fixture.done()
        fixture.now = fixture.findings.due
    assert fixture.findings.counts is not None


async def test_an_audit_query_does_not_interrupt_the_audit() -> None:
    worker = QueryWorker(small())
    both = await asyncio.gather(*(worker.ask(KEY, lambda: run_audit(worker, yields=True)) for _ in "ab"))
    assert both[0] is both[1]


def test_gaps_are_reported_once_and_unserved_kinds_are_no_gaps() -> None:
    gaps = [
        Gap("devicetaintrules", "not served by this cluster", served=False),
        Gap("resourceslices", "GET /apis/...: 403 Forbidden", brief="forbidden for this user"),
        Gap("resourceclaims", "GET /apis/...: 403 Forbidden", brief="forbidden for this user"),
    ]
    cluster_state = ClusterState(ClusterObjects(small().objects, gaps))

    async def scenario(visitor: DashboardClient) -> None:
        found = await visitor.get("/api/overview")
        assert found["gaps"] == ["resourceslices, resourceclaims: forbidden for this user"]

    visit(cluster_state, scenario)
