"""Files of volumes from API objects, and their atomic updates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InputError
from plimsoll.node.volumes.atomic_writer import write_files
from plimsoll.node.volumes.host_paths import check_host_path
from plimsoll.node.volumes.payload import Files, VolumeFile, check_path, object_files
from tests.directories import short_directory

MAP = {"data": {"a": "one", "b": "two"}, "binaryData": {"c": "AAE="}}


def files(source: dict[str, Any], tree: dict[str, Any] | None = MAP, kind: str = "ConfigMap") -> Files:
    return object_files(tree, source, kind, "name", 0o644)


def test_all_keys_or_selected_ones() -> None:
    assert {path: file.data for path, file in files({}).items()} == {"a": b"one", "b": b"two", "c": b"\0\1"}
    source = {"items": [{"key": "a", "path": "in/side", "mode": 0o400}]}
    assert files(source) == {"in/side": VolumeFile(b"one", 0o400)}
    assert files({}, {"data": {"p": "aHVzaA=="}}, "Secret") == {"p": VolumeFile(b"hush", 0o644)}


def test_missing_objects_and_keys_are_faults_unless_optional() -> None:
    with pytest.raises(InputError, match='configmap "name" not found'):
        files({}, None)
    assert files({"optional": True}, None) == {}
    source = {"items": [{"key": "z", "path": "z"}]}
    with pytest.raises(InputError, match="references non-existent config key: z"):
        files(source)
    assert files({**source, "optional": True}) == {}


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a//b", "..a", "a/.", "x\0y"])
def test_paths_stay_below_the_volume(path: str) -> None:
    with pytest.raises(InputError):
        check_path(path)


NAMES = st.sampled_from(["a", "b", "d/x", "d/y", "e/f/g"])
CONTENTS = st.dictionaries(
    NAMES, st.builds(VolumeFile, st.binary(max_size=5), st.sampled_from([0o644, 0o600]))
)


@given(st.lists(CONTENTS, min_size=1, max_size=4))
def test_a_volume_has_exactly_the_last_files(versions: list[Files]) -> None:
    with short_directory() as directory:
        for wanted in versions:
            write_files(directory, wanted)
            assert not write_files(directory, wanted), "nothing had changed"
            found = {
                path: VolumeFile((directory / path).read_bytes(), (directory / path).stat().st_mode & 0o777)
                for path in wanted
            }
            assert found == wanted
            visible = {entry.name for entry in directory.iterdir() if not entry.name.startswith("..")}
            assert visible == {path.split("/")[0] for path in wanted}
            assert len(list(directory.glob("..2*"))) == 1, "old files are removed"


def test_readers_see_old_files_or_new_ones(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": VolumeFile(b"1"), "b": VolumeFile(b"1")})
    before = os.open(tmp_path / "..data", os.O_RDONLY | os.O_DIRECTORY)
    write_files(tmp_path, {"a": VolumeFile(b"2"), "b": VolumeFile(b"2")})
    after = os.open(tmp_path / "..data", os.O_RDONLY | os.O_DIRECTORY)
    assert os.fstat(before).st_ino != os.fstat(after).st_ino
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"2"
    os.close(before)
    os.close(after)


def test_host_paths_are_checked_by_type(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = check_host_path
    assert check({"path": str(tmp_path / "file"), "type": "File"}) == tmp_path / "file"
    assert "is not a directory" in str(check({"path": str(tmp_path / "file"), "type": "Directory"}))
    assert "does not exist" in str(check({"path": str(tmp_path / "none"), "type": "Directory"}))
    assert check({"path": str(tmp_path / "file"), "type": ""}) == tmp_path / "file"
    assert check({"path": str(tmp_path / "any")}) == tmp_path / "any"
    assert (tmp_path / "any").is_dir()
    assert "not an absolute path" in str(check({"path": "x"}))
    assert check({"path": str(tmp_path / "new/dir"), "type": "DirectoryOrCreate"}) == tmp_path / "new/dir"
    assert (tmp_path / "new/dir").is_dir()
    assert check({"path": str(tmp_path / "made"), "type": "FileOrCreate"}) == tmp_path / "made"
