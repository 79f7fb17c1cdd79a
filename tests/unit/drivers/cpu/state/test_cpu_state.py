"""CPU state: results of prepare and release, persistence, and failures of disk or process at every step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.common.checkpoint import FindingSeverity
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state import ClaimAllocation, CPUState, read_allocated_cpus
from plimsoll.drivers.cpu.state.cdi import read_files
from plimsoll.drivers.cpu.state.prepared_devices import list_prepared_devices
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef, PreparedDevice
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.fixtures import (
    INDIVIDUAL,
    NODE,
    AllocationSpec,
    Container,
    CPUStateFixture,
    make_claim,
    uid_of,
)

N0, N1 = "cpudevnuma000", "cpudevnuma001"


@pytest.fixture
def fixture(tmp_path: Path) -> CPUStateFixture:
    """Return two NUMA nodes: 0-3 and 8-11, 4-7 and 12-15."""
    return CPUStateFixture(tmp_path, make_machine(sockets=2, cores=4, threads=2))


def prepared(state: CPUState, claim: AllocatedClaim, **more: Any) -> ClaimAllocation:
    found = state.prepare(claim, **more)
    assert isinstance(found, ClaimAllocation), found
    return found


def refusal(state: CPUState, claim: AllocatedClaim) -> str:
    found = state.prepare(claim)
    assert isinstance(found, ClaimError), found
    return found.message


def ref_of(number: int) -> ClaimRef:
    return ClaimRef("default", f"claim-{number:04d}", uid_of(number))


# -- prepare and release


def test_a_claim_allocates_and_releases_cpus(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    everything, revision = state.shared, state.revision
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    assert str(allocation.cpus) == "0,8"
    assert state.shared == everything - allocation.cpus
    assert state.allocations == {uid_of(1): allocation}
    assert state.revision > revision
    assert f"DRA_CPUSET_{uid_of(1)}=0,8" in fixture.file(1).read_text()
    assert state.release(ref_of(1)) is None
    assert state.shared == everything
    assert not fixture.file(1).exists()
    assert not fixture.open().allocations


def test_responses_have_requests_and_shares(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    claim = make_claim(
        1,
        AllocationSpec(N0, "2", "a/big", share="s1"),
        AllocationSpec(N0, "1", "b", share="s2"),
        AllocationSpec(N1, "1"),
    )
    name = f"dra.k8s.io/cpu=claim-{uid_of(1)}"
    assert list_prepared_devices(prepared(state, claim)) == [
        PreparedDevice(NODE, N0, ("a",), (name,), "s1"),
        PreparedDevice(NODE, N0, ("b",), (name,), "s2"),
        PreparedDevice(NODE, N1, ("cpus",), (name,)),
    ]


def test_separate_requests_have_separate_devices(fixture: CPUStateFixture) -> None:
    fixture.extra["pin"] = PinSettings(per_request_cpus=True)
    state = fixture.open()
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N0, "1", "b/x")))
    ids = [device.cdi for device in list_prepared_devices(allocation)]
    assert ids == [(f"dra.k8s.io/cpu=claim-{uid_of(1)}_{request}",) for request in ("a", "b")]
    # What was prepared so stays so, whatever the settings are later.
    fixture.extra.clear()
    again = fixture.open()
    assert [device.cdi for device in list_prepared_devices(again.allocations[uid_of(1)])] == ids
    fixture.file(1).unlink()
    assert not fixture.open().reconcile_files()
    assert f"claim-{uid_of(1)}_b" in fixture.file(1).read_text()


def test_metadata_of_devices(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    device = list_prepared_devices(allocation, {N0: {"dra.cpu/socketID": {"int": 0}}})[0]
    attributes = {"dra.cpu/socketID": {"int": 0}, "dra.cpu/allocatedNumCPUs": {"int": 2}}
    assert device.metadata == {"attributes": attributes}


def test_claims_without_cpus_succeed_and_leave_nothing(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    none = prepared(state, make_claim(1, AllocationSpec("gpu-0", driver="gpu.example.com")))
    assert list_prepared_devices(none) == []
    watch = prepared(state, make_claim(2, AllocationSpec(N0, admin=True)))
    assert list_prepared_devices(watch) == [PreparedDevice(NODE, N0, ("cpus",), ())]
    assert not state.allocations
    assert read_files(fixture.settings.cdi) == ({}, ())
    assert state.release(ref_of(2)) is None


def test_preparing_a_claim_again_gives_the_same_response(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    claim = make_claim(1, AllocationSpec(N0, "2"))
    first = prepared(state, claim)
    prepared(state, make_claim(2, AllocationSpec(N0, "2")))
    revision = state.revision
    assert prepared(state, claim) == first
    assert state.revision == revision
    fixture.file(1).unlink()
    assert prepared(state, claim) == first
    assert fixture.file(1).exists()
    assert prepared(fixture.open(), claim) == first
    assert "another allocation" in refusal(state, make_claim(1, AllocationSpec(N0, "3")))


def test_claims_do_not_overlap_until_cpus_run_out(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    taken = [prepared(state, make_claim(n, AllocationSpec(N0, "3"))).cpus for n in range(2)]
    assert len(union(taken)) == 6
    assert "requested=3, available=2" in refusal(state, make_claim(9, AllocationSpec(N0, "3")))
    assert not fixture.file(9).exists()


def test_unused_claims_are_released(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    assert state.release(ref_of(1)) is None
    prepared(state, make_claim("a_b", AllocationSpec(N0, "2")))
    assert state.release(ClaimRef("x", "y", "a/b")) is None
    assert state.release(ClaimRef("x", "y", "../a_b")) is None
    assert fixture.file("a_b").exists()


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a b", "x" * 300])
def test_invalid_uids_are_refused(fixture: CPUStateFixture, uid: str) -> None:
    assert "cannot be prepared" in refusal(fixture.open(), make_claim(uid, AllocationSpec(N0, "2")))


def test_the_last_shared_cpus_are_allocated_only_if_unused(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    both = make_claim(1, AllocationSpec(N0, "8"), AllocationSpec(N1, "8"))
    state.shared_pool_in_use = lambda: True
    assert "leave no CPU" in refusal(state, both)
    state.shared_pool_in_use = lambda: False
    assert prepared(state, both)
    assert state.shared == EMPTY


def test_shared_cpus_are_reported_to_claims_with_shared_cpus(fixture: CPUStateFixture) -> None:
    fixture.extra |= {"min_shared": 2, "pin": PinSettings(include_shared=True)}
    state = fixture.open()
    prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    assert f"DRA_SHARED_CPUSET={state.layout.always_shared}" in fixture.file(1).read_text()
    prepared(state, make_claim(2, AllocationSpec(N0, "2"), config={"mix": False}))
    assert "DRA_SHARED_CPUSET" not in fixture.file(2).read_text()


def test_explanation_of_an_allocation(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    assert state.explain("x") == ["claim x has no CPUs"]
    prepared(state, make_claim(1, AllocationSpec(N0, "2", share="s")))
    lines = state.explain(uid_of(1))
    assert lines[0] == "claim default/claim-0001 has CPUs 0,8"
    assert lines[1] == f"request cpus on {N0}, share s: 0,8"
    assert any("L3 cache 0" in line for line in lines[2:])
    after = "\n".join(fixture.open().explain(uid_of(1)))
    assert "the steps were not stored" in after
    assert "packed, sorted packed" in after


# -- restarts


def test_allocations_survive_a_restart(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    prepared(
        state,
        make_claim(1, AllocationSpec(N0, "2", "a", share="s"), AllocationSpec(N1, "1"), config={"mix": True}),
    )
    prepared(state, make_claim(2, AllocationSpec(N0, "2")))
    again = fixture.open()
    assert again.allocations == state.allocations
    assert again.shared == state.shared
    assert not again.findings
    assert read_allocated_cpus(fixture.settings) == state.by_device


def test_files_are_written_again_after_a_reboot(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    content = fixture.file(1).read_bytes()
    fixture.file(1).unlink()
    assert fixture.open().allocations == {uid_of(1): allocation}
    assert fixture.file(1).read_bytes() == content


def test_a_damaged_checkpoint_is_rebuilt_from_the_files(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    claim = make_claim(1, AllocationSpec(N0, "2", "a"), AllocationSpec(N1, "1", "b"))
    before = prepared(state, claim)
    fixture.settings.checkpoint_path.write_bytes(b"\0" * 100)
    again = fixture.open()
    assert again.allocations[uid_of(1)].cpus == before.cpus
    assert again.allocations[uid_of(1)].adopted
    assert again.findings[0].severity is FindingSeverity.ERROR
    assert list((fixture.settings.plugin_dir / "quarantine").iterdir())
    after = prepared(again, claim)
    assert not after.adopted
    assert {g.request: g.cpus for g in after.assignments} == {g.request: g.cpus for g in before.assignments}
    assert fixture.open().allocations == {uid_of(1): after}


def test_a_claim_of_the_go_driver_is_adopted(fixture: CPUStateFixture) -> None:
    uid = fixture.write_foreign(1, "2-3")
    content = fixture.file(1).read_bytes()
    state = fixture.open()
    assert state.allocations[uid].adopted
    assert not state.shared & CpuSet([2, 3])
    assert read_allocated_cpus(fixture.settings) == {N0: CpuSet([2, 3])}
    assert "CPUs 3 belong to no request" in refusal(state, make_claim(1, AllocationSpec(N0, "1")))
    assert fixture.file(1).read_bytes() == content
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    assert str(allocation.cpus) == "2-3"
    assert allocation.ref.name == "claim-0001"
    assert state.release(ref_of(1)) is None
    assert not fixture.file(1).exists()


def test_a_file_that_appears_while_we_run_is_not_overwritten(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    fixture.write_foreign(1, "5,13")
    assert "do not fit" in refusal(state, make_claim(1, AllocationSpec(N0, "2")))
    assert str(prepared(state, make_claim(1, AllocationSpec(N1, "2"))).cpus) == "5,13"


def test_a_disputed_claim_is_refused_until_it_is_released(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    claim = make_claim(1, AllocationSpec(N0, "2"))
    prepared(state, claim)
    fixture.write_foreign(1, "1,9")
    again = fixture.open()
    assert [finding.severity for finding in again.findings] == [FindingSeverity.ERROR]
    assert str(again.allocated) == "0-1,8-9"
    assert "is disputed: the checkpoint has CPUs 0,8, the CDI file 1,9" in refusal(again, claim)
    assert not prepared(again, make_claim(2, AllocationSpec(N0, "4"))).cpus & CpuSet([0, 1, 8, 9])
    assert "disputed" in "".join(again.explain(uid_of(1)))
    assert fixture.open().allocations == again.allocations
    assert again.release(ref_of(1)) is None
    assert not again.findings
    assert str(prepared(again, claim).cpus) == "0,8"


def test_a_container_with_other_cpus_disputes_its_claim(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    claim = make_claim(1, AllocationSpec(N0, "2"))
    allocation = prepared(state, claim)
    odd = Container("default/p/c", {uid_of(1): CpuSet([1, 9])})
    for _ in range(2):
        assert state.check_containers([odd])
        assert str(state.allocated) == "0-1,8-9"
    assert [finding.severity for finding in state.findings] == [FindingSeverity.ERROR]
    assert state.allocations[uid_of(1)].disputed
    assert "disputed" in refusal(state, claim)
    # It is over when that container is.
    assert state.check_containers([]) == ()
    assert state.allocations == {uid_of(1): allocation}
    assert prepared(state, claim) == allocation


def test_cpus_that_go_offline_and_come_back(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    whole = fixture.topology
    smaller = switch_off(whole, CpuSet([8, 9]))
    revision = state.revision
    findings = state.update_topology(smaller, compute_layout(smaller, fixture.settings))
    assert state.revision > revision
    assert state.allocations[uid_of(1)] == allocation
    assert [found.what.partition(" of claim")[0] for found in findings] == ["CPUs 8"]
    assert state.shared == smaller.all - allocation.cpus
    assert prepared(state, make_claim(1, AllocationSpec(N0, "2"))) == allocation
    assert "available=5" in refusal(state, make_claim(2, AllocationSpec(N0, "6")))
    assert state.update_topology(whole, compute_layout(whole, fixture.settings)) == ()


def test_a_changed_mode_keeps_what_is_allocated(fixture: CPUStateFixture) -> None:
    claim = make_claim(1, AllocationSpec(N0, "2"))
    allocation = prepared(fixture.open(), claim)
    fixture.extra |= INDIVIDUAL
    state = fixture.open()
    assert state.allocations == {uid_of(1): allocation}
    assert prepared(state, claim) == allocation


# -- failures


class Killed(BaseException):
    """Simulated end of the process."""


def steps(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None], at: int, *, after: bool) -> list[int]:
    """Let the `at`-th disk operation fail, before or after it was carried out."""
    count = [0]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            count[0] += 1
            if count[0] - 1 != at:
                return real(*args, **more)
            if after:
                real(*args, **more)
            fail()
            raise AssertionError("unreachable")

        return step

    for name in ("replace", "fsync", "unlink", "write"):
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    monkeypatch.setattr(Path, "unlink", wrap(Path.unlink))
    return count


def kill() -> None:
    raise Killed


def break_disk() -> None:
    raise OSError(28, "No space left on device")


def check(fixture: CPUStateFixture, state: CPUState) -> None:
    """Check that no CPU has two owners, and that every CDI file that a container could use belongs to a
    claim.
    """
    fine = [allocation for allocation in state.allocations.values() if not allocation.disputed]
    assert len(fine) == len(state.allocations), "nothing here should make a dispute"
    assert len(union(h.cpus for h in fine)) == sum(len(h.cpus) for h in fine)
    assert not state.shared & state.allocated
    files, _ = read_files(fixture.settings.cdi)
    for uid, file in files.items():
        assert not file.fault
        assert state.allocations[uid].assigned == file.cpus


OLD, NEW = make_claim(1, AllocationSpec(N0, "2")), make_claim(2, AllocationSpec(N0, "2"))
OPERATIONS: dict[str, Callable[[CPUState], object]] = {
    "prepare": lambda state: state.prepare(NEW),
    "release": lambda state: state.release(OLD.ref),
    "fill": lambda state: state.prepare(make_claim(3, AllocationSpec(N1, "2"))),
    "recheck": lambda state: state.reconcile_files(),
}


def cases() -> Iterator[tuple[str, bool]]:
    for name in OPERATIONS:
        yield name, False
        yield name, True


def set_up(fixture: CPUStateFixture, name: str) -> CPUState:
    fixture.write_foreign(3, "4,12")
    state = fixture.open()
    assert isinstance(state.prepare(OLD), ClaimAllocation)
    if name == "recheck":
        fixture.file(1).unlink()
        fixture.write_foreign(4, "7")
    return state


@pytest.mark.parametrize(("name", "after"), list(cases()))
def test_a_crash_at_any_step_leaks_nothing(tmp_path: Path, name: str, after: bool) -> None:
    for at in range(200):
        fixture = CPUStateFixture(tmp_path / str(at), make_machine(sockets=2, cores=4, threads=2))
        state = set_up(fixture, name)
        before = dict(state.allocations)
        with pytest.MonkeyPatch.context() as patch:
            count = steps(patch, kill, at, after=after)
            try:
                OPERATIONS[name](state)
            except Killed:
                pass
            else:
                assert count[0] <= at
                assert at > 2, "nothing was tried"
                return
        again = fixture.open()
        check(fixture, again)
        for uid, allocation in before.items():
            if uid in again.allocations:
                assert again.allocations[uid].assigned == allocation.assigned
            else:
                assert (uid, name) == (uid_of(1), "release")
        # An interrupted call is retried.
        assert not isinstance(OPERATIONS[name](again), ClaimError)
        check(fixture, fixture.open())
    raise AssertionError("no end")


@pytest.mark.parametrize(("name", "after"), list(cases()))
def test_a_disk_failure_at_any_step_leaks_nothing(tmp_path: Path, name: str, after: bool) -> None:
    for at in range(200):
        fixture = CPUStateFixture(tmp_path / str(at), make_machine(sockets=2, cores=4, threads=2))
        state = set_up(fixture, name)
        before = dict(state.allocations)
        with pytest.MonkeyPatch.context() as patch:
            count = steps(patch, break_disk, at, after=after)
            answer = OPERATIONS[name](state)
        if count[0] <= at:
            assert at > 2
            return
        if isinstance(answer, ClaimError):
            # Refused is as if it had never been, now and after a restart (for a release: it can be repeated).
            assert state.allocations == before
            if name == "release" and not after:
                assert fixture.file(1).exists()
            again = fixture.open()
            check(fixture, again)
            missing = before.keys() - again.allocations.keys()
            assert not missing or name == "release"
            assert not again.allocations.keys() - before.keys()
        check(fixture, fixture.open())
        assert not isinstance(OPERATIONS[name](state), ClaimError)
        check(fixture, fixture.open())
    raise AssertionError("no end")


def test_nothing_is_prepared_while_the_checkpoint_cannot_be_saved(
    fixture: CPUStateFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = fixture.open()
    fixture.settings.plugin_dir.parent.mkdir(parents=True, exist_ok=True)
    if fixture.settings.plugin_dir.exists():
        for path in fixture.settings.plugin_dir.iterdir():
            path.unlink()
        fixture.settings.plugin_dir.rmdir()
    fixture.settings.plugin_dir.write_text("a file where the directory should be")
    text = refusal(state, make_claim(1, AllocationSpec(N0, "2")))
    assert "cannot be recorded" in text
    assert "cannot be restored either" in text
    assert not state.allocations
    assert not fixture.file(1).exists()


def test_a_failed_file_write_reverts_the_checkpoint(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    assert not fixture.settings.cdi.exists()
    fixture.settings.cdi.write_text("no directory")
    text = refusal(state, make_claim(1, AllocationSpec(N0, "2")))
    assert text.startswith(f'failed to write CDI spec "dra.k8s.io-cpu_claim-{uid_of(1)}.json": ')
    assert not state.allocations
    fixture.settings.cdi.unlink()
    assert not fixture.open().allocations


def test_a_file_that_cannot_be_removed_keeps_the_cpus(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    allocation = prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    fixture.file(1).unlink()
    fixture.file(1).mkdir()
    refused = state.release(ref_of(1))
    assert isinstance(refused, ClaimError)
    assert refused.message.startswith("failed to remove CDI spec")
    assert state.allocations == {uid_of(1): allocation}
    fixture.file(1).rmdir()
    assert state.release(ref_of(1)) is None


def test_snapshots_are_immutable(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    before = state.allocations
    prepared(state, make_claim(1, AllocationSpec(N0, "2")))
    assert not before
    with pytest.raises(TypeError):
        state.allocations["x"] = replace(state.allocations[uid_of(1)])  # type: ignore[index]


def test_request_names_that_are_invalid_in_cdi_are_refused(fixture: CPUStateFixture) -> None:
    fixture.extra["pin"] = PinSettings(per_request_cpus=True)
    state = fixture.open()
    assert "invalid CDI Spec" in refusal(state, make_claim(1, AllocationSpec(N0, "2", "a b")))
    assert not state.allocations
    assert not fixture.open().allocations


def test_claims_from_many_threads(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    claims = [make_claim(n, AllocationSpec(N0 if n % 2 else N1, "2")) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(state.prepare, claims))
    assert all(isinstance(answer, ClaimAllocation) for answer in answers)
    assert len(state.allocated) == 16
    assert fixture.open().allocations == state.allocations


def test_cpus_prepared_by_another_driver_are_not_allocated(fixture: CPUStateFixture) -> None:
    one, two = fixture.open(), fixture.open()
    first = prepared(one, make_claim(1, AllocationSpec(N0, "3")))
    second = prepared(two, make_claim(2, AllocationSpec(N0, "3")))
    assert not first.cpus & second.cpus
    assert set(two.allocations) == {uid_of(1), uid_of(2)}
    third = prepared(one, make_claim(3, AllocationSpec(N0, "2")))
    assert not third.cpus & (first.cpus | second.cpus)
    assert set(fixture.open().allocations) == {uid_of(1), uid_of(2), uid_of(3)}
