"""The book: what is answered, what lasts, and what happens when a disk or a process fails at any step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import Severity
from plimsoll.drivers.cpu.devices.groups import arrange
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state import CpuBook, Holding, held_before, union
from plimsoll.drivers.cpu.state.cdi import read_files
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef, PreparedDevice
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.desk import INDIVIDUAL, NODE, Asked, Container, Desk, make_claim, uid_of

N0, N1 = "cpudevnuma000", "cpudevnuma001"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two NUMA nodes: 0-3 and 8-11, 4-7 and 12-15."""
    return Desk(tmp_path, make_machine(sockets=2, cores=4, threads=2))


def prepared(book: CpuBook, claim: AllocatedClaim, **more: Any) -> Holding:
    found = book.prepare(claim, **more)
    assert isinstance(found, Holding), found
    return found


def refusal(book: CpuBook, claim: AllocatedClaim) -> str:
    found = book.prepare(claim)
    assert isinstance(found, ClaimError), found
    return found.message


def ref_of(number: int) -> ClaimRef:
    return ClaimRef("default", f"claim-{number:04d}", uid_of(number))


# -- prepare and release


def test_a_claim_takes_cpus_and_gives_them_back(desk: Desk) -> None:
    book = desk.open()
    everything, revision = book.shared, book.revision
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    assert str(holding.cpus) == "0,8"
    assert book.shared == everything - holding.cpus
    assert book.holdings == {uid_of(1): holding}
    assert book.revision > revision
    assert f"DRA_CPUSET_{uid_of(1)}=0,8" in desk.file(1).read_text()
    assert book.release(ref_of(1)) is None
    assert book.shared == everything
    assert not desk.file(1).exists()
    assert not desk.open().holdings


def test_answers_carry_requests_and_shares(desk: Desk) -> None:
    book = desk.open()
    claim = make_claim(
        1, Asked(N0, "2", "a/big", share="s1"), Asked(N0, "1", "b", share="s2"), Asked(N1, "1")
    )
    name = f"dra.k8s.io/cpu=claim-{uid_of(1)}"
    assert book.devices_of(prepared(book, claim)) == [
        PreparedDevice(NODE, N0, ("a",), (name,), "s1"),
        PreparedDevice(NODE, N0, ("b",), (name,), "s2"),
        PreparedDevice(NODE, N1, ("cpus",), (name,)),
    ]


def test_devices_of_requests_apart(desk: Desk) -> None:
    desk.extra["pin"] = PinSettings(requests_apart=True)
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "2", "a"), Asked(N0, "1", "b/x")))
    ids = [device.cdi for device in book.devices_of(holding)]
    assert ids == [(f"dra.k8s.io/cpu=claim-{uid_of(1)}_{request}",) for request in ("a", "b")]
    # What was prepared so stays so, whatever the settings are later.
    desk.extra.clear()
    again = desk.open()
    assert [device.cdi for device in again.devices_of(again.holdings[uid_of(1)])] == ids
    desk.file(1).unlink()
    assert not desk.open().recheck()
    assert f"claim-{uid_of(1)}_b" in desk.file(1).read_text()


def test_metadata_of_devices(desk: Desk) -> None:
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    device = book.devices_of(holding, {N0: {"dra.cpu/socketID": {"int": 0}}})[0]
    attributes = {"dra.cpu/socketID": {"int": 0}, "dra.cpu/allocatedNumCPUs": {"int": 2}}
    assert device.metadata == {"attributes": attributes}


def test_claims_without_cpus_succeed_and_leave_nothing(desk: Desk) -> None:
    book = desk.open()
    none = prepared(book, make_claim(1, Asked("gpu-0", driver="gpu.example.com")))
    assert book.devices_of(none) == []
    watch = prepared(book, make_claim(2, Asked(N0, admin=True)))
    assert book.devices_of(watch) == [PreparedDevice(NODE, N0, ("cpus",), ())]
    assert not book.holdings
    assert read_files(desk.settings.cdi) == ({}, ())
    assert book.release(ref_of(2)) is None


def test_a_claim_is_answered_the_same_again(desk: Desk) -> None:
    book = desk.open()
    claim = make_claim(1, Asked(N0, "2"))
    first = prepared(book, claim)
    prepared(book, make_claim(2, Asked(N0, "2")))
    revision = book.revision
    assert prepared(book, claim) == first
    assert book.revision == revision
    desk.file(1).unlink()
    assert prepared(book, claim) == first
    assert desk.file(1).exists()
    assert prepared(desk.open(), claim) == first
    assert "another allocation" in refusal(book, make_claim(1, Asked(N0, "3")))


def test_claims_do_not_overlap_until_nothing_is_left(desk: Desk) -> None:
    book = desk.open()
    taken = [prepared(book, make_claim(n, Asked(N0, "3"))).cpus for n in range(2)]
    assert len(union(taken)) == 6
    assert "requested=3, available=2" in refusal(book, make_claim(9, Asked(N0, "3")))
    assert not desk.file(9).exists()


def test_what_nobody_has_is_released(desk: Desk) -> None:
    book = desk.open()
    assert book.release(ref_of(1)) is None
    prepared(book, make_claim("a_b", Asked(N0, "2")))
    assert book.release(ClaimRef("x", "y", "a/b")) is None
    assert book.release(ClaimRef("x", "y", "../a_b")) is None
    assert desk.file("a_b").exists()


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a b", "x" * 300])
def test_uids_that_are_none(desk: Desk, uid: str) -> None:
    assert "cannot be prepared" in refusal(desk.open(), make_claim(uid, Asked(N0, "2")))


def test_the_shared_pool_is_asked_for(desk: Desk) -> None:
    book = desk.open()
    both = make_claim(1, Asked(N0, "8"), Asked(N1, "8"))
    book.needed = lambda: True
    assert "leave no CPU" in refusal(book, both)
    book.needed = lambda: False
    assert prepared(book, both)
    assert book.shared == EMPTY


def test_shared_cpus_are_told_to_claims_that_mix(desk: Desk) -> None:
    desk.extra |= {"min_shared": 2, "pin": PinSettings(mix=True)}
    book = desk.open()
    prepared(book, make_claim(1, Asked(N0, "2")))
    assert f"DRA_SHARED_CPUSET={book.arrangement.floor}" in desk.file(1).read_text()
    prepared(book, make_claim(2, Asked(N0, "2"), config={"mix": False}))
    assert "DRA_SHARED_CPUSET" not in desk.file(2).read_text()


def test_why(desk: Desk) -> None:
    book = desk.open()
    assert book.explain("x") == ["claim x holds no CPUs"]
    prepared(book, make_claim(1, Asked(N0, "2", share="s")))
    lines = book.explain(uid_of(1))
    assert lines[0] == "claim default/claim-0001 holds CPUs 0,8"
    assert lines[1] == f"request cpus on {N0}, share s: 0,8"
    assert any("L3 cache 0" in line for line in lines[2:])
    after = "\n".join(desk.open().explain(uid_of(1)))
    assert "the steps were not kept" in after
    assert "packed, sorted packed" in after


# -- restarts


def test_holdings_are_the_same_after_a_restart(desk: Desk) -> None:
    book = desk.open()
    prepared(book, make_claim(1, Asked(N0, "2", "a", share="s"), Asked(N1, "1"), config={"mix": True}))
    prepared(book, make_claim(2, Asked(N0, "2")))
    again = desk.open()
    assert again.holdings == book.holdings
    assert again.shared == book.shared
    assert not again.findings
    assert held_before(desk.settings) == book.by_device


def test_files_come_back_after_the_machine_was_started_anew(desk: Desk) -> None:
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    content = desk.file(1).read_bytes()
    desk.file(1).unlink()
    assert desk.open().holdings == {uid_of(1): holding}
    assert desk.file(1).read_bytes() == content


def test_a_damaged_record_is_rebuilt_from_the_files(desk: Desk) -> None:
    book = desk.open()
    claim = make_claim(1, Asked(N0, "2", "a"), Asked(N1, "1", "b"))
    before = prepared(book, claim)
    desk.settings.record.write_bytes(b"\0" * 100)
    again = desk.open()
    assert again.holdings[uid_of(1)].cpus == before.cpus
    assert again.holdings[uid_of(1)].adopted
    assert again.findings[0].severity is Severity.ERROR
    assert list((desk.settings.folder / "quarantine").iterdir())
    after = prepared(again, claim)
    assert not after.adopted
    assert {g.request: g.cpus for g in after.grants} == {g.request: g.cpus for g in before.grants}
    assert desk.open().holdings == {uid_of(1): after}


def test_a_claim_of_the_go_driver_is_taken_over(desk: Desk) -> None:
    uid = desk.write_foreign(1, "2-3")
    content = desk.file(1).read_bytes()
    book = desk.open()
    assert book.holdings[uid].adopted
    assert not book.shared & CpuSet([2, 3])
    assert held_before(desk.settings) == {N0: CpuSet([2, 3])}
    assert "CPUs 3 belong to no request" in refusal(book, make_claim(1, Asked(N0, "1")))
    assert desk.file(1).read_bytes() == content
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    assert str(holding.cpus) == "2-3"
    assert holding.ref.name == "claim-0001"
    assert book.release(ref_of(1)) is None
    assert not desk.file(1).exists()


def test_a_file_that_appears_while_we_run_is_not_overwritten(desk: Desk) -> None:
    book = desk.open()
    desk.write_foreign(1, "5,13")
    assert "do not fit" in refusal(book, make_claim(1, Asked(N0, "2")))
    assert str(prepared(book, make_claim(1, Asked(N1, "2"))).cpus) == "5,13"


def test_a_disputed_claim_is_refused_until_it_is_released(desk: Desk) -> None:
    book = desk.open()
    claim = make_claim(1, Asked(N0, "2"))
    prepared(book, claim)
    desk.write_foreign(1, "1,9")
    again = desk.open()
    assert [finding.severity for finding in again.findings] == [Severity.ERROR]
    assert str(again.held) == "0-1,8-9"
    assert "is disputed: the record has CPUs 0,8, the CDI file 1,9" in refusal(again, claim)
    assert not prepared(again, make_claim(2, Asked(N0, "4"))).cpus & CpuSet([0, 1, 8, 9])
    assert "disputed" in "".join(again.explain(uid_of(1)))
    assert desk.open().holdings == again.holdings
    assert again.release(ref_of(1)) is None
    assert not again.findings
    assert str(prepared(again, claim).cpus) == "0,8"


def test_a_container_that_was_told_otherwise(desk: Desk) -> None:
    book = desk.open()
    claim = make_claim(1, Asked(N0, "2"))
    holding = prepared(book, claim)
    odd = Container("default/p/c", {uid_of(1): CpuSet([1, 9])})
    for _ in range(2):
        assert book.witness([odd])
        assert str(book.held) == "0-1,8-9"
    assert [finding.severity for finding in book.findings] == [Severity.ERROR]
    assert book.holdings[uid_of(1)].disputed
    assert "disputed" in refusal(book, claim)
    # It is over when that container is.
    assert book.witness([]) == ()
    assert book.holdings == {uid_of(1): holding}
    assert prepared(book, claim) == holding


def test_cpus_that_go_and_come(desk: Desk) -> None:
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    whole = desk.topology
    smaller = switch_off(whole, CpuSet([8, 9]))
    revision = book.revision
    findings = book.change(smaller, arrange(smaller, desk.settings))
    assert book.revision > revision
    assert book.holdings[uid_of(1)] == holding
    assert book.lost == {uid_of(1): CpuSet([8])}
    assert "CPUs 8 of claim" in findings[0].what
    assert book.shared == smaller.all - holding.cpus
    assert prepared(book, make_claim(1, Asked(N0, "2"))) == holding
    assert "available=5" in refusal(book, make_claim(2, Asked(N0, "6")))
    assert book.change(whole, arrange(whole, desk.settings)) == ()
    assert not book.lost


def test_a_changed_mode_keeps_what_is_held(desk: Desk) -> None:
    claim = make_claim(1, Asked(N0, "2"))
    holding = prepared(desk.open(), claim)
    desk.extra |= INDIVIDUAL
    book = desk.open()
    assert book.holdings == {uid_of(1): holding}
    assert prepared(book, claim) == holding


# -- failures


class Killed(BaseException):
    """The process ended here."""


def steps(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None], at: int, *, after: bool) -> list[int]:
    """Let the `at`-th step that touches the disk fail, before or after it was carried out."""
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


def check(desk: Desk, book: CpuBook) -> None:
    """No CPU has two owners, and every file that a container could use is of the book."""
    fine = [holding for holding in book.holdings.values() if not holding.disputed]
    assert len(fine) == len(book.holdings), "nothing here should make a dispute"
    assert len(union(h.cpus for h in fine)) == sum(len(h.cpus) for h in fine)
    assert not book.shared & book.held
    files, _ = read_files(desk.settings.cdi)
    for uid, file in files.items():
        assert not file.fault
        assert book.holdings[uid].granted == file.cpus


OLD, NEW = make_claim(1, Asked(N0, "2")), make_claim(2, Asked(N0, "2"))
OPERATIONS: dict[str, Callable[[CpuBook], object]] = {
    "prepare": lambda book: book.prepare(NEW),
    "release": lambda book: book.release(OLD.ref),
    "fill": lambda book: book.prepare(make_claim(3, Asked(N1, "2"))),
    "recheck": lambda book: book.recheck(),
}


def cases() -> Iterator[tuple[str, bool]]:
    for name in OPERATIONS:
        yield name, False
        yield name, True


def set_up(desk: Desk, name: str) -> CpuBook:
    desk.write_foreign(3, "4,12")
    book = desk.open()
    assert isinstance(book.prepare(OLD), Holding)
    if name == "recheck":
        desk.file(1).unlink()
        desk.write_foreign(4, "7")
    return book


@pytest.mark.parametrize(("name", "after"), list(cases()))
def test_a_process_that_ends_at_any_step(tmp_path: Path, name: str, after: bool) -> None:
    for at in range(200):
        desk = Desk(tmp_path / str(at), make_machine(sockets=2, cores=4, threads=2))
        book = set_up(desk, name)
        before = dict(book.holdings)
        with pytest.MonkeyPatch.context() as patch:
            count = steps(patch, kill, at, after=after)
            try:
                OPERATIONS[name](book)
            except Killed:
                pass
            else:
                assert count[0] <= at
                assert at > 2, "nothing was tried"
                return
        again = desk.open()
        check(desk, again)
        for uid, holding in before.items():
            if uid in again.holdings:
                assert again.holdings[uid].granted == holding.granted
            else:
                assert (uid, name) == (uid_of(1), "release")
        # Whoever was interrupted asks again.
        assert not isinstance(OPERATIONS[name](again), ClaimError)
        check(desk, desk.open())
    raise AssertionError("no end")


@pytest.mark.parametrize(("name", "after"), list(cases()))
def test_a_disk_that_fails_at_any_step(tmp_path: Path, name: str, after: bool) -> None:
    for at in range(200):
        desk = Desk(tmp_path / str(at), make_machine(sockets=2, cores=4, threads=2))
        book = set_up(desk, name)
        before = dict(book.holdings)
        with pytest.MonkeyPatch.context() as patch:
            count = steps(patch, break_disk, at, after=after)
            answer = OPERATIONS[name](book)
        if count[0] <= at:
            assert at > 2
            return
        if isinstance(answer, ClaimError):
            # Refused is as if it had never been, now and after a restart (for a release: it can be repeated).
            assert book.holdings == before
            again = desk.open()
            check(desk, again)
            missing = before.keys() - again.holdings.keys()
            assert not missing or name == "release"
            assert not again.holdings.keys() - before.keys()
        check(desk, desk.open())
        assert not isinstance(OPERATIONS[name](book), ClaimError)
        check(desk, desk.open())
    raise AssertionError("no end")


def test_nothing_is_prepared_while_the_record_cannot_be_saved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = desk.open()
    desk.settings.folder.parent.mkdir(parents=True, exist_ok=True)
    if desk.settings.folder.exists():
        for path in desk.settings.folder.iterdir():
            path.unlink()
        desk.settings.folder.rmdir()
    desk.settings.folder.write_text("a file where the folder should be")
    text = refusal(book, make_claim(1, Asked(N0, "2")))
    assert "cannot be recorded" in text
    assert "cannot be put back either" in text
    assert not book.holdings
    assert not desk.file(1).exists()


def test_a_failed_file_undoes_the_record(desk: Desk) -> None:
    book = desk.open()
    assert not desk.settings.cdi.exists()
    desk.settings.cdi.write_text("no folder")
    text = refusal(book, make_claim(1, Asked(N0, "2")))
    assert text.startswith(f'failed to write CDI spec "dra.k8s.io-cpu_claim-{uid_of(1)}.json": ')
    assert not book.holdings
    desk.settings.cdi.unlink()
    assert not desk.open().holdings


def test_a_file_that_cannot_be_removed_keeps_the_cpus(desk: Desk) -> None:
    book = desk.open()
    holding = prepared(book, make_claim(1, Asked(N0, "2")))
    desk.file(1).unlink()
    desk.file(1).mkdir()
    refused = book.release(ref_of(1))
    assert isinstance(refused, ClaimError)
    assert refused.message.startswith("failed to remove CDI spec")
    assert book.holdings == {uid_of(1): holding}
    desk.file(1).rmdir()
    assert book.release(ref_of(1)) is None


def test_readers_keep_what_they_have_read(desk: Desk) -> None:
    book = desk.open()
    before = book.holdings
    prepared(book, make_claim(1, Asked(N0, "2")))
    assert not before
    with pytest.raises(TypeError):
        book.holdings["x"] = replace(book.holdings[uid_of(1)])  # type: ignore[index]


def test_requests_that_no_device_can_be_named_after(desk: Desk) -> None:
    desk.extra["pin"] = PinSettings(requests_apart=True)
    book = desk.open()
    assert "invalid CDI Spec" in refusal(book, make_claim(1, Asked(N0, "2", "a b")))
    assert not book.holdings
    assert not desk.open().holdings


def test_claims_from_many_threads(desk: Desk) -> None:
    book = desk.open()
    claims = [make_claim(n, Asked(N0 if n % 2 else N1, "2")) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(book.prepare, claims))
    assert all(isinstance(answer, Holding) for answer in answers)
    assert len(book.held) == 16
    assert desk.open().holdings == book.holdings


def test_what_another_driver_prepared_meanwhile_is_not_given_again(desk: Desk) -> None:
    one, two = desk.open(), desk.open()
    first = prepared(one, make_claim(1, Asked(N0, "3")))
    second = prepared(two, make_claim(2, Asked(N0, "3")))
    assert not first.cpus & second.cpus
    assert set(two.holdings) == {uid_of(1), uid_of(2)}
    third = prepared(one, make_claim(3, Asked(N0, "2")))
    assert not third.cpus & (first.cpus | second.cpus)
    assert set(desk.open().holdings) == {uid_of(1), uid_of(2), uid_of(3)}
