"""Health of the directories in which claims are recorded."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from plimsoll.drivers.cpu.state.storage import StorageMonitor
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import AllocationSpec, CPUStateFixture, make_claim


@pytest.fixture
def monitor(tmp_path: Path) -> StorageMonitor:
    (tmp_path / "plugin").mkdir()
    return StorageMonitor(tmp_path / "plugin", tmp_path / "cdi")


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("plimsoll.drivers.cpu.state.storage.os.write", write)


def test_a_full_disk_is_noticed_while_nothing_is_written(
    monitor: StorageMonitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor.probe()
    assert not monitor.problems
    with monkeypatch.context() as patch:
        fill(patch)
        monitor.probe()
        assert list(monitor.problems) == [
            f"{tmp_path / 'plugin'}: No space left on device: claims cannot be checkpointed"
        ]
    monitor.probe()
    assert not monitor.problems


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_trial_leaves_no_file(
    monitor: StorageMonitor, tmp_path: Path, unnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cdi").mkdir()
    real = os.open

    def refuse(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and not unnamed:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, *more)

    monkeypatch.setattr("plimsoll.drivers.cpu.state.storage.os.open", refuse)
    monitor.probe()
    assert not monitor.problems
    assert list(tmp_path.glob("*/*")) == []


def test_missing_directories(monitor: StorageMonitor, tmp_path: Path) -> None:
    (tmp_path / "plugin").rmdir()
    monitor.probe()
    assert list(monitor.problems) == [f"{tmp_path / 'plugin'} is not writable: claims cannot be checkpointed"]


def test_failed_writes_of_claims_are_problems_until_one_succeeds(tmp_path: Path) -> None:
    fixture = CPUStateFixture(tmp_path, make_machine(cores=4))
    state = fixture.open()
    (tmp_path / "cdi").write_text("a file where the directory should be")
    claim = make_claim(1, AllocationSpec("cpudevnuma000", "1"))
    state.prepare(claim)
    assert any("CDI files cannot be written" in problem for problem in state.storage.problems)
    (tmp_path / "cdi").unlink()
    state.prepare(claim)
    assert not state.storage.problems
