"""Cgroup tree on a fake kernel, in both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.errors import ConfigError, InputError
from plimsoll.node.cgroup_plans import PodPlan, QosCgroupPlan
from plimsoll.node.cgroups import Cgroups, PodUsage, open_cgroups
from plimsoll.node.resources import LinuxResources
from tests.sizes import examples
from tests.unit.node.cgroups.stand_in import POD, StandIn, V1StandIn, V2StandIn

SMALL = LinuxResources(cpu_shares=256, cpu_quota=25_000, cpu_period=100_000, memory_limit=32 << 20)


@pytest.fixture(params=[1, 2])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> StandIn:
    mount = tmp_path / "cgroup"
    return V1StandIn(mount) if request.param == 1 else V2StandIn(mount)


def opened(kernel: StandIn, root: str = "plimsoll", owner: str = "plimsoll") -> Cgroups:
    return open_cgroups(root, mount=kernel.mount, kernel=kernel, owner=owner)


def texts(kernel: StandIn, cgroup: str, *names: str) -> list[str]:
    """Return the files of a cgroup in all hierarchies."""
    found = []
    for name in names:
        controller = name.partition(".")[0] if isinstance(kernel, V1StandIn) else ""
        found.append((kernel.mount / controller / cgroup / name).read_text())
    return found


def join(kernel: StandIn, cgroups: Cgroups, pod: str, id: str, pid: int) -> None:
    for file in cgroups.join_files(pod, id):
        assert kernel.write(file, str(pid)) == 0


# -- names and values


def test_pod_cgroups_are_in_the_tier_of_their_qos_class(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    assert cgroups.set_up() == ()
    for uid, qos in (("g", "Guaranteed"), ("b", "Burstable"), ("e", "BestEffort")):
        assert cgroups.make_pod(uid, qos, POD) == ()
        assert cgroups.make_container(uid, "c-1", SMALL) == ()
    mount = kernel.mount / ("memory" if cgroups.version == 1 else "")
    for place in ("podg/c-1", "burstable/podb/c-1", "besteffort/pode/c-1"):
        assert (mount / "plimsoll" / place / "cgroup.procs").is_file()
    assert set(cgroups.pods()) == {"g", "b", "e"}
    assert cgroups.containers("b") == ("c-1",)


def test_values_of_version_1(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up(LinuxResources(cpu_shares=2048, memory_limit=1 << 30))
    assert texts(kernel, "plimsoll", "cpu.shares", "memory.limit_in_bytes") == ["2048", str(1 << 30)]
    cgroups.apply_tiers(QosCgroupPlan(burstable_shares=700))
    assert texts(kernel, "plimsoll/burstable", "cpu.shares") == ["700"]
    assert texts(kernel, "plimsoll/besteffort", "cpu.shares") == ["2"]
    cgroups.make_pod("u", "Burstable", POD)
    place = "plimsoll/burstable/podu"
    assert texts(kernel, place, "cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes") == [
        "512",
        "50000",
        str(64 << 20),
    ]
    resources = LinuxResources(cpus="1,3", mems="0", pids=10, huge_pages={"2MB": 4 << 20}, cpu_shares=3)
    assert cgroups.make_container("u", "c", resources) == ()
    names = ("cpuset.cpus", "cpuset.mems", "pids.max", "hugetlb.2MB.limit_in_bytes", "cpu.shares")
    assert texts(kernel, f"{place}/c", *names) == ["1,3", "0", "10", str(4 << 20), "3"]


def test_values_of_version_2(tmp_path: Path) -> None:
    kernel = V2StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    assert cgroups.set_up() == ()
    plan = QosCgroupPlan(
        burstable_shares=1024, root_unified={"memory.min": "7"}, burstable_unified={"memory.low": "8"}
    )
    assert cgroups.apply_tiers(plan) == ()
    assert texts(kernel, "plimsoll", "memory.min") == ["7"]
    assert texts(kernel, "plimsoll/burstable", "memory.low", "cpu.weight") == ["8", "39"]
    pod = PodPlan(cpu_shares=2, cpu_quota=-1, cpu_period=5000, unified={"memory.min": "5"}, memory_high=4096)
    assert cgroups.make_pod("u", "Guaranteed", pod) == ()
    place = "plimsoll/podu"
    names = ("cpu.weight", "cpu.max", "memory.min", "memory.high")
    assert texts(kernel, place, *names) == ["1", "max 5000", "5", "4096"]
    resources = LinuxResources(
        cpu_quota=2000,
        cpus="2",
        pids=0,
        huge_pages={"2MB": 2 << 20},
        memory_limit=1 << 20,
        unified={"memory.oom.group": "1"},
    )
    assert cgroups.make_container("u", "c", resources) == ()
    more = ("cpu.max", "cpuset.cpus", "pids.max", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "memory.max")
    assert texts(kernel, f"{place}/c", *more) == [
        "2000 100000",
        "2",
        "max",
        str(2 << 20),
        str(2 << 20),
        str(1 << 20),
    ]
    assert texts(kernel, f"{place}/c", "memory.oom.group") == ["1"]


def test_every_level_delegates_controllers(tmp_path: Path) -> None:
    kernel = V2StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel, "a/b")
    assert cgroups.set_up() == ()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    for place in ("", "a", "a/b", "a/b/burstable", "a/b/burstable/podu"):
        handed = (kernel.mount / place / "cgroup.subtree_control").read_text().split()
        assert handed == ["cpu", "cpuset", "memory", "pids", "hugetlb"]
    # A container holds processes, so it hands nothing down.
    assert (kernel.mount / "a/b/burstable/podu/c/cgroup.subtree_control").read_text() == ""
    join(kernel, cgroups, "u", "c", 4711)
    assert cgroups.pids("u") == (4711,)


def test_processes_in_the_root_are_a_fault_for_each_controller(tmp_path: Path) -> None:
    """Processes in the parent cgroup prevent enabling controllers: reported, and nothing is applied."""
    kernel = V2StandIn(tmp_path / "cgroup", crowded=True)
    cgroups = opened(kernel)
    faults = cgroups.set_up()
    assert {fault.value for fault in faults if fault.file == "cgroup.subtree_control"} == {
        "+cpu",
        "+cpuset",
        "+memory",
        "+pids",
        "+hugetlb",
    }
    faults = cgroups.make_pod("u", "Burstable", POD)
    assert cgroups.plan()["plimsoll/burstable/podu/memory.max"] == str(64 << 20)
    assert "plimsoll/burstable/podu/memory.max" in cgroups.unapplied()
    assert any(fault.error == os.strerror(2) for fault in faults)


def test_a_cpuset_is_copied_down_so_that_processes_can_join(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", LinuxResources())
    assert texts(kernel, "plimsoll/burstable/podu/c", "cpuset.cpus", "cpuset.mems") == ["0-3", "0"]
    join(kernel, cgroups, "u", "c", 99)
    assert cgroups.cpus("u", "c") == "0-3"


def test_an_update_without_cpus_keeps_them(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", LinuxResources(cpus="2"))
    cgroups.make_container("u", "c", SMALL)
    assert texts(kernel, "plimsoll/burstable/podu/c", "cpuset.cpus") == ["2"]


def test_cpus_beyond_the_machine_are_a_fault(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    (fault,) = cgroups.make_container("u", "c", LinuxResources(cpus="9"))
    assert (fault.file, fault.value) == ("cpuset/plimsoll/burstable/podu/c/cpuset.cpus", "9")
    assert fault.error == os.strerror(13)
    assert not fault.absent
    assert cgroups.unapplied() == {fault.file: fault}
    assert cgroups.make_container("u", "c", LinuxResources(cpus="1")) == ()
    assert cgroups.unapplied() == {}


@settings(
    max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    changes=st.lists(
        st.tuples(st.integers(2000, 300_000) | st.just(-1), st.sampled_from([10_000, 100_000, 250_000])),
        min_size=2,
        max_size=6,
    )
)
def test_quota_and_period_change_in_any_direction(
    changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No change is refused below a parent whose limit is exactly what each change needs."""
    kernel = V1StandIn(tmp_path_factory.mktemp("v1") / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", PodPlan(cpu_shares=2))
    for quota, period in changes:
        wide = PodPlan(cpu_shares=2, cpu_quota=-1, cpu_period=100_000)
        assert cgroups.make_pod("u", "Burstable", wide) == ()
        resources = LinuxResources(cpu_quota=quota, cpu_period=period)
        assert cgroups.make_container("u", "c", resources) == ()
        tight = PodPlan(cpu_shares=2, cpu_quota=quota, cpu_period=period)
        assert cgroups.make_pod("u", "Burstable", tight) == ()
        # With the parent as tight as the container, the same again and another period of the same part.
        assert cgroups.make_container("u", "c", resources) == ()
        if quota > 0:
            same = LinuxResources(cpu_quota=quota * 2, cpu_period=period * 2)
            assert cgroups.make_container("u", "c", same) == ()
        place = "plimsoll/burstable/podu"
        assert texts(kernel, place, "cpu.cfs_quota_us", "cpu.cfs_period_us") == [str(quota), str(period)]


# -- missing controllers


def test_a_missing_controller_is_a_fault_and_the_value_stays_planned(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup", ["cpu", "cpuset"])
    cgroups = opened(kernel)
    assert cgroups.set_up() == ()
    faults = cgroups.make_pod("u", "Burstable", POD)
    assert [(fault.file, fault.absent) for fault in faults] == [
        ("memory/plimsoll/burstable/podu/memory.limit_in_bytes", True)
    ]
    assert cgroups.plan()["memory/plimsoll/burstable/podu/memory.limit_in_bytes"] == str(64 << 20)
    assert cgroups.usage("u") == PodUsage()


def test_zero_huge_pages_of_an_unsupported_size_are_not_reported(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    assert cgroups.make_container("u", "c", LinuxResources(huge_pages={"1GB": 0})) == ()
    (fault,) = cgroups.make_container("u", "c", LinuxResources(huge_pages={"1GB": 1 << 30}))
    assert "hugetlb.1GB" in fault.file
    assert not any("1GB.rsvd" in file for file in cgroups.plan())


def test_unified_files_need_version_2(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    (fault,) = cgroups.make_container("u", "c", LinuxResources(unified={"memory.low": "1"}))
    assert fault.absent
    assert "v1" in fault.error


@pytest.mark.parametrize(
    "file",
    [
        "cgroup.procs",
        "cgroup.kill",
        "cgroup.subtree_control",
        "../memory.max",
        "memory.max/../x",
        "memory",
        "",
    ],
)
def test_plugins_cannot_reach_other_files(tmp_path: Path, file: str) -> None:
    kernel = V2StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", LinuxResources())
    kernel.writes.clear()
    (fault,) = cgroups.make_container("u", "c", LinuxResources(unified={file: "1"}))
    assert fault.absent
    assert all(name.endswith("subtree_control") for name, _ in kernel.writes)
    (fault,) = cgroups.make_container("u", "c", LinuxResources(huge_pages={"2MB/../..": 1}))
    assert fault.error == "not a page size"


# -- usage


def test_the_working_set_excludes_inactive_file_cache(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    assert cgroups.usage("missing") is None
    if cgroups.version == 1:
        place = kernel.mount / "memory/plimsoll/burstable/podu"
        kernel.put(place / "memory.usage_in_bytes", "5000")
        kernel.put(place / "memory.stat", "inactive_file 4999\ntotal_inactive_file 2000")
        kernel.put(kernel.mount / "cpuacct/plimsoll/burstable/podu/cpuacct.usage", "77000")
        kernel.put(kernel.mount / "pids/plimsoll/burstable/podu/pids.current", "3")
    else:
        place = kernel.mount / "plimsoll/burstable/podu"
        kernel.put(place / "memory.current", "5000")
        kernel.put(place / "memory.stat", "anon 1\ninactive_file 2000")
        kernel.put(place / "cpu.stat", "usage_usec 77\nuser_usec 1")
        kernel.put(place / "pids.current", "3")
    assert cgroups.usage("u") == PodUsage(memory=3000, memory_in_use=5000, cpu=77000, pids=3)
    kernel.put(place / "memory.stat", "total_inactive_file 9999\ninactive_file 9999")
    usage = cgroups.usage("u")
    assert usage is not None
    assert usage.memory == 0
    for text in ("", "lots", "-5"):
        kernel.put(place / ("memory.usage_in_bytes" if cgroups.version == 1 else "memory.current"), text)
        usage = cgroups.usage("u")
        assert usage is not None
        assert usage.memory is None


# -- ending


def test_kill_reaches_all_nested_cgroups(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    for id, pid in (("a", 101), ("b", 102)):
        cgroups.make_container("u", id, SMALL)
        join(kernel, cgroups, "u", id, pid)
    mount = kernel.mount / ("memory" if cgroups.version == 1 else "")
    nested = mount / "plimsoll/burstable/podu/b"
    (nested / "own").mkdir()
    (nested / "own" / "cgroup.procs").write_text("103")
    assert set(cgroups.pids("u", "b")) == {102, 103}
    cgroups.kill("u", "b")
    assert set(kernel.ended) == {102, 103}
    assert cgroups.pids("u") == (101,)


def test_without_cgroup_kill_processes_are_killed_one_by_one(tmp_path: Path) -> None:
    kernel = V2StandIn(tmp_path / "cgroup", can_kill=False)
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    join(kernel, cgroups, "u", "c", 7)
    cgroups.kill("u", "c")
    assert kernel.ended == [7]


def test_processes_are_frozen_while_they_are_killed(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    join(kernel, cgroups, "u", "c", 7)
    kernel.writes.clear()
    cgroups.kill("u", "c")
    place = "freezer/plimsoll/burstable/podu/c/freezer.state"
    assert kernel.writes == [(place, "FROZEN"), (place, "THAWED")]
    # An agent that was killed in between leaves them held: the next one lets them go.
    kernel.put(kernel.mount / place, "FROZEN")
    opened(kernel).set_up()
    assert (kernel.mount / place).read_text() == "THAWED"


def test_the_agent_never_kills_itself(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    join(kernel, cgroups, "u", "c", os.getpid())
    join(kernel, cgroups, "u", "c", 0)
    assert cgroups.pids("u", "c") == ()


def test_removal_waits_for_processes_to_exit(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    join(kernel, cgroups, "u", "c", 7)
    kernel.slow = True
    assert cgroups.remove_pod("u")
    assert 0 < kernel.waited < 1
    assert cgroups.pods() == ()
    assert not any("podu" in file for file in cgroups.plan())
    assert cgroups.remove_pod("u")


def test_an_unkillable_process_stays_and_is_reported(kernel: StandIn) -> None:
    kernel.immortal = {7}
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    for id in ("c", "d"):
        cgroups.make_container("u", id, SMALL)
    join(kernel, cgroups, "u", "c", 7)
    assert not cgroups.remove_container("u", "c")
    assert cgroups.remove_container("u", "d")
    assert not cgroups.remove_pod("u")
    assert kernel.waited >= 2
    assert cgroups.pods() == ("u",)
    assert not cgroups.tear_down()


def test_leftovers_are_found_and_removed_by_the_next_agent(kernel: StandIn) -> None:
    before = opened(kernel)
    before.set_up()
    before.make_pod("u", "BestEffort", POD)
    before.make_container("u", "c", SMALL)
    join(kernel, before, "u", "c", 7)
    after = opened(kernel)
    assert after.pods() == ("u",)
    assert after.pids("u", "c") == (7,)
    assert after.set_up() == ()
    assert after.remove_pod("u")
    assert after.pods() == ()


def test_directories_that_are_not_pods_are_ignored(kernel: StandIn) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    mount = kernel.mount / ("memory" if cgroups.version == 1 else "")
    for name in ("pod", "pod-", "pod..", "pod ", "system"):
        kernel.make(mount / "plimsoll" / name)
    kernel.make(mount / "plimsoll/burstable/podu/.scope")
    assert cgroups.pods() == ("u",)
    assert cgroups.containers("u") == ()
    assert cgroups.set_up() == ()
    assert cgroups.remove_pod("u")


def test_teardown_removes_all_cgroups(kernel: StandIn) -> None:
    before = set(kernel.mount.rglob("*"))
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", SMALL)
    assert cgroups.tear_down()
    assert set(kernel.mount.rglob("*")) == before
    assert cgroups.plan() == {}


# -- foreign cgroups


def test_a_root_of_another_agent_is_not_touched(kernel: StandIn) -> None:
    first = opened(kernel, owner="first")
    first.set_up()
    first.make_pod("u", "Burstable", POD)
    first.make_container("u", "c", SMALL)
    join(kernel, first, "u", "c", 7)
    kernel.writes.clear()
    second = opened(kernel, owner="second")
    (fault,) = second.set_up()
    assert fault.error == "this root belongs to first"
    assert second.make_pod("v", "Burstable", POD) == (fault,)
    assert second.make_container("u", "c", SMALL) == (fault,)
    assert second.apply_tiers(QosCgroupPlan(burstable_shares=3)) == (fault,)
    assert second.pods() == ()
    second.kill("u", "c")
    assert not second.remove_container("u", "c")
    assert not second.remove_pod("u")
    assert not second.tear_down()
    assert (kernel.writes, kernel.ended) == ([], [])
    assert first.pids("u") == (7,)


def test_a_root_that_no_agent_made_is_not_touched(kernel: StandIn) -> None:
    mount = kernel.mount / ("cpu" if isinstance(kernel, V1StandIn) else "")
    kernel.make(mount / "kubepods")
    kernel.make(mount / "kubepods" / "burstable")
    kernel.writes.clear()
    (fault,) = opened(kernel, "kubepods").set_up()
    assert fault.error == "this root belongs to another owner"
    assert kernel.writes == []


def test_two_agents_on_one_machine_have_separate_roots(kernel: StandIn) -> None:
    agents = [opened(kernel, f"plimsoll/node-{number}", f"n{number}") for number in range(3)]
    for number, agent in enumerate(agents):
        assert agent.set_up() == ()
        agent.make_pod(f"u{number}", "Burstable", POD)
    assert [agent.pods() for agent in agents] == [("u0",), ("u1",), ("u2",)]
    assert agents[1].tear_down()
    assert agents[0].pods() == ("u0",)
    assert agents[0].set_up() == ()


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "a\0b", "x" * 300, "-", "/etc"])
def test_names_do_not_lead_out_of_the_root(kernel: StandIn, name: str) -> None:
    cgroups = opened(kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Burstable", POD)
    kernel.writes.clear()
    with pytest.raises(InputError):
        cgroups.make_pod(name, "Burstable", POD)
    with pytest.raises(InputError):
        cgroups.remove_pod(name)
    if name:
        for call in (cgroups.remove_container, cgroups.join_files, cgroups.kill, cgroups.pids, cgroups.usage):
            with pytest.raises(InputError):
                call("u", name)
        with pytest.raises(InputError):
            cgroups.make_container("u", name, SMALL)
    assert kernel.writes == []


@pytest.mark.parametrize("root", ["", "..", "a/../b", "burstable", "a/besteffort", "podx", "owner.x", "a//b"])
def test_invalid_root_names_are_refused(tmp_path: Path, root: str) -> None:
    with pytest.raises(InputError):
        open_cgroups(root, want="plan")


# -- plans


def test_a_dry_run_equals_the_values_written(tmp_path: Path) -> None:
    """The same calls on a dry run and on the fake kernel of version 2 give the same values."""
    kernel = V2StandIn(tmp_path / "cgroup")
    real, plan = opened(kernel), open_cgroups("plimsoll", want="plan")
    assert (real.version, plan.version) == (2, 0)
    for cgroups in (real, plan):
        assert cgroups.set_up(LinuxResources(cpu_shares=4096)) == ()
        assert cgroups.apply_tiers(QosCgroupPlan(burstable_shares=700)) == ()
        assert cgroups.make_pod("u", "Burstable", POD) == ()
        assert cgroups.make_container("u", "c", LinuxResources(cpus="1", pids=4)) == ()
        assert cgroups.make_container("u", "d", SMALL) == ()
        assert cgroups.remove_container("u", "d")
    assert plan.plan() == real.plan()
    for file, value in real.plan().items():
        assert (kernel.mount / file).read_text() == value
    assert plan.cpus("u", "c") == "1"
    assert plan.pods() == ("u",)
    assert plan.containers("u") == ("c",)
    assert plan.usage("u") is None
    assert plan.join_files("u", "c") == ()
    assert plan.pids("u") == ()
    assert plan.tear_down()
    assert plan.pods() == ()


# -- versions


def test_the_best_available_version_is_used(tmp_path: Path) -> None:
    assert open_cgroups("r", mount=tmp_path / "nothing").version == 0
    v1 = V1StandIn(tmp_path / "one")
    assert open_cgroups("r", mount=v1.mount, kernel=v1).version == 1
    v2 = V2StandIn(tmp_path / "two")
    assert open_cgroups("r", mount=v2.mount, kernel=v2).version == 2
    poor = V2StandIn(tmp_path / "poor", ["hugetlb"])
    found = open_cgroups("r", mount=poor.mount, kernel=poor)
    assert found.version == 0
    assert "cgroup v2: hugetlb" in found.note
    with pytest.raises(ConfigError, match="cgroup v2 cannot be used here"):
        open_cgroups("r", mount=v1.mount, kernel=v1, want="v2")


def test_controllers_that_are_mounted_together(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    kernel = V1StandIn(mount, ["cpu,cpuacct", "memory"])
    for name in ("cpu", "cpuacct"):
        (mount / name).symlink_to("cpu,cpuacct")
    cgroups = open_cgroups("r", mount=mount, kernel=kernel)
    assert cgroups.set_up() == ()
    cgroups.make_pod("u", "Guaranteed", POD)
    assert len(cgroups.join_files("u", "c")) == 2
    assert (mount / "cpu,cpuacct/r/podu/cpu.shares").read_text() == "512"
    assert cgroups.usage("u") == PodUsage(memory=0, memory_in_use=0, cpu=0)


def test_a_read_only_mount_is_reported(tmp_path: Path) -> None:
    class ReadOnly(V1StandIn):
        def may_write(self, directory: Path) -> bool:
            return directory.name == "memory"

    kernel = ReadOnly(tmp_path / "cgroup", ["cpu", "memory"])
    found = open_cgroups("r", mount=kernel.mount, kernel=kernel)
    assert found.version == 1
    assert found.note.endswith("cgroup v1: memory; not writable: cpu")
