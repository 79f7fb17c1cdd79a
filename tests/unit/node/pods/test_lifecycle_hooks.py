"""Probes and lifecycle hooks of running containers."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.client.endpoints import EVENTS, PODS
from plimsoll.node.pods.command_runner import HostCommandRunner
from tests.coroutines import run_by
from tests.streams import StreamServer, serving_streams
from tests.unit.node.pods.local_commands import beside_us
from tests.unit.node.pods.worker_harness import Node
from tests.unit.node.pods.worker_helpers import (
    PLAIN,
    condition,
    gone,
    has_reason,
    is_phase,
    run_scenario,
)
from tests.waiting import until


def serve(answers: list[int]) -> AbstractAsyncContextManager[StreamServer]:
    """Run an HTTP server that responds with these codes, then always with the last one."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        code = answers.pop(0) if len(answers) > 1 else answers[0]
        writer.write(f"HTTP/1.1 {code} x\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    return serving_streams(answer)


def probe(port: int, **rest: Any) -> dict[str, Any]:
    patient = {"periodSeconds": 1, "timeoutSeconds": 500, "failureThreshold": 1}
    return {"httpGet": {"path": "/", "port": port}, **patient, **rest}


async def is_ready(node: Node, wanted: str) -> bool:
    return bool((await condition(node, "Ready") or {}).get("status") == wanted)


@run_by(run_scenario, "cluster")
async def test_readiness(node: Node) -> None:
    answers = [500, 200]
    node.deps.timing = replace(node.deps.timing, second=0.02)
    async with serve(answers) as server:
        container = {"name": "c", "image": "i", "readinessProbe": probe(server.port)}
        await node.begin(await node.create({"containers": [container]}))
        await until(lambda: is_ready(node, "True"))
        await until(lambda: has_reason(node, "Unhealthy"))
        # A new agent does not take back what was found out.
        await node.crash()
        node.deps.timing = replace(node.deps.timing, second=100.0)
        await node.begin(await node.view())
        await asyncio.sleep(0.05)
        assert await is_ready(node, "True")
        await node.crash()
        answers[:] = [503]
        node.deps.timing = replace(node.deps.timing, second=0.02)
        await node.begin(await node.view())
        await until(lambda: is_ready(node, "False"))
        assert node.log.count("create") == 1


@run_by(run_scenario, "cluster")
async def test_liveness_and_startup(node: Node) -> None:
    lively, starting = [500], [500, 500, 200]
    node.deps.timing = replace(node.deps.timing, second=0.02)
    async with serve(lively) as first, serve(starting) as second:
        container = {
            "name": "c",
            "image": "i",
            "livenessProbe": probe(first.port),
            "startupProbe": probe(second.port, failureThreshold=5),
        }
        await node.begin(await node.create({"containers": [container]}))
        await until(lambda: node.log.count("stop c"))
        assert starting == [200], "liveness waits for the start"
        lively[:] = [200]  # perhaps not before the next one was asked

        async def is_well_again() -> bool:
            # The first status may be written after the first stop.
            (own,) = (await node.status()).get("containerStatuses") or [{"restartCount": 0}]
            return bool(own["restartCount"] >= 1 and own["ready"])

        await until(is_well_again)


@run_by(run_scenario, "cluster")
async def test_only_readiness_is_probed_while_a_pod_terminates(node: Node) -> None:
    ready, lively = [200], [200]
    node.machine.deaf = {"c"}
    node.deps.timing = replace(node.deps.timing, second=0.02)
    async with serve(ready) as first, serve(lively) as second:
        probes = {"readinessProbe": probe(first.port), "livenessProbe": probe(second.port)}
        spec = {"containers": [{"name": "c", "image": "i", **probes}]}
        await node.begin(await node.create({**spec, "terminationGracePeriodSeconds": 1000}))
        await until(lambda: is_ready(node, "True"))
        await node.delete(1000)
        await until(lambda: node.log.count("stop c"))
        lively[:] = [500]
        ready[:] = [503]
        await until(lambda: is_ready(node, "False"))
        events = await node.admin.list(EVENTS, "default")
        trees = [codec.decode_tree(raw) for raw in events.items]
        texts = [tree["message"] for tree in trees if tree["involvedObject"]["name"] == node.name]
        assert not [text for text in texts if "Liveness" in text]
        sources = [tree["source"] for tree in trees if tree["reason"] == "Unhealthy"]
        assert {"component": "kubelet", "host": "n1"} in sources
        await node.crash()  # its time is not over


@run_by(run_scenario, "cluster")
async def test_probes_always_pass_on_a_simulated_node(node: Node) -> None:
    node.deps.skip_probes = True
    every = {f"{kind}Probe": probe(1) for kind in ("readiness", "liveness", "startup")}
    hooks = {"postStart": {"exec": {"command": ["false"]}}}
    container = {"name": "c", "image": "i", "lifecycle": hooks, **every}
    await node.begin(await node.create({"containers": [container]}))
    await until(lambda: is_ready(node, "True"))


def shell(node: Node) -> HostCommandRunner:
    held = node.machine.inventory
    return beside_us(lambda id: next((h.spec.env for h in held().containers if h.state.id == id), {}))


@run_by(run_scenario, "cluster")
async def test_hooks(node: Node, *, tmp_path: Path) -> None:
    node.deps.commands = shell(node)
    note = f"echo $KIND >> {tmp_path}/notes"
    hooks = {kind: {"exec": {"command": ["sh", "-c", note]}} for kind in ("postStart", "preStop")}
    env = [{"name": "KIND", "value": "mine"}]
    container = {"name": "c", "image": "i", "lifecycle": hooks, "env": env}
    await node.begin(await node.create({**PLAIN, "containers": [container]}))
    await until(lambda: is_phase(node, "Running"))
    await until(lambda: (tmp_path / "notes").exists())
    await node.delete()
    await gone(node)
    assert (tmp_path / "notes").read_text() == "mine\nmine\n"


@run_by(run_scenario, "cluster")
async def test_a_stop_hook_is_not_cut_short_by_changes_of_its_pod(node: Node, *, tmp_path: Path) -> None:
    node.deps.commands = shell(node)
    script = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    hooks = {"preStop": {"exec": {"command": ["sh", "-c", script]}}}
    container = {"name": "c", "image": "i", "lifecycle": hooks}
    await node.begin(await node.create({"containers": [container]}))
    await until(lambda: is_phase(node, "Running"))
    await node.delete(1000)
    await until(lambda: (tmp_path / "begun").exists())
    for number in range(3):
        labels = {"metadata": {"labels": {"number": str(number)}}}
        await node.admin.patch(PODS, node.name, labels, "default")
        await asyncio.sleep(0.05)
    assert not node.log.count("stop c")
    (tmp_path / "go").touch()
    await gone(node)


@run_by(run_scenario, "cluster")
async def test_a_start_whose_hook_fails_is_undone(node: Node) -> None:
    node.deps.commands = shell(node)
    hooks = {"postStart": {"exec": {"command": ["false"]}}}
    await node.begin(await node.create({"containers": [{"name": "c", "image": "i", "lifecycle": hooks}]}))
    await until(lambda: node.log.count("create c 1"))
    await until(lambda: has_reason(node, "FailedPostStartHook"))


@run_by(run_scenario, "cluster")
async def test_the_stop_hook_of_a_sidecar_runs_after_the_main_containers(
    node: Node, *, tmp_path: Path
) -> None:
    node.deps.commands = shell(node)
    node.machine.deaf = {"c"}
    # Time enough for the hook, whose turn comes when the pod's own time is over.
    node.deps.timing = replace(node.deps.timing, grace_min=3.0)
    hooks = {"preStop": {"exec": {"command": ["touch", str(tmp_path / "stopping")]}}}
    side = {"name": "s", "image": "i", "restartPolicy": "Always", "lifecycle": hooks}
    spec = {**PLAIN, "initContainers": [side], "terminationGracePeriodSeconds": 4}
    await node.begin(await node.create(spec))
    await until(lambda: is_phase(node, "Running"))
    await node.delete()
    await until(lambda: node.log.count("stop c"))
    await asyncio.sleep(0.1)
    assert not (tmp_path / "stopping").exists()
    await gone(node)
    assert (tmp_path / "stopping").exists()
    assert node.log.place("stopped c") < node.log.place("stop s")
