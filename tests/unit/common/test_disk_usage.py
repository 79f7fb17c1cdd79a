"""Disk usage of files and directories."""

from __future__ import annotations

from pathlib import Path

from plimsoll.common.disk_usage import disk_usage


def test_links_and_sparse_files_count_what_they_occupy(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 8192)
    before = disk_usage(tmp_path)
    assert before >= 8192
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**9)
    assert disk_usage(tmp_path) == before


def test_single_files_and_links_to_directories_count(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "a").write_bytes(b"x" * 8192)
    (tmp_path / "link").symlink_to(directory)
    assert disk_usage(directory / "a") == disk_usage(tmp_path / "link") >= 8192
    assert disk_usage(directory, tmp_path / "link") == disk_usage(directory), "each file once"
    assert disk_usage(tmp_path / "absent") == 0
