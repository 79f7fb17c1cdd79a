"""kill -9 of the CPU driver, the agent that is its runtime, and the server, at any moment, while pods flow.

At no moment is a CPU in containers of two claims; whenever all have settled, nobody else is on CPUs of a
claim; and at the end nothing is held, and everybody has everything back.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client
from tests.chaos.cpu_load import Crowd, Stage, staged, until_none
from tests.chaos.cpu_sights import Box, find_wrongs
from tests.chaos.cpu_torment import Torment
from tests.smoke.test_up import cannot_pin


@pytest.fixture
def root() -> Iterator[Path]:
    """Sockets need short paths."""
    folder = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


#: One of each sort, for tests that have little time.
SHORT = ("driver", "driver twice", "agent", "server", "driver and agent", "damaged record", "lost CDI files")


async def play(
    stage: Stage,
    *,
    rounds: int,
    seed: int,
    settle_every: int,
    acts: Sequence[str] = (),
    strict: bool = False,
) -> None:
    dice = Random(seed)
    async with Client.connect(stage.server.config()) as client:
        crowd = Crowd(client, dice, len(stage.every) - (2 if len(stage.every) > 4 else 1), strict=strict)
        torment = Torment(stage, crowd, dice, acts)
        await crowd.furnish()
        published = await crowd.slices()
        await crowd.add("plain")
        neighbour = next(iter(crowd.alive))

        async def settled() -> list[str]:
            held, problems = await crowd.look()
            return problems or await asyncio.to_thread(stage.problems, held)

        await until_none(settled)
        for number in range(1, rounds + 1):
            await torment.round(keep=neighbour)
            if number % settle_every == 0 or number == rounds:
                await until_none(settled)
                assert not stage.watch.wrongs, list(stage.watch.wrongs)
        assert crowd.claims_made > rounds // 2
        for name in [each for each in crowd.alive if each != neighbour]:
            await crowd.remove(name)
        await until_none(settled)
        assert not stage.recorded()
        assert not stage.files()
        (left,) = stage.watch.look()
        assert left.cpus == stage.every
        assert await crowd.slices() == published
        await crowd.remove(neighbour)

        async def gone() -> list[str]:
            problems = [*map(str, stage.watch.look()), *stage.cgroups_left()]
            return problems + os.listdir(stage.node_root / "pods") + (await crowd.look())[1]

        await until_none(gone)
        print(  # noqa: T201
            f"\nseed {seed}: {crowd.made} pods, {crowd.claims_made} claims, {torment.told()}, "
            f"{stage.watch.looks} looks, longest shared on claimed CPUs {stage.watch.longest_crowd:.2f} s"
        )
    assert not stage.watch.error
    assert not stage.watch.wrongs, list(stage.watch.wrongs)
    assert stage.watch.looks > rounds
    assert not stage.tracebacks()


def test_what_must_not_be_is_seen() -> None:
    """Who looks for wrongs finds them."""

    def box(pid: int, cpus: str, **told: str) -> Box:
        claims = tuple((uid, CpuSet.parse(each)) for uid, each in told.items())
        return Box("pod", "main", pid, 0, claims, CpuSet.parse(cpus))

    fine = [box(1, "0-1", a="0-1"), box(2, "0-1", a="0-1"), box(3, "2", b="2"), box(4, "3-7"), box(5, "0-7")]
    assert find_wrongs(fine) == []
    stray, rival = box(6, "3-4", c="3"), box(7, "1,6", d="1,6")
    assert find_wrongs([*fine, stray]) == [(stray,)]
    assert find_wrongs([*fine, rival]) == [(fine[0], rival), (fine[1], rival)]


def test_a_few_kills_while_claims_change(root: Path, tmp_path: Path) -> None:
    with staged(root, tmp_path, real=False) as stage:
        asyncio.run(play(stage, rounds=7, seed=1, settle_every=7, acts=SHORT))


@pytest.mark.skipif(bool(cannot_pin()), reason=cannot_pin() or "-")
def test_a_few_kills_and_processes_stay_on_their_cpus(root: Path, tmp_path: Path) -> None:
    with staged(root, tmp_path, real=True) as stage:
        asyncio.run(play(stage, rounds=7, seed=2, settle_every=7, acts=SHORT))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_many_kills_while_claims_change(root: Path, tmp_path: Path, seed: int) -> None:
    with staged(root, tmp_path, real=False) as stage:
        asyncio.run(play(stage, rounds=80, seed=seed, settle_every=16))


@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_pin()), reason=cannot_pin() or "-")
@pytest.mark.parametrize("seed", [21, 22])
def test_many_kills_and_processes_stay_on_their_cpus(root: Path, tmp_path: Path, seed: int) -> None:
    with staged(root, tmp_path, real=True) as stage:
        asyncio.run(play(stage, rounds=50, seed=seed, settle_every=10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [31, 32])
def test_no_container_is_on_claimed_cpus_while_only_drivers_die(
    root: Path, tmp_path: Path, seed: int
) -> None:
    """Where nobody may start without the driver, shared containers leave before a claim's own start."""
    with staged(root, tmp_path, real=False) as stage:
        acts = ("driver", "driver", "driver twice")
        asyncio.run(play(stage, rounds=30, seed=seed, settle_every=10, acts=acts, strict=True))
        assert stage.watch.longest_crowd < 2.0, "as long as the driver waits for the runtime, at most"
