"""Fields that several parts of a file of devices have in common: amounts, lists of texts, lists of mappings.

Owns how they are read from a `Section`; texts may have placeholders, which are not looked at here.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.quantity import Number
from plimsoll.common.config_file import Section

_MOST_ENTRIES = 1_000


def amount(value: object, section: Section, name: str) -> str:
    """A quantity as it is written."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise section.bad(name, f"must be an amount such as 8, 500m or 40Gi, not {value!r}")
    return str(value)


def optional_amount(section: Section, name: str) -> str | None:
    value = section.take(name)
    return None if value is None else amount(value, section, name)


def amounts(section: Section, name: str) -> dict[str, str]:
    """Quantities by name."""
    inner = section.section(name)
    return {key: amount(value, inner, key) for key, value in inner.rest().items()}


def texts(section: Section, name: str) -> tuple[str, ...]:
    """A list of texts; one text stands for a list of one."""
    value = section.take(name)
    if value is None:
        return ()
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise section.bad(name, f"must be a list of texts, not {value!r}")
    return tuple(value)


def entries(value: Any, section: Section, name: str) -> list[Section]:
    """A list of mappings, which may be empty: it then says that there are none."""
    if not isinstance(value, list) or len(value) > _MOST_ENTRIES:
        raise section.bad(name, f"must be a list of at most {_MOST_ENTRIES} entries")
    place = f"{section.where}.{name}" if ": " in section.where else f"{section.where}: {name}"
    return [Section(item, f"{place}[{index}]") for index, item in enumerate(value)]
