"""Conversations as text, a step in a line.

driver comes | goes | dies | restarts         it registers; ends in good order; ends as by kill -9
driver refuses A                              it answers with an error for a claim
driver breaks off at A | after A              its process ends when it is asked for a claim, or has done it
driver works                                  it answers as it should
driver falls silent | speaks                  nothing is answered, until then
agent starts | stops | is killed | restarts   `begins`: it need not get ready
agent is killed before the call | after the answer     at that point of the next call to a driver
api goes | comes
pod P [with A,B] [cpu 2] [never]              `never`: it is not restarted
pod P is deleted | is forced off
claim A is made anew
claim A gets the device of B                  from now on
starts wait | starts go on                    containers are made and not started, until then
P crashes | P exits
P runs | P waits | P is gone | P is Failed | P is starting | P is leaving
P says REASON                                 an event
P started 2                                   so often
A asked 2 | A released 1                      so often a driver was asked; `A asked twice or more`
claims are damaged | admitted is damaged
quiet                                         everything is as it should be: `quiet.py`
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.playbooks.invariants import quiet
from tests.playbooks.world import SECONDS, World, running

Step = Callable[..., Awaitable[Any]]
_STEPS: list[tuple[re.Pattern[str], Step]] = []


def _read() -> dict[str, str]:
    """Read the conversations of the file in this directory, by title."""
    text = Path(__file__).with_name("conversations.txt").read_text()
    found = {}
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, _, lines = part.partition("\n")
        assert title not in found, f"there are two conversations {title!r}"
        found[title] = re.sub(r"^-- .*$", "", lines, flags=re.MULTILINE)
    return found


CONVERSATIONS = _read()


def says(pattern: str) -> Callable[[Step], Step]:
    def note(step: Step) -> Step:
        _STEPS.append((re.compile(pattern), step))
        return step

    return note


async def perform(world: World, line: str) -> None:
    """Do one step."""
    for pattern, step in _STEPS:
        found = pattern.fullmatch(line)
        if found:
            await step(world, *found.groups())
            return
    raise AssertionError(f"no such step: {line!r}")


def play(script: str, **settings: Any) -> None:
    """Play a conversation, and its end: everything comes back, all pods go, nothing is left."""

    async def story() -> None:
        async with running(agent=False, driver=False, **settings) as world:
            for line in filter(None, (line.strip() for line in script.splitlines())):
                try:
                    async with asyncio.timeout(2 * SECONDS):
                        await perform(world, line)
                        await _connected(world)
                except (AssertionError, TimeoutError) as error:
                    raise AssertionError(f"at {line!r}: {error}") from error
                assert not world.wrongs, f"after {line!r}: {world.wrongs}"
            await settle(world)
            await clear(world)

    asyncio.run(story())


async def _connected(world: World) -> None:
    """A driver that came is registered before the next step: calls can be counted."""
    if world.up and world.driver.up:
        plugins = world.agent.components.plugins
        assert plugins is not None
        await world.until(lambda: any(each.connected for each in plugins.drivers()) or not world.driver.up)


async def settle(world: World, *, tidy: bool = False) -> None:
    """Everything comes back and comes to rest; `tidy`: as when some time has passed."""
    world.mend()
    world.hold = ""
    await _works(world)
    await _speaks(world)
    if world.machine is not None:
        world.machine.gate.set()
    if not world.driver.up:
        await world.driver.come()
    if not world.up:
        await world.start_agent()
    await world.ready()
    if tidy:
        await _connected(world)
        await world.agent.clean_up_orphans()
    await quiet(world)


async def clear(world: World) -> None:
    """All pods go, and nothing is left of them."""
    for tree in await world.pods():
        if not tree["metadata"].get("deletionTimestamp"):
            await world.delete(tree["metadata"]["name"], namespace=tree["metadata"]["namespace"])
    for tree in await world.pods():
        await world.gone(tree["metadata"]["name"], tree["metadata"]["namespace"])
    await quiet(world)
    agent = world.agent
    assert not agent.components.runtime.sandboxes()
    assert not agent.components.claim_cache.claims()
    assert not world.driver.held
    assert not agent.admission_handler.admitted_uids
    assert not any(agent.admission_handler.ledger.requested.values())
    await world.until(lambda: not agent._workers and not agent._termination_tasks, "workers end")


# -- the driver


@says("driver (comes|goes|dies|restarts)")
async def _driver(world: World, what: str) -> None:
    if what in ("goes", "restarts"):
        await world.driver.go()
    if what == "dies":
        await world.driver.die()
    if what in ("comes", "restarts"):
        await world.driver.come()


@says(r"driver refuses (\w+)")
async def _refuses(world: World, claim: str) -> None:
    world.driver.refuses.add(claim)


@says(r"driver breaks off (at|after) (\w+)")
async def _breaks_off(world: World, when: str, claim: str) -> None:
    world.driver.crashes[claim] = "before" if when == "at" else "after"


@says("driver is dead")
async def _dead(world: World) -> None:
    await world.until(lambda: world.driver.dead, "the driver is dead")


@says("driver works")
async def _works(world: World) -> None:
    world.driver.refuses.clear()
    world.driver.crashes.clear()


@says("driver falls silent")
async def _silent(world: World) -> None:
    world.driver.gate.clear()


@says("driver speaks")
async def _speaks(world: World) -> None:
    world.driver.gate.set()


# -- the agent


@says("agent (starts|begins|stops|is killed|restarts|gets ready)")
async def _agent(world: World, what: str) -> None:
    if what in ("stops", "restarts"):
        await world.stop_agent()
    if what == "is killed":
        await world.kill_agent()
    if what == "begins":
        await world.begin_agent()
    if what in ("starts", "restarts"):
        await world.start_agent()
    if what == "gets ready":
        await world.ready()


@says("agent is killed (before the call|after the answer)")
async def _killed_at(world: World, when: str) -> None:
    await world.until(world.held_up.is_set, f"a call, {when}")
    await world.kill_agent()


@says("calls stop (before the call|after the answer)")
async def _stop_at(world: World, when: str) -> None:
    world.held_up.clear()
    world.hold = when.split(maxsplit=1)[0]


@says("calls go on")
async def _calls_go_on(world: World) -> None:
    world.hold = ""


# -- the API


@says("api (goes|comes)")
async def _api(world: World, what: str) -> None:
    world.cut() if what == "goes" else world.mend()


@says(r"pod (\w+)(?: with ([\w,]+))?(?: cpu (\S+))?( never)?")
async def _pod(world: World, name: str, claims: str | None, cpu: str | None, never: str | None) -> None:
    spec: dict[str, Any] = {"restartPolicy": "Never"} if never else {}
    await world.pod(name, *(claims.split(",") if claims else ()), cpu=cpu or "", **spec)


@says(r"pod (\w+) (is deleted|is forced off)")
async def _deleted(world: World, name: str, how: str) -> None:
    await world.delete(name, force=how == "is forced off")


@says(r"claim (\w+) is made anew")
async def _anew(world: World, name: str) -> None:
    await world.remake_claim(name)


@says(r"claim (\w+) gets the device of (\w+)")
async def _gets_device(world: World, claim: str, other: str) -> None:
    world.driver.devices[claim] = world.driver.device_of(other)


# -- containers


@says("starts (wait|go on)")
async def _starts(world: World, what: str) -> None:
    assert world.machine is not None
    world.machine.gate.clear() if what == "wait" else world.machine.gate.set()


@says(r"(\w+) (crashes|exits)")
async def _crashes(world: World, name: str, what: str) -> None:
    await world.crash(name, 0 if what == "exits" else 1)


# -- the disk


@says("(claims|admitted) (?:are|is) damaged")
async def _damaged(world: World, which: str) -> None:
    path = world.layout.claims if which == "claims" else world.layout.admitted
    path.write_bytes(path.read_bytes()[:-20].replace(b"checksum", b"checksun"))
    world.damaged = True


# -- what there is to see


@says(r"(\w+) (runs|waits|is gone|is starting|is leaving|is \w+)")
async def _sees(world: World, name: str, what: str) -> None:
    if what == "runs":
        await world.runs(name)
    elif what == "waits":
        await world.sees(name, lambda tree: tree and tree["status"]["phase"] == "Pending", what)
        assert world.agent.components.runtime.containers(await world.uid(name)) == []
    elif what == "is gone":
        await world.gone(name)
    elif what == "is starting":
        assert world.machine is not None
        await world.until(world.machine.waiting.is_set, what)
    elif what == "is leaving":
        await world.sees(name, lambda tree: tree and tree["metadata"].get("deletionTimestamp"), what)
        await asyncio.sleep(0.2)
        assert await world.get(name) is not None
    else:
        await world.ended(name, what.split()[1])


@says(r"(\w+) says (\w+)(?:: (.*))?")
async def _events(world: World, name: str, reason: str, text: str | None) -> None:
    for _ in range(500):
        found = await world.events(name)
        if any(each[0] == reason and (text or "") in each[1] for each in found):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{name} does not say {reason}: {found}")


@says(r"(\w+) started (\d+)")
async def _started(world: World, name: str, count: str) -> None:
    uid = await world.uid(name)
    await world.until(lambda: world.starts(uid) >= int(count), f"{name} started {count}")
    assert world.starts(uid) == int(count)


@says(r"(\w+) (asked|released) (\d+)( or more)?")
async def _counts(world: World, claim: str, call: str, count: str, more: str | None) -> None:
    method = "prepare" if call == "asked" else "unprepare"
    await world.until(lambda: world.driver.count(method, claim) >= int(count), f"{claim} {call} {count}")
    assert more or world.driver.count(method, claim) == int(count), world.driver.calls


@says("pause")
async def _pause(world: World) -> None:
    await asyncio.sleep(0.3)


@says("quiet")
async def _quiet(world: World) -> None:
    await quiet(world)
