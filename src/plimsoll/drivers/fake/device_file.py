"""Strict parser of device files: every error names the position and the fix.

`plan.py` defines the format (docs/drivers.md, "Devices from a file"); `find_drivers` accepts a path, a
built-in name or YAML text. Parsing builds the devices once, so that later builds cannot fail. The API
server's validation rules are checked elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from plimsoll.api.config import Config
from plimsoll.common.config_file import parse_document, read_config, read_document
from plimsoll.drivers.fake.devices import make_devices
from plimsoll.drivers.fake.plan import DriverPlan
from plimsoll.errors import ConfigError

#: The files that come with the package.
BUILT_IN = ("accelerators", "gpus", "nics")


def find_drivers(source: str | Path) -> tuple[DriverPlan, ...]:
    """Read the drivers of a file, given as path, built-in name or YAML text."""
    if isinstance(source, Path):
        return parse_drivers(read_document(source, "device file"), str(source))
    if source in BUILT_IN:
        text = files("plimsoll.drivers.fake").joinpath(f"{source}.yaml").read_text(encoding="utf-8")
        return parse_text(text, f"{source}.yaml")
    if "\n" in source or ": " in source:
        return parse_text(source)
    path = Path(source)
    if not path.exists():
        known = ", ".join(BUILT_IN)
        raise ConfigError(f"{source}: no such file; built-in device files: {known}")
    return find_drivers(path)


def parse_text(text: str, where: str = "drivers") -> tuple[DriverPlan, ...]:
    return parse_drivers(parse_document(text, "device file", where), where)


class _DeviceFile(Config, frozen=True, kw_only=True):
    kind: Literal["FakeDrivers"] = "FakeDrivers"
    api_version: str = ""
    drivers: Annotated[tuple[DriverPlan, ...], Meta(min_length=1)] = ()


def parse_drivers(tree: Any, where: str = "drivers") -> tuple[DriverPlan, ...]:
    """Parse and check the drivers in a decoded document."""
    drivers = read_config(tree, _DeviceFile, where).drivers
    if not drivers:
        raise ConfigError(f"{where}: drivers: must be a list with at least one driver")
    found = tuple(replace(plan, where=f"{where}: drivers[{i}]") for i, plan in enumerate(drivers))
    names = [plan.name for plan in found]
    for plan in found:
        if names.count(plan.name) > 1:
            raise ConfigError(
                f"{plan.where}.name: duplicate driver {plan.name}; list all its devices in one entry"
            )
        make_devices(plan, "node")
    return found
