"""Device statuses of claims, from their allocations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.claim_status import build_device_statuses
from plimsoll.drivers.cpu.state import ClaimAllocation
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, CpuAssignment
from plimsoll.drivers.plugin import ClaimRef, DeviceStatus
from plimsoll.drivers.plugin.claim_status import build_entries
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.fixtures import NODE, AllocationSpec, CPUStateFixture, make_claim

MACHINE = make_machine(sockets=2, cores=4)  # 0-3, 4-7
REF = ClaimRef("default", "c", "u1")
N0, N1 = "cpudevnuma000", "cpudevnuma001"
SHARES = ("a671734a-e8e5-11e4-8fde-42010af09327", "b671734a-e8e5-11e4-8fde-42010af09327")


def ready(report: DeviceStatus) -> tuple[bool | None, str, str]:
    (condition,) = report.conditions
    assert condition.type == "Ready"
    return condition.status, condition.reason, condition.message


def test_shares_of_a_claim_are_distinguished(tmp_path: Path) -> None:
    state = CPUStateFixture(tmp_path, MACHINE).open()
    asked = [
        AllocationSpec(N0, "1", "a", SHARES[0]),
        AllocationSpec(N0, "2", "b", SHARES[1]),
        AllocationSpec(N1, "2", "c", SHARES[0]),
    ]
    allocation = state.prepare(make_claim(1, *asked))
    assert isinstance(allocation, ClaimAllocation)
    found = {(each.device, each.share_id): each for each in build_device_statuses([allocation], MACHINE)}
    assert {key: each.data for key, each in found.items()} == {
        (N0, SHARES[0]): {"cpuset": str(allocation.get_request_cpus("a")), "numaNodes": "0"},
        (N0, SHARES[1]): {"cpuset": str(allocation.get_request_cpus("b")), "numaNodes": "0"},
        (N1, SHARES[0]): {"cpuset": str(allocation.get_request_cpus("c")), "numaNodes": "1"},
    }
    assert {each.pool for each in found.values()} == {NODE}
    assert ready(found[N1, SHARES[0]]) == (True, "Pinned", "CPUs 4-5 are exclusive to the claim")


def assignment(
    device: str, cpus: str, share: str | None = None, source: AssignmentSource = AssignmentSource.ASSIGNED
) -> CpuAssignment:
    return CpuAssignment("r", NODE, device, CpuSet.parse(cpus), share, source)


def test_reasons_of_claims_that_are_not_ready() -> None:
    both = ClaimAllocation(REF, (assignment(N0, "0-1"), assignment(N1, "4-5")))
    smaller = switch_off(MACHINE, CpuSet([1]))
    first, second = build_device_statuses([both], smaller)
    assert first.data == {"cpuset": "0-1", "numaNodes": "0", "offline": "1"}
    assert ready(first) == (False, "CPUsOffline", "CPUs 1 are offline")
    assert ready(second)[:2] == (True, "Pinned")
    for report in build_device_statuses([both], MACHINE, pinned=False):
        assert ready(report) == (False, "NotPinned", "the driver has no link to the runtime")
    for report in build_device_statuses([replace(both, disputed="x" * 5000)], smaller):
        assert ready(report) == (False, "Disputed", "x" * 1000)


def test_claims_without_a_known_name_or_devices_are_left_out() -> None:
    nameless = ClaimAllocation(ClaimRef("", "", "u2"), (assignment("", "2"),), adopted=True)
    admin = ClaimAllocation(REF, (assignment(N0, "", source=AssignmentSource.ADMIN), assignment("", "3")))
    assert build_device_statuses([nameless, admin], MACHINE) == []


@pytest.mark.parametrize("shares", [(None, None), SHARES])
def test_indistinguishable_results_are_reported_together(shares: tuple[str | None, ...]) -> None:
    allocation = ClaimAllocation(REF, (assignment(N0, "0", shares[0]), assignment(N0, "2", shares[1])))
    statuses = [(each.data or {})["cpuset"] for each in build_device_statuses([allocation], MACHINE)]
    assert statuses == (["0,2"] if shares[0] is None else ["0", "2"])


GRANTS = st.builds(
    CpuAssignment,
    request=st.sampled_from(["", "r", "r/x"]),
    pool=st.sampled_from(["", NODE]),
    device=st.sampled_from(["", N0, N1]),
    cpus=st.sets(st.integers(0, 9)).map(CpuSet),
    share_id=st.sampled_from([None, *SHARES]),
)
HOLDINGS = st.lists(
    st.builds(
        ClaimAllocation,
        ref=st.builds(ClaimRef, st.just("default"), st.sampled_from(["", "a", "b"]), st.uuids().map(str)),
        assignments=st.lists(GRANTS, max_size=4).map(tuple),
        disputed=st.sampled_from(["", "two witnesses"]),
    ),
    max_size=4,
)


@given(HOLDINGS, st.sets(st.integers(0, 7)), st.booleans())
def test_every_cpu_of_a_known_device_is_reported_once(
    allocations: list[ClaimAllocation], off: set[int], pinned: bool
) -> None:
    topology = switch_off(MACHINE, CpuSet(off))
    reports = build_device_statuses(allocations, topology, pinned=pinned)
    entries, faults = build_entries("dra.cpu", reports)
    assert not faults
    assert sum(len(of_claim) for _, of_claim in entries.values()) == len(reports), "no two for one device"
    for allocation in allocations:
        for place in allocation.assignments:
            statuses = [
                each
                for each in reports
                if each.claim == allocation.ref
                and (each.pool, each.device, each.share_id) == (place.pool, place.device, place.share_id)
            ]
            if not (allocation.ref.name and place.pool and place.device and place.cpus):
                continue
            (report,) = statuses
            cpus = CpuSet.parse((report.data or {})["cpuset"])
            assert place.cpus <= cpus <= allocation.assigned
            fine = not allocation.disputed and cpus <= topology.all and pinned
            assert ready(report)[0] is fine
