"""Checkpoint files: atomic writes, checksums, and damaged files."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common import checkpoint as records
from plimsoll.common.checkpoint import FindingSeverity, RecordFile, read, render
from plimsoll.errors import StoreError

NOON = 1_800_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> RecordFile:
    return RecordFile(tmp_path / "x.json", "Things", tmp_path / "quarantine", now=lambda: NOON)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_checkpoints_round_trip(value: Any) -> None:
    raw = render("Things", 1, value)
    assert read(raw, "Things", 1, {}) == (json.loads(raw)["body"], "")
    compact = json.dumps(json.loads(raw), separators=(",", ":"), ensure_ascii=False).encode()
    if "e" not in compact.decode() and "." not in compact.decode():  # no floats, which others may spell so
        assert read(compact, "Things", 1, {})[1] == ""


@given(st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode))
def test_any_file_is_loaded_or_set_aside(raw: bytes) -> None:
    value, problem = read(raw, "Things", 1, {})
    assert value is None
    assert problem


@given(st.data())
def test_damage_is_detected(data: st.DataObject) -> None:
    body = {"claims": [{"name": "a", "pods": ["p"], "n": 17}]}
    raw = bytearray(render("Things", 1, body))
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del raw[place:]
    value, problem = read(bytes(raw), "Things", 1, {})
    assert problem or value == body  # what is left may differ in blanks alone


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100000,
        b'{"kind":"Things","version":1,"checksum":"","body":123456789012345678901234567890}',
        b'{"kind":"Things","version":1,"checksum":null,"body":1e999}',
        b'{"kind":"Things","version":true,"body":1}',
    ],
)
def test_odd_files_are_not_checkpoints(raw: bytes) -> None:
    value, problem = read(raw, "Things", 1, {})
    assert value is None
    assert problem


def test_a_checkpoint_is_saved_and_loaded(file: RecordFile) -> None:
    assert file.load() == records.LoadedCheckpoint()
    file.save({"a": [1, "é"]})
    assert file.load() == records.LoadedCheckpoint({"a": [1, "é"]})
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.save([])
    assert file.load().value == []
    assert os.listdir(file.path.parent) == ["x.json"]
    tree = json.loads(file.path.read_text())
    assert list(tree) == ["kind", "version", "checksum", "body"]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "it is empty"),
        (b"{", "not JSON"),
        (b"[]", "not a checkpoint"),
        (b'{"kind":"Other","body":1}', "it has kind 'Other' instead of 'Things'"),
        (b'{"kind":"Things","body":1}', "version"),
        (b'{"kind":"Things","version":1,"body":1}', "checksum"),
        (render("Things", 2, {}), "newer release: version 2, supported up to 1"),
        (render("Things", 0, {}), "its version 0 is too old"),
    ],
)
def test_an_unusable_checkpoint_is_set_aside(file: RecordFile, content: bytes, word: str) -> None:
    file.path.write_bytes(content)
    looked = file.look()
    assert looked.finding is not None
    assert word in looked.finding.what
    assert file.path.exists()
    loaded = file.load()
    assert loaded.value is None
    assert loaded.finding is not None
    assert loaded.finding.severity is FindingSeverity.ERROR
    assert word in loaded.finding.what
    place = file.quarantine / "x.json.20270115T080000Z"
    assert place.read_bytes() == content
    assert str(place) == loaded.finding.path
    assert file.load() == records.LoadedCheckpoint()
    # A second one at the same time gets a name of its own.
    file.path.write_bytes(b"again")
    file.load()
    assert sorted(path.name for path in file.quarantine.iterdir()) == [place.name, f"{place.name}.2"]
    file.save(1)
    assert file.load().value == 1


def test_older_versions_are_migrated(tmp_path: Path) -> None:
    def fail(body: Any) -> Any:
        raise ValueError("no list")

    new = RecordFile(
        tmp_path / "x", "Things", tmp_path, version=3, upgrades={1: lambda b: [*b, 1], 2: lambda b: [*b, 2]}
    )
    RecordFile(tmp_path / "x", "Things", tmp_path).save([0])
    assert new.load().value == [0, 1, 2]
    new.upgrades = {1: fail}
    finding = new.load().finding
    assert finding is not None
    assert "not a valid version 1: no list" in finding.what


def test_a_body_of_another_shape_is_set_aside(tmp_path: Path) -> None:
    def check(body: Any) -> Any:
        if not isinstance(body, int):
            raise ValueError("it is no number")
        return body + 1

    file = RecordFile(tmp_path / "x", "Things", tmp_path / "q", check=check)
    file.save(1)
    assert file.load().value == 2
    file.save("a")
    finding = file.load().finding
    assert finding is not None
    assert "it is no number" in finding.what


def test_a_directory_at_its_path_is_moved_away(file: RecordFile) -> None:
    file.path.mkdir()
    finding = file.load().finding
    assert finding is not None
    assert "Is a directory" in finding.what
    file.save(1)
    assert file.load().value == 1


def test_a_file_that_cannot_be_set_aside_is_not_overwritten(
    file: RecordFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.path.write_bytes(b"precious")

    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        finding = file.load().finding
        assert finding is not None
        assert "Read-only file system" in finding.what
        assert "to another place" in finding.fix
        with pytest.raises(StoreError, match="cannot be moved"):
            file.save(1)
        assert file.path.read_bytes() == b"precious"
    file.save(1)
    assert file.load().value == 1
    assert [path.read_bytes() for path in file.quarantine.iterdir()] == [b"precious"]


@pytest.mark.parametrize("call", ["open", "fchmod", "write", "fsync", "replace"])
def test_a_failed_save_keeps_the_old_checkpoint(
    file: RecordFile, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file.save("old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StoreError, match="No space left on device"):
            file.save("new")
    assert file.load().value == "old"
    file.save("new")
    assert file.load().value == "new"
    assert os.listdir(file.path.parent) == ["x.json"]


def test_values_that_are_no_json_are_refused(file: RecordFile) -> None:
    for value in (object(), "\ud800", {1, object()}):
        with pytest.raises(StoreError, match="not a JSON value"):
            file.save(value)
    assert not file.path.exists()


def test_an_unreadable_checkpoint_is_not_overwritten(
    file: RecordFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save("small")
    monkeypatch.setattr(records, "SIZE_MAX", 500)
    with pytest.raises(StoreError, match="more than 500 bytes"):
        file.save("x" * 500)
    assert file.load().value == "small"
    file.path.write_bytes(b" " * 501)
    finding = file.load().finding
    assert finding is not None
    assert "more than 500 bytes" in finding.what


def test_a_symbolic_link_is_not_followed(file: RecordFile, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".x.json.tmp").symlink_to(victim)
    with pytest.raises(StoreError):
        file.save(1)
    file.load()  # takes what is left of an unfinished save away
    file.save(1)
    assert victim.read_text() == "mine"
    assert file.load().value == 1


def test_a_pipe_at_its_path_is_moved_away(file: RecordFile) -> None:
    os.mkfifo(file.path)
    assert file.look().finding is not None
    loaded = file.load()
    assert loaded.finding is not None
    assert "not a regular file" in loaded.finding.what
    file.save({"a": 1})
    assert file.load().value == {"a": 1}
