"""Claims that another driver has released: they leave, unless somebody is seen to use them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.checkpoint import Severity
from plimsoll.drivers.cpu.devices.groups import arrange
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state import cdi
from plimsoll.drivers.cpu.state.cpu_state import CpuBook, unfiled
from plimsoll.drivers.cpu.state.holdings import Grant, Holding
from plimsoll.drivers.cpu.state.reconcile import reconcile
from plimsoll.drivers.plugin import ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.desk import NODE, Asked, make_claim
from tests.unit.drivers.cpu.state.test_reconcile import cpus, files, held, record, scene_of

MACHINE = make_machine(cores=4)
CLAIM = make_claim(1, Asked("cpudevnuma000", "2"))
UID = CLAIM.ref.uid
OTHER = make_claim(2, Asked("cpudevnuma000", "2")).ref.uid


@pytest.fixture
def settings(tmp_path: Path) -> CpuSettings:
    (tmp_path / "cdi").mkdir()
    return CpuSettings(node=NODE, kubelet_root=tmp_path, cdi=tmp_path / "cdi")


def open_book(settings: CpuSettings, leaving: Iterable[str] = ()) -> CpuBook:
    return CpuBook.open(settings, MACHINE, arrange(MACHINE, settings), leaving=leaving)


def leave(settings: CpuSettings) -> None:
    """Another driver releases the claim of the record, and gives its CPUs to another one."""
    settings.folder.mkdir(parents=True)
    assert isinstance(open_book(settings).prepare(CLAIM), Holding)
    assert cdi.remove_file(settings.cdi, UID) is None
    grant = Grant("cpus", NODE, "cpudevnuma000", CpuSet([0, 1]))
    assert cdi.write_file(settings.cdi, Holding(ClaimRef("default", "other", OTHER), (grant,))) is None


def test_a_claim_that_leaves_disputes_nobody_and_its_file_stays_away() -> None:
    found = reconcile(record(held("x", "0-1")), files(y="0-1"), scene_of(), {"x"})
    assert found.holdings["x"] == held("x", "0-1")
    assert not found.holdings["y"].disputed
    assert found.rewrite == ()
    assert {finding.severity for finding in found.findings} == {Severity.INFO}


def test_a_claim_with_a_file_does_not_leave() -> None:
    """Whatever the cluster says: somebody may start with that file."""
    found = reconcile(record(held("x", "0-1")), files(x="0-1", y="1-2"), scene_of(), {"x"})
    assert found.holdings["x"].disputed
    assert found.holdings["y"].disputed


def test_cpus_are_kept_until_the_claim_is_released(settings: CpuSettings) -> None:
    leave(settings)
    assert unfiled(settings) == (CLAIM.ref,)
    book = open_book(settings, leaving=[UID])
    assert book.leaving == {UID}
    assert not book.lacks_files
    assert book.shared == cpus("2-3")
    assert not any(holding.disputed for holding in book.holdings.values())
    assert book.release(CLAIM.ref) is None
    assert book.leaving == frozenset()
    assert book.holdings.keys() == {OTHER}
    again = open_book(settings)
    assert again.holdings.keys() == {OTHER}
    assert not again.holdings[OTHER].disputed


def test_a_claim_that_is_in_use_stays(settings: CpuSettings) -> None:
    leave(settings)
    book = open_book(settings, leaving=[UID])
    book.stay([UID])
    assert book.leaving == frozenset()
    assert book.holdings[UID].disputed
    assert book.holdings[OTHER].disputed
    assert book.shared == cpus("2-3")


def test_a_claim_that_is_prepared_again_stays(settings: CpuSettings) -> None:
    leave(settings)
    assert cdi.remove_file(settings.cdi, OTHER) is None
    book = open_book(settings, leaving=[UID])
    assert not isinstance(book.prepare(CLAIM), ClaimError)
    assert book.leaving == frozenset()
    assert cdi.read_file(settings.cdi, UID).cpus == book.holdings[UID].granted
