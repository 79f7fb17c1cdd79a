"""CPU driver under random events, compared with a naive model and the runtime's state.

`make test-slow` runs longer sequences, and more of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.checkpoint import RecordFile
from plimsoll.drivers.cpu.settings import DeviceMode, GroupBy, PinSettings
from plimsoll.drivers.cpu.state import cdi
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError
from plimsoll.errors import StoreError
from plimsoll.protocols.cdi import CdiFault
from tests.playbooks.cpu_driver.harness import (
    WHOLE,
    AllocationSpec,
    RuntimeVersion,
    StatefulHarness,
    uid_of,
)
from tests.sizes import seeds
from tests.waiting import DEADLINE

AGES = (RuntimeVersion.NEW, RuntimeVersion.NEW, RuntimeVersion.MIDDLE, RuntimeVersion.OLD)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"group_by": GroupBy.MACHINE},
    {"mode": DeviceMode.INDIVIDUAL},
    {"reserved": CpuSet([0, 4])},
    {"min_shared": 2},
    {"pin": PinSettings(include_shared=True), "min_shared": 1},
    {"pin": PinSettings(lift_quota=True, mems=True)},
]


Pick: TypeAlias = Callable[[Random], Any]


@dataclass(frozen=True)
class Action:
    """Possible event: its weight, its condition and its values."""

    weight: int
    name: str
    when: Callable[[Any], object]
    values: Mapping[str, Pick]


ACTIONS: list[Action] = []


def happens(
    weight: int, *, when: Callable[[Any], object] = lambda self: True, **values: Pick
) -> Callable[[Any], Any]:
    def note(method: Any) -> Any:
        ACTIONS.append(Action(weight, method.__name__, when, values))
        return method

    return note


def some(dice: Random) -> int:
    return dice.randrange(40)


def maybe(dice: Random) -> bool:
    return dice.random() < 0.5


def of(*values: Any) -> Pick:
    return lambda dice: dice.choice(values)


def some_of(few: int, most: int) -> Pick:
    return lambda dice: set(dice.sample(range(8), dice.randint(few, most)))


class ProcessKilled(Exception):
    """Simulated end of the process."""


#: Where it may end; a claim that is released goes from the file first.
DEATHS = ("before record", "after record", "before file", "after file")


@contextmanager
def dying(at: str) -> Iterator[None]:
    """Kill the process before or after it saves its checkpoint, or writes or removes a CDI file."""
    when, what = at.split()
    with contextlib.ExitStack() as stack:
        places = [(RecordFile, "save")] if what == "record" else [(cdi, "write_file"), (cdi, "remove_file")]
        for owner, name in places:
            stack.enter_context(patch.object(owner, name, _die(getattr(owner, name), when)))
        yield


def _die(work: Callable[..., Any], when: str) -> Callable[..., Any]:
    def dies(*parts: Any, **more: Any) -> Any:
        if when == "after":
            work(*parts, **more)
        raise ProcessKilled

    return dies


@contextmanager
def failing(what: str, text: str) -> Iterator[None]:
    """Let the next save of a checkpoint, or write of a CDI file, fail."""
    failures = iter([True])
    save, write = RecordFile.save, cdi.write_file

    def fails_to_save(record: RecordFile, value: Any) -> None:
        if next(failures, False):
            raise StoreError(text)
        save(record, value)

    def fails_to_write(*parts: Any) -> CdiFault | None:
        return CdiFault("unwritable", "a file", text) if next(failures, False) else write(*parts)

    if what == "record":
        with patch.object(RecordFile, "save", fails_to_save):
            yield
    else:
        with patch.object(cdi, "write_file", fails_to_write):
            yield


class Node:
    """Node with its possible events. `env_claims` are the events that happened."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.runner = asyncio.Runner()
        extra, age = dice.choice(SETTINGS), dice.choice(AGES)
        self.harness = StatefulHarness(age, WHOLE, **extra)
        self.harness.runtime.orderly = maybe(dice)
        self.harness.runtime.parts = dice.randint(1, 4)
        self.count = 0
        self.env_claims = [f"{age.name.lower()} runtime, {extra}"]
        self.run(self.harness.open())

    def close(self) -> None:
        try:
            self.run(self.harness.close())
        finally:
            self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE):
                return await work

        return self.runner.run(bounded())

    def next(self) -> int:
        self.count += 1
        return self.count

    @property
    def up(self) -> bool:
        return self.harness.driver is not None

    @property
    def linked(self) -> bool:
        return self.up and self.harness.linked

    @property
    def model(self) -> Any:
        return self.harness.model

    def claim(self, device: int, amount: int, second: bool) -> AllocatedClaim | None:
        """Return a claim as the scheduler might have allocated it."""
        assert self.harness.driver is not None
        domains = sorted(self.harness.driver.state.layout.domains)
        if not domains:
            return None
        name = domains[device % len(domains)]
        if self.harness.settings.mode is DeviceMode.INDIVIDUAL:
            names = [name, domains[(device + 1) % len(domains)]] if second else [name]
            asked = [
                AllocationSpec(each, None, f"r{index}") for index, each in enumerate(dict.fromkeys(names))
            ]
        else:
            asked = [AllocationSpec(name, str(amount), "a")]
            if second:
                asked.append(AllocationSpec(domains[-1 - device % len(domains)], "1", "b", share="s"))
        return self.harness.ask(self.next(), *asked)

    def pick(self, number: int) -> str:
        uids: list[str] = sorted(self.model.assigned)
        return uids[number % len(uids)]

    def pick_box(self, number: int, *, created: bool = True) -> str | None:
        boxes = sorted(box.id for box in self.harness.runtime.boxes.values() if box.created == created)
        return boxes[number % len(boxes)] if boxes else None

    # -- claims

    @happens(6, when=lambda self: self.up, device=some, amount=of(1, 2, 3, 4), second=maybe)
    def prepare(self, device: int, amount: int, second: bool) -> None:
        claim = self.claim(device, amount, second)
        if claim is None:
            return
        linked = self.linked
        if linked and self.model.strangers:
            self.run(self.harness.prepare(claim))
            return
        fits = self.harness.fits(claim)
        answer = self.run(self.harness.prepare(claim))
        if not linked:
            assert isinstance(answer, ClaimError)
        elif linked and self.linked:
            assert isinstance(answer, ClaimError) != fits, answer

    @happens(1, when=lambda self: self.up, device=some, amount=of("0", "-1", "1500m", "100", ""))
    def prepare_nonsense(self, device: int, amount: str) -> None:
        asked = AllocationSpec(f"cpudevnuma{device % 3:03d}", amount or None)
        answer = self.run(self.harness.prepare(self.harness.ask(self.next(), asked)))
        assert isinstance(answer, ClaimError)

    @happens(2, when=lambda self: self.up and self.harness.claims, number=some)
    def prepare_again(self, number: int) -> None:
        claims = self.harness.claims
        claim = claims[sorted(claims)[number % len(claims)]]
        uid = claim.ref.uid
        if uid not in self.model.assigned:
            return  # lost with record and file
        assert self.harness.driver is not None
        adopted = self.harness.driver.state.allocations[uid].adopted
        answer = self.run(self.harness.prepare(claim))
        if uid in self.model.in_dispute:
            assert isinstance(answer, ClaimError)
        else:
            # What was taken over is measured against the devices of today.
            assert not isinstance(answer, ClaimError) or adopted, answer

    @happens(8, when=lambda self: self.up and self.model.assigned, number=some, twice=maybe)
    def unprepare(self, number: int, twice: bool) -> None:
        """Unprepare in order: no container uses the claim anymore."""
        uid = self.pick(number)
        for box in list(self.harness.runtime.boxes.values()):
            if uid in box.env_claims and box.created:
                self.run(self.harness.runtime.end(box.id))
        if any(uid in box.env_claims for box in self.harness.runtime.boxes.values()):
            return
        assert self.run(self.harness.unprepare(uid)) is None
        if twice:
            assert self.run(self.harness.unprepare(uid)) is None

    @happens(1, when=lambda self: self.up and self.model.assigned, number=some)
    def unprepare_under_containers(self, number: int) -> None:
        assert self.run(self.harness.unprepare(self.pick(number))) is None

    @happens(1, when=lambda self: self.up, number=some)
    def unprepare_what_is_not_there(self, number: int) -> None:
        before = self.harness.snapshot()
        assert self.run(self.harness.unprepare(uid_of(900 + number))) is None
        assert self.harness.snapshot() == before

    # -- containers

    @happens(5, pod=of(0, 1, 2, 3), finish=of(0, 1, 2, 3))
    def create_shared(self, pod: int, finish: int) -> None:
        if len(self.harness.runtime.boxes) < 8:
            self.run(self.harness.create(f"c{self.next()}", f"s{pod}", finish=finish > 0))

    @happens(
        6,
        when=lambda self: self.model.assigned,
        number=some,
        second=maybe,
        unknown_container=of(0, 1, 2, 3, 4, 5),
        finish=of(0, 1, 2, 3),
    )
    def create_with_claims(self, number: int, second: bool, unknown_container: int, finish: int) -> None:
        """Create a container, usually in the pod that the claim is reserved for."""
        uids = [self.pick(number)]
        if second:
            uids = list(dict.fromkeys([*uids, self.pick(number + 1)]))
        pod = f"p{sorted(uids)[0][-4:]}" if unknown_container else "stranger"
        if len(self.harness.runtime.boxes) < 8:
            self.run(self.harness.create(f"c{self.next()}", pod, uids, finish=finish > 0))

    @happens(1, cpus=some_of(1, 3))
    def create_with_an_unknown_claim(self, cpus: set[int]) -> None:
        box = f"c{self.next()}"
        problem = self.run(
            self.harness.runtime.begin(box, "liar", [f"DRA_CPUSET_{uid_of(800 + self.count)}={CpuSet(cpus)}"])
        )
        if not problem:
            assert not self.linked
            self.run(self.harness.runtime.finish(box))

    @happens(1, text=of("x", "1-", "3-1", "99999999", "-1"))
    def create_malformed(self, text: str) -> None:
        linked = self.linked
        box = f"c{self.next()}"
        problem = self.run(
            self.harness.runtime.begin(box, "liar", [f"DRA_CPUSET={text}", f"DRA_CPUSET_x={text}"])
        )
        if linked:
            assert problem
        elif not problem:
            self.harness.runtime.boxes.pop(box)  # it is of no use to the model

    @happens(4, number=some)
    def finish_making(self, number: int) -> None:
        if box := self.pick_box(number, created=False):
            self.run(self.harness.runtime.finish(box))

    @happens(2, number=some, created=maybe)
    def end(self, number: int, created: bool) -> None:
        if box := self.pick_box(number, created=created):
            self.run(self.harness.runtime.end(box))

    @happens(3, number=some, finish=maybe)
    def restart_container(self, number: int, finish: bool) -> None:
        """Create a container of the same pod and claims with a new ID, without a new Prepare."""
        if box := self.pick_box(number):
            old = self.harness.runtime.boxes[box]
            self.run(self.harness.runtime.end(box))
            self.run(self.harness.create(f"c{self.next()}", old.pod, old.env_claims, finish=finish))

    @happens(2, number=some, cpus=of("", "0-7", "0", "5-6"), quota=of(0, 50_000))
    def kubelet_updates(self, number: int, cpus: str, quota: int) -> None:
        if box := self.pick_box(number):
            self.run(self.harness.runtime.update(box, cpus=cpus, quota=quota))

    @happens(1, pod=some)
    def remove_pod(self, pod: int) -> None:
        pods = sorted(self.harness.runtime.pods)
        if pods:
            self.run(self.harness.runtime.remove_pod(pods[pod % len(pods)]))

    # -- restarts

    @happens(2, when=lambda self: self.up, kill=maybe)
    def restart_driver(self, kill: bool) -> None:
        """Restart the driver and check that its state is unchanged, byte for byte."""
        tampered = self.model.amnesia or self.model.files != self.model.assigned
        before = self.harness.snapshot()
        self.run(self.harness.kill_driver() if kill else self.harness.stop_driver())
        self.run(self.harness.start_driver())
        if not tampered and not self.model.in_dispute:
            assert self.harness.snapshot()[:4] == before[:4]
        self.run(self.harness.connected())

    @happens(1, when=lambda self: self.up, kill=maybe)
    def driver_goes(self, kill: bool) -> None:
        self.run(self.harness.kill_driver() if kill else self.harness.stop_driver())

    @happens(20, when=lambda self: not self.up)
    def driver_comes(self) -> None:
        self.run(self.harness.start_driver())
        self.run(self.harness.connected())

    @happens(1, when=lambda self: self.harness.runtime.up, back=maybe)
    def runtime_goes(self, back: bool) -> None:
        self.run(self.harness.runtime.stop())
        driver = self.harness.driver
        if driver is not None:
            self.run(self.harness.until(lambda: not driver.enforcer.linked))
        if back:
            self.runtime_comes()

    @happens(20, when=lambda self: not self.harness.runtime.up)
    def runtime_comes(self) -> None:
        self.run(self.harness.runtime.start())
        self.run(self.harness.connected())

    @happens(1, when=lambda self: self.linked)
    def connection_breaks(self) -> None:
        self.run(self.harness.runtime.hang_up())
        self.run(self.harness.connected())

    # -- runtime faults

    @happens(1, refuses=maybe)
    def runtime_refuses_changes(self, refuses: bool) -> None:
        self.harness.runtime.refuses = refuses

    @happens(1, number=some, fails=maybe)
    def a_container_cannot_be_changed(self, number: int, fails: bool) -> None:
        failing = self.harness.runtime.failing
        if not fails:
            failing.clear()
        elif box := self.pick_box(number):
            failing.add(box)

    @happens(1, slow=of(0.0, 0.0, 0.01, 0.15, 0.25))
    def runtime_is_slow(self, slow: float) -> None:
        self.harness.runtime.slow = slow

    @happens(1, forgets=maybe)
    def runtime_passes_over_answers(self, forgets: bool) -> None:
        if self.harness.runtime.age.pushes:
            self.harness.runtime.forgets = forgets

    # -- the machine, and the disk

    @happens(2, off=some_of(0, 4))
    def hotplug(self, off: set[int]) -> None:
        self.run(self.harness.switch(off))

    @happens(1, when=lambda self: self.model.assigned, number=some, damage=maybe)
    def lose_a_file(self, number: int, damage: bool) -> None:
        uid = self.pick(number)
        if uid in self.model.files and not self.model.amnesia and uid not in self.model.in_dispute:
            (self.harness.damage_file if damage else self.harness.lose_file)(uid)

    @happens(1, damage=maybe)
    def lose_the_record(self, damage: bool) -> None:
        if self.model.files == self.model.assigned and not self.model.in_dispute:
            self.harness.lose_record(damage=damage)

    @happens(1, when=lambda self: self.model.assigned, number=some, cpus=some_of(1, 3))
    def another_driver_alters_a_file(self, number: int, cpus: set[int]) -> None:
        uid = self.pick(number)
        if uid in self.model.files and not self.model.amnesia:
            self.harness.alter_file(uid, cpus)

    @happens(1, cpus=some_of(1, 3))
    def another_driver_prepares(self, cpus: set[int]) -> None:
        self.harness.alter_file(uid_of(self.next()), cpus)

    @happens(1, when=lambda self: self.linked, what=of("record", "file"), device=some, amount=of(1, 2, 3))
    def the_disk_fails_while_preparing(self, what: str, device: int, amount: int) -> None:
        """StatefulHarness.prepare checks that nothing is left."""
        claim = self.claim(device, amount, False)
        recorded = (
            self.harness.settings.checkpoint_path.exists() and not self.model.amnesia
        )  # else it is written anew
        if claim is not None and recorded and not self.model.strangers:
            with failing(what, "disk full"):
                assert isinstance(self.run(self.harness.prepare(claim)), ClaimError)

    @happens(2, when=lambda self: self.linked, at=of(*DEATHS), device=some, amount=of(1, 2, 3))
    def die_while_preparing(self, at: str, device: int, amount: int) -> None:
        """Kill the driver during Prepare: the claim has CPUs or none, and no other claim has them."""
        harness, claim = self.harness, self.claim(device, amount, False)
        whole = self.model.files == self.model.assigned  # else the restart finds more than this
        if claim is None or harness.driver is None or not whole or not harness.fits(claim):
            return
        with dying(at), contextlib.suppress(ProcessKilled):
            self.run(harness.driver.prepare(claim))
        stored = at != "before record"
        if stored:
            self.model.amnesia = False
        self.run(harness.kill_driver())
        self.run(harness.start_driver())
        assert harness.driver is not None
        allocation = harness.driver.state.allocations.get(claim.ref.uid)
        assert (allocation is not None) == stored
        if allocation is not None:
            harness.check_grant(claim, set(allocation.assigned))
            harness.note_grant(claim, set(allocation.assigned))
        self.run(harness.connected())

    @happens(2, when=lambda self: self.up and self.harness.claims, at=of(*DEATHS), number=some)
    def die_while_releasing(self, at: str, number: int) -> None:
        harness = self.harness
        claim = harness.claims[sorted(harness.claims)[number % len(harness.claims)]]
        uid, model = claim.ref.uid, self.model
        if harness.driver is None or uid not in model.assigned or uid in model.in_dispute or model.amnesia:
            return
        with dying(at), contextlib.suppress(ProcessKilled):
            self.run(harness.driver.unprepare(claim.ref))
        if at == "after record":
            model.release(uid)
            harness.claims.pop(uid)
        elif at != "before file":
            model.files.pop(uid, None)
        self.run(harness.kill_driver())
        self.run(harness.start_driver())
        self.run(harness.connected())

    # -- concurrent events

    @happens(
        3,
        when=lambda self: self.linked,
        amounts=of([1, 1], [2, 1], [3, 2], [1, 2, 3], [1, 1, 1]),
        shared=of(0, 1, 2),
        number=some,
        off=of(None, None, {3}, {0, 6}),
    )
    def at_once(self, amounts: list[int], shared: int, number: int, off: set[int] | None) -> None:
        self.run(self._at_once(amounts, shared, number, off))

    async def _at_once(self, amounts: list[int], shared: int, number: int, off: set[int] | None) -> None:
        harness = self.harness
        assert harness.driver is not None
        if harness.model.strangers:
            return
        claims = [claim for amount in amounts if (claim := self.claim(number, amount, False)) is not None]
        boxes = [f"c{self.next()}" for _ in range(shared)]
        created = asyncio.gather(*(harness.runtime.create(box, "s0") for box in boxes))
        switched = asyncio.gather(*([harness.switch(off)] if off is not None else []))
        before = set(harness.model.usable)
        answers = await asyncio.gather(*(harness.driver.prepare(claim) for claim in claims))
        await created
        await switched
        harness.spoken = harness.runtime.answers
        for claim, answer in zip(claims, answers, strict=True):
            cpus = harness.file(claim.ref.uid)
            if isinstance(answer, ClaimError):
                assert cpus is None
            else:
                assert cpus is not None
                harness.check_grant(claim, cpus, usable=before | harness.model.usable)
                harness.note_grant(claim, cpus)

    def step(self) -> None:
        """Choose and run one possible action, common ones more often than rare ones, then check all
        invariants.
        """
        may = [one for one in ACTIONS if one.when(self)]
        (chosen,) = self.dice.choices(may, [one.weight for one in may])
        values = {name: pick(self.dice) for name, pick in chosen.values.items()}
        self.env_claims.append(f"{chosen.name} {values or ''}")
        getattr(self, chosen.name)(**values)
        self.run(self.harness.check())


def run_random(seed: int, steps: int) -> None:
    node = Node(Random(seed))
    try:
        for _ in range(steps):
            node.step()
    except (AssertionError, TimeoutError) as error:
        lines = "\n".join(node.env_claims)
        raise AssertionError(f"seed {seed}, after:\n{lines}\n{type(error).__name__}: {error}") from error
    finally:
        node.close()


@pytest.mark.parametrize("seed", seeds(32, each=8))
def test_random_events(seed: int) -> None:
    run_random(seed, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_random_events_for_long(seed: int) -> None:
    run_random(seed, 150)
