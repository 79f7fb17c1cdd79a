"""Writes of cpusets, in fake cgroup directories of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.cgroupfs import LinuxFiles
from plimsoll.drivers.cpu.pinning.cgroup_finder import CgroupFinder, container_id, pod_part
from plimsoll.drivers.cpu.pinning.cpusets import Cpusets, Hierarchy, find_hierarchy
from tests.sizes import examples
from tests.unit.drivers.cpu.pinning.builders import cpus
from tests.unit.drivers.cpu.pinning.stand_in import CPUS, V1, V2

POD = "kubepods/burstable/pod1234"


def open_v1(mount: Path, *controllers: str) -> tuple[V1, Cpusets]:
    files = V1(mount, controllers or ("cpuset", "cpu"))
    found = find_hierarchy(mount, files)
    assert isinstance(found, Hierarchy)
    assert found.version == 1
    return files, Cpusets(found, files)


def open_v2(mount: Path) -> tuple[V2, Cpusets]:
    files = V2(mount)
    found = find_hierarchy(mount, files)
    assert found == Hierarchy(2, mount, mount)
    return files, Cpusets(found, files)


# -- mounts


def test_missing_cpuset_support_is_reported(tmp_path: Path) -> None:
    assert find_hierarchy(tmp_path / "none", LinuxFiles()) == f"{tmp_path}/none: no cpusets are mounted here"
    V2(tmp_path / "two", ("cpu",))
    text = find_hierarchy(tmp_path / "two", LinuxFiles())
    assert text == f"{tmp_path}/two: cgroup v2 without the cpuset controller"


def test_controllers_that_are_mounted_together_are_found(tmp_path: Path) -> None:
    V1(tmp_path, ("cpuset", "cpu,cpuacct"))
    found = find_hierarchy(tmp_path, LinuxFiles())
    assert found == Hierarchy(1, tmp_path / "cpuset", tmp_path / "cpu,cpuacct")


# -- v1


def test_v1_sets_and_reads_back(tmp_path: Path) -> None:
    files, cpusets = open_v1(tmp_path)
    directory = files.add(f"{POD}/c1")
    assert cpusets.set(directory, cpus("1-2"), "0") == ""
    assert cpusets.cpus(directory) == "1-2"
    assert cpusets.mems(directory) == "0"


def test_v1_widens_ancestors_first(tmp_path: Path) -> None:
    files, cpusets = open_v1(tmp_path)
    directory = files.add(f"{POD}/c1", "0")
    assert cpusets.set(directory, cpus("2-3")) == ""
    assert (directory.parent / CPUS).read_text() == "0,2-3"
    written = [name for name, _ in files.writes if name.endswith(CPUS)]
    assert written == [
        f"cpuset/{part}/{CPUS}" for part in ("kubepods", "kubepods/burstable", POD, f"{POD}/c1")
    ]


def test_v1_updates_nested_cgroups(tmp_path: Path) -> None:
    files, cpusets = open_v1(tmp_path)
    directory = files.add(f"{POD}/c1")
    whole, part = files.add(f"{POD}/c1/whole"), files.add(f"{POD}/c1/part")
    files.write(part / CPUS, "3")
    assert cpusets.set(directory, cpus("0-1")) == ""
    assert [(one / CPUS).read_text() for one in (directory, whole, part)] == ["0-1", "0-1", "0-1"]
    assert cpusets.set(directory, cpus("2-3")) == ""
    assert cpusets.set(directory, cpus("0-3")) == ""
    assert [(one / CPUS).read_text() for one in (directory, whole, part)] == ["0-3", "0-3", "0-3"]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=5),
    st.sets(st.integers(0, 3), min_size=1),
    st.sets(st.integers(0, 3), min_size=1),
)
def test_v1_any_cpuset_can_follow_any_other(
    tmp_path_factory: pytest.TempPathFactory, steps: list[set[int]], inner: set[int], deeper: set[int]
) -> None:
    files, cpusets = open_v1(tmp_path_factory.mktemp("v1"), "cpuset")
    directory = files.add(f"{POD}/c1")
    one, two = files.add(f"{POD}/c1/one"), files.add(f"{POD}/c1/one/two")
    files.write(two / CPUS, str(CpuSet(inner & deeper or inner)))
    files.write(one / CPUS, str(CpuSet(inner)))
    for step in steps:
        assert cpusets.set(directory, CpuSet(step)) == ""
        assert CpuSet.parse((directory / CPUS).read_text()) == CpuSet(step)
        held = [CpuSet.parse((at / CPUS).read_text()) for at in (directory, one, two)]
        assert all(held)
        assert held[2] <= held[1] <= held[0]
    assert not any(value == "" for name, value in files.writes if name.endswith(CPUS))


def test_v1_lifts_quotas(tmp_path: Path) -> None:
    files, cpusets = open_v1(tmp_path)
    directory = files.add(f"{POD}/c1", quota=50_000)
    assert cpusets.quota(directory) == 50_000
    assert cpusets.lift_quota(directory) == ""
    assert cpusets.quota(directory) == 0
    assert cpusets.lift_quota(directory) == ""


# -- v2


def test_v2_sets_and_reads_back(tmp_path: Path) -> None:
    files, cpusets = open_v2(tmp_path)
    directory = files.add(f"{POD}/c1", quota=20_000)
    assert cpusets.cpus(directory) == "0-3"
    assert cpusets.set(directory, cpus("1-2"), "0-1") == ""
    assert (cpusets.cpus(directory), cpusets.mems(directory)) == ("1-2", "0-1")
    assert cpusets.quota(directory) == 20_000
    assert cpusets.lift_quota(directory) == ""
    assert cpusets.quota(directory) == 0


def test_v2_enables_controllers(tmp_path: Path) -> None:
    files, cpusets = open_v2(tmp_path)
    directory = files.add(f"{POD}/c1", hand_down=False)
    assert not (directory / CPUS).exists()
    assert cpusets.set(directory, cpus("1")) == ""
    assert cpusets.cpus(directory) == "1"


def test_v2_widens_ancestors_with_a_cpuset(tmp_path: Path) -> None:
    files, cpusets = open_v2(tmp_path)
    directory = files.add(f"{POD}/c1")
    files.write(directory.parent / CPUS, "0-1")
    assert cpusets.set(directory, cpus("2")) == ""
    assert (directory.parent / CPUS).read_text() == "0-2"
    assert (directory.parent.parent / CPUS).read_text() == ""


def test_v2_processes_in_the_parent_are_an_error(tmp_path: Path) -> None:
    files, cpusets = open_v2(tmp_path)
    directory = files.add(f"{POD}/c1", hand_down=False)
    (directory.parent / "cgroup.procs").write_text("9")
    assert "cgroup.subtree_control" in cpusets.set(directory, cpus("1"))


def test_a_cpuset_that_is_not_effective_is_reported(tmp_path: Path) -> None:
    files, cpusets = open_v2(tmp_path)
    directory = files.add(f"{POD}/c1")
    assert "is '0-3' after '9' was written" in cpusets.set(directory, cpus("9"))


# -- both


def test_an_empty_cpuset_is_never_written(tmp_path: Path) -> None:
    for files, cpusets in (open_v1(tmp_path / "1"), open_v2(tmp_path / "2")):
        directory = files.add(f"{POD}/c1")
        files.writes.clear()
        assert cpusets.set(directory, CpuSet()) == "an empty set is never written"
        assert files.writes == []


def test_a_missing_cgroup_is_an_error(tmp_path: Path) -> None:
    for files, cpusets in (open_v1(tmp_path / "1"), open_v2(tmp_path / "2")):
        directory = files.add(f"{POD}/c1")
        assert "No such file" in cpusets.set(directory.with_name("gone"), cpus("1"))


def test_files_are_never_created(tmp_path: Path) -> None:
    files = LinuxFiles()
    assert files.write(tmp_path / "new", "x") != 0
    assert not (tmp_path / "new").exists()
    assert files.read(tmp_path / "new") is None
    assert files.subdirectories(tmp_path / "new") == ()
    (tmp_path / "old").write_text(" a\n")
    assert files.write(tmp_path / "old", "b") == 0
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert files.subdirectories(tmp_path) == ("in",)


# -- container cgroups


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        ("pod12-34", "12_34"),
        ("kubepods-burstable-pod12_34.slice", "12_34"),
        ("kubelet-kubepods-besteffort-pod12_34.slice", "12_34"),
        ("kubepods-pod12_34.slice", "12_34"),
        ("burstable", ""),
        ("user.slice", ""),
        ("podless.service", "less.service"),
    ],
)
def test_pod_names_of_cgroups(name: str, uid: str) -> None:
    assert pod_part(name) == uid


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("abc123", "abc123"),
        ("cri-containerd-abc123.scope", "abc123"),
        ("crio-abc123.scope", "abc123"),
        ("crio-abc123", "abc123"),
        ("docker-abc123.scope", "abc123"),
        ("web-0-app-1", "web-0-app-1"),
        ("cri-containerd-other.scope", "other"),
        ("strange", "strange"),
    ],
)
def test_container_ids_of_cgroups(name: str, id: str) -> None:
    assert container_id(name, {"abc123", "web-0-app-1"}) == id


def test_cgroup_layouts_of_kubelets_and_of_the_node_agent(tmp_path: Path) -> None:
    for number, (pod, container) in enumerate(
        (
            ("kubepods/burstable/podu-1", "c1"),
            (
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice",
                "cri-containerd-c1.scope",
            ),
            ("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu_1.slice", "crio-c1.scope"),
            ("plimsoll/node-a/podu-1", "c1"),
        )
    ):
        files = V1(tmp_path / str(number), ("cpuset",))
        directory = files.add(f"{pod}/{container}")
        files.add(f"{pod}/crio-conmon-c1.scope")
        files.add("system.slice/podu-2.service")
        directories = CgroupFinder(tmp_path / str(number) / "cpuset", files)
        for _ in range(2):  # looked for, then remembered
            assert directories.pods({"u-1", "u-3"}) == {"u-1": directory.parent}
        assert directories.containers(directory.parent, {"c1"}) == {"c1": directory}
        assert directories.pods(()) == {}


def test_a_pod_that_moved_is_found_again(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))
    old = files.add("kubepods/podu-1")
    directories = CgroupFinder(tmp_path / "cpuset", files)
    assert directories.pods({"u-1"}) == {"u-1": old}
    (old / "cgroup.procs").write_text("")
    files.remove(old)
    new = files.add("kubepods/burstable/podu-1")
    assert directories.pods({"u-1"}) == {"u-1": new}
