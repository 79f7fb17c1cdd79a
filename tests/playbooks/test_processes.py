"""Scripts with containers as processes: they outlive agents, and end before their claims are released."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.containers import ContainerPhase
from tests.coroutines import run_by
from tests.playbooks.invariants import quiet
from tests.playbooks.node_harness import NodeHarness
from tests.playbooks.scenarios import PROCESSES, run_scenario
from tests.playbooks.script import CONVERSATIONS, run_script
from tests.sizes import FULL
from tests.waiting import until

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


# All conversations are tried with a simulated runtime; the short form tries every second with processes.
@pytest.mark.sized
@pytest.mark.parametrize("name", PLAYED if FULL else PLAYED[::2])
def test_conversation(name: str) -> None:
    run_script(CONVERSATIONS[name], **PROCESSES)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def pid_of(harness: NodeHarness, name: str) -> int:
    states = harness.runtime.containers(await harness.uid(name))
    (pid,) = [state.pid for state in states if state.phase is ContainerPhase.RUNNING]
    return pid


@run_by(run_scenario, **PROCESSES)
async def test_processes_have_their_cdi_devices_and_are_adopted(harness: NodeHarness) -> None:
    await harness.pod("p", "a")
    await harness.runs("p")
    pid = await pid_of(harness, "p")
    assert b"CLAIM=a\0" in Path(f"/proc/{pid}/environ").read_bytes()
    for how in (harness.stop_agent, harness.kill_agent):
        await how()
        assert _runs(pid)
        await harness.start_agent()
        await quiet(harness)
        assert await pid_of(harness, "p") == pid
    harness.cut()
    await harness.crash("p")
    await harness.until(lambda: not _runs(pid), "the end")
    harness.restore()
    await harness.until(
        lambda: harness.starts(harness.agent.admission_handler.admitted_uids[0]) == 2, "a restart"
    )
    await harness.runs("p")
    await quiet(harness)
    again = await pid_of(harness, "p")
    assert b"CLAIM=a\0" in Path(f"/proc/{again}/environ").read_bytes()
    assert harness.driver.count("prepare", "a") == 1


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("down", [False, True])
@run_by(run_scenario, **PROCESSES)
async def test_a_claim_is_released_after_its_process_is_gone(
    harness: NodeHarness, *, force: bool, down: bool
) -> None:
    stubborn = "trap '' TERM; while :; do sleep 0.05; done"
    container = {
        "name": "c",
        "image": "x",
        "command": ["/bin/sh", "-c", stubborn],
        "resources": {"claims": [{"name": "a"}]},
    }
    await harness.pod("p", "a", containers=[container])
    await harness.runs("p")
    pid = await pid_of(harness, "p")
    state: list[bool] = []
    harness.driver.on_release = lambda: state.append(_runs(pid))
    if down:
        await harness.kill_agent()
    await harness.delete("p", force=force)
    if down:
        assert _runs(pid)
        await harness.start_agent()
    await harness.until(lambda: state, "the release")
    assert state == [False]
    await harness.gone("p")
    await asyncio.sleep(0)


@run_by(run_scenario, **PROCESSES)
async def test_a_pod_over_its_limit_of_ephemeral_storage_is_evicted(harness: NodeHarness) -> None:
    def container(size: int, *claims: str) -> dict[str, Any]:
        command = f"head -c {size} /dev/urandom > file; while :; do sleep 0.05; done"
        limits = {"ephemeral-storage": "64Ki"}
        resources = {"claims": [{"name": name} for name in claims], "limits": limits}
        return {"name": "c", "image": "x", "command": ["/bin/sh", "-c", command], "resources": resources}

    await harness.pod("small", containers=[container(10)])
    await harness.pod("large", "a", containers=[container(100_000, "a")])
    status = (await harness.ended("large"))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    message = "Pod ephemeral local storage usage exceeds the total limit of containers 64Ki. "
    assert status["message"] == message
    await until(lambda: harness.events("large"), lambda events: ("Evicted", message) in events)
    await harness.until(lambda: harness.driver.count("unprepare", "a"), "the release")
    await harness.runs("small")
