"""Open problems of the Go driver (docs/spec/cpu-driver.md, "Open problems") that the CPU state solves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.state import ClaimAllocation, CPUState
from plimsoll.drivers.cpu.state.prepared_devices import list_prepared_devices
from plimsoll.drivers.cpu.topology.topology import SkippedCpu
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import (
    MACHINE,
    NICS,
    ROOT,
    AllocationSpec,
    Container,
    CPUStateFixture,
    make_claim,
    make_rooted,
    opaque,
    uid_of,
)

N0 = "cpudevnuma000"
MACHINE_DEVICE = "cpudevmachine"


@pytest.fixture
def fixture(tmp_path: Path) -> CPUStateFixture:
    return CPUStateFixture(tmp_path, make_machine(sockets=2, cores=4))  # 0-3, 4-7


def prepared(state: CPUState, claim: AllocatedClaim) -> ClaimAllocation:
    found = state.prepare(claim)
    assert isinstance(found, ClaimAllocation), found
    return found


def refusal(state: CPUState, claim: AllocatedClaim) -> str:
    found = state.prepare(claim)
    assert isinstance(found, ClaimError), found
    return found.message


def test_problem_5_what_is_prepared_is_on_disk_before_the_node_is_reported(fixture: CPUStateFixture) -> None:
    allocation = prepared(
        fixture.open(), make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "1", "b"))
    )
    # Nothing but files is left of the process, and no container has run.
    again = fixture.open()
    assert again.allocations == {uid_of(1): allocation}
    assert (
        prepared(again, make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "1", "b")))
        == allocation
    )


@pytest.mark.parametrize("amount", ["1500m", "0", "-1"])
def test_problem_8_amounts_that_no_cpus_make_are_refused_without_trace(
    fixture: CPUStateFixture, amount: str
) -> None:
    """Schedulers reject or round them by the device's policy; amounts that get past that are rejected with
    a reason.
    """
    state = fixture.open()
    assert f"got {amount}" in refusal(state, make_claim(1, AllocationSpec(N0, amount)))
    assert not state.allocations
    assert not fixture.file(1).exists()


def test_problem_11_cpus_near_the_matched_pcie_root(fixture: CPUStateFixture) -> None:
    fixture.topology = make_rooted()
    state = fixture.open()
    nic = AllocationSpec("eth0", request="nic", driver="nic.example.com")
    claim = make_claim(1, AllocationSpec(N0, "2"), nic, constraints=[{"matchAttribute": ROOT}])
    assert state.needs_affinity(claim)
    found = state.prepare(claim, affinity=state.find_affinity(claim, [NICS]))
    assert isinstance(found, ClaimAllocation)
    assert str(found.cpus) == "2-3"  # without a tie it would be 0-1
    assert not state.needs_affinity(claim)
    assert any("near the other device" in line for line in state.explain(uid_of(1)))


def test_problem_12_a_cpu_that_was_skipped_can_neither_be_claimed_nor_counted(
    fixture: CPUStateFixture,
) -> None:
    fixture.extra |= MACHINE
    fixture.topology = replace(fixture.topology, skipped=(SkippedCpu(8, "no core_id"),))
    state = fixture.open()
    config = [opaque({"cpuset": "7-8"})]
    text = refusal(state, make_claim(1, AllocationSpec(MACHINE_DEVICE, "2"), configs=config))
    assert text.endswith("contain cores with unknown topology: 8")
    assert 8 not in state.shared
    assert len(prepared(state, make_claim(2, AllocationSpec(MACHINE_DEVICE, "8"))).cpus) == 8


def test_issue_258_claims_survive_a_restart(fixture: CPUStateFixture) -> None:
    """A claim whose container has not been created yet, or is restarting, keeps its CPUs."""
    allocation = prepared(fixture.open(), make_claim(1, AllocationSpec(N0, "2")))
    again = fixture.open()
    assert again.check_containers([]) == ()  # the runtime knows of no container
    assert again.allocations == {uid_of(1): allocation}
    assert not prepared(again, make_claim(2, AllocationSpec(N0, "2"))).cpus & allocation.cpus
    assert "available=0" in refusal(again, make_claim(3, AllocationSpec(N0, "1")))


def test_issue_258_a_prepare_before_the_runtime_synchronizes_is_safe(fixture: CPUStateFixture) -> None:
    """CPUs in CDI files of the Go driver count from the start."""
    fixture.write_foreign(1, "0-1")
    state = fixture.open()
    assert str(prepared(state, make_claim(2, AllocationSpec(N0, "2"))).cpus) == "2-3"
    assert state.check_containers([Container("default/p/c", {uid_of(1): CpuSet([0, 1])})]) == ()


@pytest.mark.parametrize("issue", ["235", "239"])
def test_issues_235_and_239_a_container_that_restarts_finds_its_cpus(
    fixture: CPUStateFixture, issue: str
) -> None:
    state = fixture.open()
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    running = Container(f"default/p-{issue}/c", {uid_of(1): allocation.assigned})
    for seen in ([running], [], [running]):
        assert state.check_containers(seen) == ()
        assert state.allocations == {uid_of(1): allocation}
        assert not state.shared & allocation.cpus
        if issue == "239":  # the driver restarts, too
            state = fixture.open()


def test_issue_188_cpus_are_allocated_from_prepare_to_unprepare(fixture: CPUStateFixture) -> None:
    """No event in between releases CPUs: no container exit, no restart, no CPU that goes offline."""
    state = fixture.open()
    claim = make_claim(1, AllocationSpec(N0, "2"))
    allocation = prepared(state, claim)
    state.check_containers([])
    small = make_machine(sockets=2, cores=4, offline=[0])
    state.update_topology(
        small, compute_layout(small, fixture.settings, earlier=state.layout, allocated=state.by_device)
    )
    assert state.allocations == {uid_of(1): allocation}
    fixture.topology = small
    state = fixture.open()
    assert state.allocations == {uid_of(1): allocation}
    assert any(found.what.startswith("CPUs 0 of claim") for found in state.findings)
    assert state.release(ClaimRef("default", "c", uid_of(1))) is None
    assert state.shared == small.all


def test_issue_217_machine_mode_without_a_cpuset(fixture: CPUStateFixture) -> None:
    fixture.extra |= MACHINE
    state = fixture.open()
    even = make_claim(1, AllocationSpec(MACHINE_DEVICE, "6"), config={"algorithm": "distributed"})
    assert str(prepared(state, even).cpus) == "0-2,4-6"
    assert str(prepared(state, make_claim(2, AllocationSpec(MACHINE_DEVICE, "2"))).cpus) == "3,7"


def test_issue_229_an_external_allocator_names_the_cpus(fixture: CPUStateFixture) -> None:
    fixture.extra |= MACHINE
    state = fixture.open()
    configs = [opaque({"cpuset": "3,6"}, "a"), opaque({"cpuset": "0"}, "b")]
    asked = (AllocationSpec(MACHINE_DEVICE, "2", "a"), AllocationSpec(MACHINE_DEVICE, "1", "b"))
    allocation = prepared(state, make_claim(1, *asked, configs=configs))
    assert {assignment.request: str(assignment.cpus) for assignment in allocation.assignments} == {
        "a": "3,6",
        "b": "0",
    }
    text = refusal(state, make_claim(2, AllocationSpec(MACHINE_DEVICE, "2"), config={"cpuset": "6-7"}))
    assert text == "requested CPUs 6-7 from opaque config conflict with already allocated claims"
    assert f"DRA_CPUSET_{uid_of(1)}=0,3,6" in fixture.file(1).read_text()


def test_issue_164_single_cpus_are_named_without_a_device_for_each(fixture: CPUStateFixture) -> None:
    """Any CPUs of the machine's single device, in two lines of configuration."""
    fixture.extra |= MACHINE
    state = fixture.open()
    allocation = prepared(
        state, make_claim(1, AllocationSpec(MACHINE_DEVICE, "3"), config={"cpuset": "1,4,7"})
    )
    assert str(allocation.assigned) == "1,4,7"
    assert str(state.shared) == "0,2-3,5-6"


def test_issue_295_a_claim_does_not_empty_the_shared_pool(fixture: CPUStateFixture) -> None:
    fixture.extra |= MACHINE
    state = fixture.open()
    everything = make_claim(1, AllocationSpec(MACHINE_DEVICE, "8"))
    state.shared_pool_in_use = lambda: True
    assert "would take CPUs 0-7 and leave no CPU" in refusal(state, everything)
    assert len(prepared(state, make_claim(2, AllocationSpec(MACHINE_DEVICE, "7"))).cpus) == 7
    assert len(state.shared) == 1


def test_issue_295_a_minimum_is_left_even_if_unused(fixture: CPUStateFixture) -> None:
    fixture.extra |= MACHINE | {"min_shared": 3}
    state = fixture.open()
    assert "available=5" in refusal(state, make_claim(1, AllocationSpec(MACHINE_DEVICE, "6")))
    prepared(state, make_claim(1, AllocationSpec(MACHINE_DEVICE, "5")))
    assert len(state.shared) == 3


def test_share_ids_are_answered_and_shares_kept_apart(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    allocation = prepared(
        state, make_claim(1, AllocationSpec(N0, "1", share="s1"), AllocationSpec(N0, "2", share="s2"))
    )
    assert [device.share_id for device in list_prepared_devices(allocation)] == ["s1", "s2"]
    one, two = (assignment.cpus for assignment in allocation.assignments)
    assert (len(one), len(two), len(one & two)) == (1, 2, 0)
    again = fixture.open().allocations[uid_of(1)]
    assert [(assignment.share_id, assignment.cpus) for assignment in again.assignments] == [
        ("s1", one),
        ("s2", two),
    ]
