"""Scheduler processes with a server: bindings, killed leaders, signals, files and dry runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.cli.main import main
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.fork_server import run_forked
from tests.manifests import (
    DRIVER,
    NODE_STATUS,
    claim_template,
    claiming_pod,
    device_class,
    node,
    pod,
    resource_slice,
)
from tests.smoke.process import ServerProcess
from tests.smoke.programs import SchedulerProgram
from tests.waiting import DEADLINE, until

NS = "default"
ALL = ("--scheduler-name", "default-scheduler")
CONFIG = """
profiles: [{schedulerName: default-scheduler, strategy: MostAllocated}]
leaderElection: {leaderElect: true, leaseDuration: 12s, renewDeadline: 10s, retryPeriod: 200ms}
log: {format: json}
debug: true
"""
Scenario = Callable[[Client], Awaitable[None]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("server"), durable=False)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def clean(server: ServerProcess) -> ServerProcess:
    """Return the server without the objects of former tests."""

    async def sweep(client: Client) -> None:
        for endpoint in (
            PODS,
            RESOURCE_CLAIMS,
            RESOURCE_CLAIM_TEMPLATES,
            NODES,
            RESOURCE_SLICES,
            DEVICE_CLASSES,
        ):
            await client.delete_collection(endpoint, NS if endpoint.namespaced else None, grace=0)
        await until(lambda: client.list(RESOURCE_CLAIMS, NS), lambda found: not found.items)

    run_scenario(server, sweep)
    return server


def run_scenario(server: ServerProcess, scenario: Scenario) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE), Client.connect(server.config()) as client:
            await scenario(client)

    asyncio.run(run())


async def furnish(client: Client, *names: str, devices: int = 2) -> None:
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    for name in names:
        await client.create(NODES, node(name))
        await client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
        await client.create(RESOURCE_SLICES, resource_slice(f"{name}-gpu", name, devices))


async def places(client: Client) -> dict[str, str]:
    pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS)).items]
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}


async def bound(client: Client, *names: str) -> dict[str, str]:
    found = await until(lambda: places(client), lambda found: all(found.get(name) for name in names))
    return dict(found)


async def devices_held(client: Client) -> list[tuple[str, str]]:
    claims = [codec.decode_tree(raw) for raw in (await client.list(RESOURCE_CLAIMS, NS)).items]
    return [
        (result["pool"], result["device"])
        for one in claims
        for result in one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    ]


def test_pods_are_bound_and_a_signal_ends_it(clean: ServerProcess, tmp_path: Path) -> None:
    scheduler = SchedulerProgram(tmp_path, clean.kubeconfig, *ALL, "--debug").start()

    async def scenario(client: Client) -> None:
        await furnish(client, "n1", "n2")
        for number in range(4):
            await client.create(PODS, claiming_pod(f"g{number}", "t"), NS)
            await client.create(PODS, pod(f"p{number}"), NS)
        await client.create(PODS, pod("other", schedulerName="other-scheduler"), NS)
        await client.create(PODS, claiming_pod("late", "t"), NS)
        found = await bound(client, *(f"{kind}{number}" for kind in "gp" for number in range(4)))
        assert sorted(found[f"g{number}"] for number in range(4)) == ["n1", "n1", "n2", "n2"]
        assert len(set(await devices_held(client))) == 4
        waiting = await until(
            lambda: client.get(PODS, "late", NS), lambda one: one.get("status", {}).get("conditions")
        )
        assert "2 cannot allocate all claims" in waiting["status"]["conditions"][0]["message"]
        assert found["other"] == ""
        events = await until(lambda: client.list(EVENTS, NS), lambda all: len(all.items) >= 9)
        assert any(b"Successfully assigned default/g0 to n" in raw for raw in events.items)
        await client.delete(PODS, "g0", NS, grace=0)
        await bound(client, "late")

    try:
        run_scenario(clean, scenario)
        assert scheduler.page("/readyz") == scheduler.page("/livez") == scheduler.page("/healthz") == "ok"
        page = scheduler.page("/metrics")
        assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 9.0' in page
        assert 'plimsoll_ledger_headroom{node="n1",resource="cpu"}' in page
        assert f'plimsoll_devices{{driver="{DRIVER}",state="held"}} 4' in page
        assert json.loads(scheduler.page("/debug/queue"))["lengths"]["unschedulable"] == 0
        assert set(json.loads(scheduler.page("/debug/ledger"))["nodes"]) == {"n1", "n2"}
    finally:
        code = scheduler.stop()
    assert code == 0
    assert "Traceback" not in scheduler.text()
    assert " bound pod=default/p0 node=n" in scheduler.text()


def test_the_leader_is_killed_and_another_takes_over(clean: ServerProcess, tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(CONFIG)
    names = ("one", "two")
    replicas = {
        name: SchedulerProgram(tmp_path, clean.kubeconfig, "--config", str(config), name=name).start()
        for name in names
    }
    leading = r'"msg": "leading", "identity": "([^"]+)"'

    async def scenario(client: Client) -> None:
        await furnish(client, "n1", "n2", devices=40)
        for name in names:
            await asyncio.to_thread(replicas[name].await_text, '"msg": "synced"')
        await until(_async(lambda: [n for n in names if '"leading"' in replicas[n].text()]), bool)
        (first,) = [name for name in names if '"leading"' in replicas[name].text()]
        second = names[1 - names.index(first)]
        assert "ok" in replicas[second].page("/readyz"), "who stands by is ready, too"
        for number in range(60):
            await client.create(PODS, claiming_pod(f"p{number}", "t"), NS)
            if number == 30:
                replicas[first].kill()
                lease = {"spec": {"leaseDurationSeconds": 2}}  # the rest of it would only be waited for
                await client.patch(LEASES, "plimsoll-scheduler", lease, "kube-system")
        found = await bound(client, *(f"p{number}" for number in range(60)))
        held = await devices_held(client)
        assert len(held) == len(set(held)) == 60, "no device is given twice, none is lost"
        assert set(found.values()) == {"n1", "n2"}
        identity = replicas[second].await_text(leading)[1]
        taken = await client.get(LEASES, "plimsoll-scheduler", "kube-system")
        assert taken["spec"]["holderIdentity"] == identity
        replicas[first].start()
        await asyncio.to_thread(replicas[first].await_text, '"msg": "synced"', 2)
        code = await asyncio.to_thread(replicas[second].stop)
        assert code == 0
        await client.create(PODS, pod("after"), NS)
        await bound(client, "after")

    try:
        run_scenario(clean, scenario)
    finally:
        for replica in replicas.values():
            replica.stop()
    for replica in replicas.values():
        assert "Traceback" not in replica.text()
        for line in replica.text().splitlines():
            json.loads(line)


def _async(look: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def answer() -> Any:
        return look()

    return answer


def test_a_dry_run_only_reports(clean: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    async def given(client: Client) -> None:
        await furnish(client, "n1", devices=1)
        for name in ("a", "b"):
            await client.create(PODS, claiming_pod(name, "t"), NS)
        await client.create(PODS, pod("plain"), NS)
        await client.create(PODS, pod("gated", schedulingGates=[{"name": "wait"}]), NS)
        await until(lambda: client.list(RESOURCE_CLAIMS, NS), lambda found: len(found.items) == 2)
        statuses = [lambda name=name: client.get(PODS, name, NS) for name in ("a", "b")]
        for look in statuses:
            await until(look, lambda one: one["status"].get("resourceClaimStatuses"))

    run_scenario(clean, given)
    with pytest.raises(SystemExit) as ended:
        main(["scheduler", "--kubeconfig", str(clean.kubeconfig), *ALL, "--dry-run"])
    assert ended.value.code == 1, "not all pods would be bound"
    lines = capsys.readouterr().out.splitlines()
    assert f"would-bind pod=default/a node=n1 devices={DRIVER}/n1/gpu-0 feasible=1" in lines
    assert "would-bind pod=default/plain node=n1 feasible=1" in lines
    assert any(line.startswith("would-refuse pod=default/b why=") for line in lines)
    assert "gated pod=default/gated gates=wait" in lines
    assert len(lines) == 4

    async def then(client: Client) -> None:
        assert set((await places(client)).values()) == {""}
        assert await devices_held(client) == []
        await client.delete(PODS, "b", NS, grace=0)
        await client.delete(PODS, "gated", NS, grace=0)

    run_scenario(clean, then)
    with pytest.raises(SystemExit) as ended:
        main(["scheduler", "--kubeconfig", str(clean.kubeconfig), *ALL, "--dry-run", "--log-format", "json"])
    assert ended.value.code == 0
    output = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(one["msg"], one["pod"]) for one in output} == {
        ("would-bind", "default/a"),
        ("would-bind", "default/plain"),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kubeconfig", "/nowhere/k"), "/nowhere/k: no such file"),
        (("--config", "/nowhere/c"), "/nowhere/c: No such file or directory"),
        (("--listen", "x"), "--listen: 'x' is not an address"),
        (("--feature-gates", "Nope=true"), "unknown feature gate 'Nope'"),
        (("--lease", "a/b/c"), "--lease: invalid lease 'a/b/c'"),
    ],
)
def test_mistakes_are_one_line(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scheduler", *options])
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_port_in_use_is_reported(clean: ServerProcess) -> None:
    options = ["--kubeconfig", str(clean.kubeconfig), "--listen", f"127.0.0.1:{clean.port}"]
    ended = run_forked(["scheduler", *options], DEADLINE)
    assert ended.returncode == 2
    assert f"plimsoll: cannot listen on 127.0.0.1:{clean.port}: " in ended.stderr
    assert "Traceback" not in ended.stderr
