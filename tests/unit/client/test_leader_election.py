"""Leader election of several candidates in virtual time: slow and lost calls, lost responses, pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.client import Client
from plimsoll.client.leader_election import Election, LeaseTiming
from plimsoll.errors import ApiError, ConfigError, LeaseLostError, UnreachableError
from tests import virtual_time
from tests.coroutines import run_by
from tests.sizes import examples
from tests.virtual_time import VirtualTimeLoop


class Leases(Client):
    """Server with one lease; the duration and failure of each call are random."""

    def __init__(self, dice: Random, *, trouble: float = 0.0, slowest: float = 0.0) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.dice = dice
        self.trouble = trouble
        self.slowest = slowest
        self.writes: list[tuple[float, str]] = []

    async def get(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        await self.transmit()
        if self.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        found = dict(self.lease)
        await self.transmit()
        return found

    async def create(self, endpoint: Any, tree: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        await self.transmit()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "there is one")
        return await self._store(tree)

    async def update(self, endpoint: Any, tree: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        await self.transmit()
        assert self.lease is not None
        if tree["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it was written in between")
        return await self._store(tree)

    async def _store(self, tree: Any) -> dict[str, Any]:
        self.version += 1
        self.lease = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(self.version)}}
        self.writes.append((asyncio.get_running_loop().time(), tree["spec"]["holderIdentity"]))
        stored = dict(self.lease)
        await self.transmit()
        return stored

    async def transmit(self) -> None:
        if self.slowest:
            await asyncio.sleep(self.dice.random() ** 4 * self.slowest)
        if self.dice.random() < self.trouble:
            raise UnreachableError("the line is bad", sent=True)


def wall() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=asyncio.get_running_loop().time())


def uptime() -> float:
    return asyncio.get_running_loop().time()


def candidate(leases: Leases, name: str, **options: Any) -> Election:
    return Election(leases, "ns", "work", name, wall=wall, uptime=uptime, rng=Random(name), **options)


async def supervise(leases: Leases, name: str, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a candidate, and a new one whenever the lease is lost."""
    while True:
        try:
            return await candidate(leases, name).run(lead)
        except LeaseLostError:
            continue


@given(
    st.integers(),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.sampled_from([0.0, 0.5, 8.0, 60.0]),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 60.0)), max_size=5),
)
@settings(max_examples=examples(60))
def test_there_are_never_two_leaders(
    seed: int, trouble: float, slowest: float, departures: list[tuple[str, float]]
) -> None:
    """Whatever the network does, the work never runs twice, and the lease names its holder."""

    async def scenario() -> None:
        dice = Random(seed)
        leases = Leases(dice, trouble=trouble, slowest=slowest)
        leading: list[str] = []

        def start(name: str) -> asyncio.Task[None]:
            async def lead() -> None:
                assert leading == [], f"{name} began while {leading} was at work"
                assert leases.lease is not None
                assert leases.lease["spec"]["holderIdentity"] == name
                leading.append(name)
                try:
                    while True:
                        await asyncio.sleep(0.5)
                        assert leading == [name]
                        assert leases.lease["spec"]["holderIdentity"] in (name, "")
                finally:
                    leading.remove(name)

            return asyncio.ensure_future(supervise(leases, name, lead))

        tasks = {name: start(name) for name in "abc"}
        for name, seconds in departures:
            await asyncio.sleep(seconds)
            await end(tasks[name])
            tasks[name] = start(name)
        leases.trouble = leases.slowest = 0.0
        await asyncio.sleep(100.0)
        assert len(leading) == 1
        for task in tasks.values():
            await end(task)
        assert leases.lease is not None
        assert leases.lease["spec"]["holderIdentity"] == ""

    virtual_time.run(scenario())


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@run_by(virtual_time.run_scenario)
async def test_the_fields_of_a_lease() -> None:
    leases = Leases(Random(1))
    first, second = candidate(leases, "first"), candidate(leases, "second")
    assert await first.attempt()
    assert leases.lease is not None
    assert leases.lease["spec"] == {
        "holderIdentity": "first",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:16:40.000000Z",
        "renewTime": "2026-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    }
    assert not await second.attempt()
    assert second.holder == "first"
    await asyncio.sleep(10)
    assert await first.attempt()
    assert leases.lease["spec"]["acquireTime"] == "2026-01-01T00:16:40.000000Z"
    assert leases.lease["spec"]["renewTime"] == "2026-01-01T00:16:50.000000Z"
    await asyncio.sleep(14)
    assert not await second.attempt()  # seen for the first time just now: it counts from here
    await asyncio.sleep(14)
    assert not await second.attempt()
    await asyncio.sleep(1)
    assert await second.attempt()
    assert leases.lease["spec"]["leaseTransitions"] == 1
    assert leases.lease["spec"]["acquireTime"] == "2026-01-01T00:17:19.000000Z"
    assert not await first.attempt()
    assert not first.leading


@run_by(virtual_time.run_scenario)
async def test_a_released_lease_can_be_acquired_at_once() -> None:
    leases = Leases(Random(1))
    first, second = candidate(leases, "first"), candidate(leases, "second")
    assert await first.attempt()
    await first.release_lease()
    assert leases.lease is not None
    spec = leases.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert await second.attempt()
    await first.release_lease()
    assert leases.lease["spec"]["holderIdentity"] == "second"


@run_by(virtual_time.run_scenario)
async def test_unknown_lease_fields_are_kept() -> None:
    leases = Leases(Random(1))
    leases.lease = {
        "metadata": {"name": "work", "resourceVersion": "0", "labels": {"a": "b"}},
        "spec": {"preferredHolder": "x"},
    }
    assert await candidate(leases, "first").attempt()
    assert leases.lease["metadata"]["labels"] == {"a": "b"}
    assert leases.lease["spec"]["preferredHolder"] == "x"


@pytest.mark.parametrize("spec", [None, [], {"leaseDurationSeconds": "x", "holderIdentity": 3}])
@run_by(virtual_time.run_scenario)
async def test_an_invalid_lease_is_acquired(*, spec: Any) -> None:
    leases = Leases(Random(1))
    leases.lease = {"metadata": {"name": "work", "resourceVersion": "0"}, "spec": spec}
    election = candidate(leases, "first")
    assert await election.attempt()
    assert election.leading


@run_by(virtual_time.run_scenario)
async def test_finished_work_releases_the_lease() -> None:
    leases = Leases(Random(1))

    async def lead() -> None:
        await asyncio.sleep(30)

    await candidate(leases, "first").run(lead)
    assert [name for _, name in leases.writes][-1] == ""
    assert len(leases.writes) > 10

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await candidate(leases, "first").run(fail)
    assert [name for _, name in leases.writes][-1] == ""

    await candidate(leases, "keeper", release=False).run(lead)
    assert [name for _, name in leases.writes][-1] == "keeper"


class SlowLeases(Leases):
    """Server whose requests and responses take a tenth of a second each."""

    async def transmit(self) -> None:
        await asyncio.sleep(0.1)


@given(st.floats(0.0, 3.0))
@example(2.12)  # the first renewal is stored and its response on its way
def test_the_lease_is_released_whenever_the_work_ends(seconds: float) -> None:
    async def scenario() -> None:
        leases = SlowLeases(Random(1))
        await candidate(leases, "first").run(lambda: asyncio.sleep(seconds))
        assert [name for _, name in leases.writes][-1] == ""

    virtual_time.run(scenario())


@run_by(virtual_time.run_scenario)
async def test_work_stops_when_the_lease_cannot_be_renewed() -> None:
    """Without connection the work ends at the renew deadline, before the lease expires."""
    leases = Leases(Random(1))
    spans: list[tuple[float, float]] = []
    now = asyncio.get_running_loop().time

    async def lead() -> None:
        began = now()
        try:
            await asyncio.sleep(1000)
        finally:
            spans.append((began, now()))

    task = asyncio.ensure_future(supervise(leases, "first", lead))
    await asyncio.sleep(5)
    leases.trouble = 1.0
    renewed = leases.writes[-1][0]
    await asyncio.sleep(20)
    assert len(spans) == 1
    assert spans[0][1] - renewed == pytest.approx(10.0, abs=0.01)
    leases.trouble = 0.0
    await asyncio.sleep(20)
    await end(task)
    assert len(spans) == 2


@run_by(virtual_time.run_scenario)
async def test_lease_time_counts_from_the_request() -> None:
    """The lease is stored, but the response takes long, and then the connection is lost."""
    leases = Leases(Random(1))
    stopped: list[float] = []
    slow, limit = 8.0, 1

    async def lead() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.append(asyncio.get_running_loop().time())

    async def line() -> None:
        await asyncio.sleep(slow if leases.writes else 0.0)
        if len(leases.writes) > limit:
            raise UnreachableError("dead", sent=True)

    leases.transmit = line  # type: ignore[method-assign]
    task = asyncio.ensure_future(supervise(leases, "first", lead))
    await asyncio.sleep(14)
    assert stopped
    assert stopped[0] - leases.writes[0][0] <= 10.0
    await end(task)

    leases.writes.clear()
    leases.lease, slow, limit = None, 0.0, 2
    stopped.clear()
    task = asyncio.ensure_future(supervise(leases, "second", lead))
    await asyncio.sleep(1)
    slow = 3.5  # the first renewal is asked for at 2 s, stored at 5.5 s and answered at 9 s
    await asyncio.sleep(25)
    assert len(leases.writes) >= 2
    assert stopped
    assert stopped[0] - leases.writes[1][0] <= 10.0
    await end(task)


@run_by(virtual_time.run_scenario)
async def test_work_stops_when_another_leader_is_observed() -> None:
    leases = Leases(Random(1))
    stopped = asyncio.Event()

    async def lead() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.set()

    task = asyncio.ensure_future(candidate(leases, "first").run(lead))
    await asyncio.sleep(5)
    assert leases.lease is not None
    usurped = {**leases.lease["spec"], "holderIdentity": "usurper"}
    await leases.update(None, {**leases.lease, "spec": usurped})
    await asyncio.sleep(2.5)
    assert stopped.is_set()
    with pytest.raises(LeaseLostError, match=r"ns/work was lost by first"):
        await task
    assert leases.lease["spec"]["holderIdentity"] == "usurper"


@run_by(virtual_time.run_scenario)
async def test_a_paused_process_loses_its_lease() -> None:
    """After SIGSTOP and SIGCONT a pending write notices the lost lease first."""
    leases = Leases(Random(1))
    election = candidate(leases, "first")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with pytest.raises(LeaseLostError):
        election.check()

    async def lead() -> None:
        await asyncio.sleep(1000)

    task = asyncio.ensure_future(election.run(lead))
    await asyncio.sleep(5)
    election.check()
    loop.now += 9
    with pytest.raises(LeaseLostError, match="not renewed in time"):
        election.check()
    assert not election.holds()
    with pytest.raises(LeaseLostError):
        await task
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "first", "nothing more was written"


@run_by(virtual_time.run_scenario)
async def test_a_suspended_machine_loses_its_lease() -> None:
    """The loop's clock stops while a machine is suspended; that of the lease does not."""
    leases = Leases(Random(1))
    suspended = 0.0
    loop = asyncio.get_running_loop()
    election = Election(leases, "ns", "work", "a", wall=wall, uptime=lambda: loop.time() + suspended)

    async def lead() -> None:
        await asyncio.sleep(1000)

    task = asyncio.ensure_future(election.run(lead))
    await asyncio.sleep(5)
    written = len(leases.writes)
    suspended = 3600.0
    with pytest.raises(LeaseLostError):
        await task
    assert len(leases.writes) == written


@run_by(virtual_time.run_scenario)
async def test_a_lease_that_expired_during_its_renewal_is_lost() -> None:
    """Work whose writes were refused meanwhile has given up: a late answer does not make it lead again."""
    leases = Leases(Random(1))
    suspended = 0.0
    loop = asyncio.get_running_loop()
    election = Election(leases, "ns", "work", "a", wall=wall, uptime=lambda: loop.time() + suspended)

    async def lead() -> None:
        await asyncio.sleep(1000)

    task = asyncio.ensure_future(election.run(lead))
    await asyncio.sleep(4.5)
    leases.trouble = 1.0
    await asyncio.sleep(3)  # a renewal fails
    leases.transmit = lambda: asyncio.sleep(0.3)  # type: ignore[method-assign]
    await asyncio.sleep(0.7)  # the next one is under way
    suspended = 6.0
    with pytest.raises(LeaseLostError):
        election.check()
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(task, 20)


@run_by(virtual_time.run_scenario)
async def test_a_lease_is_released_only_if_every_write_was_answered() -> None:
    leases = Leases(Random(1))

    async def lead() -> None:
        await asyncio.sleep(1)

    first = candidate(leases, "first", settled=lambda: False)
    await first.run(lead)
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "first"
    assert not first.was_released, "there was no holder to release it"
    second = candidate(leases, "second")
    await second.run(lead)
    assert not second.was_released
    assert leases.lease["spec"]["holderIdentity"] == ""
    third = candidate(leases, "third")
    await third.run(lead)
    assert third.was_released


@pytest.mark.parametrize(
    "timing", [LeaseTiming(10, 10, 2), LeaseTiming(15, 2, 2), LeaseTiming(15, 10, 0), LeaseTiming(15, 10, -1)]
)
def test_invalid_durations(timing: LeaseTiming) -> None:
    with pytest.raises(ConfigError, match="leader election"):
        candidate(Leases(Random(1)), "a", timing=timing)


def test_a_candidate_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="identity"):
        candidate(Leases(Random(1)), "")
