"""`includes`, the function for list-typed device attributes."""

from __future__ import annotations

from plimsoll.cel.comparison import Meter, equal_or_false
from plimsoll.cel.overloads.costs import CallCost, CallEstimate
from plimsoll.cel.overloads.fragments import CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.overloads.ranges import Range
from plimsoll.cel.values import Value
from plimsoll.errors import CelRuntimeError

#: Maximum number of values of a list attribute; longer lists are rejected.
MAX_VALUES = 48


def includes(meter: Meter, target: Value, value: Value) -> bool:
    """Return whether a list contains a value, or a scalar equals it."""
    if type(target) is not list:
        return equal_or_false(target, value, meter)
    for index, item in enumerate(target):
        if index >= MAX_VALUES:
            raise CelRuntimeError(
                f"'includes' function cannot be applied to lists longer than {MAX_VALUES} values"
            )
        if equal_or_false(item, value, meter):
            return True
    return False


def _includes(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    target, value = codes
    if target.kind != "dyn" or target.constant or not value.constant or value.kind != "str":
        raise Unsupported
    name, key = writer.temporary(), writer.constant(value.value)
    listed = f"(len({name}) <= {MAX_VALUES} or STOP()) and {key} in {name}"
    source = f"(({listed}) if ({name} := {target.text}).__class__ is LIST else {name} == {key})"
    return CodeFragment("bool", source, 0)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "includes",
        "dra_includes_dyn_dyn dyn.(dyn) -> bool",
        call=includes,
        metered=True,
        cost=CallCost(estimator=lambda args: CallEstimate(Range(0, MAX_VALUES))),
        handler=_includes,
    ),
)
