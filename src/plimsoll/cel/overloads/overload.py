"""The record of a CEL function: everything the checker, the cost estimate and the two back ends know of it.

Each module of `plimsoll.cel.functions` declares its functions in `FUNCTIONS`. Overload ids are those of
cel-go and of the Kubernetes CEL libraries, because the cost models are defined per overload. A call whose
overload the checker settled goes straight to it; any other call tries the overloads in order, by the types
its arguments have at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from plimsoll.cel.overloads.costs import ONE, CallCost
from plimsoll.cel.overloads.fragments import Handler
from plimsoll.cel.overloads.signatures import Param, parse_signature, type_params
from plimsoll.cel.types import CelType
from plimsoll.cel.values import Value

Call: TypeAlias = Callable[..., Value]


def unreachable(*args: Value) -> Value:
    """Stand for the implementation of an overload that is never called by its id."""
    raise AssertionError("no value has the type of the first parameter, or a back end evaluates the call")


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature; the receiver of a member overload is the first argument.

    `metered` calls take the running evaluation, to pay for work, before their arguments. An `early` call of
    two arguments stops at the first that fails; others evaluate both, which the cost of a failing call shows.
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

    A `dynamic` implementation dispatches on types itself. `cost` is that of a call whose overload the checker
    left open; `handler` writes generated code.
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
    """Declare an overload by its id and signature: `list_slice list(T).(int, int) -> list(T)`."""
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
    """Declare a function; its overloads get what they do not define themselves."""
    records = (overload(one) if isinstance(one, str) else one for one in overloads)
    complete = tuple(
        replace(
            record,
            call=call if record.call is unreachable else record.call,
            cost=cost if record.cost is ONE else record.cost,
            metered=metered,
            early=early,
        )
        for record in records
    )
    return Function(name, complete, dynamic, metered, cost, handler)


def join_libraries(libraries: Iterable[Iterable[Function]]) -> dict[str, Function]:
    """Return all functions by name; overloads of one name are in the order of their libraries."""
    joined: dict[str, Function] = {}
    for library in libraries:
        for item in library:
            known = joined.get(item.name)
            overloads = item.overloads if known is None else known.overloads + item.overloads
            joined[item.name] = replace(known or item, overloads=overloads, by_id={})
    return joined
