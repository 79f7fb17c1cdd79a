"""Selectors with the values that devices have, in place of those asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from math import log

from plimsoll.allocator.devices.node_devices import DeviceEntry
from plimsoll.api.resource import DeviceCapacity
from plimsoll.tools.device_attributes import attributes_read, value_text

#: Values proposed for one selector.
_MAX_VALUES = 3
#: A comparison of the attribute `{name}` with a literal, as it or as an argument of quantity and semver.
_COMPARISON = (
    r"((?:\.{name}|\[\s*['\"]{name}['\"]\s*\])\s*(\.compareTo\(|\.isGreaterThan\(|\.isLessThan\()?"
    r"\s*(==|>=|<=|>|<)?\s*(?:quantity\(|semver\()?\s*)(\"[^\"]*\"|'[^']*'|-?\d+|true|false)"
)
#: Words of a comparison for other values than the one that it names.
_WORDS = {".isGreaterThan(": "above ", ".isLessThan(": "below ", ">": "above ", "<": "below "}
#: Least distance of values that differ in more than numbers.
OTHER_FORM = 1000.0
_DIGITS = re.compile(r"\d+(?:\.\d+)?")


def replaced_values(expression: str, devices: Sequence[DeviceEntry]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the expression with a value of a device, the attribute, the value asked for and the new one;
    nearest values first.
    """
    found: dict[str, tuple[float, str, str, str]] = {}
    for name, text, is_quoted in dict.fromkeys(_values(expression, devices)):
        for match in re.finditer(_COMPARISON.replace("{name}", re.escape(name)), expression):
            old = match[4]
            quote = old[0] if old[0] in "\"'" else ""
            if old.strip("\"'") == text or (is_quoted and not quote):
                continue
            new = expression[: match.start(4)] + f"{quote}{text}{quote}" + expression[match.end(4) :]
            word, wanted = _WORDS.get(match[2] or match[3] or "", ""), old.strip("\"'")
            found.setdefault(new, (value_distance(wanted, text), name, word + wanted, word + text))
    for new, (_, name, wanted, had) in sorted(found.items(), key=lambda each: each[1])[:_MAX_VALUES]:
        yield new, name, wanted, had


def _values(expression: str, devices: Sequence[DeviceEntry]) -> Iterator[tuple[str, str, bool]]:
    """Yield the values of devices that a selector reads, by name, and whether they are written in quotes."""
    for entry in devices:
        for full_name, value in attributes_read(expression, entry.id.driver, entry.device):
            text = value_text(value)
            is_plain = text.lstrip("-").isdigit() or text in ("true", "false")
            if text and not isinstance(value, str):
                yield full_name.rpartition("/")[2], text, isinstance(value, DeviceCapacity) or not is_plain


@lru_cache(maxsize=4096)
def value_distance(wanted: str, text: str) -> float:
    """Return how far a value is from the one asked for: in numbers if only these differ, or else in text."""
    if _DIGITS.sub("0", wanted) != _DIGITS.sub("0", text):
        return OTHER_FORM + 1 - SequenceMatcher(None, wanted.lower(), text.lower()).ratio()
    pairs = zip(_DIGITS.findall(wanted), _DIGITS.findall(text), strict=True)
    return sum(abs(log((float(one) + 1) / (float(other) + 1))) for one, other in pairs)
