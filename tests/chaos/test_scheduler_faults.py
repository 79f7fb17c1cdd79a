"""The simulator is not dreaming: real processes that go through the history of a case end in its states."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.scheduler_faults.end_state import find_differences
from tests.chaos.scheduler_faults.player import play, record_script
from tests.chaos.scheduler_faults.servers import Server, run_embedded_server
from tests.simulation.script import Step


def compare(server: Server, directory: Path, script: list[Step]) -> None:
    """Play a case, with its load, faults and final states; its invariants hold all the time."""
    report = asyncio.run(play(server, directory, script))
    summary = "\n".join(report.lines())
    assert not report.violations, summary
    # The run was worth something: many of the requests that were hit by a fault were hit again.
    assert report.hit > 0.25 * report.scripted, summary
    assert report.placed > 20, summary


def test_real_processes_end_as_the_simulated_ones(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        recording = threads.submit(record_script, 6, 3)
        with run_embedded_server(tmp_path) as server:
            compare(server, tmp_path, recording.result())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 18))
def test_real_processes_end_as_the_simulated_ones_under_many_faults(
    chaos_server: Server, tmp_path: Path, seed: int
) -> None:
    compare(chaos_server, tmp_path, record_script(seed, 25))


def test_differences_are_readable() -> None:
    simulated = {"pods": {"p": {"placed": True, "devices": {"gpu": 1}}, "q": {"placed": False}}}
    real = {"pods": {"p": {"placed": True, "devices": {"gpu": 2}}}}
    assert list(find_differences(simulated, real)) == [
        "pods: p: devices: gpu: 1 in the simulator, 2 in real processes",
        "pods: q: {'placed': False} in the simulator, None in real processes",
    ]
    assert not list(find_differences(simulated, simulated))
