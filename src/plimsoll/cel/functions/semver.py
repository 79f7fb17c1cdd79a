"""Semantic versions in CEL: `semver("1.2.3")`; a second argument `true` normalizes the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from plimsoll.cel.functions.numbers import parse_uint
from plimsoll.cel.overloads.costs import PARSING
from plimsoll.cel.overloads.fragments import CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.values import INT_MAX, Semver
from plimsoll.errors import CelRuntimeError

_WORD = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")


@lru_cache(maxsize=16384)
def parse(text: str) -> Semver:
    """Parse a version `major.minor.patch[-pre][+build]`; raises CelRuntimeError."""
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelRuntimeError("No Major.Minor.Patch elements found" if text else "Version string empty")
    rest, plus, build = parts[2].partition("+")
    patch, dash, pre = rest.partition("-")
    numbers = tuple(
        _number(part, name) for part, name in ((parts[0], "major"), (parts[1], "minor"), (patch, "patch"))
    )
    labels = tuple(_label(part) for part in pre.split(".")) if dash else ()
    if plus:
        for part in build.split("."):
            if not part or not _WORD.issuperset(part):
                raise CelRuntimeError(f"invalid build metadata {part[:80]!r}")
    # A version without a pre-release label sorts after those with one.
    return Semver((*numbers, not labels, labels), text)


def _number(part: str, name: str) -> int:
    if len(part) > 1 and part[0] == "0":
        raise CelRuntimeError(f"{name} number must not contain leading zeroes {part[:80]!r}")
    value = parse_uint(part)
    if value is None:
        raise CelRuntimeError(f"invalid {name} number {part[:80]!r}")
    return value


def _label(part: str) -> tuple[bool, Any]:
    """Return the sort key of a pre-release identifier: numbers come before words."""
    if part.isascii() and part.isdigit():
        if len(part) > 1 and part[0] == "0":
            raise CelRuntimeError(f"numeric pre-release must not contain leading zeroes {part[:80]!r}")
        value = parse_uint(part)
        if value is None:
            raise CelRuntimeError(f"pre-release number out of range {part[:80]!r}")
        return False, value
    if not part or not _WORD.issuperset(part):
        raise CelRuntimeError(f"invalid pre-release {part[:80]!r}")
    return True, part


def normalize(text: str) -> str:
    """Remove a leading v and leading zeros, and complete a short version with zeros."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            trimmed = part.lstrip("0")
            parts[index] = trimmed if trimmed and trimmed[0] in "0123456789" else "0" + trimmed
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise CelRuntimeError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def parse_with(text: str, normal: bool) -> Semver:
    return parse(normalize(text) if normal else text)


def is_semver(text: str, normal: bool = False) -> bool:
    try:
        parse_with(text, normal)
    except CelRuntimeError:
        return False
    return True


def compare(a: Semver, b: Semver) -> int:
    return (a.key > b.key) - (a.key < b.key)


def _part(index: int) -> Any:
    def read(version: Semver) -> int:
        value: int = version.key[index]
        return value if value < 2**63 else value - 2**64  # upstream converts uint64 to int64

    return read


# -- generated code


def _semver(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if any(not code.constant for code in codes) or codes[0].kind != "str":
        raise Unsupported
    text, normal = codes[0].value, len(codes) > 1 and codes[1].value
    if type(normal) is not bool:
        raise Unsupported
    try:
        return CodeFragment("semver", bound=len(text), constant=True, value=parse_with(text, normal))
    except CelRuntimeError:
        raise Unsupported from None


_PARTS = {"major": 0, "minor": 1, "patch": 2}


def _version_part(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "dyn" or codes[0].constant:
        raise Unsupported
    name = writer.temporary()
    part = f"({name} := {codes[0].text}.key[{_PARTS[function]}])"
    return CodeFragment("int", f"({part} if {name} <= {writer.constant(INT_MAX)} else STOP())", 0)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "semver",
        overload("string_to_semver (string) -> Semver", parse),
        overload("string_bool_to_semver (string, bool) -> Semver", parse_with),
        cost=PARSING,
        handler=_semver,
    ),
    function(
        "isSemver",
        "is_semver_string (string) -> bool",
        "is_semver_string_bool (string, bool) -> bool",
        call=is_semver,
        cost=PARSING,
    ),
    function(
        "isGreaterThan", "semver_is_greater_than Semver.(Semver) -> bool", call=lambda a, b: a.key > b.key
    ),
    function("isLessThan", "semver_is_less_than Semver.(Semver) -> bool", call=lambda a, b: a.key < b.key),
    function("compareTo", "semver_compare_to Semver.(Semver) -> int", call=compare),
    *(
        function(name, f"semver_{name} Semver.() -> int", call=_part(index), handler=_version_part)
        for name, index in _PARTS.items()
    ),
)
