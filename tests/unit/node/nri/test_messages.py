"""Conversion between values and NRI messages."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.cgroup_plans.containers import RuntimeResources
from plimsoll.node.cgroup_plans.pods import SandboxPlan
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.hooks import DeviceEdit
from plimsoll.node.nri import messages
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.messages import nri
from tests.unit.node.nri.fixtures import POD, SPEC, state

numbers = st.none() | st.integers(0, 2**62)
values = st.builds(
    LinuxResources,
    cpu_shares=numbers,
    cpu_quota=st.none() | st.integers(-1, 2**62),
    cpu_period=numbers,
    cpus=st.sampled_from(["", "0", "0-3,7"]),
    mems=st.sampled_from(["", "0"]),
    memory_limit=st.none() | st.integers(-1, 2**62),
    huge_pages=st.dictionaries(st.sampled_from(["2MB", "1GB"]), st.integers(0, 2**62)),
    unified=st.dictionaries(st.sampled_from(["memory.high", "cpu.max"]), st.text("0123456789max ")),
    pids=st.none() | st.integers(-1, 2**62),
)


@given(values)
def test_resources_survive_a_round_trip(resources: LinuxResources) -> None:
    message = messages.write_resources(resources)
    again = nri.LinuxResources.FromString(message.SerializeToString())
    assert messages.read_resources(again) == resources


def test_a_pod() -> None:
    pod = replace(
        POD,
        sandbox=SandboxPlan(
            resources=RuntimeResources(cpu_shares=2, cpu_quota=1000, cpu_period=100000, memory_limit=5),
            overhead=RuntimeResources(cpu_shares=7),
        ),
    )
    message = messages.write_pod(pod)
    assert (message.id, message.uid, message.name, message.namespace) == ("u1", "u1", "web", "default")
    assert dict(message.labels) == {"app": "x"}
    assert dict(message.annotations) == {"note": "y"}
    assert message.linux.resources.cpu.quota.value == 1000
    assert message.linux.pod_overhead.cpu.shares.value == 7


def test_a_container() -> None:
    spec = replace(SPEC, attempt=3, cdi=("v/c=d",), image="busybox")
    message = messages.write_container(POD, spec, LinuxResources(cpus="1"))
    assert (message.id, message.pod_sandbox_id, message.name) == ("c1", "u1", "app")
    assert list(message.args) == ["sleep", "1"]
    assert list(message.env) == ["A=1", "B=2"]
    assert message.linux.resources.cpu.cpus == "1"
    assert message.linux.oom_score_adj.value == 900
    assert [device.name for device in message.CDI_devices] == ["v/c=d"]
    assert message.labels["io.kubernetes.pod.name"] == "web"
    assert message.annotations["io.kubernetes.container.restartCount"] == "3"
    exited = state(phase=ContainerPhase.EXITED, pid=7, started_at=1.5, exit_code=137, reason="OOMKilled")
    messages.write_state(message, exited)
    assert message.state == nri.CONTAINER_STOPPED
    assert (message.pid, message.started_at, message.exit_code) == (7, 1_500_000_000, 137)
    assert message.status_reason == "OOMKilled"
    assert messages.bare_container(exited).id == "c1"


def test_devices() -> None:
    device = nri.LinuxDevice(
        path="/dev/x", type="c", major=10, minor=200, file_mode={"value": 0o600}, uid={"value": 0}
    )
    adjust = nri.ContainerAdjustment(linux={"devices": [device, {"path": "-/dev/y"}]})
    assert messages.read_devices(adjust) == (
        DeviceEdit(path="/dev/x", type="c", major=10, minor=200, mode=0o600, uid=0),
    )
