"""Concurrency of the CPU driver: claims are prepared in threads while runtime events are handled on the
loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.pinning.container_table import ContainerTable
from plimsoll.drivers.cpu.pinning.plan import ContainerView, take_snapshot
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state import ClaimAllocation
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError
from tests import virtual_time
from tests.coroutines import run_by
from tests.playbooks.cpu_driver.harness import RuntimeVersion, StatefulHarness
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.fixtures import (
    AllocationSpec,
    Container,
    CPUStateFixture,
    make_claim,
    uid_of,
)
from tests.waiting import DEADLINE

WHOLE = make_machine(sockets=2, cores=4, threads=2)


def _run(*works: Callable[[], None]) -> None:
    """Run all concurrently until the first ends; an error in any of them is raised."""
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
            other.result(timeout=DEADLINE)


def test_prepare_source_and_hotplug_at_once(tmp_path: Path) -> None:
    """Every reader sees one consistent state: no CPU is allocated twice, and no allocated CPU is shared."""
    fixture = CPUStateFixture(tmp_path, WHOLE)
    state = fixture.open()
    stored: dict[str, ClaimAllocation] = {}

    def claims() -> None:
        for number in range(40):
            found = state.prepare(make_claim(number, AllocationSpec(f"cpudevnuma00{number % 2}", "2")))
            if isinstance(found, ClaimAllocation):
                stored[found.ref.uid] = found
            if number % 3 == 2:
                uid = sorted(stored)[0]
                assert state.release(stored.pop(uid).ref) is None

    def witnesses() -> None:
        liar = Container("p/c", {uid_of(0): CpuSet([1])})
        state.check_containers([liar])
        state.check_containers([])

    def machine() -> None:
        for topology in (switch_off(WHOLE, CpuSet([15])), WHOLE):
            with state.lock:
                layout = compute_layout(
                    topology, fixture.settings, earlier=state.layout, allocated=state.by_device
                )
                state.update_topology(topology, layout)

    def looks() -> None:
        snapshot = take_snapshot(state, WHOLE, PinSettings())
        seen: set[int] = set()
        for allocation in snapshot.allocations.values():
            assert not seen & set(allocation.cpus)
            seen |= set(allocation.cpus)
        assert not seen & set(snapshot.shared)

    _run(claims, witnesses, machine, looks)
    state.check_containers([])
    assert dict(state.allocations) == dict(sorted(stored.items()))
    assert dict(fixture.open().allocations) == dict(state.allocations)


def test_the_pool_is_read_while_containers_change() -> None:
    """The thread that prepares reads it."""
    table = ContainerTable()
    views = [ContainerView(f"c{number}", claims={"a": CpuSet([0])}) for number in range(50)]

    def comes_and_goes() -> None:
        for _ in range(300):
            for view in views:
                table.update_container(view)
            for view in views:
                table.forget(view.id)

    _run(comes_and_goes, lambda: _ask(table))
    table.update_container(replace(views[0], id="shared", claims={}))
    assert table.shared_in_use


def _ask(table: ContainerTable) -> None:
    assert not table.shared_in_use


@run_by(virtual_time.run_scenario)
async def test_many_claims_and_containers_at_once() -> None:
    """Claims of several pods, containers and updates at once; at the end all containers have their CPUs."""
    harness = StatefulHarness(RuntimeVersion.NEW)
    try:
        await harness.open()
        harness.runtime.orderly = False
        assert harness.driver is not None
        driver = harness.driver
        for _ in range(5):
            claims = [
                harness.ask(number, AllocationSpec(f"cpudevnuma00{number % 2}", "1"))
                for number in range(1, 7)
            ]

            async def pod(name: str, claim: AllocatedClaim) -> None:
                answer = await driver.prepare(claim)
                assert not isinstance(answer, ClaimError), answer
                env = harness.env([claim.ref.uid])
                assert env is not None
                assert await harness.runtime.create(f"{name}/x", name, env) == ""
                assert await harness.runtime.create(f"{name}/y", name) == ""
                await harness.runtime.update(f"{name}/x", cpus="0-7")

            await asyncio.gather(*(pod(f"p{number}", claim) for number, claim in enumerate(claims)))
            for claim in claims:
                cpus = harness.file(claim.ref.uid)
                assert cpus is not None
                assert not cpus & harness.model.allocated
                harness.note_grant(claim, cpus)
            await harness.check()
            await asyncio.gather(*(harness.runtime.remove_pod(f"p{number}") for number in range(6)))
            await asyncio.gather(*(harness.unprepare(claim.ref.uid) for claim in claims))
            await harness.check()
            assert not driver.enforcer.containers()
    finally:
        await harness.close()
