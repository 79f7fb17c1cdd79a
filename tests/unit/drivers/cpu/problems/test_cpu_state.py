"""Open problems of the Go driver (section 12 of the specification) that the book of holdings solves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.state import ClaimAllocation, CPUState
from plimsoll.drivers.cpu.topology.topology import SkippedCpu
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import MACHINE, Asked, Container, Desk, make_claim, opaque, uid_of
from tests.unit.drivers.cpu.state.test_affinity import NICS, ROOT, make_rooted

N0 = "cpudevnuma000"
MACHINE_DEVICE = "cpudevmachine"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, make_machine(sockets=2, cores=4))  # 0-3, 4-7


def prepared(state: CPUState, claim: AllocatedClaim) -> ClaimAllocation:
    found = state.prepare(claim)
    assert isinstance(found, ClaimAllocation), found
    return found


def refusal(state: CPUState, claim: AllocatedClaim) -> str:
    found = state.prepare(claim)
    assert isinstance(found, ClaimError), found
    return found.message


def test_problem_5_what_is_prepared_is_on_disk_before_the_node_is_reported(desk: Desk) -> None:
    allocation = prepared(desk.open(), make_claim(1, Asked(N0, "2", "a"), Asked(N0, "1", "b")))
    # Nothing but files is left of the process, and no container has run.
    again = desk.open()
    assert again.allocations == {uid_of(1): allocation}
    assert prepared(again, make_claim(1, Asked(N0, "2", "a"), Asked(N0, "1", "b"))) == allocation


@pytest.mark.parametrize("amount", ["1500m", "0", "-1"])
def test_problem_8_amounts_that_no_cpus_make_are_refused_without_trace(desk: Desk, amount: str) -> None:
    """Schedulers refuse or round them by the device's policy; whoever comes past that is told why."""
    state = desk.open()
    assert f"got {amount}" in refusal(state, make_claim(1, Asked(N0, amount)))
    assert not state.allocations
    assert not desk.file(1).exists()


def test_problem_11_cpus_near_the_matched_pcie_root(desk: Desk) -> None:
    desk.topology = make_rooted()
    state = desk.open()
    nic = Asked("eth0", request="nic", driver="nic.example.com")
    claim = make_claim(1, Asked(N0, "2"), nic, constraints=[{"matchAttribute": ROOT}])
    assert state.needs_affinity(claim)
    found = state.prepare(claim, affinity=state.find_affinity(claim, [NICS]))
    assert isinstance(found, ClaimAllocation)
    assert str(found.cpus) == "2-3"  # without a tie it would be 0-1
    assert not state.needs_affinity(claim)
    assert any("near the other device" in line for line in state.explain(uid_of(1)))


def test_problem_12_a_cpu_that_was_skipped_can_neither_be_claimed_nor_counted(desk: Desk) -> None:
    desk.extra |= MACHINE
    desk.topology = replace(desk.topology, skipped=(SkippedCpu(8, "no core_id"),))
    state = desk.open()
    config = [opaque({"cpuset": "7-8"})]
    text = refusal(state, make_claim(1, Asked(MACHINE_DEVICE, "2"), configs=config))
    assert text.endswith("contain cores whose place in the machine is not known: 8")
    assert 8 not in state.shared
    assert len(prepared(state, make_claim(2, Asked(MACHINE_DEVICE, "8"))).cpus) == 8


def test_issue_258_claims_survive_a_restart(desk: Desk) -> None:
    """A claim whose container has not been made yet, or is between two runs, keeps its CPUs."""
    allocation = prepared(desk.open(), make_claim(1, Asked(N0, "2")))
    again = desk.open()
    assert again.check_containers([]) == ()  # the runtime knows of no container
    assert again.allocations == {uid_of(1): allocation}
    assert not prepared(again, make_claim(2, Asked(N0, "2"))).cpus & allocation.cpus
    assert "available=0" in refusal(again, make_claim(3, Asked(N0, "1")))


def test_issue_258_a_prepare_before_the_runtime_has_been_heard_is_safe(desk: Desk) -> None:
    """What the Go driver left in CDI files counts from the start."""
    desk.write_foreign(1, "0-1")
    state = desk.open()
    assert str(prepared(state, make_claim(2, Asked(N0, "2"))).cpus) == "2-3"
    assert state.check_containers([Container("default/p/c", {uid_of(1): CpuSet([0, 1])})]) == ()


@pytest.mark.parametrize("issue", ["235", "239"])
def test_issues_235_and_239_a_container_that_restarts_finds_its_cpus(desk: Desk, issue: str) -> None:
    state = desk.open()
    allocation = prepared(state, make_claim(1, Asked(N0, "2")))
    running = Container(f"default/p-{issue}/c", {uid_of(1): allocation.assigned})
    for seen in ([running], [], [running]):
        assert state.check_containers(seen) == ()
        assert state.allocations == {uid_of(1): allocation}
        assert not state.shared & allocation.cpus
        if issue == "239":  # the driver restarts, too
            state = desk.open()


def test_issue_188_cpus_are_allocated_from_prepare_to_unprepare(desk: Desk) -> None:
    """Nothing between them gives CPUs away: no container's end, no restart, no CPU that goes offline."""
    state = desk.open()
    claim = make_claim(1, Asked(N0, "2"))
    allocation = prepared(state, claim)
    state.check_containers([])
    small = make_machine(sockets=2, cores=4, offline=[0])
    state.update_topology(
        small, compute_layout(small, desk.settings, earlier=state.layout, allocated=state.by_device)
    )
    assert state.allocations == {uid_of(1): allocation}
    desk.topology = small
    state = desk.open()
    assert state.allocations == {uid_of(1): allocation}
    assert state.offline_allocated == {uid_of(1): CpuSet([0])}
    assert state.release(ClaimRef("default", "c", uid_of(1))) is None
    assert state.shared == small.all


def test_issue_217_machine_mode_without_a_cpuset(desk: Desk) -> None:
    desk.extra |= MACHINE
    state = desk.open()
    even = make_claim(1, Asked(MACHINE_DEVICE, "6"), config={"algorithm": "distributed"})
    assert str(prepared(state, even).cpus) == "0-2,4-6"
    assert str(prepared(state, make_claim(2, Asked(MACHINE_DEVICE, "2"))).cpus) == "3,7"


def test_issue_229_an_external_allocator_names_the_cpus(desk: Desk) -> None:
    desk.extra |= MACHINE
    state = desk.open()
    configs = [opaque({"cpuset": "3,6"}, "a"), opaque({"cpuset": "0"}, "b")]
    asked = (Asked(MACHINE_DEVICE, "2", "a"), Asked(MACHINE_DEVICE, "1", "b"))
    allocation = prepared(state, make_claim(1, *asked, configs=configs))
    assert {assignment.request: str(assignment.cpus) for assignment in allocation.assignments} == {
        "a": "3,6",
        "b": "0",
    }
    text = refusal(state, make_claim(2, Asked(MACHINE_DEVICE, "2"), config={"cpuset": "6-7"}))
    assert text == "requested CPUs 6-7 from opaque config conflict with already allocated claims"
    assert f"DRA_CPUSET_{uid_of(1)}=0,3,6" in desk.file(1).read_text()


def test_issue_164_single_cpus_are_named_without_a_device_for_each(desk: Desk) -> None:
    """Any CPUs of the one device of a machine, in two lines of configuration."""
    desk.extra |= MACHINE
    state = desk.open()
    allocation = prepared(state, make_claim(1, Asked(MACHINE_DEVICE, "3"), config={"cpuset": "1,4,7"}))
    assert str(allocation.assigned) == "1,4,7"
    assert str(state.shared) == "0,2-3,5-6"


def test_issue_295_a_claim_does_not_empty_the_shared_pool(desk: Desk) -> None:
    desk.extra |= MACHINE
    state = desk.open()
    everything = make_claim(1, Asked(MACHINE_DEVICE, "8"))
    state.shared_pool_in_use = lambda: True
    assert "would take CPUs 0-7 and leave no CPU" in refusal(state, everything)
    assert len(prepared(state, make_claim(2, Asked(MACHINE_DEVICE, "7"))).cpus) == 7
    assert len(state.shared) == 1


def test_issue_295_a_minimum_is_left_even_if_unused(desk: Desk) -> None:
    desk.extra |= MACHINE | {"min_shared": 3}
    state = desk.open()
    assert "available=5" in refusal(state, make_claim(1, Asked(MACHINE_DEVICE, "6")))
    prepared(state, make_claim(1, Asked(MACHINE_DEVICE, "5")))
    assert len(state.shared) == 3


def test_share_ids_are_answered_and_shares_kept_apart(desk: Desk) -> None:
    state = desk.open()
    allocation = prepared(state, make_claim(1, Asked(N0, "1", share="s1"), Asked(N0, "2", share="s2")))
    assert [device.share_id for device in state.list_prepared_devices(allocation)] == ["s1", "s2"]
    one, two = (assignment.cpus for assignment in allocation.assignments)
    assert (len(one), len(two), len(one & two)) == (1, 2, 0)
    again = desk.open().allocations[uid_of(1)]
    assert [(assignment.share_id, assignment.cpus) for assignment in again.assignments] == [
        ("s1", one),
        ("s2", two),
    ]
