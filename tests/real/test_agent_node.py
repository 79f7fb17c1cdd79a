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
AMOUNT = 2 if len(MACHINE.online) > 4 else 1
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
    running.drive("cpu")
    running.drive("memory")
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
    limits = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    node.cluster.apply(template("some", request("cpus", "dra.cpu", cpus(AMOUNT))))
    node.run(pod("neighbour", container("app", resources=limits)))
    node.settles({("neighbour", "app"): MACHINE.online})
    node.run(pod("pinned", container("app", claim="some"), container("side"), templates=["some"]))
    own = claimed(node.look("pinned"))
    assert len(own) == AMOUNT
    rest = MACHINE.online - own
    node.settles({("pinned", "app"): own, ("pinned", "side"): rest, ("neighbour", "app"): rest})
    for name, part in (("pinned", "app"), ("pinned", "side"), ("neighbour", "app")):
        found = node.look(name, part)
        assert found.cgroup == expected_cgroup(node, layout, found)
    check_limits(node.look("neighbour"))
    if layout == "systemd":  # it applies the properties of all units again
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        check_limits(node.look("neighbour"))
        node.settles({("pinned", "app"): own, ("neighbour", "app"): rest})
    node.delete("pinned")
    node.settles({("neighbour", "app"): MACHINE.online})


def check_limits(found: RunningContainer) -> None:
    """Check the values of a pod's cgroup: half a CPU and 64Mi."""
    assert found.pod_value("memory", "memory.max", "memory.limit_in_bytes") == str(64 << 20)
    assert found.pod_value("cpu", "cpu.max", "cpu.cfs_quota_us").split()[0] == "50000"


@pytest.mark.skipif(max(map(len, MACHINE.cores)) == 1, reason="this machine has no SMT")
def test_full_cores_avoid_a_core_that_is_half_taken(node: AgentNode) -> None:
    full = {"apiVersion": "v1alpha1", "cpuConfig": {"fullCores": True}}
    width = max(map(len, MACHINE.cores))
    config = [{"opaque": {"driver": "dra.cpu", "parameters": full}}]
    node.cluster.apply(template("thread", request("cpus", "dra.cpu", cpus(1))))
    node.cluster.apply(template("core", request("cpus", "dra.cpu", cpus(width)), config=config))
    parts = ("thread", "core")
    node.run(pod("cores", *(container(part, claim=part) for part in parts), templates=parts))
    one, core = (claimed(node.look("cores", part)) for part in parts)
    assert core in MACHINE.cores
    assert len(one) == 1
    assert not one & core
    node.settles({("cores", "thread"): one, ("cores", "core"): core})


def test_cpus_and_memory_are_of_one_numa_node(node: AgentNode) -> None:
    for driver in ("dra.cpu", "dra.memory"):
        published = node.devices(driver).values()
        assert {device["attributes"][NUMA_NODE]["int"] for device in published} == set(MACHINE.nodes)
    parts = {f"numa-{numa}": numa for numa in MACHINE.nodes}
    for name, numa in parts.items():
        rule = f'device.attributes["resource.kubernetes.io"].numaNode == {numa}'
        node.cluster.apply(
            template(
                name,
                request("cpus", "dra.cpu", cpus(AMOUNT)),
                request("memory", "dra.memory", {"dra.memory/size": "64Mi"}, rule),
                constraints=[{"requests": ["cpus", "memory"], "matchAttribute": NUMA_NODE}],
            )
        )
    node.run(pod("aligned", *(container(name, claim=name) for name in parts), templates=list(parts)))
    for name, numa in parts.items():
        found = node.look("aligned", name)
        own = claimed(found)
        assert len(own) == AMOUNT
        assert own <= MACHINE.nodes[numa]
        node.settles({("aligned", name): own})
        assert found.effective("mems") == found.allowed("Mems") == CpuSet([numa])


def test_cpus_are_grouped_by_l3_cache(node: AgentNode) -> None:
    node.drive("cpu", "--group-by", "l3cache")
    devices = node.devices("dra.cpu")
    named = [device for name, device in devices.items() if name.startswith("cpudevl3")]
    assert len(named) == len(MACHINE.caches)
    if not MACHINE.caches:
        assert devices
        assert all(device["attributes"]["dra.cpu/cacheL3ID"]["int"] == -1 for device in devices.values())
    amount = min(map(len, MACHINE.caches)) if len(MACHINE.caches) > 1 else AMOUNT
    parts = ("first", "second") if len(MACHINE.caches) > 1 else ("first",)
    claims = {part: f"cache-{part}" for part in parts}
    for claim in claims.values():
        node.cluster.apply(template(claim, request("cpus", "dra.cpu", cpus(amount))))
    node.run(
        pod(
            "caches",
            *(container(part, claim=claims[part]) for part in parts),
            templates=list(claims.values()),
        )
    )
    owns = [claimed(node.look("caches", part)) for part in parts]
    if len(MACHINE.caches) > 1:  # they need all CPUs of a cache, so each has its own
        assert all(any(own <= cache for cache in MACHINE.caches) for own in owns)
    assert len(set(owns)) == len(owns)
    node.settles({("caches", part): own for part, own in zip(parts, owns, strict=True)})
