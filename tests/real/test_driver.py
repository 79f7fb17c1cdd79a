"""Test driver of Kubernetes as a process, with our plugin manager and server.

It registers, publishes its devices, prepares claims that it reads from the server, reports health, is
restarted and killed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.node.claim_info import ClaimRef, DriverFault, PreparedDevice
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager, PluginTiming
from tests.manifests import DRIVER, claim, device_class, node
from tests.real.programs import ASSETS, missing
from tests.smoke.process import ServerProcess
from tests.unit.node.plugins.peers import registered
from tests.waiting import until

PROGRAM = "dra-test-driver"
pytestmark = pytest.mark.skipif(bool(missing(PROGRAM)), reason=missing(PROGRAM))
NS, NODE = "default", "n1"
SHARE = "6b0c4c5e-2b6e-4c7d-a2f3-1d2c3b4a5968"
TIMES = PluginTiming(scan=0.1, gone=1.0)


class Driver:
    """Driver process as the administrator of a server, on one node."""

    def __init__(self, server: ServerProcess, layout: Layout) -> None:
        self.log = server.directory / "driver.log"
        self._command = [str(ASSETS / PROGRAM), f"--kubeconfig={server.kubeconfig}", f"--drivername={DRIVER}"]
        self._command += ["-v=5", "kubelet-plugin", f"--plugin-registration-path={layout.registry}"]
        self._command += [f"--datadir={layout.plugins}", f"--cdi-dir={layout.cdi}", f"--node-name={NODE}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(20)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def layout() -> Iterator[Layout]:
    directory = tempfile.mkdtemp(prefix="p-", dir="/tmp")
    yield Layout(Path(directory))
    shutil.rmtree(directory)


async def allocated(client: Client, name: str, device: str, share: str = "") -> ClaimRef:
    """Create a claim that is already allocated."""
    made = await client.create(RESOURCE_CLAIMS, claim(name, DRIVER), NS)
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    if share:
        result["shareID"] = share
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await client.patch(RESOURCE_CLAIMS, name, status, NS, subresource="status")
    return ClaimRef(NS, name, made["metadata"]["uid"])


async def slices(client: Client) -> int:
    return len((await client.list(RESOURCE_SLICES)).items)


async def work(client: Client, driver: Driver, layout: Layout, plugins: PluginManager) -> None:
    gone: list[str] = []

    async def on_gone(name: str) -> None:
        gone.append(name)

    plugins.on_gone = on_gone
    (layout.plugins / DRIVER).mkdir()  # the driver expects it, as its deployment makes it
    await client.create(NODES, node(NODE))
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    driver.start()
    await registered(plugins)
    (info,) = plugins.drivers()
    assert (info.name, info.version) == (DRIVER, "v1")
    assert info.endpoint == str(layout.plugins / DRIVER / "dra.sock")
    await until(lambda: slices(client))  # it publishes once it is registered

    one = await allocated(client, "one", "device-00")
    two = await allocated(client, "two", "device-01", SHARE)
    found = await plugins.prepare(DRIVER, [one, two])
    for ref, device, share in ((one, "device-00", None), (two, "device-01", SHARE)):
        cdi = f"{DRIVER}/test=claim-{ref.uid}-gpu"
        assert found[ref.uid] == (PreparedDevice(NODE, device, ("gpu",), (cdi,), share),)
    specs = [json.loads(path.read_text()) for path in sorted(layout.cdi.iterdir())]
    assert {spec["kind"] for spec in specs} == {f"{DRIVER}/test"}
    assert len(specs) == 2
    assert await plugins.prepare(DRIVER, [one, two]) == found

    # It does not know a claim by this UID: the whole call fails, with its words.
    fault = (await plugins.prepare(DRIVER, [ClaimRef(NS, "one", "another-uid")]))["another-uid"]
    assert isinstance(fault, DriverFault)
    assert fault.kind == "broken"
    assert "get resource claims" in fault.message

    health = await until(lambda: plugins.health(DRIVER, NODE, "device-00"))
    assert health is not None  # it has the service, and says of its devices what it says

    assert driver.stop() == 0
    await until(lambda: not plugins.drivers())
    driver.start()
    await registered(plugins)
    assert await plugins.prepare(DRIVER, [one]) == {one.uid: found[one.uid]}
    assert gone == []

    driver.stop(signal.SIGKILL)  # its sockets are left behind
    await registered(plugins, 1, 0)
    await until(lambda: gone == [DRIVER])
    driver.start()
    await registered(plugins)
    await plugins.prepare(DRIVER, [one])
    both = [one, two]
    assert await plugins.unprepare(DRIVER, both) == {one.uid: None, two.uid: None}
    assert await plugins.unprepare(DRIVER, both) == {one.uid: None, two.uid: None}


def test_the_kubernetes_test_driver(tmp_path: Path, layout: Layout) -> None:
    server = ServerProcess(tmp_path, durable=False)
    server.start()
    driver = Driver(server, layout)

    async def scenario() -> None:
        plugins = PluginManager(layout, times=TIMES)
        await plugins.start()
        try:
            async with Client.connect(server.config()) as client, asyncio.timeout(90):
                await work(client, driver, layout, plugins)
        finally:
            await plugins.stop()

    try:
        asyncio.run(scenario())
    finally:
        driver.stop(signal.SIGKILL)
        server.stop()
