"""Usage of a node and its pods, measured on real processes and on fake files."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.stats.provider import StatsProvider
from plimsoll.node.stats.usage import measure_machine, measure_processes


@pytest.fixture
def spinning() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class OnePod:
    """Node with one pod of these containers."""

    def __init__(self, *states: ContainerInfo) -> None:
        self.states = states

    def pods(self) -> Sequence[Pod]:
        return (Pod(metadata=ObjectMeta(name="p", namespace="d", uid="u")),)

    def containers_of(self, uid: str) -> Sequence[ContainerInfo]:
        return self.states


def state(name: str, pid: int, phase: ContainerPhase = ContainerPhase.RUNNING) -> ContainerInfo:
    return ContainerInfo(id=name, pod="u", name=name, attempt=0, phase=phase, pid=pid, started_at=time.time())


async def test_a_container_that_computes_is_seen(spinning: subprocess.Popen[bytes]) -> None:
    pods = OnePod(state("spin", spinning.pid), state("gone", 0, ContainerPhase.EXITED))
    provider = StatsProvider("n", pods, open_cgroups("plimsoll", want="plan"), first_window=0.3)
    summary = await provider.summary()
    assert summary["node"]["nodeName"] == "n"
    assert summary["node"]["cpu"]["usageNanoCores"] > 0
    assert summary["node"]["memory"]["workingSetBytes"] > 0
    (pod,) = summary["pods"]
    assert pod["podRef"] == {"name": "p", "namespace": "d", "uid": "u"}
    (spin,) = pod["containers"]
    assert spin["name"] == "spin"
    assert spin["cpu"]["usageNanoCores"] > 0
    assert spin["memory"]["workingSetBytes"] > 0
    assert pod["process_stats"]["process_count"] == 1
    text = await provider.resource_metrics()
    labels = 'container="spin",namespace="d",pod="p"'
    assert f"container_cpu_usage_seconds_total{{{labels}}}" in text
    assert f"container_memory_working_set_bytes{{{labels}}}" in text
    assert "node_cpu_usage_seconds_total " in text
    assert "resource_scrape_error 0.0" in text


async def test_rates_are_averages_and_a_young_container_counts_from_its_start(tmp_path: Path) -> None:
    times = iter([100.0, 104.0, 200.0, 200.5])
    provider = StatsProvider(
        "n", OnePod(), open_cgroups("plimsoll", want="plan"), clock=lambda: next(times), first_window=0.0
    )
    first = await provider.summary()
    assert first["node"]["cpu"]["time"] == "1970-01-01T00:01:44Z"
    second = await provider.summary()  # samples of the first are too old: two new ones
    assert second["node"]["cpu"]["time"] == "1970-01-01T00:03:20Z"
    with pytest.raises(StopIteration):
        next(times)


def test_the_machine_and_processes_are_read_from_proc(tmp_path: Path) -> None:
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text("cpu  10 1 5 1000 50 2 1 3 0 0\nbtime 1700000000\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\n")
    found = measure_machine(tmp_path)
    assert (found.cpu, found.memory, found.capacity) == (22 * tick, 500 << 10, 1000 << 10)
    assert found.booted_at == 1700000000
    (tmp_path / "7").mkdir()
    fields = ["S", *["0"] * 10, "3", "4", "5", "6", *["0"] * 6, "9", "0"]
    (tmp_path / "7" / "stat").write_text(f"7 (a ) b) {' '.join(fields)}\n")
    used = measure_processes([7, 8], tmp_path)
    assert (used.cpu, used.pids) == (18 * tick, 1)
    assert used.memory == 9 * os.sysconf("SC_PAGE_SIZE")
