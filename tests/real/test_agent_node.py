"""CPU and memory drivers under our node agent with containerd, in both cgroup layouts.

`vm/run.sh` runs them in a guest with cgroup v2, several NUMA nodes, SMT and L3 caches.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from plimsoll.api.cpuset import CpuSet
from tests.directories import short_directory
from tests.real.agent_node import (
    AgentNode,
    RunningContainer,
    container,
    pod,
    read_topology,
    request,
    run_agent_node,
    template,
)
from tests.real.kubelet import RUNTIME, cannot_run

_REASON = cannot_run(*RUNTIME)
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON)
MACHINE = read_topology()
#: CPUs of an ordinary claim: some are left for containers without one.
AMOUNT = 2 if len(MACHINE.online) > 2 else 1
CLAIM = {"name": "devices"}
NUMA_NODE = "resource.kubernetes.io/numaNode"


@pytest.fixture(scope="module", params=["cgroupfs", "systemd"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def running(layout: str) -> Iterator[AgentNode]:
    with short_directory() as directory, run_agent_node(directory, layout) as node:
        if isinstance(node, str):
            pytest.skip(node)
        yield node


@pytest.fixture
def node(running: AgentNode) -> Iterator[AgentNode]:
    yield running
    running.clear()


def cpus(amount: int) -> dict[str, str]:
    return {"dra.cpu/cpu": str(amount)}


def claimed(found: RunningContainer) -> CpuSet:
    """Return the CPUs of a container's claim, by its environment."""
    return CpuSet.parse(found.environment("DRA_CPUSET_"))


def expected_cgroup(node: AgentNode, layout: str, found: RunningContainer) -> str:
    """Return the name that a kubelet would give a container's cgroup."""
    tier = "" if found.qos == "guaranteed" else found.qos
    parts = [*node.cgroup_root.strip("/").split("/"), *filter(None, [tier]), f"pod{found.pod_uid}"]
    if layout == "cgroupfs":
        return f"/{'/'.join(parts)}/{found.id}"
    escaped = [part.replace("-", "_") for part in parts]
    slices = ["-".join(escaped[: depth + 1]) for depth in range(len(escaped))]
    return "".join(f"/{name}.slice" for name in slices) + f"/cri-containerd-{found.id}.scope"


def test_claims_have_cpus_that_others_leave_and_get_back(node: AgentNode, layout: str) -> None:
    limits = {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}
    node.cluster.apply(template("some", request("cpus", "dra.cpu", cpus(AMOUNT))))
    node.run(pod("neighbour", container("app", resources=limits)))
    node.settles({("neighbour", "app"): MACHINE.online})
    node.run(pod("pinned", container("app", CLAIM), container("side"), template="some"))
    own = claimed(node.look("pinned"))
    assert len(own) == AMOUNT
    rest = MACHINE.online - own
    node.settles({("pinned", "app"): own, ("pinned", "side"): rest, ("neighbour", "app"): rest})
    for name, part in (("pinned", "app"), ("pinned", "side"), ("neighbour", "app")):
        found = node.look(name, part)
        assert found.cgroup == expected_cgroup(node, layout, found)
    node.delete("pinned")
    node.settles({("neighbour", "app"): MACHINE.online})


def test_pod_limits_survive_a_reload_of_systemd(node: AgentNode, layout: str) -> None:
    limits = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    node.run(pod("sized", container("app", resources=limits)))

    def values() -> tuple[str, str]:
        found = node.look("sized")
        memory = found.pod_value("memory", "memory.max", "memory.limit_in_bytes")
        return memory, found.pod_value("cpu", "cpu.max", "cpu.cfs_quota_us").split()[0]

    assert values() == (str(64 << 20), "50000")
    if layout == "systemd":
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        assert values() == (str(64 << 20), "50000")


@pytest.mark.skipif(max(map(len, MACHINE.cores)) == 1, reason="this machine has no SMT")
def test_full_cores_avoid_a_core_that_is_half_taken(node: AgentNode) -> None:
    full = {"apiVersion": "v1alpha1", "cpuConfig": {"fullCores": True}}
    width = max(map(len, MACHINE.cores))
    config = [{"opaque": {"driver": "dra.cpu", "parameters": full}}]
    node.cluster.apply(template("thread", request("cpus", "dra.cpu", cpus(1))))
    node.cluster.apply(template("core", request("cpus", "dra.cpu", cpus(width)), config=config))
    node.run(pod("thread", container("app", CLAIM), template="thread"))
    node.run(pod("core", container("app", CLAIM), template="core"))
    one, core = claimed(node.look("thread")), claimed(node.look("core"))
    assert core in MACHINE.cores
    assert not one & core
    node.settles({("thread", "app"): one, ("core", "app"): core})


@pytest.mark.parametrize("numa", sorted(MACHINE.nodes))
def test_cpus_and_memory_are_of_one_numa_node(node: AgentNode, numa: int) -> None:
    devices = {device["attributes"][NUMA_NODE]["int"]: device for device in node.devices("dra.cpu").values()}
    assert set(devices) == set(MACHINE.nodes)
    memory = {device["attributes"][NUMA_NODE]["int"] for device in node.devices("dra.memory").values()}
    assert memory == set(MACHINE.nodes)
    node.cluster.apply(
        template(
            f"aligned-{numa}",
            request("cpus", "dra.cpu", cpus(AMOUNT)),
            request(
                "memory",
                "dra.memory",
                {"dra.memory/size": "64Mi"},
                f'device.attributes["resource.kubernetes.io"].numaNode == {numa}',
            ),
            constraints=[{"requests": ["cpus", "memory"], "matchAttribute": NUMA_NODE}],
        )
    )
    node.run(pod("aligned", container("app", CLAIM), template=f"aligned-{numa}"))
    found = node.look("aligned")
    own = claimed(found)
    assert len(own) == AMOUNT
    assert own <= MACHINE.nodes[numa]
    node.settles({("aligned", "app"): own})
    assert found.effective("mems") == found.allowed("Mems") == CpuSet([numa])


def test_cpus_are_grouped_by_l3_cache(node: AgentNode) -> None:
    node.drive("cpu", "--group-by", "l3cache")
    try:
        devices = node.devices("dra.cpu")
        named = [device for name, device in devices.items() if name.startswith("cpudevl3")]
        assert len(named) == len(MACHINE.caches)
        if not MACHINE.caches:
            assert devices
            assert all(device["attributes"]["dra.cpu/cacheL3ID"]["int"] == -1 for device in devices.values())
        size = min(map(len, MACHINE.caches), default=AMOUNT)
        amount = size if len(MACHINE.caches) > 1 else AMOUNT
        node.cluster.apply(template("cache", request("cpus", "dra.cpu", cpus(amount))))
        node.run(pod("first", container("app", CLAIM), template="cache"))
        own = claimed(node.look("first"))
        assert len(own) == amount
        assert not MACHINE.caches or any(own <= cache for cache in MACHINE.caches)
        node.settles({("first", "app"): own})
        node.clear()
    finally:
        node.drive("cpu")
