"""The demo in a cluster: its output and the objects it leaves."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from plimsoll.api import codec
from plimsoll.client.endpoints import PODS
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.up.console import Console
from plimsoll.up.demo.play import Play, demo_pod_state, play_demo
from plimsoll.up.demo.story import DemoPodState
from plimsoll.up.settings import UpSettings
from plimsoll.up.up import Up
from tests.outputs import check_output
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE, until


@pytest.fixture
def settings() -> Iterator[UpSettings]:
    """Settings of a machine with one CPU."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        directory = Path(name)
        write_sysfs(make_machine(cores=1, threads=1), directory / "host")
        cpu = CpuSettings(node="", host_root=directory / "host")
        yield UpSettings(
            data=directory / "data", port=0, name="here", runtime="none", cpu=cpu, demo=True, once=True
        )


def run_demo(settings: UpSettings) -> tuple[bool, str, list[tuple[str, str]]]:
    """Return whether the demo succeeded, its output, and the nodes of its pods."""
    output = StringIO()
    fine: list[bool] = []
    places: list[tuple[str, str]] = []

    async def scenario() -> None:
        async def ready(cluster: Up) -> None:
            fine.append(await play_demo(cluster, Console(output)))
            assert cluster.server is not None
            for raw in (await cluster.server.client().list(PODS)).items:
                pod = codec.decode_tree(raw)
                places.append((pod["metadata"]["name"], pod["spec"].get("nodeName", "")))
            cluster.stop()

        async with asyncio.timeout(DEADLINE):
            await Up(settings).run(ready)

    asyncio.run(scenario())
    return fine == [True], output.getvalue(), places


def test_the_demo_runs_once(settings: UpSettings) -> None:
    fine, text, places = run_demo(settings)
    assert fine
    check_output("up/story.txt", text)
    assert len(text.splitlines()) <= 40
    assert all(len(line) <= 100 for line in text.splitlines())
    left = [
        ("batch", "large-1"),
        ("database", ""),
        ("inference", "train-1"),
        ("trainer", "train-1"),
        ("web", "small-1"),
    ]
    assert places == left  # a machine with a single CPU has none to give away
    fine, text, places = run_demo(settings)
    assert fine
    check_output("up/again.txt", text)
    assert places == left


def test_an_interrupted_demo_starts_over(settings: UpSettings) -> None:
    output = StringIO()

    async def interrupt() -> None:
        async def ready(cluster: Up) -> None:
            assert cluster.server is not None
            play = Play(cluster.server.client(), Console(output), pause=0.5)
            task = asyncio.create_task(play.run())
            await until(lambda: "2. One ledger" in output.getvalue())
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            cluster.stop()

        async with asyncio.timeout(DEADLINE):
            await Up(settings).run(ready)

    asyncio.run(interrupt())
    fine, text, _ = run_demo(replace(settings, nodes=1))
    assert fine
    assert "4. database is created again" in text
    assert re.search(r"web +pending: 0/5 nodes are available: 1 Insufficient cpu", text)


def test_a_step_that_fails_is_reported() -> None:
    """A cluster without the demo's nodes: no pod is scheduled, and the demo ends."""
    from plimsoll.up.local_cluster import LocalCluster  # noqa: PLC0415

    output = StringIO()

    async def scenario(cluster: LocalCluster) -> bool:
        async with cluster.connect() as client:
            return await Play(client, Console(output), seconds=0.1).run()

    with LocalCluster(scheduler=True) as cluster:
        cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: demo}}")
        cluster.apply(
            "{apiVersion: v1, kind: Node, metadata: {name: small-1},"
            " status: {allocatable: {cpu: '1', memory: 1Gi, pods: '9'}}}"
        )
        assert asyncio.run(scenario(cluster)) is False
    assert "failed: pod database is not scheduled after 0.1 s; see plimsoll explain" in output.getvalue()
    assert "2. One ledger" not in output.getvalue()


def test_states_of_a_pod() -> None:
    waiting = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: a, b. preemption: c."}
    pod = {"metadata": {"name": "p"}, "spec": {}, "status": {"conditions": [waiting]}}
    assert demo_pod_state(pod) == DemoPodState("p", why="0/1 nodes: a, b")
    assert demo_pod_state({**pod, "spec": {"nodeName": "n"}}) == DemoPodState("p", "n")
    assert demo_pod_state({"metadata": {"name": "p"}, "spec": {}}) == DemoPodState("p")
