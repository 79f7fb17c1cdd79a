"""CPU driver, agent (with its runtime) and server killed at any time, under load.

A CPU is never in containers of two claims; once everything has settled, only a claim's containers run on its
CPUs; at the end nothing is held.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client
from tests.chaos.cpu_faults import FaultInjector
from tests.chaos.cpu_load import DriverCluster, PodLoad, running_cluster, until_none
from tests.chaos.cpuset_watcher import ObservedContainer, find_wrongs
from tests.smoke.up_process import cannot_pin

#: One of each sort, for tests that have little time.
SHORT = ("driver", "driver twice", "agent", "server", "driver and agent", "damaged record", "lost CDI files")


#: With real processes: those that move them, as the others differ only in files.
REAL = ("driver twice", "agent", "driver and agent")


async def play(
    cluster: DriverCluster,
    *,
    rounds: int,
    seed: int,
    settle_every: int,
    acts: Sequence[str] = (),
    strict: bool = False,
) -> None:
    dice = Random(seed)
    async with Client.connect(cluster.server.config()) as client:
        load = PodLoad(client, dice, len(cluster.every) - (2 if len(cluster.every) > 4 else 1), strict=strict)
        faults = FaultInjector(cluster, load, dice, acts)
        await load.furnish()
        await load.add("plain")
        neighbour = next(iter(load.alive))

        async def settled() -> list[str]:
            held, problems = await load.look()
            return problems or await asyncio.to_thread(cluster.problems, held)

        await until_none(settled)
        published = await load.published_cpus()
        for number in range(1, rounds + 1):
            await faults.round(keep=neighbour)
            if number % settle_every == 0 or number == rounds:
                await until_none(settled)
                assert not cluster.watch.wrongs, list(cluster.watch.wrongs)
        assert load.claims_made > rounds // 2
        for name in [each for each in load.alive if each != neighbour]:
            await load.remove(name)
        await until_none(settled)
        assert not cluster.recorded()
        assert not cluster.files()
        (left,) = cluster.watch.look()
        assert left.cpus == cluster.every

        async def withheld() -> list[str]:
            current = await load.published_cpus()
            return [] if current == published else [f"{current} CPUs are published, {published} before"]

        await until_none(withheld)
        await load.remove(neighbour)

        async def gone() -> list[str]:
            problems = [*map(str, cluster.watch.look()), *cluster.cgroups_left()]
            return problems + os.listdir(cluster.node_root / "pods") + (await load.look())[1]

        await until_none(gone)
        print(  # noqa: T201
            f"\nseed {seed}: {load.made} pods, {load.claims_made} claims, {faults.summary()}, "
            f"{cluster.watch.looks} looks, longest shared on claimed CPUs {cluster.watch.longest_crowd:.2f} s"
        )
    assert not cluster.watch.error
    assert not cluster.watch.wrongs, list(cluster.watch.wrongs)
    assert cluster.watch.looks > rounds
    assert not cluster.tracebacks()


def test_the_watcher_detects_violations() -> None:
    def box(pid: int, cpus: str, **assigned: str) -> ObservedContainer:
        claims = tuple((uid, CpuSet.parse(each)) for uid, each in assigned.items())
        return ObservedContainer("pod", "main", pid, 0, claims, CpuSet.parse(cpus))

    fine = [box(1, "0-1", a="0-1"), box(2, "0-1", a="0-1"), box(3, "2", b="2"), box(4, "3-7"), box(5, "0-7")]
    assert find_wrongs(fine) == []
    stray, rival = box(6, "3-4", c="3"), box(7, "1,6", d="1,6")
    assert find_wrongs([*fine, stray]) == [(stray,)]
    assert find_wrongs([*fine, rival]) == [(fine[0], rival), (fine[1], rival)]


def test_a_few_kills_while_claims_change(root: Path, tmp_path: Path) -> None:
    with running_cluster(root, tmp_path, real=False) as cluster:
        asyncio.run(play(cluster, rounds=7, seed=1, settle_every=7, acts=SHORT))


@pytest.mark.skipif(bool(cannot_pin()), reason=cannot_pin() or "-")
def test_a_few_kills_and_processes_stay_on_their_cpus(root: Path, tmp_path: Path) -> None:
    with running_cluster(root, tmp_path, real=True) as cluster:
        asyncio.run(play(cluster, rounds=3, seed=2, settle_every=3, acts=REAL))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_many_kills_while_claims_change(root: Path, tmp_path: Path, seed: int) -> None:
    with running_cluster(root, tmp_path, real=False) as cluster:
        asyncio.run(play(cluster, rounds=80, seed=seed, settle_every=16))


@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_pin()), reason=cannot_pin() or "-")
@pytest.mark.parametrize("seed", [21, 22])
def test_many_kills_and_processes_stay_on_their_cpus(root: Path, tmp_path: Path, seed: int) -> None:
    with running_cluster(root, tmp_path, real=True) as cluster:
        asyncio.run(play(cluster, rounds=50, seed=seed, settle_every=10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [31, 32])
def test_no_container_is_on_claimed_cpus_while_only_drivers_die(
    root: Path, tmp_path: Path, seed: int
) -> None:
    """Containers cannot start without the driver, so shared containers leave before a claim's own start."""
    with running_cluster(root, tmp_path, real=False) as cluster:
        acts = ("driver", "driver", "driver twice")
        asyncio.run(play(cluster, rounds=30, seed=seed, settle_every=10, acts=acts, strict=True))
        assert cluster.watch.longest_crowd < 2.0, "as long as the driver waits for the runtime, at most"
