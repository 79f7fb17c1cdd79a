"""Lock files: one agent per directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.common.lock_file import RootLock
from plimsoll.errors import ConfigError


def test_the_second_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "root" / "lock"
    first, second = RootLock(path), RootLock(path)
    first.take()
    with pytest.raises(ConfigError, match=f"the agent with PID {os.getpid()} uses this directory"):
        second.take()
    first.release()
    first.release()
    second.take()
    assert path.stat().st_mode & 0o777 == 0o600
    second.release()


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="choose another with --root"):
        RootLock(blocked / "lock").take()
    link = tmp_path / "lock"
    link.symlink_to(blocked)
    with pytest.raises(ConfigError, match="cannot be used"):
        RootLock(link).take()
