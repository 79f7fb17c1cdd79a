"""`includes`, the function for list-typed device attributes."""

from __future__ import annotations

from plimsoll.cel.comparison import Meter, holds
from plimsoll.cel.functions.registry import ANY, Function, Overload, function
from plimsoll.cel.values import Value
from plimsoll.errors import CelRuntimeError

#: The most values an attribute may hold; longer lists are refused, which bounds the work.
MAX_VALUES = 48


def includes(meter: Meter, target: Value, value: Value) -> bool:
    """Return whether a list contains a value, or a scalar equals it."""
    if type(target) is not list:
        return holds(target, value, meter)
    for index, item in enumerate(target):
        if index >= MAX_VALUES:
            raise CelRuntimeError(
                f"'includes' function cannot be applied to lists longer than {MAX_VALUES} values"
            )
        if holds(item, value, meter):
            return True
    return False


FUNCTIONS: tuple[Function, ...] = (
    function("includes", Overload("dra_includes_dyn_dyn", (ANY, ANY), includes, metered=True)),
)
