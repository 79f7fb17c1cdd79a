"""emptyDir volumes: in memory, and what they occupy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.errors import InputError
from plimsoll.node.layout import Layout
from plimsoll.node.volumes.empty_dirs import MemoryVolumes
from tests.unit.node.volumes.volume_node import Node, a_pod


def in_memory(directory: Path, type: str = "tmpfs") -> MemoryVolumes:
    """Return volumes in a directory that is mounted as a file system of a type."""
    shared = directory / "shm"
    shared.mkdir(exist_ok=True)
    (directory / "mounts").write_text(f"x / ext4 rw 0 0\nshm {shared} {type} rw 0 0\n")
    return MemoryVolumes(Layout(directory / "node"), shared, directory / "mounts")


def test_volumes_in_memory_are_private_and_removed_with_their_pod(tmp_path: Path) -> None:
    volumes = in_memory(tmp_path)
    path = volumes.make("u1", "v")
    assert path.is_relative_to(tmp_path / "shm")
    assert path.parents[1].stat().st_mode & 0o777 == 0o700
    volumes.make("u2", "v")
    (tmp_path / "node" / "pods" / "u2").mkdir(parents=True)
    volumes.remove_orphans()
    assert [entry.name for entry in path.parents[1].iterdir()] == ["u2"]
    volumes.remove("u2")
    assert list(path.parents[1].iterdir()) == []


def test_volumes_in_memory_need_a_tmpfs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no tmpfs at"):
        in_memory(tmp_path, "ext4").make("u1", "v")


def test_volumes_that_were_set_up_are_measured(tmp_path: Path) -> None:
    node = Node(tmp_path)
    pod = a_pod({"emptyDir": {"sizeLimit": "64Ki"}})
    assert asyncio.run(node.manager.measure(pod, {"v"})) == {}
    assert node.set_up(pod) == ""
    (node.source(pod) / "large").write_bytes(b"x" * 70_000)
    assert asyncio.run(node.manager.measure(pod, {"v"}))["v"] >= 70_000
    assert asyncio.run(node.manager.measure(pod, {"other"})) == {}
