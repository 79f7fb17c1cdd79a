"""Node agent process with a server: pods as local processes, kills, restarts, errors."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.main import main
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import ApiError
from tests.smoke.process import ServerProcess
from tests.smoke.programs import NodeProgram
from tests.waiting import until, wait_until

NS = "default"
NAME = "metal"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("server"))
    running.start()
    try:
        yield running
    finally:
        running.stop()


def run_scenario(server: ServerProcess, scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Client.connect(server.config()) as client:
            await scenario(client)

    asyncio.run(run())


def pod(name: str, node: str, *command: str) -> dict[str, Any]:
    container = {"name": "c", "image": "local", "command": list(command)}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


async def running(client: Client, name: str) -> dict[str, Any]:
    return dict(
        await until(
            lambda: client.get(PODS, name, NS),
            lambda tree: tree["status"].get("phase") == "Running",
            ignore=(ApiError,),
        )
    )


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def kubeconfig_of(who: str, server: ServerProcess, directory: Path) -> Path:
    """Return the path of credentials with the permissions of one node."""
    path = directory / "own"
    with suppress(SystemExit):
        main(["kubeconfig", who, "--data", str(server.data), "--server", server.url, "--out", str(path)])
    assert path.exists()
    return path


def test_containers_outlive_their_agent(server: ServerProcess, root: Path, tmp_path: Path) -> None:
    options = ("--name", NAME, "--root", str(root), "--cgroups", "plan", "--nri", str(root / "nri.sock"))
    own = kubeconfig_of(f"node:{NAME}", server, tmp_path)
    program = NodeProgram(tmp_path, own, *options).start()
    output = tmp_path / "pid"

    async def begin(client: Client) -> None:
        await until(
            lambda: client.get(NODES, NAME),
            lambda tree: any(
                (c["type"], c["status"]) == ("Ready", "True") for c in tree["status"]["conditions"]
            ),
            ignore=(ApiError,),
        )
        script = f"echo $$$$ > {output}.new; mv {output}.new {output}; exec sleep 1000"
        await client.create(PODS, pod("long", NAME, "sh", "-c", script), NS)
        tree = await running(client, "long")
        status = tree["status"]["containerStatuses"][0]
        assert status["containerID"].startswith("process://")
        seen["id"] = status["containerID"]
        await until(lambda: asyncio.to_thread(output.exists), bool)  # written after the start

    async def again(client: Client) -> None:
        tree = await running(client, "long")
        status = tree["status"]["containerStatuses"][0]
        assert (status["containerID"], status["restartCount"]) == (seen["id"], 0)

    async def end(client: Client) -> None:
        await client.delete(PODS, "long", NS)
        await until(lambda: client.list(PODS, NS), lambda pods: not pods.items, ignore=(ApiError,))

    seen: dict[str, str] = {}
    try:
        program.await_text("ready nodes=1")
        run_scenario(server, begin)
        pid = int(wait_until(output.read_text, ignore=(FileNotFoundError,)))
        assert is_alive(pid)

        code, text = NodeProgram(tmp_path, own, *options, name="second").run()
        assert code == 2
        assert "uses this directory; stop it, or choose another with --root" in text
        assert "Traceback" not in text

        program.kill()
        assert is_alive(pid)
        program.start()
        program.await_text("ready nodes=1", 2)
        run_scenario(server, again)
        assert is_alive(pid)

        assert program.stop() == 0
        assert is_alive(pid)
        program.start()
        program.await_text("ready nodes=1", 3)
        pods = json.loads(program.page("/pods"))
        assert [item["metadata"]["name"] for item in pods["items"]] == ["long"]
        assert "kubelet_running_pods 1.0" in program.page("/metrics")
        run_scenario(server, end)
        assert not is_alive(pid)
        assert program.stop() == 0
        assert "Traceback" not in program.text()
    finally:
        program.kill()
        if output.exists() and is_alive(int(output.read_text())):
            os.kill(int(output.read_text()), 9)


def test_many_simulated_nodes(server: ServerProcess, root: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text("capacity: {cpu: 16, memory: 64Gi}\nlabels: {rack: '7'}\n")
    options = ("--name", "sim", "--count", "20", "--runtime", "none", "--machine", str(machine), "--leave")
    program = NodeProgram(tmp_path, server.kubeconfig, *options, "--root", str(root)).start()

    async def look(client: Client) -> None:
        found = await client.list(NODES, labels="rack=7")
        assert len(found.items) == 20
        await client.create(PODS, pod("simulated", "sim-13", "anything"), NS)
        await running(client, "simulated")
        await client.delete(PODS, "simulated", NS)
        await until(lambda: client.list(PODS, NS), lambda pods: not pods.items, ignore=(ApiError,))

    async def gone(client: Client) -> None:
        assert not (await client.list(NODES, labels="rack=7")).items

    try:
        program.await_text("ready nodes=20")
        run_scenario(server, look)
        assert program.page("/readyz") == "ok"
        assert program.stop() == 0
        run_scenario(server, gone)
        assert list(root.iterdir()) == []
    finally:
        program.kill()


def test_a_directory_that_cannot_be_used_is_one_line(server: ServerProcess, tmp_path: Path) -> None:
    code, output = NodeProgram(tmp_path, server.kubeconfig, "--name", "bad", "--root", "/proc/x").run()
    assert code == 2
    assert "choose another with --root" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--count", "2"), "count: multiple nodes in one process require --runtime none"),
        (("--listen", "x"), "--listen: 'x' is not an address"),
        (("--config", "/absent"), "/absent: No such file"),
    ],
)
def test_mistakes_are_one_line(
    options: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["node", "--name", "bad", *options])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["node", "--help"])
    assert caught.value.code == 0
    assert "plimsoll node --kubeconfig ./kubeconfig --name worker-1" in capsys.readouterr().out
