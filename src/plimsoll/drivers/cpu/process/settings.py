"""CPU driver settings from a command line; `config_file.py` defines files and rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.config_file import FLAGS, read_settings
from plimsoll.drivers.cpu.process.run import parse_listen_address
from plimsoll.drivers.cpu.settings import CpuSettings


def read_flags(given: Mapping[str, Any]) -> CpuSettings:
    """Build settings from arguments by name (`group_by`); `config` is the file. Raises ConfigError."""
    flags = {name.replace("_", "-"): value for name, value in given.items() if name != "config"}
    settings = read_settings(given.get("config"), {name: flags.get(name) for name in FLAGS})
    if settings.bind_address:
        parse_listen_address(settings.bind_address)
    return settings


def read_cpu_settings(path: Path | None) -> CpuSettings:
    """Read settings from a file, or return the defaults."""
    return read_settings(path, {})
