"""Nothing is allocated twice under random faults, checked by the API objects only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.scheduler_faults.chaos import EVENTS, FEW_EVENTS, run_chaos
from tests.chaos.scheduler_faults.faults import FaultKind
from tests.chaos.scheduler_faults.servers import Server, run_embedded_server


def check(server: Server, directory: Path, *, seed: int, faults: int, events: Sequence[str] = EVENTS) -> None:
    running = run_chaos(server, directory, seed=seed, faults=faults, events=events, patience=180)
    report = asyncio.run(running)
    summary = "\n".join(report.lines())
    assert not report.violations, summary
    # The run was worth something: faults of processes and of requests, and pods that found a place.
    assert report.counter.total >= faults, summary
    assert report.counter.counts[FaultKind.SCHEDULER_KILLED] > 0, summary
    assert report.counter.counts[FaultKind.DELAY_REQUEST] > 0, summary
    assert report.bound > 20, summary


def test_nothing_is_allocated_twice_under_faults(tmp_path: Path) -> None:
    with run_embedded_server(tmp_path) as server:
        check(server, tmp_path, seed=2, faults=24, events=FEW_EVENTS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_nothing_is_allocated_twice_under_a_thousand_faults(
    chaos_server: Server, tmp_path: Path, seed: int
) -> None:
    check(chaos_server, tmp_path, seed=seed, faults=250)
