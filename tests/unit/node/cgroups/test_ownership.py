"""Ownership of cgroup roots: one data directory each, and whether its agent runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from plimsoll.node.cgroups.ownership import (
    RootMark,
    default_root,
    owner_of,
    read_directory,
    read_mark,
)
from plimsoll.node.cgroups.tree import root_parts


def test_every_data_directory_has_its_own_root(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert default_root("vm", one) != default_root("vm", two)
    assert owner_of("vm", one) != owner_of("vm", two)
    assert default_root("vm", one) == default_root("vm", one)
    assert default_root("vm", one) == f"plimsoll-{owner_of('vm', one)}"


def test_a_symbolic_link_to_the_data_directory_has_the_same_root(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    assert default_root("vm", tmp_path / "link") == default_root("vm", tmp_path / "data")
    assert default_root("vm", tmp_path / "x" / ".." / "data") == default_root("vm", tmp_path / "data")


def test_the_longest_name_of_a_node_fits() -> None:
    name = default_root(".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61]), Path("/data"))
    assert len(name) <= 253
    assert root_parts(name) == (name,)


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    """Return stand-ins for a root in two hierarchies."""
    found = [tmp_path / "cpu" / "root", tmp_path / "memory" / "root"]
    for directory in found:
        directory.mkdir(parents=True)
    try:
        os.setxattr(found[0], "user.plimsoll.root", b"")
        os.removexattr(found[0], "user.plimsoll.root")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    return found


def test_the_marker_names_the_owner_of_a_root_and_whether_its_agent_runs(
    tmp_path: Path, directories: list[Path]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert read_mark(directories).data == ""
    assert not read_mark(directories).alive
    mark = RootMark(data)
    assert mark.take(directories) == ""
    assert mark.take(directories) == "", "again"
    found = read_mark(directories)
    assert (found.alive, found.data, found.gone) == (True, str(data), False)
    mark.release()
    found = read_mark(directories)
    assert (found.alive, found.data, found.gone) == (False, str(data), False)
    data.rmdir()
    assert read_directory(directories).gone


def test_a_directory_in_another_mount_namespace_is_not_reported_as_deleted(
    tmp_path: Path, directories: list[Path]
) -> None:
    for directory in directories:
        os.setxattr(directory, "user.plimsoll.root", b"mnt:[1]:" + os.fsencode(tmp_path / "absent"))
    found = read_mark(directories)
    assert (found.data, found.gone) == (str(tmp_path / "absent"), False)


def test_a_root_that_another_process_uses_is_refused(tmp_path: Path, directories: list[Path]) -> None:
    first, second = RootMark(tmp_path / "a"), RootMark(tmp_path / "b", timeout=0.0)
    assert first.take(directories) == ""
    assert second.take(directories) == f"cgroup {directories[0]} is in use by another process"
    first.release()
    assert second.take(directories) == ""
    second.release()


def test_a_recreated_root_is_marked_again(tmp_path: Path, directories: list[Path]) -> None:
    mark = RootMark(tmp_path)
    mark.take(directories)
    shutil.rmtree(directories[0])
    assert mark.take(directories) == "", "what is not there is passed over"
    directories[0].mkdir()
    assert not read_mark(directories[:1]).alive
    assert mark.take(directories) == ""
    assert read_mark(directories[:1]).alive
    mark.release()
