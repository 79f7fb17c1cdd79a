"""Readers for common fields of a device file: quantities, lists of strings, lists of mappings.

Placeholders in strings are not evaluated here.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.quantity import Number
from plimsoll.common.config_file import ConfigSection

_MAX_ENTRIES = 1_000


def read_quantity(value: object, section: ConfigSection, name: str) -> str:
    """Read a quantity as text."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise section.bad(name, f"must be a quantity such as 8, 500m or 40Gi, not {value!r}")
    return str(value)


def read_optional_quantity(section: ConfigSection, name: str) -> str | None:
    value = section.take(name)
    return None if value is None else read_quantity(value, section, name)


def read_quantities(section: ConfigSection, name: str) -> dict[str, str]:
    """Read quantities by name."""
    inner = section.section(name)
    return {key: read_quantity(value, inner, key) for key, value in inner.rest().items()}


def read_strings(section: ConfigSection, name: str) -> tuple[str, ...]:
    """Read a list of strings; a single string is a list of one."""
    value = section.take(name)
    if value is None:
        return ()
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise section.bad(name, f"must be a list of strings, not {value!r}")
    return tuple(value)


def read_entries(value: Any, section: ConfigSection, name: str) -> list[ConfigSection]:
    """Read a list of mappings, which may be empty."""
    if not isinstance(value, list) or len(value) > _MAX_ENTRIES:
        raise section.bad(name, f"must be a list of at most {_MAX_ENTRIES} entries")
    where = f"{section.where}.{name}" if ": " in section.where else f"{section.where}: {name}"
    return [ConfigSection(item, f"{where}[{index}]") for index, item in enumerate(value)]
