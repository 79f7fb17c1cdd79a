"""Pods that use devices of device plugins: waiting, what containers get, and the release."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.node.device_plugins.devices import PluginDevice, PluginDeviceAllocation
from plimsoll.protocols.cdi import Edits
from plimsoll.protocols.cdi.spec import DeviceNode
from tests.coroutines import run_by
from tests.unit.node.pods.worker_harness import Node
from tests.unit.node.pods.worker_helpers import gone, has_reason, is_phase, run_scenario
from tests.waiting import until

RESOURCE = "example.com/fpga"
SPEC = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "env": [{"name": "SHARED", "value": "pod"}],
            "resources": {"limits": {RESOURCE: "1"}},
        }
    ],
    "terminationGracePeriodSeconds": 1,
}


class Devices:
    """Device manager with one device, which may be missing at first."""

    def __init__(self) -> None:
        self.problem = "no devices"
        self.log: list[str] = []

    async def allocate(self, pod: Pod) -> str:
        return self.problem

    def of_container(self, uid: str, container: str) -> tuple[PluginDeviceAllocation, ...]:
        if self.problem:
            return ()
        edits = Edits(device_nodes=(DeviceNode(path="/dev/fpga0"),))
        env = {"FPGA": "a", "SHARED": "plugin"}
        return (
            PluginDeviceAllocation(resource=RESOURCE, devices=(PluginDevice("a"),), env=env, edits=edits),
        )

    async def announce_start(self, uid: str, container: str) -> str:
        self.log.append(f"start {container}")
        return ""

    async def release(self, uid: str) -> None:
        self.log.append("release")


@run_by(run_scenario, "cluster")
async def test_a_pod_waits_for_its_devices(node: Node) -> None:
    devices = node.deps.devices = Devices()
    await node.begin(await node.create(SPEC))
    await until(lambda: has_reason(node, "UnexpectedAdmissionError"))
    assert node.machine.sandboxes() == []
    devices.problem = ""
    assert node.worker is not None
    node.worker.devices_changed()
    await until(lambda: is_phase(node, "Running"))
    (held,) = node.machine.inventory().containers
    assert (held.spec.env["FPGA"], held.spec.env["SHARED"]) == ("a", "pod"), "the pod's own value wins"
    assert held.spec.edits.device_nodes[0].path == "/dev/fpga0"
    await node.delete(0)
    await gone(node)
    assert devices.log == ["start c", "release"]
