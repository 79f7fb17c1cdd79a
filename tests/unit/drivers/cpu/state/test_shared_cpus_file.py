"""Record of the always shared CPUs: a preference that may be missing, damaged or impossible to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.shared_cpus_file import SharedCpusFile


@pytest.fixture
def settings(tmp_path: Path) -> CpuSettings:
    return CpuSettings("n1", kubelet_root=tmp_path)


def test_the_next_process_reads_what_was_saved(settings: CpuSettings) -> None:
    file = SharedCpusFile(settings)
    assert file.load() == ()
    file.save((7, 3))
    assert file.content == (7, 3)
    assert SharedCpusFile(settings).load() == (7, 3)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"kind": "AlwaysSharedCpus", "version": 1, "checksum": "", "body": {"cpus": [1]}}',
    ],
)
def test_a_damaged_file_is_set_aside(settings: CpuSettings, content: str) -> None:
    path = settings.plugin_dir / "shared-cpus.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    file = SharedCpusFile(settings)
    assert file.load() == ()
    assert not path.exists()
    file.save((1,))
    assert SharedCpusFile(settings).load() == (1,)


def test_a_file_that_cannot_be_written_is_written_later(settings: CpuSettings) -> None:
    settings.plugin_dir.parent.mkdir(parents=True)
    settings.plugin_dir.write_text("in the way")
    file = SharedCpusFile(settings)
    file.load()
    file.save((5,))
    assert file.content is None
    settings.plugin_dir.unlink()
    file.save((5,))
    assert SharedCpusFile(settings).load() == (5,)
