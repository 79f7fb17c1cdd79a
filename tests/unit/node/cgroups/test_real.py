"""Cgroups of this machine, if it has any that can be used: the effects of the values."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans import CgroupSettings, PodPlan, QosCgroupPlan
from plimsoll.node.cgroups import Cgroups, open_cgroups
from plimsoll.node.cgroups.detect import detect
from plimsoll.node.cgroups.kernel import LinuxKernel
from plimsoll.node.resources import LinuxResources, resources_from_plan
from tests import build
from tests.waiting import DEADLINE, wait_until

MOUNT = Path("/sys/fs/cgroup")
BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
"""
EATER = 'import time; b = b"x" * (24 << 20); print(1, flush=True); time.sleep(300)'
POD = PodPlan(cpu_shares=512, cpu_quota=150_000, cpu_period=100_000, memory=256 << 20)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    if os.geteuid() != 0:
        pytest.skip("cgroups are root's")
    found = open_cgroups(f"plimsoll-test-{os.getpid()}", owner=f"test-{os.getpid()}", timeout=DEADLINE)
    if found.version == 0:
        pytest.skip(f"no cgroups that can be used: {found.note}")
    try:
        faults = found.set_up()
        if faults:
            pytest.skip(f"cgroups cannot be used: {faults[0]}")
        yield found
    finally:
        assert found.tear_down()


def needs(*controllers: str) -> None:
    found = detect(MOUNT, LinuxKernel())
    for name in controllers:
        if name not in (found.v1 if found.version == 1 else found.v2):
            pytest.skip(f"this machine has no {name} controller for us")


def start(cgroups: Cgroups, pod: str, id: str, script: str) -> subprocess.Popen[str]:
    """Start a shell that joins a container's cgroup and runs a script."""
    joined = "".join(f"echo $$ > {file}; " for file in cgroups.join_files(pod, id))
    return subprocess.Popen(["/bin/sh", "-c", joined + script], stdout=subprocess.PIPE, text=True)


def test_a_process_in_a_cgroup_runs_on_its_cpus(cgroups: Cgroups) -> None:
    needs("cpuset")
    last = max(os.sched_getaffinity(0))
    cgroups.make_pod("u", "Burstable", POD)
    assert cgroups.make_container("u", "c", LinuxResources(cpus=str(last))) == ()
    process = start(cgroups, "u", "c", "cat /proc/self/status")
    out, _ = process.communicate(timeout=DEADLINE)
    assert f"Cpus_allowed_list:\t{last}\n" in out
    assert cgroups.cpus("u", "c") == str(last)


def test_values_reach_the_kernel(cgroups: Cgroups) -> None:
    needs("cpu", "memory", "pids")
    assert cgroups.apply_tiers(QosCgroupPlan(burstable_shares=700)) == ()
    assert cgroups.make_pod("u", "Burstable", POD) == ()
    resources = LinuxResources(
        cpu_shares=100, cpu_quota=20_000, cpu_period=100_000, memory_limit=8 << 20, pids=9
    )
    assert cgroups.make_container("u", "c", resources) == ()
    for file, value in cgroups.plan().items():
        assert (MOUNT / file).read_text().strip() == value
    assert cgroups.unapplied() == {}


def test_a_pod_with_claims_only_gets_their_weight(cgroups: Cgroups) -> None:
    """DRANodeAllocatableResourcesQoS in the kernel: tier, pod and container have the weight of the claim, and
    the process its OOM score; without the gate all have the least.
    """
    needs("cpu")
    entry = {"resourceClaimName": "x", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "4"}]}
    only = build.pod(
        "p", build.container("c"), uid="u", status={"nodeAllocatableResourceClaimStatuses": [entry]}
    )
    found = {}
    for counts in (False, True):
        planner = CgroupPlanner(
            CgroupSettings(memory_capacity=8 << 30, claims_in_qos=counts, cgroup_version=cgroups.version)
        )
        plans = planner.plan(only)
        assert cgroups.apply_tiers(planner.tiers([only])) == ()
        assert cgroups.make_pod("u", plans.qos, plans.pod) == ()
        assert cgroups.make_container("u", "c", resources_from_plan(plans.containers["c"])) == ()
        name = "cpu.shares" if cgroups.version == 1 else "cpu.weight"
        values = {file: int((MOUNT / file).read_text()) for file in cgroups.plan() if file.endswith(name)}
        (own,) = (value for file, value in values.items() if file.endswith(f"/c/{name}"))
        (whole,) = (value for file, value in values.items() if file.endswith(f"podu/{name}"))
        (tier,) = (value for file, value in values.items() if file.endswith(f"burstable/{name}"))
        least = 2 if cgroups.version == 1 else 1
        found[counts] = [value == least for value in (tier, whole, own)]
        if counts:
            assert own == whole == tier == (4096 if cgroups.version == 1 else 157)
        assert cgroups.remove_pod("u")
    assert found == {False: [True] * 3, True: [False] * 3}


def test_a_pod_shrinks_after_its_containers_and_grows_before_them(cgroups: Cgroups) -> None:
    needs("cpu")
    cgroups.make_pod("u", "Burstable", POD)
    wide = LinuxResources(cpu_quota=150_000, cpu_period=100_000)
    narrow = LinuxResources(cpu_quota=10_000, cpu_period=50_000)
    small = PodPlan(cpu_shares=512, cpu_quota=10_000, cpu_period=50_000)
    assert cgroups.make_container("u", "c", wide) == ()
    if cgroups.version == 1:
        assert cgroups.make_pod("u", "Burstable", small) != ()  # the container has more
    assert cgroups.make_container("u", "c", narrow) == ()
    assert cgroups.make_pod("u", "Burstable", small) == ()
    if cgroups.version == 1:
        assert cgroups.make_container("u", "c", wide) != ()
    assert cgroups.make_pod("u", "Burstable", POD) == ()
    assert cgroups.make_container("u", "c", wide) == ()


def test_exceeding_the_memory_limit_kills_the_process(cgroups: Cgroups) -> None:
    needs("memory")
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", LinuxResources(memory_limit=16 << 20))
    greedy = "exec python3 -c 'b = bytearray(200 << 20); print(len(b))'"
    process = start(cgroups, "u", "c", greedy)
    out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) != (0, f"{200 << 20}\n")


def test_usage_is_measured(cgroups: Cgroups) -> None:
    needs("memory", "pids")
    cgroups.make_pod("u", "Burstable", POD)
    cgroups.make_container("u", "c", LinuxResources())
    process = start(cgroups, "u", "c", f"exec python3 -c '{EATER}'")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        pod, container = cgroups.usage("u"), cgroups.usage("u", "c")
        assert pod is not None
        assert container is not None
        assert 24 << 20 <= (container.memory or 0) <= (pod.memory or 0) < 200 << 20
        assert (pod.cpu or 0) > 0
        assert (pod.pids or 0) >= 1
    finally:
        cgroups.kill("u", "c")
        process.communicate(timeout=DEADLINE)


def test_kill_ends_children_that_left_their_session(cgroups: Cgroups) -> None:
    cgroups.make_pod("u", "BestEffort", PodPlan(cpu_shares=2))
    cgroups.make_container("u", "c", LinuxResources())
    cgroups.make_container("u", "other", LinuxResources())
    process = start(cgroups, "u", "c", "setsid sleep 300 & (setsid sleep 300 &) ; exec sleep 300")
    other = start(cgroups, "u", "other", "exec sleep 300")
    try:
        wait_until(lambda: len(cgroups.pids("u", "c")) == 3 and cgroups.pids("u", "other"))
        cgroups.kill("u", "c")
        assert process.wait(DEADLINE) == -9
        wait_until(lambda: not cgroups.pids("u", "c"))
        assert other.poll() is None
    finally:
        assert cgroups.remove_pod("u")
        assert other.wait(DEADLINE) == -9
        for one in (process, other):
            one.communicate()


def test_a_fork_bomb_is_removed(cgroups: Cgroups) -> None:
    needs("pids")
    cgroups.make_pod("u", "BestEffort", PodPlan(cpu_shares=2))
    cgroups.make_container("u", "c", LinuxResources(pids=40))
    process = start(cgroups, "u", "c", f"exec python3 -c '{BOMB}'")
    wait_until(lambda: len(cgroups.pids("u")) > 20)
    assert cgroups.remove_container("u", "c")
    assert process.wait(DEADLINE) == -9
    process.communicate()
    assert cgroups.containers("u") == ()


def test_cgroups_of_a_killed_agent_are_removed(cgroups: Cgroups) -> None:
    name = f"plimsoll-test-{os.getpid()}"
    cgroups.make_pod("u", "Guaranteed", POD)
    cgroups.make_container("u", "c", LinuxResources())
    process = start(cgroups, "u", "c", "exec sleep 300")
    wait_until(lambda: cgroups.pids("u", "c"))
    again = open_cgroups(name, owner=f"test-{os.getpid()}")
    assert again.set_up() == ()
    assert again.pods() == ("u",)
    assert process.pid in again.pids("u", "c")
    assert again.remove_pod("u")
    assert process.wait(DEADLINE) == -9
    process.communicate()
    (fault,) = open_cgroups(name, owner="another").set_up()
    assert "belongs to" in fault.error
