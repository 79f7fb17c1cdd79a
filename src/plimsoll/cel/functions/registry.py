"""The shape of a function library: overloads, the types they take, and how a call picks one.

Each module of this package exports `FUNCTIONS`. Overload ids are the ones the declarations use, so a call
whose overload the checker settled goes straight to it; any other call tries the overloads in order, by the
types its arguments have at run time. A list matches an element type by its first element, as CEL erases the
rest. `early` marks overloads that stop at the first failing argument; the others evaluate every argument
first, which the cost of a failing call shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from plimsoll.api.quantity import Quantity
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import CIDR, IP, URL, Duration, NamedFormat, Optional, Semver, Timestamp, Value

Call: TypeAlias = Callable[..., Value]


def _first(items: Value) -> Value:
    return items[0]


class Param(NamedTuple):
    """Type of a parameter: a Python type (None for any) and, for a list, its element type."""

    kind: type | None
    item: type | None = None

    def accepts(self, value: Value) -> bool:
        if self.kind is None:
            return True
        if type(value) is not self.kind:
            return False
        return self.item is None or not value or type(_first(value)) is self.item


ANY = Param(None)
BOOL = Param(bool)
INT = Param(int)
UINT = Param(Uint)
DOUBLE = Param(float)
STRING = Param(str)
BYTES = Param(bytes)
DURATION = Param(Duration)
TIMESTAMP = Param(Timestamp)
OPTIONAL = Param(Optional)
QUANTITY = Param(Quantity)
SEMVER = Param(Semver)
ADDRESS = Param(IP)
NETWORK = Param(CIDR)
LINK = Param(URL)
FORMAT = Param(NamedFormat)
LIST = Param(list)


def list_of(item: Param) -> Param:
    return Param(list, item.kind)


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature. `metered` calls take the running evaluation, to pay for work, before their arguments."""

    id: str
    params: tuple[Param, ...]
    call: Call
    early: bool = False
    metered: bool = False

    def accepts(self, args: tuple[Value, ...]) -> bool:
        if len(args) != len(self.params):
            return False
        return all(param.accepts(arg) for param, arg in zip(self.params, args, strict=True))


@dataclass(frozen=True, slots=True)
class Function:
    """Function by name. A `dynamic` function has no overloads and dispatches on types itself."""

    name: str
    overloads: tuple[Overload, ...] = ()
    dynamic: Call | None = None
    metered: bool = False
    guarded: bool = True
    by_id: dict[str, Overload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_id.update((overload.id, overload) for overload in self.overloads)


def function(name: str, *overloads: Overload, guarded: bool = True) -> Function:
    return Function(name, overloads, guarded=guarded)


def dynamic(name: str, call: Call, metered: bool = False) -> Function:
    return Function(name, (), call, metered)


def join_libraries(libraries: Iterable[Iterable[Function]]) -> dict[str, Function]:
    """Return all functions by name; overloads of one name are in the order of their libraries."""
    joined: dict[str, Function] = {}
    for library in libraries:
        for item in library:
            known = joined.get(item.name)
            if known is None:
                joined[item.name] = item
            else:
                joined[item.name] = Function(
                    item.name,
                    known.overloads + item.overloads,
                    known.dynamic or item.dynamic,
                    known.metered or item.metered,
                    known.guarded or item.guarded,
                )
    return joined
