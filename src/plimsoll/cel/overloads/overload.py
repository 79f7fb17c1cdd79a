"""Declaration of a CEL function, for the checker, the cost estimate and both back ends.

Each module of `plimsoll.cel.functions` declares its functions in `FUNCTIONS`. Overload IDs are those of
cel-go and of the Kubernetes CEL libraries, because the cost models are defined per overload. If the checker
resolved a call to one overload, that one is called; otherwise the overloads are tried in order, by the
run-time types of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from plimsoll.cel.overloads.costs import ONE, CallCost
from plimsoll.cel.overloads.fragments import Handler
from plimsoll.cel.overloads.signatures import Param, parse_signature, type_params
from plimsoll.cel.types import CelType
from plimsoll.cel.values import Value

Call: TypeAlias = Callable[..., Value]


def unreachable(*args: Value) -> Value:
    """Placeholder for the implementation of an overload that is never called by its ID."""
    raise AssertionError("no value has the type of the first parameter, or a back end evaluates the call")


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature; the receiver of a member overload is the first argument.

    A `metered` implementation takes the evaluation before its arguments, to charge for work. An `early` call
    of two arguments stops at the first that fails; others evaluate both, which affects the cost of a failure.
    """

    id: str
    member: bool
    args: tuple[CelType, ...]
    result: CelType
    type_params: frozenset[str]
    params: tuple[Param, ...]
    call: Call = unreachable
    cost: CallCost = ONE
    metered: bool = False
    early: bool = False

    def accepts(self, args: tuple[Value, ...]) -> bool:
        if len(args) != len(self.params):
            return False
        return all(param.accepts(arg) for param, arg in zip(self.params, args, strict=True))


@dataclass(frozen=True, slots=True)
class Function:
    """Function by name.

    A `dynamic` implementation dispatches on types itself. `cost` applies to calls that the checker did not
    resolve to one overload; `handler` emits generated code.
    """

    name: str
    overloads: tuple[Overload, ...]
    dynamic: Call | None = None
    metered: bool = False
    cost: CallCost = ONE
    handler: Handler | None = None
    by_id: dict[str, Overload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_id.update((overload.id, overload) for overload in self.overloads)


def overload(text: str, call: Call = unreachable, cost: CallCost = ONE) -> Overload:
    """Declare an overload by its ID and signature: `list_slice list(T).(int, int) -> list(T)`."""
    id, signature = text.split(" ", 1)
    member, args, result = parse_signature(signature)
    params = tuple(Param.of(arg) for arg in args)
    return Overload(id, member, args, result, type_params(*args, result), params, call, cost)


def function(
    name: str,
    *overloads: Overload | str,
    call: Call = unreachable,
    dynamic: Call | None = None,
    metered: bool = False,
    early: bool = False,
    cost: CallCost = ONE,
    handler: Handler | None = None,
) -> Function:
    """Declare a function; `call` and `cost` are the defaults of its overloads."""
    complete = []
    for one in overloads:
        record = overload(one) if isinstance(one, str) else one
        changes: dict[str, Any] = {}
        if call is not unreachable and record.call is unreachable:
            changes["call"] = call
        if cost is not ONE and record.cost is ONE:
            changes["cost"] = cost
        if metered or early:
            changes |= {"metered": metered, "early": early}
        complete.append(replace(record, **changes) if changes else record)
    return Function(name, tuple(complete), dynamic, metered, cost, handler)


def join_libraries(libraries: Iterable[Iterable[Function]]) -> dict[str, Function]:
    """Return all functions by name; overloads of one name are in the order of their libraries."""
    joined: dict[str, Function] = {}
    for library in libraries:
        for item in library:
            known = joined.get(item.name)
            overloads = item.overloads if known is None else known.overloads + item.overloads
            joined[item.name] = replace(known or item, overloads=overloads, by_id={})
    return joined
