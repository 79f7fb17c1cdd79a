"""Conversion of resource amounts to writes of cgroup files."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.cgroup_plans import PodPlan
from plimsoll.node.cgroup_plans.conversions import shares_to_weight
from plimsoll.node.cgroups.writes import resources_of_pod, v1_writes, v2_writes
from plimsoll.node.resources import LinuxResources

_AMOUNT = st.none() | st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(max_size=20) | st.sampled_from(["cgroup.procs", "memory.max", "../x", "2MB", "2MB/.."])
RESOURCES = st.builds(
    LinuxResources,
    cpu_shares=_AMOUNT,
    cpu_quota=_AMOUNT,
    cpu_period=_AMOUNT,
    cpus=_TEXT,
    mems=_TEXT,
    memory_limit=_AMOUNT,
    huge_pages=st.dictionaries(_TEXT, st.integers(-5, 2**63), max_size=3),
    unified=st.dictionaries(_TEXT, _TEXT, max_size=3),
    pids=_AMOUNT,
)


@given(RESOURCES)
def test_only_files_of_resource_controllers_are_written(resources: LinuxResources) -> None:
    for writes in (v1_writes(resources), v2_writes(resources)):
        for write in writes:
            if not write.error:
                assert re.fullmatch(
                    r"(cpu|cpuset|memory|hugetlb|pids|io|misc|rdma)(\.[A-Za-z0-9_]+)+", write.file
                )
                assert write.file.startswith(write.controller)
            assert "/" not in write.file
            assert "\n" not in write.file


@given(RESOURCES)
def test_unset_values_are_not_written(resources: LinuxResources) -> None:
    """Compare with one line per file."""
    expected = {
        "cpu.weight": shares_to_weight(resources.cpu_shares) if resources.cpu_shares else None,
        "memory.max": (resources.memory_limit if (resources.memory_limit or 0) > 0 else "max")
        if resources.memory_limit
        else None,
        "pids.max": None if resources.pids is None else resources.pids if resources.pids > 0 else "max",
        "cpuset.cpus": resources.cpus or None,
        "cpuset.mems": resources.mems or None,
    }
    plain = {write.file: write.value for write in v2_writes(resources) if write.file not in resources.unified}
    for file, value in expected.items():
        if file not in resources.unified:
            assert plain.get(file) == (None if value is None else str(value))


def test_an_empty_plan_writes_nothing() -> None:
    assert v1_writes(LinuxResources()) == v2_writes(LinuxResources()) == ()


def test_pod_plan_as_cgroup_files() -> None:
    plan = PodPlan(
        cpu_shares=2,
        cpu_quota=0,
        cpu_period=1000,
        memory=0,
        huge_pages={2 << 20: 4 << 20, 3000: 1},
        unified={"memory.low": "1"},
        memory_high=7,
    )
    found = resources_of_pod(plan)
    assert found == LinuxResources(
        cpu_shares=2,
        cpu_period=1000,
        huge_pages={"2MB": 4 << 20},
        unified={"memory.low": "1", "memory.high": "7"},
    )
