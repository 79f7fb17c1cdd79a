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
from pathlib import Path
from typing import Any

from tests.playbooks.invariants import quiet
from tests.playbooks.node_harness import NodeHarness, running
from tests.script_steps import StepTable, read_scripts
from tests.waiting import DEADLINE, until

CONVERSATIONS = read_scripts(Path(__file__).with_name("conversations.txt"))
_STEPS = StepTable()
on_step, perform = _STEPS.on_step, _STEPS.perform


def run_script(script: str, **settings: Any) -> None:
    """Run a script; then end all faults, delete all pods and check that nothing is left."""

    async def scenario() -> None:
        async with running(agent=False, driver=False, **settings) as harness:
            for line in filter(None, (line.strip() for line in script.splitlines())):
                try:
                    async with asyncio.timeout(DEADLINE):
                        await perform(harness, line)
                        await _connected(harness)
                except (AssertionError, TimeoutError) as error:
                    raise AssertionError(f"at {line!r}: {error}") from error
                assert not harness.wrongs, f"after {line!r}: {harness.wrongs}"
            await settle(harness)
            await clear(harness)

    asyncio.run(scenario())


async def _connected(harness: NodeHarness) -> None:
    """Wait until a started driver is registered, so that calls can be counted."""
    if harness.up and harness.driver.up:
        plugins = harness.agent.components.plugins
        assert plugins is not None
        await harness.until(
            lambda: any(each.connected for each in plugins.drivers()) or not harness.driver.up
        )


async def settle(harness: NodeHarness, *, tidy: bool = False) -> None:
    """End all faults and wait until the invariants hold; `tidy`: also run housekeeping."""
    harness.restore()
    harness.hold = ""
    await _works(harness)
    await _speaks(harness)
    if harness.machine is not None:
        harness.machine.gate.set()
    if not harness.driver.up:
        await harness.driver.come()
    if not harness.up:
        await harness.start_agent()
    await harness.ready()
    if tidy:
        await _connected(harness)
        await harness.agent.clean_up_orphans()
    await quiet(harness)


async def clear(harness: NodeHarness) -> None:
    """Delete all pods and check that nothing is left of them."""
    for tree in await harness.pods():
        if not tree["metadata"].get("deletionTimestamp"):
            await harness.delete(tree["metadata"]["name"], namespace=tree["metadata"]["namespace"])
    for tree in await harness.pods():
        await harness.gone(tree["metadata"]["name"], tree["metadata"]["namespace"])
    await quiet(harness)
    agent = harness.agent
    assert not agent.components.runtime.sandboxes()
    assert not agent.components.claim_cache.claims()
    assert not harness.driver.held
    assert not agent.admission_handler.admitted_uids
    assert not any(agent.admission_handler.ledger.requested.values())
    await harness.until(lambda: not agent.workers and not agent.termination_tasks, "workers end")


# -- the driver


@on_step("driver (comes|goes|dies|restarts)")
async def _driver(harness: NodeHarness, what: str) -> None:
    if what in ("goes", "restarts"):
        await harness.driver.go()
    if what == "dies":
        await harness.driver.die()
    if what in ("comes", "restarts"):
        await harness.driver.come()


@on_step(r"driver refuses (\w+)")
async def _refuses(harness: NodeHarness, claim: str) -> None:
    harness.driver.refuses.add(claim)


@on_step(r"driver breaks off (at|after) (\w+)")
async def _breaks_off(harness: NodeHarness, when: str, claim: str) -> None:
    harness.driver.crashes[claim] = "before" if when == "at" else "after"


@on_step("driver is dead")
async def _dead(harness: NodeHarness) -> None:
    await harness.until(lambda: harness.driver.dead, "the driver is dead")


@on_step("driver works")
async def _works(harness: NodeHarness) -> None:
    harness.driver.refuses.clear()
    harness.driver.crashes.clear()


@on_step("driver falls silent")
async def _silent(harness: NodeHarness) -> None:
    harness.driver.gate.clear()


@on_step("driver speaks")
async def _speaks(harness: NodeHarness) -> None:
    harness.driver.gate.set()


# -- the agent


@on_step("agent (starts|begins|stops|is killed|restarts|gets ready)")
async def _agent(harness: NodeHarness, what: str) -> None:
    if what in ("stops", "restarts"):
        await harness.stop_agent()
    if what == "is killed":
        await harness.kill_agent()
    if what == "begins":
        await harness.begin_agent()
    if what in ("starts", "restarts"):
        await harness.start_agent()
    if what == "gets ready":
        await harness.ready()


@on_step("agent is killed (before the call|after the answer)")
async def _killed_at(harness: NodeHarness, when: str) -> None:
    await harness.until(harness.held_up.is_set, f"a call, {when}")
    await harness.kill_agent()


@on_step("calls stop (before the call|after the answer)")
async def _stop_at(harness: NodeHarness, when: str) -> None:
    harness.held_up.clear()
    harness.hold = when.split(maxsplit=1)[0]


@on_step("calls go on")
async def _calls_go_on(harness: NodeHarness) -> None:
    harness.hold = ""


# -- the API


@on_step("api (goes|comes)")
async def _api(harness: NodeHarness, what: str) -> None:
    harness.cut() if what == "goes" else harness.restore()


@on_step(r"pod (\w+)(?: with ([\w,]+))?(?: cpu (\S+))?( never)?")
async def _pod(
    harness: NodeHarness, name: str, claims: str | None, cpu: str | None, never: str | None
) -> None:
    spec: dict[str, Any] = {"restartPolicy": "Never"} if never else {}
    await harness.pod(name, *(claims.split(",") if claims else ()), cpu=cpu or "", **spec)


@on_step(r"pod (\w+) (is deleted|is forced off)")
async def _deleted(harness: NodeHarness, name: str, how: str) -> None:
    await harness.delete(name, force=how == "is forced off")


@on_step(r"claim (\w+) is made anew")
async def _anew(harness: NodeHarness, name: str) -> None:
    await harness.remake_claim(name)


@on_step(r"claim (\w+) gets the device of (\w+)")
async def _gets_device(harness: NodeHarness, claim: str, other: str) -> None:
    harness.driver.devices[claim] = harness.driver.device_of(other)


# -- containers


@on_step("starts (wait|go on)")
async def _starts(harness: NodeHarness, what: str) -> None:
    assert harness.machine is not None
    harness.machine.gate.clear() if what == "wait" else harness.machine.gate.set()


@on_step(r"(\w+) (crashes|exits)")
async def _crashes(harness: NodeHarness, name: str, what: str) -> None:
    await harness.crash(name, 0 if what == "exits" else 1)


# -- the disk


@on_step("(claims|admitted) (?:are|is) damaged")
async def _damaged(harness: NodeHarness, which: str) -> None:
    path = harness.layout.claims if which == "claims" else harness.layout.admitted
    path.write_bytes(path.read_bytes()[:-20].replace(b"checksum", b"checksun"))
    harness.damaged = True


# -- checks


@on_step(r"(\w+) (runs|waits|is gone|is starting|is leaving|is \w+)")
async def _sees(harness: NodeHarness, name: str, what: str) -> None:
    if what == "runs":
        await harness.runs(name)
    elif what == "waits":
        await harness.sees(name, lambda tree: tree and tree["status"]["phase"] == "Pending", what)
        assert harness.agent.components.runtime.containers(await harness.uid(name)) == []
    elif what == "is gone":
        await harness.gone(name)
    elif what == "is starting":
        assert harness.machine is not None
        await harness.until(harness.machine.waiting.is_set, what)
    elif what == "is leaving":
        await harness.sees(name, lambda tree: tree and tree["metadata"].get("deletionTimestamp"), what)
        await asyncio.sleep(0.2)
        assert await harness.get(name) is not None
    else:
        await harness.ended(name, what.split()[1])


@on_step(r"(\w+) says (\w+)(?:: (.*))?")
async def _events(harness: NodeHarness, name: str, reason: str, text: str | None) -> None:
    await until(
        lambda: harness.events(name),
        lambda found: any(each[0] == reason and (text or "") in each[1] for each in found),
        context=f"{name} does not say {reason}",
    )


@on_step(r"(\w+) started (\d+)")
async def _started(harness: NodeHarness, name: str, count: str) -> None:
    uid = await harness.uid(name)
    await harness.until(lambda: harness.starts(uid) >= int(count), f"{name} started {count}")
    assert harness.starts(uid) == int(count)


@on_step(r"(\w+) (asked|released) (\d+)( or more)?")
async def _counts(harness: NodeHarness, claim: str, call: str, count: str, more: str | None) -> None:
    method = "prepare" if call == "asked" else "unprepare"
    await harness.until(lambda: harness.driver.count(method, claim) >= int(count), f"{claim} {call} {count}")
    assert more or harness.driver.count(method, claim) == int(count), harness.driver.calls


@on_step("pause")
async def _pause(harness: NodeHarness) -> None:
    await asyncio.sleep(0.3)


@on_step("quiet")
async def _quiet(harness: NodeHarness) -> None:
    await quiet(harness)
