"""CPU driver of the manifests on a kube-apiserver of each release, with default gates: it becomes ready.

Before 1.36, devices that claims share are dropped, and it publishes single CPUs.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS, RESOURCE_SLICES
from plimsoll.drivers.cpu.process.run import CpuDriverProcess
from plimsoll.drivers.cpu.settings import CpuSettings, PinEnforcement, PinSettings
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import NodeSettings
from plimsoll.up.local_nodes import MACHINE
from tests.cluster.kube_apiserver import run_apiserver
from tests.deploy.accounts import NAMESPACE, account, end, install
from tests.real.programs import ASSETS, emulate, minor_version, missing
from tests.unit.drivers.cpu.allocated_claims import NAME, NODE
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
GROUPS = ["cpudevnuma000"]
SINGLE = [f"cpudev00{number}" for number in range(1, 4)]  # CPU 0 stays shared


@pytest.mark.parametrize("release", ["1.34", "1.35", ""])
def test_the_driver_becomes_ready(tmp_path: Path, root: Path, release: str) -> None:
    write_sysfs(make_machine(cores=4), root / "host")
    layout = Layout(root / "kubelet")
    settings = CpuSettings(
        node=NODE,
        host_root=root / "host",
        kubelet_root=layout.root,
        cdi=layout.cdi,
        nri=layout.nri,
        pin=PinSettings(enforcement=PinEnforcement.NRI),
    )
    is_grouped = not release and minor_version() >= 36
    with run_apiserver(ASSETS, tmp_path, "", emulate(release)) as config:

        async def scenario() -> None:
            async with Client.connect(config) as admin, AsyncExitStack() as stack:
                machine = parse_machine(MACHINE)
                node = NodeProcess(
                    admin, NodeSettings(name=NODE, runtime="none", root=layout.root, machine=machine)
                )
                running = asyncio.create_task(node.run())
                stack.push_async_callback(end, node.stop, running)
                await node.ready(DEADLINE)
                await install(admin, "cpu-driver")
                spec = {
                    "nodeName": NODE,
                    "serviceAccountName": NAME,
                    "containers": [{"name": "driver", "image": "plimsoll"}],
                }
                await admin.create(PODS, {"metadata": {"name": "driver"}, "spec": spec}, NAMESPACE)
                own = await account(admin, config, NAME, pod="driver")
                async with Client.connect(own) as client:
                    process = CpuDriverProcess(client, settings)
                    task = asyncio.create_task(process.run())
                    try:
                        await process.wait_ready(DEADLINE)
                        (raw,) = (await admin.list(RESOURCE_SLICES)).items
                        published = codec.decode_tree(raw)["spec"]["devices"]
                        assert [each["name"] for each in published] == (GROUPS if is_grouped else SINGLE)
                    finally:
                        await end(process.stop, task)

        asyncio.run(scenario())
