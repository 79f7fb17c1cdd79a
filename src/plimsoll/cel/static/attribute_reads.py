"""Attributes that a device selector reads: devices that agree in them get the same result.

Unique attributes, such as UUIDs and addresses, would otherwise make the devices of every machine different.
"""

from __future__ import annotations

from plimsoll.cel.syntax.ast import CallExpr, Const, Expr, Ident, Select, children
from plimsoll.cel.types import DEVICE_VARIABLE

#: Calls that read an entry of a map.
_ENTRY_CALLS = frozenset({"_[_]", "_[?_]", "_?._"})
#: Steps from the device to an attribute: `attributes`, its domain, its name.
_STEPS = 3


def find_attributes_read(root: Expr) -> frozenset[tuple[str, str]] | None:
    """Return the (domain, name) pairs of the attributes that an expression may read; None if it may read any.

    Driver, capacity and `allowMultipleAllocations` are not attributes.
    """
    found: set[tuple[str, str]] = set()
    nodes = [root]
    while nodes:
        node = nodes.pop()
        path = find_device_path(node)
        if path is None and isinstance(node, CallExpr) and node.function == "@in":
            key, of = node.args
            domain = find_device_path(of)
            if isinstance(key, Const) and domain is not None and len(domain) == _STEPS - 1:
                path = (*domain, str(key.value))
        if path is None:
            nodes += children(node)
        elif path[:1] == ("attributes",) and len(path) == _STEPS:
            found.add((path[1], path[2]))
        elif not path or path[0] == "attributes":
            return None
    return frozenset(found)


def find_device_path(expr: Expr) -> tuple[str, ...] | None:
    """Return the constant steps from the device to an expression; None if it is anything else."""
    steps: list[str] = []
    while len(steps) <= _STEPS:
        match expr:
            case Ident(name=name) if name == DEVICE_VARIABLE:
                return tuple(reversed(steps))
            case Select():
                steps.append(expr.field)
                expr = expr.operand
            case CallExpr(function=function, args=(operand, Const(value=str(key)))) if (
                function in _ENTRY_CALLS
            ):
                steps.append(key)
                expr = operand
            case _:
                return None
    return None
