"""emptyDir volumes: in memory, and their size limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.errors import InputError
from plimsoll.node.layout import Layout
from plimsoll.node.volumes.empty_dirs import MemoryVolumes, measure_usage
from tests.unit.node.volumes.test_manager import Node, a_pod


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


def test_a_pod_over_its_size_limit_is_evicted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    evicted: list[str] = []
    node.manager.evict = lambda pod, message: evicted.append(f"{pod.metadata.name}: {message}")
    pod = a_pod({"emptyDir": {"sizeLimit": "64Ki"}})
    assert node.set_up(pod) == ""
    (node.source(pod) / "small").write_bytes(b"x" * 1024)
    asyncio.run(node.manager.enforce_size_limits())
    assert evicted == []
    (node.source(pod) / "large").write_bytes(b"x" * 70_000)
    asyncio.run(node.manager.enforce_size_limits())
    assert evicted == ['p: Usage of EmptyDir volume "v" exceeds the limit "64Ki". ']


def test_links_and_sparse_files_count_what_they_occupy(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 8192)
    before = measure_usage(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**9)
    assert measure_usage(tmp_path) == before
