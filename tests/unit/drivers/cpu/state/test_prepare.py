"""CPU selection for claims (docs/spec/cpu-driver.md, "Prepare and unprepare" and "Test suite")."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.allocation.allocate import Assigned, InsufficientCpus, assign
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.settings import CpuSettings, GroupBy
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.state.prepare import (
    PrepareContext,
    PreparePlan,
    assign_with_affinity,
    check_repeated,
    match_adopted,
    plan_claim,
)
from plimsoll.drivers.cpu.state.prepare_errors import PrepareError, PrepareErrorReason
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.cpu.topology.topology import SkippedCpu
from plimsoll.drivers.plugin.driver import AllocatedClaim
from plimsoll.protocols.dra import ClaimRef
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import machines, make_machine
from tests.unit.drivers.cpu.state.fixtures import (
    INDIVIDUAL,
    MACHINE,
    NODE,
    SOCKET,
    AllocationSpec,
    make_claim,
    opaque,
)

#: Two sockets of one NUMA node each, four cores of two threads: siblings are n and n + 8.
TWO = make_machine(sockets=2, cores=4, threads=2)
N0, N1 = "cpudevnuma000", "cpudevnuma001"


def scene_of(topology: Topology = TWO, allocated: str = "", **extra: Any) -> PrepareContext:
    settings = CpuSettings(node=NODE, kubelet_root=Path("/nowhere"), cdi=Path("/nowhere"), **extra)
    return PrepareContext(settings, topology, compute_layout(topology, settings), CpuSet.parse(allocated))


def plan(claim: AllocatedClaim, context: PrepareContext, **more: Any) -> PreparePlan:
    found = plan_claim(claim, context, **more)
    assert isinstance(found, PreparePlan), found.message
    return found


def refused(claim: AllocatedClaim, context: PrepareContext, **more: Any) -> PrepareError:
    found = plan_claim(claim, context, **more)
    assert isinstance(found, PrepareError), found
    assert found.message
    assert found.to_claim_error().code == found.why.value
    return found


@pytest.mark.parametrize(
    ("extra", "device", "amount", "cpus"),
    [
        ({}, N0, "2", "0,8"),
        ({}, N0, "4", "0-1,8-9"),
        ({}, N1, "8", "4-7,12-15"),
        (SOCKET, "cpudevsocket000", "2", "0,8"),
        (SOCKET, "cpudevsocket001", "8", "4-7,12-15"),
        (MACHINE, "cpudevmachine", "8", "0-3,8-11"),
        ({"group_by": GroupBy.L3}, "cpudevl3001", "2", "4,12"),
        ({"reserved": CpuSet([0, 8])}, N0, "2", "1,9"),
    ],
)
def test_many_cpus_of_one_device(extra: dict[str, Any], device: str, amount: str, cpus: str) -> None:
    found = plan(make_claim(1, AllocationSpec(device, amount)), scene_of(**extra))
    assert str(found.cpus) == cpus
    assert found.assignments[0].source is AssignmentSource.ASSIGNED
    assert found.why[0]


def test_single_cpus() -> None:
    found = plan(
        make_claim(1, AllocationSpec("cpudev000"), AllocationSpec("cpudev003")), scene_of(**INDIVIDUAL)
    )
    assert [str(assignment.cpus) for assignment in found.assignments] == ["0", "9"]  # siblings are neighbours


def test_several_requests_on_one_device_do_not_overlap() -> None:
    claim = make_claim(
        1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "3", "b"), AllocationSpec(N1, "1", "c")
    )
    found = plan(claim, scene_of())
    a, b, c = (assignment.cpus for assignment in found.assignments)
    assert [len(a), len(b), len(c)] == [2, 3, 1]
    assert len(found.cpus) == 6
    assert c <= TWO.numa[1]


def test_shares_of_one_device_in_one_request_are_kept_apart() -> None:
    claim = make_claim(1, AllocationSpec(N0, "2", share="s1"), AllocationSpec(N0, "2", share="s2"))
    found = plan(claim, scene_of())
    assert [assignment.share_id for assignment in found.assignments] == ["s1", "s2"]
    assert not found.assignments[0].cpus & found.assignments[1].cpus


def test_results_of_other_drivers_are_ignored() -> None:
    claim = make_claim(1, AllocationSpec("gpu-0", driver="gpu.example.com"), AllocationSpec(N0, "2"))
    claim = replace(claim, results=claim.claim.status.allocation.devices.results)  # type: ignore[union-attr]
    assert len(plan(claim, scene_of()).assignments) == 1
    alone = make_claim(2, AllocationSpec("gpu-0", driver="gpu.example.com"))
    assert plan(alone, scene_of()).assignments == ()


def test_administrative_access_takes_no_cpus() -> None:
    claim = make_claim(1, AllocationSpec(N0, admin=True, request="watch"), AllocationSpec(N0, "8"))
    found = plan(claim, scene_of(allocated="4"))
    assert [len(assignment.cpus) for assignment in found.assignments] == [0, 8]
    assert found.assignments[0].source is AssignmentSource.ADMIN
    # Neither are held CPUs in the way of those who only look on.
    single = make_claim(1, AllocationSpec("cpudev000", admin=True))
    assert plan(single, scene_of(allocated="0", **INDIVIDUAL)).cpus == EMPTY


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, 'CPU capacity "dra.cpu/cpu" for device "cpudevnuma000" is missing'),
        ("0", 'CPU capacity for device "cpudevnuma000" must be positive, got 0'),
        ("-2", 'CPU capacity for device "cpudevnuma000" must be positive, got -2'),
        ("1500m", 'CPU capacity for device "cpudevnuma000" must be a whole number, got 1500m'),
    ],
)
def test_invalid_amounts_are_refused(amount: str | None, text: str) -> None:
    assert refused(make_claim(1, AllocationSpec(N0, amount)), scene_of()).message == text


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({}, "no valid NUMA node ID found for device nosuch"),
        (SOCKET, "no valid socket ID found for device nosuch"),
        ({"group_by": GroupBy.L3}, "no valid L3 cache ID found for device nosuch"),
        (MACHINE, "no valid machine found for device nosuch"),
        (INDIVIDUAL, 'device "nosuch" not found in device to CPU ID map'),
    ],
)
def test_unknown_devices(extra: dict[str, Any], text: str) -> None:
    assert refused(make_claim(1, AllocationSpec("nosuch", "1")), scene_of(**extra)).message == text


def test_no_allocation() -> None:
    fault = refused(make_claim(1, allocated=False), scene_of())
    assert fault.message == "claim default/claim-0001 has no allocation"


def test_more_cpus_than_free_are_refused() -> None:
    fault = refused(make_claim(1, AllocationSpec(N0, "3")), scene_of(allocated="0-2,8-10"))
    assert fault.why is PrepareErrorReason.NOT_ENOUGH
    assert (fault.requested, fault.available) == (3, 2)
    assert "not enough cpus available to satisfy request" in fault.message
    huge = refused(make_claim(1, AllocationSpec(N0, "9223372036854775807")), scene_of())
    assert huge.why is PrepareErrorReason.NOT_ENOUGH


def test_a_cpu_of_another_claim_is_refused() -> None:
    context = scene_of(allocated="0", **INDIVIDUAL)
    fault = refused(make_claim(1, AllocationSpec("cpudev000")), context)
    assert fault.message == "claim default/claim-0001 has overlapping device assignment with other claims"
    twice = refused(make_claim(1, AllocationSpec("cpudev002"), AllocationSpec("cpudev002")), context)
    assert twice.why is PrepareErrorReason.OVERLAP


# -- claim configuration


def test_options_of_the_claim() -> None:
    spread = plan(
        make_claim(1, AllocationSpec(N0, "2"), config={"sorting": "spread", "alignL3": False}), scene_of()
    )
    assert str(spread.cpus) == "0-1"
    assert spread.assignments[0].options == AssignOptions(sorting=Sorting.SPREAD, align_l3=False)
    even = {"algorithm": "distributed"}
    found = plan(make_claim(1, AllocationSpec("cpudevmachine", "10"), config=even), scene_of(**MACHINE))
    assert [len(found.cpus & numa) for numa in TWO.numa.values()] == [5, 5]


def test_mix_of_the_claim() -> None:
    assert plan(make_claim(1, AllocationSpec(N0, "2")), scene_of()).include_shared is None
    assert (
        plan(make_claim(1, AllocationSpec(N0, "2"), config={"mix": True}), scene_of()).include_shared is True
    )
    configs = [opaque({"mix": False}, "a"), opaque({"mix": True}, "b")]
    claim = make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "2", "b"), configs=configs)
    assert plan(claim, scene_of()).include_shared is True


def test_an_invalid_configuration_is_refused() -> None:
    fault = refused(make_claim(1, AllocationSpec(N0, "2"), config={"sorting": "random"}), scene_of())
    assert fault.why is PrepareErrorReason.CONFIG
    assert "sorting" in fault.message


def cpuset_claim(cpus: str, amount: str = "2", *more: AllocationSpec) -> AllocatedClaim:
    return make_claim(1, AllocationSpec("cpudevmachine", amount), *more, config={"cpuset": cpus})


@pytest.mark.parametrize(
    ("cpus", "extra", "text"),
    [
        ("2-5", {}, "opaque config cpuset size 4 does not match requested capacity 2"),
        ("2,99", {}, "requested CPUs 2,99 from opaque config contain offline cores: 99"),
        (
            "0-1",
            {"reserved": CpuSet([0])},
            "requested CPUs 0-1 from opaque config contain reserved cores: 0",
        ),
        ("6,15", {}, "requested CPUs 6,15 from opaque config conflict with already allocated claims"),
    ],
)
def test_cpus_named_by_the_claim_are_checked(cpus: str, extra: dict[str, Any], text: str) -> None:
    assert refused(cpuset_claim(cpus), scene_of(allocated="15", **MACHINE, **extra)).message == text


def test_cpus_named_by_the_claim() -> None:
    found = plan(cpuset_claim("3,6"), scene_of(**MACHINE))
    assert str(found.cpus) == "3,6"
    assert found.assignments[0].source is AssignmentSource.CPUSET


def test_cpus_named_twice_in_a_claim() -> None:
    configs = [opaque({"cpuset": "2-3"}, "a"), opaque({"cpuset": "3-4"}, "b")]
    claim = make_claim(
        1,
        AllocationSpec("cpudevmachine", "2", "a"),
        AllocationSpec("cpudevmachine", "2", "b"),
        configs=configs,
    )
    text = "requested CPUs 3-4 from opaque config are already assigned to another device in this claim"
    assert refused(claim, scene_of(**MACHINE)).message == text


def test_configuration_of_a_parent_request_is_for_its_subrequests() -> None:
    claim = make_claim(
        1, AllocationSpec("cpudevmachine", "2", "a/big"), configs=[opaque({"cpuset": "2-3"}, "a")]
    )
    assert str(plan(claim, scene_of(**MACHINE)).cpus) == "2-3"


def test_shared_cpus_cannot_be_named() -> None:
    context = scene_of(min_shared=2, **MACHINE)
    fault = refused(cpuset_claim(str(context.layout.always_shared)), context)
    assert fault.why is PrepareErrorReason.CPUSET_FLOOR
    assert str(context.layout.always_shared) in fault.message


def test_cpus_without_topology_cannot_be_named() -> None:
    topology = replace(TWO, skipped=(SkippedCpu(77, "no core_id"),))
    fault = refused(cpuset_claim("2,77"), scene_of(topology, **MACHINE))
    assert fault.why is PrepareErrorReason.CPUSET_UNKNOWN
    assert fault.message.endswith("unknown topology: 77")


# -- the shared pool


def test_the_last_shared_cpu_is_not_allocated() -> None:
    claim, context = make_claim(1, AllocationSpec(N0, "8"), AllocationSpec(N1, "8")), scene_of()
    assert len(plan(claim, context).cpus) == 16  # no container shares CPUs
    fault = refused(claim, context, shared_pool_in_use=True)
    assert fault.why is PrepareErrorReason.POOL_EMPTY
    assert "leave no CPU" in fault.message
    assert len(plan(make_claim(1, AllocationSpec(N0, "8")), context, shared_pool_in_use=True).cpus) == 8


def test_the_minimum_of_shared_cpus_is_kept() -> None:
    # The floor is kept by the domains; here a claim has held it since before it was set.
    context = scene_of(min_shared=2)
    allocated = scene_of(allocated=str(context.layout.always_shared), min_shared=2)
    free = len(allocated.free)
    fault = refused(make_claim(1, AllocationSpec(N1, "8"), AllocationSpec(N0, str(free - 8))), allocated)
    assert fault.why is PrepareErrorReason.POOL_SMALL
    assert (fault.available, fault.requested) == (0, 2)
    assert "leave 0 to the containers that share CPUs" in fault.message


# -- near other devices


def test_near_cpus_are_preferred() -> None:
    context, affinity = scene_of(), {"cpus": CpuSet.parse("2-3,10-11")}
    found = plan(make_claim(1, AllocationSpec(N0, "2")), context, affinity=affinity)
    assert str(found.cpus) == "2,10"
    assert any("near" in line for line in found.why[0])
    most = plan(make_claim(1, AllocationSpec(N0, "6")), context, affinity=affinity)
    assert affinity["cpus"] <= most.cpus
    assert len(most.cpus) == 6


@given(machines(), st.data())
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_a_preference_changes_only_the_choice(topology: Topology, data: st.DataObject) -> None:
    ids = sorted(topology.all)
    available = CpuSet(data.draw(st.lists(st.sampled_from(ids), unique=True)))
    affinity = CpuSet(data.draw(st.lists(st.sampled_from(ids), unique=True)))
    count = data.draw(st.integers(1, len(ids)))
    options = AssignOptions(
        data.draw(st.sampled_from(Algorithm)), full_cores=data.draw(st.booleans()), align_l3=False
    )
    found, _ = assign_with_affinity(topology, available, count, options, affinity)
    plain = assign(topology, available, count, options)
    assert isinstance(found, InsufficientCpus) == isinstance(plain, InsufficientCpus)
    if isinstance(found, Assigned) and isinstance(plain, Assigned):
        assert found.cpus <= available
        assert len(found.cpus) == count
        assert len(found.cpus & affinity) >= len(plain.cpus & affinity) or options.full_cores


# -- again


def test_preparing_the_same_allocation_again() -> None:
    context = scene_of()
    claim = make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "2", "b", share="s"))
    allocation = ClaimAllocation(claim.ref, plan(claim, context).assignments)
    assert check_repeated(claim, allocation, context) is None
    turned = make_claim(1, AllocationSpec(N0, "2", "b", share="s"), AllocationSpec(N0, "2", "a"))
    assert check_repeated(turned, allocation, context) is None


@pytest.mark.parametrize(
    "asked",
    [
        AllocationSpec(N1, "2"),
        AllocationSpec(N0, "3"),
        AllocationSpec(N0, "2", "other"),
        AllocationSpec(N0, "2", share="s"),
    ],
)
def test_another_allocation_is_refused(asked: AllocationSpec) -> None:
    claim, context = make_claim(1, AllocationSpec(N0, "2")), scene_of()
    allocation = ClaimAllocation(claim.ref, plan(claim, context).assignments)
    fault = check_repeated(make_claim(1, asked), allocation, context)
    assert fault is not None
    assert fault.why is PrepareErrorReason.OTHER_ALLOCATION
    assert "0,8" in fault.message


def test_other_single_cpus_are_refused() -> None:
    claim, context = make_claim(1, AllocationSpec("cpudev000")), scene_of(**INDIVIDUAL)
    allocation = ClaimAllocation(claim.ref, plan(claim, context).assignments)
    fault = check_repeated(make_claim(1, AllocationSpec("cpudev001")), allocation, context)
    assert fault is not None
    expected = "claim default/claim-0001 is already prepared with different CPUs 0 (requested 8)"
    assert fault.message == expected


# -- adopted CPUs


def adopted(cpus: str) -> ClaimAllocation:

    assignments = (CpuAssignment("", NODE, N0, CpuSet.parse(cpus), source=AssignmentSource.ADOPTED),)
    return ClaimAllocation(ClaimRef("", "", "x"), assignments, adopted=True)


def test_adopted_cpus_are_distributed_to_requests() -> None:
    claim = make_claim(
        1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "1", "b"), AllocationSpec(N1, "1", "c")
    )
    found = match_adopted(claim, adopted("0-2,5"), scene_of())
    assert isinstance(found, PreparePlan)
    assert found.cpus == CpuSet.parse("0-2,5")
    assert [len(assignment.cpus) for assignment in found.assignments] == [2, 1, 1]
    assert found.assignments[2].cpus == CpuSet([5])


def test_requests_in_an_adopted_file_keep_their_cpus() -> None:
    claim = make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "2", "b"))
    requests = {"a": CpuSet([1, 3]), "b": CpuSet([0, 2])}
    found = match_adopted(claim, adopted("0-3"), scene_of(), requests)
    assert isinstance(found, PreparePlan)
    assert {g.request: g.cpus for g in found.assignments} == requests


@pytest.mark.parametrize(
    ("cpus", "text"), [("0-2", "CPUs 2 belong to no request"), ("0,5", "2 of device cpudevnuma000")]
)
def test_adopted_cpus_must_match_the_allocation(cpus: str, text: str) -> None:
    found = match_adopted(make_claim(1, AllocationSpec(N0, "2")), adopted(cpus), scene_of())
    assert isinstance(found, PrepareError)
    assert found.why is PrepareErrorReason.UNFIT
    assert text in found.message


def test_adopted_cpus_may_be_in_the_shared_pool() -> None:
    context = scene_of(min_shared=2)
    always_shared = context.layout.always_shared
    device = N0 if always_shared <= TWO.numa[0] else N1
    found = match_adopted(make_claim(1, AllocationSpec(device, "2")), adopted(str(always_shared)), context)
    assert isinstance(found, PreparePlan)
    assert found.cpus == always_shared
