"""The same conversations where containers are processes: they outlive agents, and end before their claims."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.containers import ContainerPhase
from tests.playbooks.invariants import quiet
from tests.playbooks.script import CONVERSATIONS, play
from tests.playbooks.test_room import tell
from tests.playbooks.world import World

#: A process that ends with 0 on SIGUSR1; limits are shown as a plan, so that anybody can run this.
_COMMAND = ("/bin/sh", "-c", "trap 'exit 0' USR1; while :; do sleep 0.05; done")
PROCESSES: dict[str, Any] = {"runtime": "process", "cgroups": "plan", "images": {"x": _COMMAND}}

PLAYED = [
    "a pod comes and goes",
    "driver dies after it has prepared, before it answers",
    "driver restarts while the container runs",
    "container crashes, and restarts without a new prepare",
    "container ends for good: its claim is released, the pod stays",
    "pod forced off while it is prepared",
    "forced off and made again while the agent is down",
    "deleted while the API is away",
    "driver absent at the end: the pod stays until it comes",
    "claim shared by two pods: prepared once, released with the last",
    "agent restarts while the container runs",
    "agent killed between the answer and the record",
    "agent killed again and again",
    "agent killed and begun with the API away, and a pod deleted meanwhile",
    "record of claims damaged: set aside, rebuilt, pods go on",
    "two pods that do not fit together: the first stays in",
]


@pytest.mark.parametrize("name", PLAYED)
def test_conversation(name: str) -> None:
    play(CONVERSATIONS[name], **PROCESSES)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def pid_of(world: World, name: str) -> int:
    states = world.runtime.containers(await world.uid(name))
    (pid,) = [state.pid for state in states if state.phase is ContainerPhase.RUNNING]
    return pid


def test_processes_have_what_their_claims_give_them_and_are_adopted() -> None:
    async def story(world: World) -> None:
        await world.pod("p", "a")
        await world.runs("p")
        pid = await pid_of(world, "p")
        assert b"CLAIM=a\0" in Path(f"/proc/{pid}/environ").read_bytes()
        for how in (world.stop_agent, world.kill_agent):
            await how()
            assert _runs(pid)
            await world.start_agent()
            await quiet(world)
            assert await pid_of(world, "p") == pid
        world.cut()
        await world.crash("p")
        await world.until(lambda: not _runs(pid), "the end")
        world.mend()
        await world.until(
            lambda: world.starts(world.agent.admission_handler.admitted_uids[0]) == 2, "a restart"
        )
        await world.runs("p")
        await quiet(world)
        again = await pid_of(world, "p")
        assert b"CLAIM=a\0" in Path(f"/proc/{again}/environ").read_bytes()
        assert world.driver.count("prepare", "a") == 1

    tell(story, **PROCESSES)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_a_claim_is_released_after_its_process_is_gone(force: bool, down: bool) -> None:
    async def story(world: World) -> None:
        stubborn = "trap '' TERM; while :; do sleep 0.05; done"
        container = {
            "name": "c",
            "image": "x",
            "command": ["/bin/sh", "-c", stubborn],
            "resources": {"claims": [{"name": "a"}]},
        }
        await world.pod("p", "a", containers=[container])
        await world.runs("p")
        pid = await pid_of(world, "p")
        state: list[bool] = []
        world.driver.on_release = lambda: state.append(_runs(pid))
        if down:
            await world.kill_agent()
        await world.delete("p", force=force)
        if down:
            assert _runs(pid)
            await world.start_agent()
        await world.until(lambda: state, "the release")
        assert state == [False]
        await world.gone("p")
        await asyncio.sleep(0)

    tell(story, **PROCESSES)
