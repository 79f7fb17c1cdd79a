"""Command `plimsoll driver cpu gatherinfo`: collects debug information from outside the driver.

Sources: the CPUs from sysfs, the settings from the command line and file of the running driver (Plimsoll's or
the Go driver), and its debug page. The CPUs are always in the report; reasons for missing parts are listed in
it.

DIFF: without a running driver the Go driver's command writes nothing
(test_information_is_gathered_without_a_driver).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.config_file import FLAGS, read_settings
from plimsoll.drivers.cpu.debug_report import (
    RunningDriver,
    find_driver,
    gather_info,
)
from plimsoll.drivers.cpu.process.status_client import query_driver
from plimsoll.drivers.cpu.settings import CpuSettings, plugin_dir
from plimsoll.drivers.cpu.topology.overlay import read_overlay
from plimsoll.drivers.cpu.topology.sysfs import read_topology
from plimsoll.drivers.plugin.plugin_server import KUBELET_ROOT
from plimsoll.errors import InputError

ADDRESS = "127.0.0.1:8080"
#: The flags of a driver by its command line, as a parser of arguments understands them.
Parse = Callable[[tuple[str, ...]], dict[str, Any]]


def gather(parse: Parse, address: str = "", *, host_root: Path | None = None) -> dict[str, Any]:
    """Build the report; raises InputError if the CPUs cannot be read."""
    root = host_root if host_root is not None else Path(os.environ.get("HOST_ROOT") or "/")
    notes: list[str] = []
    running = find_driver(_proc(root))
    settings = _settings(parse, running, notes)
    where = address or _address_of(settings)
    driver: dict[str, Any] = {}
    try:
        driver = query_driver(where)
    except InputError as error:
        notes.append(str(error))
    overlay: dict[str, str | None] = {}
    if settings is not None and settings.overlay is not None:
        try:
            overlay = dict(read_overlay(settings.overlay))
        except InputError as error:
            notes.append(str(error))
    pcie = settings is not None and settings.needs_pcie
    topology = read_topology(root, overlay, pcie=pcie)
    return gather_info(topology, settings, driver={**driver, "notes": notes})


def find_address(parse: Parse, address: str) -> str:
    """Return the given address, or that of the running driver."""
    if address:
        return address
    settings = _settings(parse, find_driver(_proc(Path(os.environ.get("HOST_ROOT") or "/"))), [])
    return _address_of(settings)


def _address_of(settings: CpuSettings | None) -> str:
    if settings is None or not settings.bind_address:
        return ADDRESS
    return f"https://{settings.bind_address}" if settings.cert_dir is not None else settings.bind_address


def find_plugin_dir(parse: Parse, kubelet_root: Path | None) -> Path:
    """Return the plugin directory below this kubelet root, or that of the running driver."""
    running = find_driver(_proc(Path(os.environ.get("HOST_ROOT") or "/")))
    if kubelet_root is not None or running is None:
        return plugin_dir(kubelet_root or KUBELET_ROOT)
    settings = _settings(parse, running, [])
    return running.path(str(settings.plugin_dir if settings is not None else plugin_dir(KUBELET_ROOT)))


def _proc(root: Path) -> Path:
    mounted = root / "proc"
    return mounted if mounted.is_dir() else Path("/proc")


def _settings(parse: Parse, running: RunningDriver | None, notes: list[str]) -> CpuSettings | None:
    """Read the settings of a running driver, with files resolved in its mount namespace."""
    if running is None:
        notes.append("no CPU driver runs on this machine, or it cannot be seen from here")
        return None
    given = parse(running.arguments)
    flags = {name: given.get(name.replace("-", "_")) for name in FLAGS}
    config = given.get("config")
    settings = None
    for path in (running.path(str(config)) if config else None, None):
        try:
            settings = read_settings(path, flags)
            break
        except InputError as error:
            notes.append(str(error))
            if path is None:
                break
    if settings is not None and settings.overlay is not None:
        settings = replace(settings, overlay=running.path(str(settings.overlay)))
    return settings
