"""Claims released by another driver: they are dropped unless a container uses them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.checkpoint import FindingSeverity
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state import cdi
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.state.cpu_state import CPUState, find_claims_without_cdi_file
from plimsoll.drivers.cpu.state.reconcile import reconcile
from plimsoll.drivers.plugin import ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import (
    NODE,
    AllocationSpec,
    allocated,
    cpus,
    files,
    make_claim,
    record,
    scene_of,
)

MACHINE = make_machine(cores=4)
CLAIM = make_claim(1, AllocationSpec("cpudevnuma000", "2"))
UID = CLAIM.ref.uid
OTHER = make_claim(2, AllocationSpec("cpudevnuma000", "2")).ref.uid


@pytest.fixture
def settings(tmp_path: Path) -> CpuSettings:
    (tmp_path / "cdi").mkdir()
    return CpuSettings(node=NODE, kubelet_root=tmp_path, cdi=tmp_path / "cdi")


def open_state(settings: CpuSettings, released_elsewhere: Iterable[str] = ()) -> CPUState:
    return CPUState.open(
        settings, MACHINE, compute_layout(MACHINE, settings), released_elsewhere=released_elsewhere
    )


def leave(settings: CpuSettings) -> None:
    """Let another driver release a checkpointed claim and allocate its CPUs again."""
    settings.plugin_dir.mkdir(parents=True)
    assert isinstance(open_state(settings).prepare(CLAIM), ClaimAllocation)
    assert cdi.remove_file(settings.cdi, UID) is None
    assignment = CpuAssignment("cpus", NODE, "cpudevnuma000", CpuSet([0, 1]))
    assert (
        cdi.write_file(settings.cdi, ClaimAllocation(ClaimRef("default", "other", OTHER), (assignment,)))
        is None
    )


def test_a_leaving_claim_disputes_no_other_and_its_file_is_not_rewritten() -> None:
    found = reconcile(record(allocated("x", "0-1")), files(y="0-1"), scene_of(), {"x"})
    assert found.allocations["x"] == allocated("x", "0-1")
    assert not found.allocations["y"].disputed
    assert found.rewrite == ()
    assert {finding.severity for finding in found.findings} == {FindingSeverity.INFO}


def test_a_claim_with_a_file_does_not_leave() -> None:
    """A container may still start with that file."""
    found = reconcile(record(allocated("x", "0-1")), files(x="0-1", y="1-2"), scene_of(), {"x"})
    assert found.allocations["x"].disputed
    assert found.allocations["y"].disputed


def test_cpus_are_kept_until_the_claim_is_released(settings: CpuSettings) -> None:
    leave(settings)
    assert find_claims_without_cdi_file(settings) == (CLAIM.ref,)
    state = open_state(settings, released_elsewhere=[UID])
    assert state.released_elsewhere == {UID}
    assert not state.has_missing_cdi_files
    assert state.shared == cpus("2-3")
    assert not any(allocation.disputed for allocation in state.allocations.values())
    assert state.release(CLAIM.ref) is None
    assert state.released_elsewhere == frozenset()
    assert state.allocations.keys() == {OTHER}
    again = open_state(settings)
    assert again.allocations.keys() == {OTHER}
    assert not again.allocations[OTHER].disputed


def test_a_claim_that_is_in_use_stays(settings: CpuSettings) -> None:
    leave(settings)
    state = open_state(settings, released_elsewhere=[UID])
    state.keep_claims([UID])
    assert state.released_elsewhere == frozenset()
    assert state.allocations[UID].disputed
    assert state.allocations[OTHER].disputed
    assert state.shared == cpus("2-3")


def test_a_claim_that_is_prepared_again_stays(settings: CpuSettings) -> None:
    leave(settings)
    assert cdi.remove_file(settings.cdi, OTHER) is None
    state = open_state(settings, released_elsewhere=[UID])
    assert not isinstance(state.prepare(CLAIM), ClaimError)
    assert state.released_elsewhere == frozenset()
    assert cdi.read_file(settings.cdi, UID).cpus == state.allocations[UID].assigned
