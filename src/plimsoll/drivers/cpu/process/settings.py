"""The CPU driver's settings from a command line.

Owns the step from arguments to `CpuSettings`; files, and the rules for both, are of `config_file.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.config_file import FLAGS, read_settings
from plimsoll.drivers.cpu.process.run import read_listen
from plimsoll.drivers.cpu.settings import CpuSettings


def read_flags(given: Mapping[str, Any]) -> CpuSettings:
    """Settings from arguments by name (`group_by`), of which `config` is the file; ConfigError if wrong."""
    flags = {name.replace("_", "-"): value for name, value in given.items() if name != "config"}
    settings = read_settings(given.get("config"), {name: flags.get(name) for name in FLAGS})
    if settings.bind_address:
        read_listen(settings.bind_address)
    return settings


def read_cpu_settings(path: Path | None) -> CpuSettings:
    """Settings from a file alone, or the defaults."""
    return read_settings(path, {})
