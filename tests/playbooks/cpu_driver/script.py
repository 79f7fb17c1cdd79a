"""Stories of a driver as text, a step in a line; `scenarios.txt` has them, `harness.py` says what is checked.

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
another driver comes | goes         a second one, on the same directories and runtime
another prepares b 2                and asked in place of the first
p/x runs on 0-1 | a has 2-3 | a is gone | a is disputed | shared is 0-1
p/x is gone | the driver says TEXT
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.tasks import cancel_tasks
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.settings import GroupBy
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError
from tests.playbooks.cpu_driver.harness import AllocationSpec, StatefulHarness, uid_of
from tests.playbooks.cpu_driver.runtime import RuntimeVersion
from tests.script_steps import StepTable, read_scripts
from tests.waiting import DEADLINE

STORIES = read_scripts(Path(__file__).with_name("scenarios.txt"))
_STEPS = StepTable()
on_step = _STEPS.on_step


class ScriptRun:
    """A harness, and the objects by their names in the script."""

    def __init__(self, harness: StatefulHarness) -> None:
        self.harness = harness
        self.asked: dict[str, AllocatedClaim] = {}
        self.other: CpuDriver | None = None

    def uid(self, claim: str) -> str:
        return uid_of(ord(claim))

    def uids(self, claims: str | None) -> list[str]:
        return [self.uid(claim) for claim in claims.split(",")] if claims else []

    def claim(self, name: str, count: str, device: str | None) -> AllocatedClaim:
        if name not in self.asked:
            default = "cpudevmachine" if "group_by" in self.harness.extra else "cpudevnuma000"
            self.asked[name] = self.harness.ask(ord(name), AllocationSpec(device or default, count))
        return self.asked[name]

    @property
    def driver(self) -> CpuDriver:
        assert self.harness.driver is not None, "there is no driver"
        return self.harness.driver


def run_script(script: str) -> None:
    """Run a scenario to its end: faults end, all pods and claims are deleted, and nothing is left."""
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    options: dict[str, Any] = {}
    while lines and lines[0].startswith("with "):
        _set(options, lines.pop(0).removeprefix("with "))

    async def scenario() -> None:
        harness = StatefulHarness(**options)
        script_run = ScriptRun(harness)
        try:
            await harness.open()
            for line in lines:
                await _step(script_run, line)
            await _end(script_run)
        finally:
            if script_run.other is not None:
                await _leave(script_run.other)
            await harness.close()

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
            options["age"] = RuntimeVersion[value.split()[0].upper()]
        case _:
            raise AssertionError(f"no such setting: {text!r}")


async def _step(script_run: ScriptRun, line: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE):
            await _STEPS.perform(script_run, line)
            if script_run.other is None:
                await script_run.harness.check()
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"at {line!r}: {error}") from error


async def _end(script_run: ScriptRun) -> None:
    harness = script_run.harness
    if script_run.other is not None:
        await _leave(script_run.other)
        script_run.other = None
        # Each of the two knew a part: what both left is found when one starts again.
        await harness.kill_driver()
    if not harness.runtime.up:
        await harness.runtime.start()
    if harness.driver is None:
        await harness.start_driver()
    harness.runtime.refuses = False
    await harness.connected()
    for pod in sorted(harness.runtime.pods):
        await harness.runtime.remove_pod(pod)
    for uid in sorted(script_run.driver.state.allocations):
        assert await harness.unprepare(uid) is None
    await harness.check()
    assert not script_run.driver.state.allocations
    assert not list(harness.settings.cdi.glob("*.json"))
    assert script_run.driver.enforcer.containers() == ()
    assert script_run.driver.enforcer.faults() == ()


async def _leave(driver: CpuDriver) -> None:
    await cancel_tasks([*driver.tasks, *cast(NriEnforcer, driver.enforcer).tasks])


# -- claims


@on_step(r"prepare (\w) (\d+)(?: of (\w+))?(?: is refused: (.*))?")
async def _prepare(
    script_run: ScriptRun, name: str, count: str, device: str | None, refusal: str | None
) -> None:
    answer = await script_run.harness.prepare(script_run.claim(name, count, device))
    if refusal is None:
        assert not isinstance(answer, ClaimError), answer
    else:
        assert isinstance(answer, ClaimError), answer
        assert refusal in answer.message, answer.message


@on_step(r"unprepare (\w)")
async def _unprepare(script_run: ScriptRun, name: str) -> None:
    assert await script_run.harness.unprepare(script_run.uid(name)) is None
    script_run.asked.pop(name, None)


@on_step(r"claim (\w) is deleted")
async def _deleted(script_run: ScriptRun, name: str) -> None:
    claim = script_run.asked[name]
    script_run.harness.api.claims.pop(claim.ref.name)
    script_run.harness.model.deleted.add(claim.ref.uid)


# -- containers


@on_step(r"(create|begin) ((\w+)/\w+)(?: with ([\w,]+))?(?: is refused: (.*))?")
async def _create(
    script_run: ScriptRun, what: str, id: str, pod: str, claims: str | None, refusal: str | None
) -> None:
    problem = await script_run.harness.create(id, pod, script_run.uids(claims), finish=what == "create")
    if refusal is None:
        assert not problem, problem
    else:
        assert refusal in problem, problem or "it was made"


@on_step(r"finish (\w+/\w+)")
async def _finish(script_run: ScriptRun, id: str) -> None:
    await script_run.harness.runtime.finish(id)


@on_step(r"end (\w+/\w+)")
async def _end_container(script_run: ScriptRun, id: str) -> None:
    await script_run.harness.runtime.end(id)


@on_step(r"pod (\w+) goes")
async def _pod_goes(script_run: ScriptRun, pod: str) -> None:
    await script_run.harness.runtime.remove_pod(pod)


@on_step(r"update (\w+/\w+) to (\S+)")
async def _update(script_run: ScriptRun, id: str, cpus: str) -> None:
    await script_run.harness.runtime.update(id, cpus=cpus)


# -- restarts


@on_step(r"driver (goes|is killed|comes|restarts|is killed and comes)")
async def _driver(script_run: ScriptRun, what: str) -> None:
    harness = script_run.harness
    if what in ("goes", "restarts"):
        await harness.stop_driver()
    elif "killed" in what:
        await harness.kill_driver()
    if what in ("comes", "restarts") or what.endswith("and comes"):
        await harness.start_driver()
        await harness.connected()


@on_step(r"runtime (goes|comes|restarts|refuses|obeys)")
async def _runtime(script_run: ScriptRun, what: str) -> None:
    harness = script_run.harness
    if what in ("refuses", "obeys"):
        harness.runtime.refuses = what == "refuses"
    if what in ("goes", "restarts"):
        await harness.runtime.stop()
        if harness.driver is not None:
            await harness.until(lambda: not script_run.driver.enforcer.linked)
    if what in ("comes", "restarts"):
        await harness.runtime.start()
        await harness.connected()


@on_step(r"another driver (comes|goes)")
async def _another(script_run: ScriptRun, what: str) -> None:
    if what == "goes":
        assert script_run.other is not None
        await _leave(script_run.other)
        script_run.other = None
        return
    script_run.other = other = script_run.harness.make_driver()
    await other.start()
    await script_run.harness.until(lambda: other.enforcer.linked and script_run.harness.runtime.linked == 2)


@on_step(r"another prepares (\w) (\d+)")
async def _another_prepares(script_run: ScriptRun, name: str, count: str) -> None:
    assert script_run.other is not None
    claim = script_run.claim(name, count, None)
    answer = await script_run.other.prepare(claim)
    assert not isinstance(answer, ClaimError), answer
    cpus = script_run.harness.file(claim.ref.uid)
    assert cpus
    assert not cpus & script_run.harness.model.allocated
    script_run.harness.note_grant(claim, cpus)


# -- the machine, and the disk


@on_step(r"online (\S+)")
async def _online(script_run: ScriptRun, cpus: str) -> None:
    await script_run.harness.switch(set(script_run.harness.whole.all) - set(CpuSet.parse(cpus)))


@on_step(r"file of (\w) (?:is (lost|damaged)|says (\S+))")
async def _file(script_run: ScriptRun, name: str, what: str | None, cpus: str | None) -> None:
    harness, uid = script_run.harness, script_run.uid(name)
    if cpus:
        harness.alter_file(uid, set(CpuSet.parse(cpus)))
    else:
        (harness.lose_file if what == "lost" else harness.damage_file)(uid)


@on_step(r"record is (lost|damaged)")
async def _checkpoint(script_run: ScriptRun, what: str) -> None:
    script_run.harness.lose_record(damage=what == "damaged")


# -- checks


@on_step(r"(\w+/\w+) runs on (\S+)")
async def _runs(script_run: ScriptRun, id: str, cpus: str) -> None:
    runtime, desired = script_run.harness.runtime, set(CpuSet.parse(cpus))
    await script_run.harness.until(lambda: runtime.cpus(id) == desired, lambda: sorted(runtime.cpus(id)))


@on_step(r"(\w+/\w+) is gone")
async def _container_gone(script_run: ScriptRun, id: str) -> None:
    assert id not in script_run.harness.runtime.boxes
    await script_run.harness.until(
        lambda: id not in {view.id for view in script_run.driver.enforcer.containers()}
    )


@on_step(r"(\w) has (\S+)")
async def _has(script_run: ScriptRun, name: str, cpus: str) -> None:
    assert str(script_run.driver.state.allocations[script_run.uid(name)].assigned) == cpus


@on_step(r"(\w) is (gone|disputed|not disputed)")
async def _state(script_run: ScriptRun, name: str, what: str) -> None:
    allocations, uid = script_run.driver.state.allocations, script_run.uid(name)
    if what == "gone":
        await script_run.harness.until(lambda: uid not in script_run.driver.state.allocations)
    else:
        assert bool(allocations[uid].disputed) == (what == "disputed"), allocations[uid]


@on_step(r"shared is (\S+)")
async def _shared(script_run: ScriptRun, cpus: str) -> None:
    assert str(script_run.driver.state.shared) == ("" if cpus == "empty" else cpus)


@on_step(r"the driver says (.*)")
async def _says(script_run: ScriptRun, text: str) -> None:
    found = [finding.what for finding in script_run.driver.findings]
    found += [str(fault) for fault in script_run.driver.enforcer.faults()]
    assert any(text in each for each in found), found
