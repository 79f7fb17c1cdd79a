"""Selectors with the values that devices have, in place of those asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from plimsoll.allocator.devices.node_devices import DeviceEntry
from plimsoll.api.resource import DeviceCapacity
from plimsoll.tools.device_attributes import attributes_read, value_text

#: Values proposed for one selector.
_MAX_VALUES = 3
#: A comparison of the attribute `{name}` with a literal, as it or as an argument of quantity and semver.
_COMPARISON = (
    r"((?:\.{name}|\[\s*['\"]{name}['\"]\s*\])\s*(?:\.compareTo\(|\.isGreaterThan\(|\.isLessThan\()?"
    r"\s*(?:==|>=|<=|>|<)?\s*(?:quantity\(|semver\()?\s*)(\"[^\"]*\"|'[^']*'|-?\d+|true|false)"
)


def replaced_values(expression: str, nearest: Sequence[DeviceEntry]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the expression with a value of a device, the attribute, the value asked for and the new one."""
    seen: set[str] = set()
    for entry in nearest:
        for full_name, value in attributes_read(expression, entry.id.driver, entry.device):
            name, text = full_name.rpartition("/")[2], value_text(value)
            if isinstance(value, str) or not text:
                continue
            pattern = _COMPARISON.replace("{name}", re.escape(name))
            for match in re.finditer(pattern, expression):
                old = match[2]
                quote = old[0] if old[0] in "\"'" else ""
                is_text = isinstance(value, DeviceCapacity) or not text.lstrip("-").isdigit()
                if old.strip("\"'") == text or (is_text and not quote and text not in ("true", "false")):
                    continue
                new = expression[: match.start(2)] + f"{quote}{text}{quote}" + expression[match.end(2) :]
                if new not in seen and len(seen) < _MAX_VALUES:
                    seen.add(new)
                    yield new, name, old.strip("\"'"), text
