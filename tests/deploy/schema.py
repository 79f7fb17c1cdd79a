"""Subset of JSON Schema used by the chart's values; anything else in a schema is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}
_SILENT = {"$schema", "title", "description"}


def problems(value: Any, schema: Mapping[str, Any], at: str = "") -> list[str]:
    """Return the violations of a schema, as `path: problem`."""
    return [line for rule, need in schema.items() for line in _check(value, rule, need, schema, at)]


def _check(value: Any, rule: str, need: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    match rule:
        case "type":
            names = need if isinstance(need, list) else [need]
            if not any(_is(value, name) for name in names):
                yield f"{at}: not {need}"
        case "enum":
            if value not in need:
                yield f"{at}: not one of {need}"
        case "const":
            if value != need:
                yield f"{at}: not {need}"
        case "minimum":
            if _is(value, "integer") and value < need:
                yield f"{at}: less than {need}"
        case "maximum":
            if _is(value, "integer") and value > need:
                yield f"{at}: more than {need}"
        case "minLength":
            if isinstance(value, str) and len(value) < need:
                yield f"{at}: too short"
        case "maxLength":
            if isinstance(value, str) and len(value) > need:
                yield f"{at}: too long"
        case "pattern":
            if isinstance(value, str) and not re.search(need, value):
                yield f"{at}: does not match {need}"
        case "required":
            if isinstance(value, dict) and (missing := [name for name in need if name not in value]):
                yield f"{at}: without {missing}"
        case "not":
            if not problems(value, need, at):
                yield f"{at}: must not be {need}"
        case "anyOf":
            if all(problems(value, each, at) for each in need):
                yield f"{at}: none of {need}"
        case "items":
            for place, item in enumerate(value if isinstance(value, list) else []):
                yield from problems(item, need, f"{at}[{place}]")
        case "properties":
            for name, part in need.items():
                if isinstance(value, dict) and name in value:
                    yield from problems(value[name], part, f"{at}.{name}".lstrip("."))
        case "additionalProperties":
            known = schema.get("properties", {})
            for name in [name for name in value if name not in known] if isinstance(value, dict) else []:
                where = f"{at}.{name}".lstrip(".")
                if need is False:
                    yield f"{where}: unknown"
                else:
                    yield from problems(value[name], need, where)
        case _:
            assert rule in _SILENT, f"not understood: {rule}"


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and not (name == "integer" and isinstance(value, bool))
