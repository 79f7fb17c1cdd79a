"""Calls to drivers interrupted at every step and resumed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.layout import Layout
from tests.sizes import FULL
from tests.unit.node.claims.crashes import Crash, Disk, Steps, at_once
from tests.unit.node.claims.fake_drivers import GPU, NIC, FakeDrivers, make_claim, make_pod, on_disk


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.to_thread", at_once)


#: Claims of pods; a is shared, and served by two drivers.
PODS = {"p": ("a", "b"), "q": ("a",), "r": ("c",)}


def new_world() -> FakeDrivers:
    fake_drivers = FakeDrivers()
    fake_drivers.add(
        make_claim("a", GPU, NIC, users=list(PODS)),
        make_claim("b", NIC, users=list(PODS)),
        make_claim("c", GPU, users=list(PODS)),
    )
    return fake_drivers


async def do(cache: ClaimInfoCache, fake_drivers: FakeDrivers, line: str) -> Collection[object]:
    """One line of a play: `+p q` prepare at the same time, `-p` unprepare, `=p` reconcile with these left,
    `!gpu` a driver goes, `?gpu` it comes back."""
    verb, names = line[0], line[1:].split()
    if verb == "+":
        calls = [
            cache.prepare(make_pod(name, *PODS[name]), fake_drivers.named(*PODS[name])) for name in names
        ]
    elif verb == "-":
        calls = [cache.unprepare(name) for name in names]
    elif verb == "=":
        calls = [cache.reconcile(names)]
    else:
        drivers = {f"{name}.example.com" for name in names}
        fake_drivers.absent = fake_drivers.absent | drivers if verb == "!" else fake_drivers.absent - drivers
        return ()
    answers = await asyncio.gather(*calls)
    return [fault for answer in answers for fault in answer]


def verify(cache: ClaimInfoCache, fake_drivers: FakeDrivers, layout: Layout) -> None:
    """Check that no claim is forgotten, and that no claim is ready that may not be prepared."""
    recorded = on_disk(layout)
    assert recorded == {claim.ref.uid: claim for claim in cache.claims()}
    for driver, held in fake_drivers.held.items():
        for uid in held:
            assert driver in {*recorded[uid].drivers, *recorded[uid].pending}, (
                "a driver holds an unknown claim"
            )
    for uid, claim in recorded.items():
        if claim.ready:
            assert set(claim.drivers) == {driver for driver, held in fake_drivers.held.items() if uid in held}


PLAYS = [
    ["+p", "-p"],
    ["+p", "+q", "-p", "-q"],
    ["+p q", "-p q"],
    ["+p q r", "=q", "="],
    ["+q", "+p", "-q", "+q", "=p", "-p"],
    ["!nic", "+p", "?nic", "+p", "-p"],
    ["+p", "!nic", "-p", "+q", "?nic", "-p", "+q", "-q"],
    ["!gpu nic", "+p q", "-p", "?gpu nic", "+q", "-q", "="],
    ["+r", "+p", "!gpu", "-r p", "?gpu", "="],
]


@pytest.mark.sized
@pytest.mark.parametrize("play", PLAYS, ids=" ".join)
def test_an_agent_may_crash_at_any_step(
    directory: Path, monkeypatch: pytest.MonkeyPatch, play: list[str]
) -> None:
    async def perform(last: int, layout: Layout) -> bool:
        """Play, crash at a step, start again where it was; whether there was a crash."""
        fake_drivers, steps = new_world(), Steps(last)
        cache, crashed = ClaimInfoCache.open(layout, fake_drivers), False
        fake_drivers.hook = steps.step
        monkeypatch.setattr("plimsoll.common.atomic_file.os", Disk(steps))
        for line in play:
            try:
                faults = await do(cache, fake_drivers, line)
            except Crash:
                crashed = True
                await asyncio.sleep(0.0)
                fake_drivers.busy.clear()  # calls end with those who made them
                cache = ClaimInfoCache.open(layout, fake_drivers)
                verify(cache, fake_drivers, layout)
                ready = {claim.ref.uid for claim in cache.claims() if claim.ready}
                before = len(fake_drivers.calls)
                faults = await do(cache, fake_drivers, line)
                if line[0] == "+":
                    again = {uid for call in fake_drivers.calls[before:] for uid in call[2]}
                    assert not ready & again, "prepared again without need"
            assert bool(faults) <= bool(fake_drivers.absent)
            verify(cache, fake_drivers, layout)
        assert cache.claims() == ()
        assert not any(fake_drivers.held.values())
        return crashed

    async def scenario() -> None:
        # The short form tries every third step, and other ones of the next play.
        pace = 1 if FULL else 3
        last = 1 + PLAYS.index(play) % pace
        while await perform(last, Layout(directory / str(last))):
            shutil.rmtree(directory / str(last), ignore_errors=True)
            last += pace
        assert last > 10

    asyncio.run(scenario())


@pytest.mark.sized
@pytest.mark.parametrize("play", PLAYS, ids=" ".join)
def test_calls_may_be_cancelled_at_any_step(
    directory: Path, monkeypatch: pytest.MonkeyPatch, play: list[str]
) -> None:
    monkeypatch.setattr("plimsoll.common.atomic_file.os", Disk(Steps(0)))

    async def perform(after: int, layout: Layout) -> bool:
        """Play, cancel each call after so many turns of the loop and repeat it; whether one was cut."""
        fake_drivers, cut = new_world(), False
        cache = ClaimInfoCache.open(layout, fake_drivers)
        for line in play:
            task = asyncio.create_task(do(cache, fake_drivers, line))
            for _ in range(after):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cut = True
                fake_drivers.busy.clear()
                while len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0)
            verify(cache, fake_drivers, layout)
            faults = await do(cache, fake_drivers, line)
            assert bool(faults) <= bool(fake_drivers.absent)
            verify(cache, fake_drivers, layout)
        assert cache.claims() == ()
        assert not any(fake_drivers.held.values())
        assert not len(cache.locks)
        return cut

    async def scenario() -> None:
        pace = 1 if FULL else 3
        after = PLAYS.index(play) % pace
        while await perform(after, Layout(directory / str(after))):
            after += pace
        assert after > 5

    asyncio.run(scenario())


async def test_concurrent_changes_share_a_checkpoint_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_drivers, steps = FakeDrivers(), Steps(0)
    pods = [f"p{number}" for number in range(50)]
    fake_drivers.add(*(make_claim(f"c{pod}", users=[pod]) for pod in pods))
    saves = 0

    def save(*_: Any) -> None:
        nonlocal saves
        saves += 1

    monkeypatch.setattr("plimsoll.common.checkpoint.replace_file", save)
    monkeypatch.setattr("plimsoll.common.atomic_file.os", Disk(steps))
    cache = ClaimInfoCache.open(Layout(directory), fake_drivers)
    await asyncio.gather(*(cache.prepare(make_pod(p, f"c{p}"), fake_drivers.named(f"c{p}")) for p in pods))
    assert len(cache.claims()) == 50
    assert all(claim.ready for claim in cache.claims())
    assert saves < 10


async def test_a_cancelled_call_returns_after_its_change_is_saved(directory: Path) -> None:
    fake_drivers = new_world()
    cache = ClaimInfoCache.open(Layout(directory), fake_drivers)
    first = asyncio.create_task(do(cache, fake_drivers, "+p"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(do(cache, fake_drivers, "+q"))
    first.cancel()
    assert await second == []
    with pytest.raises(asyncio.CancelledError):
        await first
    assert {claim.ref.name: set(claim.pods) for claim in cache.claims()} == {"a": {"p", "q"}, "b": {"p"}}
    verify(cache, fake_drivers, Layout(directory))
