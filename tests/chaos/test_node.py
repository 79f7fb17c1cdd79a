"""Node agent killed at any time: processes keep running, nothing is started or prepared twice or leaks."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.cgroups.ownership import owner_of
from plimsoll.up.local_cluster import LocalCluster
from tests.chaos.node_load import Load, NodeAgent, calls_for, prepared_on_record, runs
from tests.node_peers import DriverProcess, make_stubs
from tests.waiting import wait_until


def play(root: Path, tmp_path: Path, *, pods: int, kills: int, seed: int) -> None:
    dice = Random(seed)
    marks = tmp_path / "marks"
    marks.mkdir()
    with LocalCluster() as cluster:
        stubs = make_stubs(tmp_path / "stubs")
        driver = DriverProcess(root, stubs, tmp_path, f"--cdi={root / 'cdi'}")
        agent = NodeAgent(cluster.kubeconfig, root, tmp_path / "agent.log")
        load = Load(cluster, driver, marks, dice)
        try:
            driver.start()
            agent.start()
            for round in range(kills):
                for _ in range(pods // kills):
                    load.add()
                    if dice.random() < 0.2:
                        load.remove()
                time.sleep(dice.random() * 1.5)
                agent.end(signal.SIGKILL)
                if round % 3 == 0:
                    load.remove()  # unobserved
                agent.launch()
                if dice.random() < 0.5:
                    agent.await_ready()
            agent.await_ready()
            while len(load.alive) < pods * 3 // 4:
                load.add()
            load.await_settled()
            check_running(load, root)

            before = {name: load.starts(name) for name in load.alive}
            asked = Counter(calls_for(driver, "prepare"))
            agent.end(signal.SIGKILL)
            agent.start()
            load.await_settled()
            assert {name: load.starts(name) for name in load.alive} == before
            assert Counter(calls_for(driver, "prepare")) == asked  # what is on record is not prepared again
            # Only what was under way at a kill may be asked for again.
            assert all(count <= 1 + kills for count in asked.values())
            assert sum(asked.values()) - len(asked) <= kills * 4

            load.remove_all()
            check_gone(load, root)
        finally:
            agent.end(signal.SIGTERM)
            driver.stop()
            load.kill_all()
            open_cgroups(f"plimsoll-{root.name}-x", owner=owner_of("chaotic", root)).tear_down()


def check_running(load: Load, root: Path) -> None:
    """Check that every pod runs in the process it was started with, and that claims are those of the pods."""
    for name in load.alive:
        starts = wait_until(lambda name=name: load.starts(name))  # type: ignore[misc]  # once its command runs
        assert len(starts) == 1, f"{name} was started {len(starts)} times"
        assert runs(starts[0]), f"{name} does not run"
    wanted = {uid for uid in load.alive.values() if uid is not None}
    wait_until(lambda: prepared_on_record(root) == wanted, context=lambda: prepared_on_record(root) ^ wanted)
    for name in load.gone:
        for pid in load.starts(name):
            wait_until(lambda pid=pid: not runs(pid), context=lambda name=name: f"{name} still runs")  # type: ignore[misc]


def check_gone(load: Load, root: Path) -> None:
    """Check that nothing is left of deleted pods."""
    wait_until(lambda: load.statuses() == {}, context=load.statuses)
    for name in load.gone:
        for pid in load.starts(name):
            wait_until(lambda pid=pid: not runs(pid), context=lambda name=name: f"{name} still runs")  # type: ignore[misc]
    wait_until(lambda: not prepared_on_record(root), context=lambda: prepared_on_record(root))
    wait_until(lambda: not os.listdir(root / "pods"), context=lambda: os.listdir(root / "pods"))
    assert [path.name for path in (root / "cdi").iterdir()] == []
    wait_until(
        lambda: not open_cgroups(f"plimsoll-{root.name}-x", owner=owner_of("chaotic", root)).pods(),
        context="cgroups of pods",
    )
    quarantine = root / "quarantine"
    assert not quarantine.exists() or not os.listdir(quarantine)


def test_a_few_kills(root: Path, tmp_path: Path) -> None:
    play(root, tmp_path, pods=6, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hundred_pods_and_many_kills(root: Path, tmp_path: Path, seed: int) -> None:
    play(root, tmp_path, pods=100, kills=20, seed=seed)
