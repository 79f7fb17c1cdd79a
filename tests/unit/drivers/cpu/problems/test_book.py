"""Open problems of the Go driver (section 12 of the specification) that the book of holdings solves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import arrange
from plimsoll.drivers.cpu.state import CpuBook, Holding
from plimsoll.drivers.cpu.topology.topology import Skipped
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.desk import MACHINE, Asked, Container, Desk, make_claim, opaque, uid_of
from tests.unit.drivers.cpu.state.test_affinity import NICS, ROOT, make_rooted

N0 = "cpudevnuma000"
MACHINE_DEVICE = "cpudevmachine"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, make_machine(sockets=2, cores=4))  # 0-3, 4-7


def prepared(book: CpuBook, claim: AllocatedClaim) -> Holding:
    found = book.prepare(claim)
    assert isinstance(found, Holding), found
    return found


def refusal(book: CpuBook, claim: AllocatedClaim) -> str:
    found = book.prepare(claim)
    assert isinstance(found, ClaimError), found
    return found.message


def test_problem_5_what_is_prepared_is_on_disk_before_the_node_is_told(desk: Desk) -> None:
    holding = prepared(desk.open(), make_claim(1, Asked(N0, "2", "a"), Asked(N0, "1", "b")))
    # Nothing but files is left of the process, and no container has run.
    again = desk.open()
    assert again.holdings == {uid_of(1): holding}
    assert prepared(again, make_claim(1, Asked(N0, "2", "a"), Asked(N0, "1", "b"))) == holding


@pytest.mark.parametrize("amount", ["1500m", "0", "-1"])
def test_problem_8_amounts_that_no_cpus_make_are_refused_without_trace(desk: Desk, amount: str) -> None:
    """Schedulers refuse or round them by the device's policy; whoever comes past that is told why."""
    book = desk.open()
    assert f"got {amount}" in refusal(book, make_claim(1, Asked(N0, amount)))
    assert not book.holdings
    assert not desk.file(1).exists()


def test_problem_11_cpus_near_the_matched_pcie_root(desk: Desk) -> None:
    desk.topology = make_rooted()
    book = desk.open()
    nic = Asked("eth0", request="nic", driver="nic.example.com")
    claim = make_claim(1, Asked(N0, "2"), nic, constraints=[{"matchAttribute": ROOT}])
    assert book.needs_neighbours(claim)
    found = book.prepare(claim, near=book.near_of(claim, [NICS]))
    assert isinstance(found, Holding)
    assert str(found.cpus) == "2-3"  # without a tie it would be 0-1
    assert not book.needs_neighbours(claim)
    assert any("near the other device" in line for line in book.explain(uid_of(1)))


def test_problem_12_a_cpu_that_was_skipped_can_neither_be_claimed_nor_counted(desk: Desk) -> None:
    desk.extra |= MACHINE
    desk.topology = replace(desk.topology, skipped=(Skipped(8, "no core_id"),))
    book = desk.open()
    config = [opaque({"cpuset": "7-8"})]
    text = refusal(book, make_claim(1, Asked(MACHINE_DEVICE, "2"), configs=config))
    assert text.endswith("contain cores whose place in the machine is not known: 8")
    assert 8 not in book.shared
    assert len(prepared(book, make_claim(2, Asked(MACHINE_DEVICE, "8"))).cpus) == 8


def test_issue_258_claims_survive_a_restart(desk: Desk) -> None:
    """A claim whose container has not been made yet, or is between two runs, keeps its CPUs."""
    holding = prepared(desk.open(), make_claim(1, Asked(N0, "2")))
    again = desk.open()
    assert again.witness([]) == ()  # the runtime knows of no container
    assert again.holdings == {uid_of(1): holding}
    assert not prepared(again, make_claim(2, Asked(N0, "2"))).cpus & holding.cpus
    assert "available=0" in refusal(again, make_claim(3, Asked(N0, "1")))


def test_issue_258_a_prepare_before_the_runtime_has_been_heard_is_safe(desk: Desk) -> None:
    """What the Go driver left in CDI files counts from the start."""
    desk.write_foreign(1, "0-1")
    book = desk.open()
    assert str(prepared(book, make_claim(2, Asked(N0, "2"))).cpus) == "2-3"
    assert book.witness([Container("default/p/c", {uid_of(1): CpuSet([0, 1])})]) == ()


@pytest.mark.parametrize("issue", ["235", "239"])
def test_issues_235_and_239_a_container_that_restarts_finds_its_cpus(desk: Desk, issue: str) -> None:
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    running = Container(f"default/p-{issue}/c", {uid_of(1): holding.granted})
    for seen in ([running], [], [running]):
        assert book.witness(seen) == ()
        assert book.holdings == {uid_of(1): holding}
        assert not book.shared & holding.cpus
        if issue == "239":  # the driver restarts, too
            book = desk.open()


def test_issue_188_cpus_are_held_from_prepare_to_unprepare(desk: Desk) -> None:
    """Nothing between them gives CPUs away: no container's end, no restart, no CPU that goes offline."""
    book = desk.open()
    claim = make_claim(1, Asked(N0, "2"))
    holding = prepared(book, claim)
    book.witness([])
    small = make_machine(sockets=2, cores=4, offline=[0])
    book.change(small, arrange(small, desk.settings, earlier=book.arrangement, held=book.by_device))
    assert book.holdings == {uid_of(1): holding}
    desk.topology = small
    book = desk.open()
    assert book.holdings == {uid_of(1): holding}
    assert book.lost == {uid_of(1): CpuSet([0])}
    assert book.release(ClaimRef("default", "c", uid_of(1))) is None
    assert book.shared == small.all


def test_issue_217_machine_mode_without_a_cpuset(desk: Desk) -> None:
    desk.extra |= MACHINE
    book = desk.open()
    even = make_claim(1, Asked(MACHINE_DEVICE, "6"), config={"algorithm": "distributed"})
    assert str(prepared(book, even).cpus) == "0-2,4-6"
    assert str(prepared(book, make_claim(2, Asked(MACHINE_DEVICE, "2"))).cpus) == "3,7"


def test_issue_229_an_external_allocator_names_the_cpus(desk: Desk) -> None:
    desk.extra |= MACHINE
    book = desk.open()
    configs = [opaque({"cpuset": "3,6"}, "a"), opaque({"cpuset": "0"}, "b")]
    asked = (Asked(MACHINE_DEVICE, "2", "a"), Asked(MACHINE_DEVICE, "1", "b"))
    holding = prepared(book, make_claim(1, *asked, configs=configs))
    assert {grant.request: str(grant.cpus) for grant in holding.grants} == {"a": "3,6", "b": "0"}
    text = refusal(book, make_claim(2, Asked(MACHINE_DEVICE, "2"), config={"cpuset": "6-7"}))
    assert text == "requested CPUs 6-7 from opaque config conflict with already allocated claims"
    assert f"DRA_CPUSET_{uid_of(1)}=0,3,6" in desk.file(1).read_text()


def test_issue_164_single_cpus_are_named_without_a_device_for_each(desk: Desk) -> None:
    """Any CPUs of the one device of a machine, in two lines of configuration."""
    desk.extra |= MACHINE
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(MACHINE_DEVICE, "3"), config={"cpuset": "1,4,7"}))
    assert str(holding.granted) == "1,4,7"
    assert str(book.shared) == "0,2-3,5-6"


def test_issue_295_a_claim_does_not_empty_the_shared_pool(desk: Desk) -> None:
    desk.extra |= MACHINE
    book = desk.open()
    everything = make_claim(1, Asked(MACHINE_DEVICE, "8"))
    book.needed = lambda: True
    assert "would take CPUs 0-7 and leave no CPU" in refusal(book, everything)
    assert len(prepared(book, make_claim(2, Asked(MACHINE_DEVICE, "7"))).cpus) == 7
    assert len(book.shared) == 1


def test_issue_295_a_minimum_is_left_even_if_nobody_needs_it(desk: Desk) -> None:
    desk.extra |= MACHINE | {"min_shared": 3}
    book = desk.open()
    assert "available=5" in refusal(book, make_claim(1, Asked(MACHINE_DEVICE, "6")))
    prepared(book, make_claim(1, Asked(MACHINE_DEVICE, "5")))
    assert len(book.shared) == 3


def test_share_ids_are_answered_and_shares_kept_apart(desk: Desk) -> None:
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "1", share="s1"), Asked(N0, "2", share="s2")))
    assert [device.share_id for device in book.devices_of(holding)] == ["s1", "s2"]
    one, two = (grant.cpus for grant in holding.grants)
    assert (len(one), len(two), len(one & two)) == (1, 2, 0)
    again = desk.open().holdings[uid_of(1)]
    assert [(grant.share_id, grant.cpus) for grant in again.grants] == [("s1", one), ("s2", two)]
