"""CPU driver process: start, health and shutdown, with faults of its peers."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.apiserver.auth.users import driver_user
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.common.addresses import read_bind_address
from plimsoll.drivers.cpu.process.run import CpuDriverProcess, ProcessTimeouts, format_registration_error
from plimsoll.drivers.cpu.settings import CpuSettings, PinEnforcement, PinSettings
from plimsoll.errors import ConfigError, InputError
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import NodeSettings
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import registration
from plimsoll.up.local_nodes import MACHINE
from tests.deploy.accounts import end
from tests.unit.drivers.cpu.allocated_claims import allocated_claim, prepare
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE, until

NODE = "n1"
BRISK = ProcessTimeouts(registration=0.2, poll=0.02)


def settings_in(root: Path) -> CpuSettings:
    """Return settings of a driver on a machine of 8 CPUs, one of them reserved, with a node agent."""
    write_sysfs(make_machine(numa=2, cores=4), root / "host")
    layout = Layout(root / "node")
    return CpuSettings(
        node=NODE,
        reserved=1,
        host_root=root / "host",
        kubelet_root=layout.root,
        cdi=layout.cdi,
        nri=layout.nri,
        pin=PinSettings(enforcement=PinEnforcement.NRI),
    )


@asynccontextmanager
async def cluster(gates: str = "") -> AsyncIterator[RunningServer]:
    server = await start_server(ServerSettings(durability="normal", gates=Gates.parse(gates)))
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def node_in(server: RunningServer, root: Path) -> AsyncIterator[NodeProcess]:
    settings = NodeSettings(name=NODE, runtime="none", root=root / "node", machine=parse_machine(MACHINE))
    process = NodeProcess(server.client(), settings)
    task = asyncio.create_task(process.run())
    try:
        await process.ready(DEADLINE)
        yield process
    finally:
        await end(process.stop, task)


@asynccontextmanager
async def driver_in(
    client: Client, settings: CpuSettings, *, timeouts: ProcessTimeouts = BRISK
) -> AsyncIterator[CpuDriverProcess]:
    process = CpuDriverProcess(client, settings, listen="127.0.0.1:0", timeouts=timeouts)
    task = asyncio.create_task(process.run())
    try:
        await until(lambda: (process.pages is not None and process.pages.port) or task.done())
        yield process
    finally:
        await end(process.stop, task)
    task.result()


async def get(process: CpuDriverProcess, path: str) -> tuple[int, str]:
    assert process.pages is not None
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{process.pages.port}") as session,
        session.get(path) as answer,
    ):
        return answer.status, await answer.text()


async def add_claim(admin: Client, claim: dict[str, Any]) -> dict[str, Any]:
    """Create a claim with its allocation."""
    made = await admin.create(RESOURCE_CLAIMS, claim)
    return await admin.update(RESOURCE_CLAIMS, {**made, "status": claim["status"]}, subresource="status")


async def test_health_reports_the_real_state(root: Path) -> None:
    settings = settings_in(root)
    async with cluster() as server:
        client = server.client(driver_user("dra.cpu"))
        async with driver_in(client, settings) as process:
            assert await get(process, "/livez") == (200, "ok")
            for path in ("/healthz", "/readyz"):
                status, text = await get(process, path)
                assert status == 503
                assert "[-]" in text
            async with node_in(server, root):
                await process.wait_ready(DEADLINE)
                assert await get(process, "/healthz") == (200, "ok")
                assert await get(process, "/readyz") == (200, "ok")
                status, text = await get(process, "/healthz?verbose")
                assert text == "[+]started ok\n[+]driver ok\nhealthz check passed\n"
            # The agent is gone, and the runtime with it.
            await until(process.problems)
            status, text = await get(process, "/healthz")
            assert status == 503
            assert "containers are not pinned" in text
            assert await get(process, "/livez") == (200, "ok")
            async with node_in(server, root):
                await until(lambda: not process.problems())
                assert (await get(process, "/healthz"))[0] == 200
                shutil.rmtree(settings.plugin_dir)
                assert any("is not writable" in text for text in process.problems())


def test_gauges_and_pages_after_a_restart(root: Path) -> None:
    async def scenario() -> None:
        settings = settings_in(root)
        async with cluster() as server, node_in(server, root):
            client = server.client(driver_user("dra.cpu"))
            async with driver_in(client, settings) as process:
                await process.wait_ready(DEADLINE)
                assert {"dra_cpu_allocated_cpus 0.0", "dra_cpu_available_cpus 7.0"} <= await lines(process)
                claim = allocated_claim("c", "cpudevnuma001")
                made = await server.client().create(RESOURCE_CLAIMS, claim)
                made["status"] = claim["status"]
                made = await server.client().update(RESOURCE_CLAIMS, made, subresource="status")
                answer = await prepare(settings, made)
                assert not answer.error
                assert {
                    'dra_cpu_prepare_claims_total{result="success"} 1.0',
                    'dra_cpu_claim_allocated_cpus_bucket{le="2.0"} 1.0',
                } <= await lines(process)
                before = await gauges(process)
                shown = await described(process)
            async with driver_in(client, settings) as process:
                await process.wait_ready(DEADLINE)
                assert await gauges(process) == before
                assert held(await described(process)) == held(shown)
                assert 'dra_cpu_prepare_claims_total{result="success"} 0.0' in await lines(process)
            assert before >= {
                "dra_cpu_allocated_cpus 2.0",
                "dra_cpu_available_cpus 5.0",
                "dra_cpu_reserved_cpus 1.0",
                "dra_cpu_resource_claims_active 1.0",
                'plimsoll_cpu_device_cpus{device="cpudevnuma001"} 4.0',
                'plimsoll_cpu_device_free_cpus{device="cpudevnuma001"} 2.0',
                'plimsoll_cpu_link_up{peer="nri"} 1.0',
                'plimsoll_cpu_link_up{peer="kubelet"} 1.0',
                "plimsoll_cpu_healthy 1.0",
            }
            assert held(shown) == {made["metadata"]["uid"]: "4-5"}
            assert shown["claims"][0]["explain"]
            assert shown["problems"] == []

    def held(tree: dict[str, Any]) -> dict[str, str]:
        return {claim["uid"]: claim["cpus"] for claim in tree["claims"]}

    async def lines(process: CpuDriverProcess) -> set[str]:
        status, text = await get(process, "/metrics")
        assert status == 200
        return set(text.splitlines())

    async def gauges(process: CpuDriverProcess) -> set[str]:
        log_text = await lines(process)
        families = [
            line.split()[2] for line in log_text if line.startswith("# TYPE") and line.endswith("gauge")
        ]
        own = [name for name in families if name.startswith(("dra_cpu", "plimsoll_cpu"))]
        return {line for line in log_text if line.startswith(tuple(own))}

    async def described(process: CpuDriverProcess) -> dict[str, Any]:
        status, text = await get(process, "/debug/driver")
        assert status == 200
        tree: dict[str, Any] = json.loads(text)
        return tree

    asyncio.run(scenario())


async def test_one_driver_for_each_directory(root: Path) -> None:
    settings = settings_in(root)
    async with cluster() as server:
        client = server.client()
        async with driver_in(client, settings):
            with pytest.raises(ConfigError, match=r"the driver with PID \d+ uses this directory"):
                await CpuDriverProcess(client, settings).run()
        async with driver_in(client, settings) as process:
            await until(lambda: process.started)


def test_a_kubelet_that_refuses_is_reported_and_awaited(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def notify(settings: CpuSettings, registered: bool, error: str) -> None:
        channel = rpc.dial(settings.kubelet_root / "plugins_registry" / "dra.cpu-reg.sock")
        method = rpc.find_method(registration.DESCRIPTOR, "Registration", "NotifyRegistrationStatus")
        status = registration.RegistrationStatus(plugin_registered=registered, error=error)
        try:
            with suppress(grpc.aio.AioRpcError):  # who is refused answers with an error, as upstream's helper
                await rpc.call(channel, method, status, timeout=DEADLINE)
        finally:
            await rpc.close(channel)

    async def scenario() -> None:
        settings = settings_in(root)
        async with cluster() as server, driver_in(server.client(), settings) as process:
            await until(lambda: process.started)
            await until(
                lambda: "kubelet never reported a registration status, check that it watches " in log_text()
            )
            assert f"{settings.kubelet_root}/plugins_registry" in log_text()
        async with (
            cluster() as server,
            driver_in(
                server.client(), settings, timeouts=ProcessTimeouts(registration=2.0, poll=0.02)
            ) as process,
        ):
            await until(lambda: process.started)
            await notify(settings, False, "wrong version")
            await until(lambda: 'the plugin, last rejection was "wrong version"' in log_text())
            assert any("wrong version" in problem for problem in process.problems())
            await notify(settings, True, "")
            await until(lambda: process.driver.plugin_server.registered)
            assert not any("registered" in problem for problem in process.problems())

    def log_text() -> str:
        return "\n".join(record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.INFO, "plimsoll"):
        asyncio.run(scenario())
    assert (
        format_registration_error("no", root)
        == 'kubelet did not register the plugin, last rejection was "no"'
    )


async def test_a_stop_request_during_startup_is_honored(root: Path) -> None:
    async with cluster() as server:
        process = CpuDriverProcess(server.client(), settings_in(root))
        process.stop()
        await asyncio.wait_for(process.run(), DEADLINE)
        assert process.problems() == ("the driver has not started yet",)


async def test_an_unreadable_machine_fails_the_start_with_a_message(root: Path) -> None:
    settings = settings_in(root)
    shutil.rmtree(root / "host")
    async with cluster() as server:
        with pytest.raises(InputError, match="online"):
            await CpuDriverProcess(server.client(), settings).run()


def test_health_and_metrics_are_local_by_default() -> None:
    assert read_bind_address(CpuSettings(node="n").bind_address)[0] == "127.0.0.1"


def test_addresses() -> None:
    assert read_bind_address(":8080") == (None, 8080)
    assert read_bind_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert read_bind_address("[::1]:80") == ("::1", 80)
    for wrong in ("8080", "host", ":x", ":70000"):
        with pytest.raises(ConfigError, match="--bind-address"):
            read_bind_address(wrong)


async def test_cpus_are_published_one_by_one_where_the_server_drops_grouped_devices(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_in(root)
    claim = allocated_claim("c", "cpudev003")
    for result in claim["status"]["allocation"]["devices"]["results"]:
        del result["shareID"], result["consumedCapacity"]
    async with cluster("DRAConsumableCapacity=false") as server, node_in(server, root):
        client = server.client(driver_user("dra.cpu"))
        claim = await add_claim(server.client(), claim)
        cpus = []
        for _ in range(2):  # after a restart, the mode is chosen again
            caplog.clear()
            async with driver_in(client, settings) as process:
                await process.wait_ready(DEADLINE)
                assert await get(process, "/readyz") == (200, "ok")
                status, text = await get(process, "/readyz?verbose")
                assert status == 200
                assert (
                    "\nKubernetes 1.36: single CPUs (groups of CPUs: from 1.36 on, or with the feature gate "
                    "DRAConsumableCapacity); claims are charged by "
                ) in text
                (raw,) = (await server.client().list(RESOURCE_SLICES)).items
                devices = codec.decode_tree(raw)["spec"]["devices"]
                assert [each["name"] for each in devices] == [f"cpudev00{number}" for number in range(7)]
                assert codec.decode_tree(raw)["spec"]["pool"]["generation"] == 1, "and nothing else before"
                assert "CPUs are published one by one" in caplog.text
                assert not (await prepare(settings, claim)).error
                cpus.append(process.driver.state.allocations[claim["metadata"]["uid"]].cpus)
        assert cpus[0] == cpus[1]
        assert len(cpus[0]) == 1
