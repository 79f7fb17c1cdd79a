"""CPU driver process with a server and a node: killed, queried and restarted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import yaml

from plimsoll.api import codec
from plimsoll.cli.main import main
from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES
from tests.smoke.process import ServerProcess
from tests.smoke.programs import NodeProgram, Program, SchedulerProgram
from tests.smoke.up_process import TEMPLATE, pod, running
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import until

NODE = "metal"
CAN_DROP = os.geteuid() == 0 and shutil.which("setpriv") is not None


class DriverProgram(Program):
    """`plimsoll driver cpu`."""

    command = "driver"

    def __init__(self, directory: Path, kubeconfig: Path, *options: str) -> None:
        super().__init__(directory, kubeconfig)
        # As in the manifests: root, and no capability.
        bare = ["setpriv", "--bounding-set=-all", "--no-new-privs"] if CAN_DROP else []
        self._command = [*bare, sys.executable, "-m", "plimsoll.cli.main", "driver", "cpu"]
        self._command += ["--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0", *options]

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=log, stderr=log)

    def address(self) -> str:
        return self.await_text(r"address=(\S+)")[1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def ask(capsys: pytest.CaptureFixture[str], driver: DriverProgram, *words: str) -> tuple[int, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["driver", "cpu", *words, "--address", driver.address()])
    return int(str(ended.value.code or 0)), capsys.readouterr().out


def test_a_driver_prepares_is_killed_and_restarted(
    server: ServerProcess, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sysfs(make_machine(numa=2, cores=2), root / "host")
    config = root / "config.yaml"
    config.write_text("apiVersion: v1alpha1\ngroupBy: machine\nreservedCPUCount: 1\nminSharedCPUs: 1\n")
    options = ["--config", str(config), "--host-root", str(root / "host"), "--hostname-override", NODE]
    options += ["--kubelet-root-dir", str(root / "node"), "--cdi-dir", str(root / "node/cdi")]
    options += ["--nri-socket", str(root / "node/nri/nri.sock"), "--enforcement=nri", "--v=2"]
    node = NodeProgram(
        root, server.kubeconfig, "--name", NODE, "--root", str(root / "node"), "--runtime", "none"
    )
    driver = DriverProgram(root, server.kubeconfig, *options)
    classes = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "dra.cpu"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
    }

    async def scenario() -> str:
        async with Client.connect(server.config()) as client:
            (raw,) = (await client.list(RESOURCE_SLICES)).items
            (device,) = codec.decode_tree(raw)["spec"]["devices"]
            assert device["name"] == "cpudevmachine"
            await client.create(DEVICE_CLASSES, classes)
            await client.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE, "default")
            await client.create(PODS, pod("pinned", claim=True))
            await running(client, "pinned")
            tree = await client.get(PODS, "pinned", "default")
            assert tree["spec"]["nodeName"] == NODE
            return str(tree["status"]["resourceClaimStatuses"][0]["resourceClaimName"])

    async def over() -> None:
        async with Client.connect(server.config()) as client:
            await client.delete(PODS, "pinned", "default", grace=0)

            async def released() -> bool:
                return "dra_cpu_resource_claims_active 0.0" in driver.page("/metrics")

            await until(released)

    scheduler = SchedulerProgram(root, server.kubeconfig, "--scheduler-name", "default-scheduler")
    try:
        node.start()
        scheduler.start()
        node.await_text("INFO plimsoll.node ready")
        driver.start()
        driver.await_text("INFO plimsoll.driver healthy")
        claim = asyncio.run(scenario())
        if CAN_DROP:
            status = Path(f"/proc/{driver.pid}/status").read_text()
            assert "CapEff:\t0000000000000000" in status
        code, out = ask(capsys, driver, "status")
        assert code == 0
        assert f"claim     default/{claim}: CPUs" in out
        code, out = ask(capsys, driver, "explain", "--all", "-o", "json")
        (held,) = json.loads(out)
        code, out = ask(capsys, driver, "explain", held["uid"])
        assert out.splitlines()[0] == f"default/{claim} ({held['uid']}): CPUs {held['cpus']}"
        code, out = ask(capsys, driver, "gatherinfo", "--stdout")
        assert yaml.safe_load(out)["plimsoll"]["driver"]["claims"][0]["uid"] == held["uid"]
        driver.kill()
        driver.log.unlink()
        driver.start()
        driver.await_text("INFO plimsoll.driver healthy")
        assert json.loads(driver.page("/debug/driver"))["claims"][0]["cpus"] == held["cpus"]
        asyncio.run(over())
        node.stop()
        driver.await_text("WARNING plimsoll.driver unhealthy")
        assert ask(capsys, driver, "status", "--quiet")[0] == 1
        assert driver.stop() == 0
        assert "Traceback" not in driver.text()
    finally:
        for program in (driver, scheduler, node):
            program.kill()
