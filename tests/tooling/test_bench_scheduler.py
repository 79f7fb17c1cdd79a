"""Scheduler benchmarks run with tiny sizes; their speed is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.scheduler import memory, path, pure
from bench.scheduler.command import main
from bench.scheduler.workloads import SCENARIOS, Workload

from tests.sizes import part_of


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scheduling_cycle(scenario: str) -> None:
    """In every scenario pods are scheduled until the cluster is full, and the ledgers agree."""
    bench = pure.SchedulerBench(Workload(scenario, 3, 4))
    bench.fill(50)
    timing = bench.run(100, unschedulable=10 if scenario == "unschedulable" else 0)
    assert timing.pods == 6  # the other half of twelve
    bench.check()


@pytest.mark.slow
def test_path() -> None:
    lines: list[str] = []
    path.report(["node-allocatable"], [2], ["churn"], 10, 6, lines.append)
    assert any("pods/s" in line for line in lines)
    assert any("writes alone" in line for line in lines)


def test_memory() -> None:
    lines: list[str] = []
    memory.report(4, 2, 10, 5, lines.append)
    assert any("MiB" in line for line in lines)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pure", "--nodes", "2", "--scenario", "plain", "--fill", "half", "--pods", "4"])
    assert "plain" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["pure", "--scenario", "nothing"])


@pytest.mark.sized
@pytest.mark.parametrize(("number", "fill"), list(enumerate(pure.FILLS)))
def test_a_tiny_cluster_leaves_pods_to_time(number: int, fill: str) -> None:
    for nodes, devices in part_of([(1, 1), (1, 8), (4, 8)], number, 3):
        assert pure.measure(Workload("plain", nodes, devices), 10, fill).pods > 0


def test_a_real_server_needs_its_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    for options in (["--server", "real"], ["--compare"]):
        with pytest.raises(SystemExit):
            main(["path", *options])
        assert "KUBEBUILDER_ASSETS" in capsys.readouterr().err


def test_churn_is_measured_over_http_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pure", "--fill", "churn"])
    assert "only for path" in capsys.readouterr().err
