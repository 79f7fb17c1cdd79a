"""Pinning without a runtime: pods from the API, cpusets in fake cgroup directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from plimsoll.drivers.cpu.pinning.plan import PinFaultReason
from plimsoll.drivers.cpu.pinning.pods import claim_names, read_pod_containers
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import switch_off
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, cpus, hold, machine
from tests.unit.drivers.cpu.pinning.cgroup_harness import Pods, place, pod, run_enforcer
from tests.unit.drivers.cpu.pinning.stand_in import CPUS, V1, V2
from tests.waiting import until

A, B = hold("a", "0-1"), hold("b", "x=2;y=3")


@pytest.fixture(params=[1, 2])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> V1 | V2:
    if request.param == 1:
        return V1(tmp_path / "cg", ("cpuset", "cpu"))
    return V2(tmp_path / "cg", ("cpuset", "cpu"))


def now(files: V1 | V2, directory: Path) -> str:
    name = CPUS if isinstance(files, V1) else "cpuset.cpus.effective"
    return files.read(directory / name) or ""


# -- claims of pods


def test_claims_of_containers_by_their_names() -> None:
    state = FakeCPUState(machine(4), A, B)
    one = pod(
        "p",
        {"app": ["mine"], "side": ["two/y"], "plain": []},
        init={"init": ["mine"]},
        claims={"mine": "name-a", "two": "name-b", "gpu": "gpu-1"},
    )
    found = read_pod_containers(one, state.allocations)
    assert (found.uid, found.cgroup) == ("uid-p", "uid-p")
    views = {view.name: view for view in found.containers.values()}
    assert views["app"].claims == {"a": cpus("0-1")}
    assert views["init"].claims == {"a": cpus("0-1")}
    assert views["side"].claims == {"b": cpus("2-3")}
    assert views["side"].requests == {"b": frozenset({"y"})}
    assert views["plain"].claims == {}
    assert views["app"].id == "p-app"


def test_claims_of_other_drivers_and_namespaces_are_ignored() -> None:
    far = hold("a", "0-1", namespace="far")
    one = pod("p", {"app": ["mine", "gpu", "unknown"]}, claims={"mine": "name-a", "gpu": "gpu-1"})
    assert next(iter(read_pod_containers(one, {"a": far}).containers.values())).claims == {}


def test_claims_made_of_templates_are_in_the_status() -> None:
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"resourceClaims": [{"name": "t", "resourceClaimTemplateName": "x"}]},
        "status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "p-t-1"}, {"name": "none"}]},
    }
    assert claim_names(codec.decode(codec.encode(raw), Pod)) == {"t": "p-t-1"}


def test_extended_resources_name_requests() -> None:
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "app"}, {"name": "other"}]},
        "status": {
            "containerStatuses": [
                {"name": "app", "containerID": "x://1", "state": {"running": {}}},
                {"name": "other", "containerID": "x://2", "state": {"running": {}}},
            ],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "name-b",
                "requestMappings": [
                    {"containerName": "app", "resourceName": "example.com/cpu", "requestName": "x"}
                ],
            },
        },
    }
    found = read_pod_containers(codec.decode(codec.encode(raw), Pod), {"b": B}).containers
    assert found["1"].requests == {"b": frozenset({"x"})}
    assert found["2"].claims == {}


def test_containers_that_have_ended_are_left_out() -> None:
    one = pod("p", {"app": [], "done": []}, states={"done": "terminated"})
    assert list(read_pod_containers(one, {}).containers) == ["p-app"]


def test_static_pods_have_another_uid_on_their_node() -> None:
    one = pod("p", {"app": []}, annotations={"kubernetes.io/config.hash": "abcd"})
    found = read_pod_containers(one, {})
    assert (found.uid, found.cgroup) == ("uid-p", "abcd")
    assert found.unknown_container("x").pod_uid == "uid-p"


# -- pinning


def test_containers_are_pinned(tmp_path: Path, files: V1 | V2) -> None:
    async def scenario(enforcer: CgroupEnforcer, _: Any, pods: Pods) -> None:
        own, shared = place(files, "p", "app"), place(files, "q", "app")
        pause = files.add("kubepods/poduid-p/pause")
        assert await enforcer.apply() == ()
        assert [now(files, directory) for directory in (own, shared, pause)] == ["0-1", "2-3", "2-3"]
        assert enforcer.linked
        assert enforcer.runtime.startswith("cgroup v")
        assert {view.id: view.cpus for view in enforcer.containers()} == {
            "p-app": "0-1",
            "q-app": "2-3",
            "pause": "2-3",
        }
        assert enforcer.shared_in_use

    known = (pod("p", {"app": ["c"]}, claims={"c": "name-a"}), pod("q", {"app": []}))
    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4), A), *known, files=files)


def test_the_pool_shrinks_and_grows(tmp_path: Path, files: V1 | V2) -> None:
    state = FakeCPUState(machine(4))

    async def scenario(enforcer: CgroupEnforcer, _: Any, pods: Pods) -> None:
        shared = place(files, "q", "app")
        await enforcer.apply()
        assert now(files, shared) == "0-3"
        state.hold(A)
        await enforcer.apply()
        assert now(files, shared) == "2-3"
        state.release("a")
        await enforcer.apply()
        assert now(files, shared) == "0-3"

    run_enforcer(tmp_path, scenario, state, pod("q", {"app": []}), files=files)


def test_shared_containers_are_moved_before_exclusive_ones_are_pinned(tmp_path: Path) -> None:
    state = FakeCPUState(machine(4))

    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        place(files, "z", "app")
        await enforcer.apply()
        place(files, "a", "app")
        state.hold(A)
        pods.known.append(pod("a", {"app": ["c"]}, claims={"c": "name-a"}))
        (files.mount / "cpuset/kubepods/poduid-a/a-app/cpuset.cpus").write_text("0")
        files.writes.clear()
        await enforcer.apply()
        written = [
            (name.split("/")[3], value) for name, value in files.writes if name.endswith(f"-app/{CPUS}")
        ]
        assert written == [("z-app", "2-3"), ("a-app", "0-1")]

    run_enforcer(tmp_path, scenario, state, pod("z", {"app": []}))


def test_unchanged_cpusets_are_not_written(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        place(files, "p", "app")
        await enforcer.apply()
        files.writes.clear()
        await enforcer.apply()
        assert files.writes == []

    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4), A), pod("p", {"app": []}))


def test_foreign_writes_are_reported_and_repaired(tmp_path: Path, files: V1 | V2) -> None:
    async def scenario(enforcer: CgroupEnforcer, _: Any, pods: Pods) -> None:
        changed: list[int] = []
        enforcer.on_change = lambda: changed.append(1)
        shared = place(files, "q", "app")
        await enforcer.apply()
        files.write(shared / CPUS, "0-3")
        faults = await enforcer.apply()
        assert [fault.reason for fault in faults] == [PinFaultReason.DRIFTED]
        assert faults[0].message == 'runs on CPUs "0-3" instead of "2-3": something else has set them'
        assert now(files, shared) == "2-3"
        assert enforcer.counters.drifted == 1
        assert await enforcer.apply() == ()
        assert changed

    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4), A), pod("q", {"app": []}), files=files)


def test_an_empty_pool_leaves_containers_as_they_are(tmp_path: Path) -> None:
    state = FakeCPUState(machine(4))

    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        shared = place(files, "q", "app")
        await enforcer.apply()
        state.hold(hold("w", "0-3"))
        assert [fault.reason for fault in await enforcer.apply()] == [PinFaultReason.EMPTY_POOL]
        assert (shared / CPUS).read_text() == "0-3"

    run_enforcer(tmp_path, scenario, state, pod("q", {"app": []}))


def test_a_failed_write_is_a_fault_and_retried(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        shared = place(files, "q", "app")
        (shared / CPUS).chmod(0o600)
        refuse = files.refuse
        files.refuse = lambda file, value: 16 if file.parent == shared else refuse(file, value)  # type: ignore[method-assign]
        (fault,) = await enforcer.apply()
        assert fault.reason is PinFaultReason.REFUSED
        assert "Device or resource busy" in fault.message
        files.refuse = refuse  # type: ignore[method-assign]
        assert await enforcer.apply() == ()
        assert (shared / CPUS).read_text() == "2-3"

    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4), A), pod("q", {"app": []}))


def test_a_container_that_ends_during_pinning_is_not_a_fault(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        shared = place(files, "q", "app")
        (shared / "cgroup.procs").write_text("")
        (shared / CPUS).unlink()
        assert await enforcer.apply() == ()

    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4), A), pod("q", {"app": []}))


def test_pods_that_have_ended_are_left_alone(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        directory = place(files, "q", "app")
        await enforcer.apply()
        assert (directory / CPUS).read_text() == "0-3"
        assert enforcer.containers() == ()

    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4), A), pod("q", {"app": []}, phase="Succeeded"))


def test_quotas_are_lifted_for_exclusive_containers_and_pods_that_have_only_those(
    tmp_path: Path, files: V1 | V2
) -> None:
    def quota(directory: Path) -> str:
        if isinstance(files, V1):
            return (
                files.mount / "cpu" / directory.relative_to(files.mount / "cpuset") / "cpu.cfs_quota_us"
            ).read_text()
        return (directory / "cpu.max").read_text()

    async def scenario(enforcer: CgroupEnforcer, _: Any, pods: Pods) -> None:
        only = files.add("kubepods/poduid-p", quota=150_000, procs="")
        own = files.add("kubepods/poduid-p/p-app", quota=150_000)
        both = files.add("kubepods/poduid-q", quota=250_000, procs="")
        mine = files.add("kubepods/poduid-q/q-app", quota=150_000)
        other = files.add("kubepods/poduid-q/q-side", quota=100_000)
        assert await enforcer.apply() == ()
        lifted = "-1" if isinstance(files, V1) else "max"
        assert [quota(one).split()[0] for one in (only, own, mine)] == [lifted] * 3
        assert [quota(one).split()[0] for one in (both, other)] == ["250000", "100000"]

    known = (
        pod("p", {"app": ["c"]}, claims={"c": "name-a"}),
        pod("q", {"app": ["c"], "side": []}, claims={"c": "name-b"}),
    )
    run_enforcer(
        tmp_path, scenario, FakeCPUState(machine(4), A, hold("b", "2")), *known, files=files, lift_quota=True
    )


def test_memory_nodes_are_written(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        own = place(files, "p", "app")
        (own / "cpuset.mems").write_text("0-1")
        await enforcer.apply()
        assert (own / "cpuset.mems").read_text() == "0"

    run_enforcer(
        tmp_path,
        scenario,
        FakeCPUState(machine(4), A),
        pod("p", {"app": ["c"]}, claims={"c": "name-a"}),
        mems=True,
    )


def test_offline_cpus_are_not_written(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        own = place(files, "p", "app")
        await enforcer.apply()
        assert (own / CPUS).read_text() == "0"

    state = FakeCPUState(switch_off(machine(4), CpuSet([1])), A)
    run_enforcer(tmp_path, scenario, state, pod("p", {"app": ["c"]}, claims={"c": "name-a"}))


def test_link_errors_are_reported(tmp_path: Path) -> None:
    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        pods.error = "the pods of this node are not listed yet"
        assert await enforcer.apply() == ()
        assert (enforcer.linked, enforcer.link_error) == (False, pods.error)
        pods.error = ""
        files.mount.rename(tmp_path / "elsewhere")
        await enforcer.apply()
        assert enforcer.link_error == f"{files.mount}: no cpusets are mounted here"
        (tmp_path / "elsewhere").rename(files.mount)
        await enforcer.apply()
        assert enforcer.linked

    run_enforcer(tmp_path, scenario, FakeCPUState(machine(4)))


def test_claims_known_only_by_uid_are_read_from_the_process_environment(tmp_path: Path) -> None:
    unnamed = replace(A, ref=ClaimRef("", "", "a"), adopted=True)
    for pid, env_claims in (("7", "DRA_CPUSET_a=0-1"), ("8", "DRA_CPUSET_a=?"), ("9", "DRA_CPUSET_z=0")):
        (tmp_path / "host/proc" / pid).mkdir(parents=True)
        (tmp_path / "host/proc" / pid / "environ").write_text(f"PATH=/bin\0{env_claims}\0")

    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        own = files.add("kubepods/poduid-p/p-app", procs="7\n99")
        others = [
            files.add(f"kubepods/poduid-p/p-{name}", procs=pid)
            for name, pid in (("bad", "8"), ("other", "9"), ("gone", "10"), ("idle", ""))
        ]
        assert await enforcer.apply() == ()
        assert (own / CPUS).read_text() == "0-1"
        assert {(directory / CPUS).read_text() for directory in others} == {"2-3"}

    names: dict[str, Any] = {"app": ["c"], "bad": [], "other": [], "gone": [], "idle": []}
    run_enforcer(
        tmp_path, scenario, FakeCPUState(machine(4), unnamed), pod("p", names, claims={"c": "name-a"})
    )


def test_the_enforcer_follows_pod_changes(tmp_path: Path) -> None:
    state = FakeCPUState(machine(4), A)

    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        await enforcer.start()
        await enforcer.start()
        await until(lambda: enforcer.linked)
        directory = place(files, "q", "app")
        pods.known.append(pod("q", {"app": []}))
        pods.on_change()
        await until(lambda: (directory / CPUS).read_text() == "2-3")
        files.write(directory / CPUS, "0-3")
        await until(lambda: (directory / CPUS).read_text() == "2-3")
        await enforcer.stop()
        assert not pods.running
        assert not enforcer.linked

    run_enforcer(tmp_path, scenario, state, interval=0.02)
