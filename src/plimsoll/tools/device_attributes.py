"""Conditions of device selectors: the values that they read, and those that devices have.

A selector is split at its top-level `&&`. Of each condition, the paths that it reads and, if it compares one
of them with constants, the wanted value in words are found in the syntax tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import zip_longest
from typing import TypeAlias

from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device, DeviceAttribute, DeviceCapacity
from plimsoll.cel import compile_selector, flatten
from plimsoll.cel.static.attribute_reads import find_device_path
from plimsoll.cel.syntax.ast import CallExpr, Const, Expr, ListLit, Select, descend
from plimsoll.cel.syntax.parser import parse
from plimsoll.errors import CelCompileError, CelRuntimeError, QuantityError

#: Steps from `device` to a value: `("driver",)`, `("attributes", domain, name)`.
DevicePath: TypeAlias = "tuple[str, ...]"
DeviceValue: TypeAlias = "DeviceAttribute | DeviceCapacity | str"
DRIVER: DevicePath = ("driver",)
SHAREABLE: DevicePath = ("allowMultipleAllocations",)
#: Values of a device that are shown.
SHOWN = 4
_WORDS = {
    "_==_": "{}",
    "_!=_": "other than {}",
    "_<_": "less than {}",
    "_<=_": "at most {}",
    "_>_": "more than {}",
    "_>=_": "at least {}",
    "isLessThan": "less than {}",
    "isGreaterThan": "more than {}",
    "startsWith": "beginning with {}",
    "endsWith": "ending with {}",
    "contains": "containing {}",
    "matches": "matching {}",
}
_TURNED = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_"}
#: Calls that do not change the path that is read, or the constant.
_WRAPPERS = frozenset({"orValue", "lowerAscii", "upperAscii", "quantity", "semver", "version"})


@dataclass(frozen=True, slots=True)
class SelectorCondition:
    """One operand of the `&&` of a selector."""

    text: str
    reads: tuple[DevicePath, ...]
    wanted: str = ""  #: value of the only path that it reads, in words; "" if it is not a comparison
    constant: str = ""  #: a constant with which the value is compared

    @property
    def is_about_driver(self) -> bool:
        return set(self.reads) == {DRIVER}


@lru_cache(maxsize=512)
def split_conditions(expression: str) -> tuple[SelectorCondition, ...]:
    """Return the conditions of a selector; none if it does not parse."""
    try:
        parts = _operands(expression, parse(expression))
    except CelCompileError:
        return ()
    return tuple(_read_condition(text, tree) for text, tree in parts)


def _operands(expression: str, root: Expr) -> list[tuple[str, Expr]]:
    """Return the operands of the top-level `&&` with their texts; the whole if the texts do not parse."""
    operands: list[Expr] = []
    places: list[int] = []

    def visit(expr: Expr) -> None:
        if isinstance(expr, CallExpr) and expr.function == "_&&_":
            left, right = expr.args
            visit(left)
            places.append(expr.pos)
            visit(right)
        else:
            operands.append(expr)

    visit(root)
    bounds = zip([0, *(place + 2 for place in places)], [*places, len(expression)], strict=True)
    texts = [_balanced(expression[begin:end].strip()) for begin, end in bounds]
    try:
        for text in texts if len(texts) > 1 else ():
            parse(text)
    except CelCompileError:
        return [(expression, root)]
    return list(zip(texts, operands, strict=True))


def _balanced(text: str) -> str:
    """Return an operand without the parentheses of the groups that it is in."""
    excess = text.count("(") - text.count(")")
    for _ in range(abs(excess)):
        text = (text.removeprefix("(") if excess > 0 else text.removesuffix(")")).strip()
    return text


def _read_condition(text: str, tree: Expr) -> SelectorCondition:
    reads = tuple(dict.fromkeys(_paths(tree)))
    found = _comparison(tree) if len(reads) == 1 else None
    wanted, constant = found or ("", "")
    return SelectorCondition(text, reads, wanted, constant)


def _paths(root: Expr) -> Iterator[DevicePath]:
    """Yield the longest paths that an expression reads."""
    longest: list[DevicePath] = []
    for node in descend(root):
        path = find_device_path(node)
        if isinstance(node, CallExpr) and node.function == "@in":
            key, of = node.args
            domain = find_device_path(of)
            if isinstance(key, Const) and domain:
                path = (*domain, str(key.value))
        if path and not any(each[: len(path)] == path for each in longest):
            longest.append(path)
    yield from longest


def _comparison(expr: Expr) -> tuple[str, str] | None:
    """Return the wanted value of the path that a condition reads, in words, and the constant."""
    if find_device_path(expr) is not None:
        return ("present", "") if isinstance(expr, Select) and expr.test else ("true", "true")
    if not isinstance(expr, CallExpr):
        return None
    args = (expr.target, *expr.args) if expr.target is not None else expr.args
    match expr.function, args:
        case "!_", (operand,) if find_device_path(operand) is not None:
            return ("absent", "") if isinstance(operand, Select) and operand.test else ("false", "false")
        case "_||_", (left, right):
            one, two = _comparison(left), _comparison(right)
            return None if one is None or two is None else (f"{one[0]} or {two[0]}", one[1])
        case "@in", (operand, ListLit(items=items)) if _is_value(operand):
            constants = [_constant(item) for item in items]
            return (" or ".join(constants), constants[0]) if constants and all(constants) else None
        case "@in", (Const(), _):
            return "present", ""
        case function, (CallExpr(function="compareTo", target=operand, args=(item,)), Const(value=0)) if (
            function in _WORDS and operand is not None and _is_value(operand)
        ):
            return _in_words(function, _constant(item))
        case function, (operand, item) if function in _WORDS and _is_value(operand):
            return _in_words(function, _constant(item))
        case function, (item, operand) if function in _WORDS and _is_value(operand):
            return _in_words(_TURNED.get(function, function), _constant(item))
    return None


def _is_value(expr: Expr) -> bool:
    return find_device_path(_unwrapped(expr)) is not None


def _constant(expr: Expr) -> str:
    """Return a constant as text, "" for anything else."""
    expr = _unwrapped(expr)
    if not isinstance(expr, Const):
        return ""
    return str(expr.value).lower() if isinstance(expr.value, bool) else str(expr.value)


def _unwrapped(expr: Expr) -> Expr:
    while isinstance(expr, CallExpr) and expr.function in _WRAPPERS:
        expr = expr.target if expr.target is not None else expr.args[0]
    return expr


def _in_words(function: str, constant: str) -> tuple[str, str] | None:
    return (_WORDS[function].format(constant), constant) if constant else None


@lru_cache(maxsize=4096)
def is_for_driver(condition: str, driver: str) -> bool:
    """Return whether a condition that reads only the driver holds for a driver."""
    try:
        return compile_selector(condition).matches(flatten(Device(name="device"), driver))
    except (CelCompileError, CelRuntimeError):
        return True


# -- values


def read_value(path: DevicePath, driver: str, device: Device) -> DeviceValue | None:
    """Return the value of a path; a name without a domain is in that of the driver, and in no other."""
    if path == DRIVER:
        return driver
    if path == SHAREABLE:
        return str(bool(device.allow_multiple_allocations)).lower()
    if len(path) != 3 or path[0] not in ("attributes", "capacity"):
        return None
    kind, domain, name = path
    values = device.attributes if kind == "attributes" else device.capacity
    found = values.get(f"{domain}/{name}")
    return values.get(name) if found is None and domain == driver else found


def path_name(path: DevicePath, driver: str) -> str:
    """Return the name of a value as a driver publishes it, without the driver's own domain."""
    return "/".join(path[1:]) if len(path) > 1 and path[1] != driver else path[-1]


def attributes_read(expression: str, driver: str, device: Device) -> list[tuple[str, DeviceValue]]:
    """Return the device's values that an expression reads, by name, attributes first; the driver if it has
    no others.
    """
    paths = sorted({path for condition in split_conditions(expression) for path in condition.reads})
    values = [(path, read_value(path, driver, device)) for path in paths if len(path) == 3]
    found = [(path_name(path, driver), value) for path, value in values if value is not None]
    if not found and DRIVER in paths:
        return [(DRIVER[0], driver)]
    return found[:SHOWN]


def value_text(value: DeviceValue) -> str:
    """Format a value as it appears in a slice."""
    if isinstance(value, str):
        return value
    if isinstance(value, DeviceCapacity):
        return str(value.value)
    for single in (value.string_value, value.int_value, value.version_value):
        if single is not None:
            return str(single)
    if value.bool_value is not None:
        return str(value.bool_value).lower()
    for several in (value.string_values, value.int_values, value.version_values, value.bool_values):
        if several is not None:
            return "[" + ", ".join(map(str, several)) + "]"
    return ""


def order_by_nearness(values: Sequence[str], constant: str) -> list[str]:
    """Return values by their distance from a constant, as numbers or versions if all are."""
    wanted, numbers = _number(constant), {value: _number(value) for value in values}
    if wanted is not None and None not in numbers.values():
        pairs = {value: zip_longest(own or (), wanted, fillvalue=0) for value, own in numbers.items()}
        distances = {value: tuple(abs(one - other) for one, other in each) for value, each in pairs.items()}
        return sorted(values, key=distances.__getitem__)
    return sorted(values, key=lambda value: (-SequenceMatcher(None, value, constant).ratio(), value))


def _number(text: str) -> tuple[int, ...] | None:
    """Return a quantity or the numbers of a version, to compare."""
    parts = text.partition("-")[0].split(".")
    if len(parts) == 3 and all(part.isdigit() for part in parts):
        return tuple(map(int, parts))
    try:
        return (Quantity.parse(text).nano,)
    except QuantityError:
        return None
