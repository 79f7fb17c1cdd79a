"""Claims are prepared in threads while events of the runtime are handled on the loop, and neither suffers."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import arrange
from plimsoll.drivers.cpu.pinning.container_table import Roll
from plimsoll.drivers.cpu.pinning.plan import ContainerView, take_scene
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state import Holding
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.desk import Asked, Container, Desk, make_claim, uid_of
from tests.unit.drivers.cpu.stateful.world import Age, World

WHOLE = make_machine(sockets=2, cores=4, threads=2)


def _run(*works: Callable[[], None]) -> None:
    """All at once, until the first of them is done; what fails in any of them fails here."""
    over = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as often as can be

    def again(work: Callable[[], None]) -> None:
        while not over.is_set():
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        try:
            others = [pool.submit(again, work) for work in works[1:]]
            works[0]()
        finally:
            over.set()
            sys.setswitchinterval(interval)
        for other in others:
            other.result(timeout=30)


def test_prepare_witness_and_hotplug_at_once(tmp_path: Path) -> None:
    """Whoever looks sees one whole state of the book: nothing is held twice, and nothing held is shared."""
    desk = Desk(tmp_path, WHOLE)
    book = desk.open()
    kept: dict[str, Holding] = {}

    def claims() -> None:
        for number in range(40):
            found = book.prepare(make_claim(number, Asked(f"cpudevnuma00{number % 2}", "2")))
            if isinstance(found, Holding):
                kept[found.ref.uid] = found
            if number % 3 == 2:
                uid = sorted(kept)[0]
                assert book.release(kept.pop(uid).ref) is None

    def witnesses() -> None:
        liar = Container("p/c", {uid_of(0): CpuSet([1])})
        book.witness([liar])
        book.witness([])

    def machine() -> None:
        for topology in (switch_off(WHOLE, CpuSet([15])), WHOLE):
            with book.lock:
                arrangement = arrange(topology, desk.settings, earlier=book.arrangement, held=book.by_device)
                book.change(topology, arrangement)

    def looks() -> None:
        scene = take_scene(book, WHOLE, PinSettings())
        seen: set[int] = set()
        for holding in scene.holdings.values():
            assert not seen & set(holding.cpus)
            seen |= set(holding.cpus)
        assert not seen & set(scene.shared)

    _run(claims, witnesses, machine, looks)
    book.witness([])
    assert dict(book.holdings) == dict(sorted(kept.items()))
    assert dict(desk.open().holdings) == dict(book.holdings)


def test_asking_whether_the_pool_is_in_use_while_containers_come_and_go() -> None:
    """That is asked by the thread that prepares."""
    roll = Roll()
    views = [ContainerView(f"c{number}", claims={"a": CpuSet([0])}) for number in range(50)]

    def comes_and_goes() -> None:
        for _ in range(300):
            for view in views:
                roll.see(view)
            for view in views:
                roll.forget(view.id)

    _run(comes_and_goes, lambda: _ask(roll))
    roll.see(replace(views[0], id="shared", claims={}))
    assert roll.shared_in_use


def _ask(roll: Roll) -> None:
    assert not roll.shared_in_use


def test_many_claims_and_containers_at_once() -> None:
    """Claims of several pods, containers and updates in one moment; at the end all are where they belong."""

    async def story() -> None:
        world = World(Age.NEW)
        try:
            await world.open()
            world.runtime.orderly = False
            assert world.driver is not None
            driver = world.driver
            for _ in range(5):
                claims = [
                    world.ask(number, Asked(f"cpudevnuma00{number % 2}", "1")) for number in range(1, 7)
                ]

                async def pod(name: str, claim: AllocatedClaim) -> None:
                    answer = await driver.prepare(claim)
                    assert not isinstance(answer, ClaimError), answer
                    env = world.env([claim.ref.uid])
                    assert env is not None
                    assert await world.runtime.create(f"{name}/x", name, env) == ""
                    assert await world.runtime.create(f"{name}/y", name) == ""
                    await world.runtime.update(f"{name}/x", cpus="0-7")

                await asyncio.gather(*(pod(f"p{number}", claim) for number, claim in enumerate(claims)))
                for claim in claims:
                    cpus = world.file(claim.ref.uid)
                    assert cpus is not None
                    assert not cpus & world.model.held
                    world.note_grant(claim, cpus)
                await world.check()
                await asyncio.gather(*(world.runtime.remove_pod(f"p{number}") for number in range(6)))
                await asyncio.gather(*(world.unprepare(claim.ref.uid) for claim in claims))
                await world.check()
                assert not driver.enforcer.containers()
        finally:
            await world.close()

    asyncio.run(story())
