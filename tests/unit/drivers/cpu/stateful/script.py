"""Stories of a driver as text, a step in a line; `scenarios.txt` has them, `world.py` says what is checked.

with min_shared 1 | reserved 0,4 | by machine | an old runtime | a middle runtime    before anything else
prepare a 2 [of cpudevnuma001]      claim `a` gets two CPUs; `... is refused: TEXT`
unprepare a
create p/x [with a,b]               container x of pod p is made and starts; `... is refused: TEXT`
begin p/x [with a] | finish p/x     plugins have been asked; it is made and starts
end p/x | pod p goes                its containers end, and its sandbox
update p/x to 0-7                   by the kubelet
driver goes | is killed | comes | restarts | is killed and comes
runtime goes | comes | restarts | refuses | obeys
online 0-2                          all other CPUs are off
claim a is deleted                  in the cluster
file of a is lost | damaged | says 0-1      the CDI file
record is lost | damaged
another driver comes | goes         a second one, on the same folders and runtime
another prepares b 2                and asked in place of the first
p/x runs on 0-1 | a has 2-3 | a is gone | a is disputed | shared is 0-1
p/x is gone | the driver says TEXT
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.settings import GroupBy
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError
from plimsoll.protocols.ttrpc import end_tasks
from tests.unit.drivers.cpu.stateful.harness import Asked, World, uid_of
from tests.unit.drivers.cpu.stateful.runtime import Age

Step = Callable[..., Awaitable[Any]]
_STEPS: list[tuple[re.Pattern[str], Step]] = []


def _read() -> dict[str, str]:
    text = Path(__file__).with_name("stories.txt").read_text()
    found = {}
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, _, lines = part.partition("\n")
        assert title not in found, f"there are two stories {title!r}"
        found[title] = re.sub(r"^-- .*$", "", lines, flags=re.MULTILINE)
    return found


STORIES = _read()


class Stage:
    """A world, and what the text calls things."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: dict[str, AllocatedClaim] = {}
        self.other: CpuDriver | None = None

    def uid(self, claim: str) -> str:
        return uid_of(ord(claim))

    def uids(self, claims: str | None) -> list[str]:
        return [self.uid(claim) for claim in claims.split(",")] if claims else []

    def claim(self, name: str, count: str, device: str | None) -> AllocatedClaim:
        if name not in self.asked:
            default = "cpudevmachine" if "group_by" in self.world.extra else "cpudevnuma000"
            self.asked[name] = self.world.ask(ord(name), Asked(device or default, count))
        return self.asked[name]

    @property
    def driver(self) -> CpuDriver:
        assert self.world.driver is not None, "there is no driver"
        return self.world.driver


def says(pattern: str) -> Callable[[Step], Step]:
    def note(step: Step) -> Step:
        _STEPS.append((re.compile(pattern), step))
        return step

    return note


def play(script: str) -> None:
    """Play a story, and its end: everything comes back, all pods go, all claims too, and nothing is left."""
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    options: dict[str, Any] = {}
    while lines and lines[0].startswith("with "):
        _set(options, lines.pop(0).removeprefix("with "))

    async def scenario() -> None:
        world = World(**options)
        stage = Stage(world)
        try:
            await world.open()
            for line in lines:
                await _step(stage, line)
            await _end(stage)
        finally:
            if stage.other is not None:
                await _leave(stage.other)
            await world.close()

    asyncio.run(scenario())


def _set(options: dict[str, Any], text: str) -> None:
    name, _, value = text.partition(" ")
    match name:
        case "min_shared":
            options["min_shared"] = int(value)
        case "reserved":
            options["reserved"] = CpuSet.parse(value)
        case "by":
            options["group_by"] = GroupBy(value)
        case "an" | "a":
            options["age"] = Age[value.split()[0].upper()]
        case _:
            raise AssertionError(f"no such setting: {text!r}")


async def _step(stage: Stage, line: str) -> None:
    try:
        async with asyncio.timeout(20):
            for pattern, step in _STEPS:
                found = pattern.fullmatch(line)
                if found:
                    await step(stage, *found.groups())
                    break
            else:
                raise AssertionError("no such step")
            if stage.other is None:
                await stage.world.check()
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"at {line!r}: {error}") from error


async def _end(stage: Stage) -> None:
    world = stage.world
    if stage.other is not None:
        await _leave(stage.other)
        stage.other = None
        # Each of the two knew a part: what both left is found when one starts again.
        await world.kill_driver()
    if not world.runtime.up:
        await world.runtime.start()
    if world.driver is None:
        await world.start_driver()
    world.runtime.refuses = False
    await world.connected()
    for pod in sorted(world.runtime.pods):
        await world.runtime.remove_pod(pod)
    for uid in sorted(stage.driver.state.allocations):
        assert await world.unprepare(uid) is None
    await world.check()
    assert not stage.driver.state.allocations
    assert not list(world.settings.cdi.glob("*.json"))
    assert stage.driver.enforcer.containers() == ()
    assert stage.driver.enforcer.faults() == ()


async def _leave(driver: CpuDriver) -> None:
    await end_tasks([*driver._tasks, *cast(NriEnforcer, driver.enforcer)._tasks])


# -- claims


@says(r"prepare (\w) (\d+)(?: of (\w+))?(?: is refused: (.*))?")
async def _prepare(stage: Stage, name: str, count: str, device: str | None, refusal: str | None) -> None:
    answer = await stage.world.prepare(stage.claim(name, count, device))
    if refusal is None:
        assert not isinstance(answer, ClaimError), answer
    else:
        assert isinstance(answer, ClaimError), answer
        assert refusal in answer.message, answer.message


@says(r"unprepare (\w)")
async def _unprepare(stage: Stage, name: str) -> None:
    assert await stage.world.unprepare(stage.uid(name)) is None
    stage.asked.pop(name, None)


@says(r"claim (\w) is deleted")
async def _deleted(stage: Stage, name: str) -> None:
    claim = stage.asked[name]
    stage.world.api.claims.pop(claim.ref.name)
    stage.world.model.deleted.add(claim.ref.uid)


# -- containers


@says(r"(create|begin) ((\w+)/\w+)(?: with ([\w,]+))?(?: is refused: (.*))?")
async def _create(
    stage: Stage, what: str, id: str, pod: str, claims: str | None, refusal: str | None
) -> None:
    problem = await stage.world.create(id, pod, stage.uids(claims), finish=what == "create")
    if refusal is None:
        assert not problem, problem
    else:
        assert refusal in problem, problem or "it was made"


@says(r"finish (\w+/\w+)")
async def _finish(stage: Stage, id: str) -> None:
    await stage.world.runtime.finish(id)


@says(r"end (\w+/\w+)")
async def _end_container(stage: Stage, id: str) -> None:
    await stage.world.runtime.end(id)


@says(r"pod (\w+) goes")
async def _pod_goes(stage: Stage, pod: str) -> None:
    await stage.world.runtime.remove_pod(pod)


@says(r"update (\w+/\w+) to (\S+)")
async def _update(stage: Stage, id: str, cpus: str) -> None:
    await stage.world.runtime.update(id, cpus=cpus)


# -- who comes and goes


@says(r"driver (goes|is killed|comes|restarts|is killed and comes)")
async def _driver(stage: Stage, what: str) -> None:
    world = stage.world
    if what in ("goes", "restarts"):
        await world.stop_driver()
    elif "killed" in what:
        await world.kill_driver()
    if what in ("comes", "restarts") or what.endswith("and comes"):
        await world.start_driver()
        await world.connected()


@says(r"runtime (goes|comes|restarts|refuses|obeys)")
async def _runtime(stage: Stage, what: str) -> None:
    world = stage.world
    if what in ("refuses", "obeys"):
        world.runtime.refuses = what == "refuses"
    if what in ("goes", "restarts"):
        await world.runtime.stop()
        if world.driver is not None:
            await world.until(lambda: not stage.driver.enforcer.linked)
    if what in ("comes", "restarts"):
        await world.runtime.start()
        await world.connected()


@says(r"another driver (comes|goes)")
async def _another(stage: Stage, what: str) -> None:
    if what == "goes":
        assert stage.other is not None
        await _leave(stage.other)
        stage.other = None
        return
    stage.other = other = stage.world.make_driver()
    await other.start()
    await stage.world.until(lambda: other.enforcer.linked and stage.world.runtime.linked == 2)


@says(r"another prepares (\w) (\d+)")
async def _another_prepares(stage: Stage, name: str, count: str) -> None:
    assert stage.other is not None
    claim = stage.claim(name, count, None)
    answer = await stage.other.prepare(claim)
    assert not isinstance(answer, ClaimError), answer
    cpus = stage.world.file(claim.ref.uid)
    assert cpus
    assert not cpus & stage.world.model.allocated
    stage.world.note_grant(claim, cpus)


# -- the machine, and the disk


@says(r"online (\S+)")
async def _online(stage: Stage, cpus: str) -> None:
    await stage.world.switch(set(stage.world.whole.all) - set(CpuSet.parse(cpus)))


@says(r"file of (\w) (?:is (lost|damaged)|says (\S+))")
async def _file(stage: Stage, name: str, what: str | None, cpus: str | None) -> None:
    world, uid = stage.world, stage.uid(name)
    if cpus:
        world.alter_file(uid, set(CpuSet.parse(cpus)))
    else:
        (world.lose_file if what == "lost" else world.damage_file)(uid)


@says(r"record is (lost|damaged)")
async def _checkpoint(stage: Stage, what: str) -> None:
    stage.world.lose_record(damage=what == "damaged")


# -- what there is to see


@says(r"(\w+/\w+) runs on (\S+)")
async def _runs(stage: Stage, id: str, cpus: str) -> None:
    runtime, desired = stage.world.runtime, set(CpuSet.parse(cpus))
    await stage.world.until(lambda: runtime.cpus(id) == desired, lambda: sorted(runtime.cpus(id)))


@says(r"(\w+/\w+) is gone")
async def _container_gone(stage: Stage, id: str) -> None:
    assert id not in stage.world.runtime.boxes
    await stage.world.until(lambda: id not in {view.id for view in stage.driver.enforcer.containers()})


@says(r"(\w) has (\S+)")
async def _has(stage: Stage, name: str, cpus: str) -> None:
    assert str(stage.driver.state.allocations[stage.uid(name)].assigned) == cpus


@says(r"(\w) is (gone|disputed|not disputed)")
async def _state(stage: Stage, name: str, what: str) -> None:
    allocations, uid = stage.driver.state.allocations, stage.uid(name)
    if what == "gone":
        await stage.world.until(lambda: uid not in stage.driver.state.allocations)
    else:
        assert bool(allocations[uid].disputed) == (what == "disputed"), allocations[uid]


@says(r"shared is (\S+)")
async def _shared(stage: Stage, cpus: str) -> None:
    assert str(stage.driver.state.shared) == ("" if cpus == "empty" else cpus)


@says(r"the driver says (.*)")
async def _says(stage: Stage, text: str) -> None:
    found = [finding.what for finding in stage.driver.findings]
    found += [str(fault) for fault in stage.driver.enforcer.faults()]
    assert any(text in each for each in found), found
