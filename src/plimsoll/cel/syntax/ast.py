"""Nodes of a CEL expression, in the expanded form that CEL defines.

The parser, the checker, the cost model and both back ends share these types. Macros are already expanded
(`all`, `exists`, `map`, `cel.bind`, ... become `Comprehension`), because types and costs are defined on the
expanded tree; `Comprehension.macro` names the original macro, for back ends that implement it directly. Nodes
are plain data; `id` is unique within a tree, `pos` is the offset in the source text.

Operators are `CallExpr`s under cel-go's names: `_+_ _-_ _*_ _/_ _%_ -_ !_ _==_ _!=_ _<_ _<=_ _>_ _>=_ _&&_
_||_ _?_:_ _[_] _[?_] _?._ @in @not_strictly_false`. `x?.f` is `CallExpr("_?._", (x, Const("f")))`, `x[?i]` is
`CallExpr("_[?_]", (x, i))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Uint:
    """An unsigned literal or value; uint and int are different types in CEL."""

    value: int


Literal: TypeAlias = "bool | int | Uint | float | str | bytes | None"


@dataclass(frozen=True, slots=True)
class Const:
    id: int
    pos: int
    value: Literal


@dataclass(frozen=True, slots=True)
class Ident:
    id: int
    pos: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or `has(operand.field)` when `test` is set."""

    id: int
    pos: int
    operand: Expr
    field: str
    test: bool = False


@dataclass(frozen=True, slots=True)
class CallExpr:
    """A function call; `target` is the receiver of a method call."""

    id: int
    pos: int
    function: str
    args: tuple[Expr, ...]
    target: Expr | None = None


@dataclass(frozen=True, slots=True)
class ListLit:
    """`[a, ?b]`; `optional` is the set of indices written with a question mark."""

    id: int
    pos: int
    items: tuple[Expr, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One `key: value` of a map literal, or `?key: value`."""

    id: int
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MapLit:
    id: int
    pos: int
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True)
class StructField:
    """One `name: value` of a message literal."""

    id: int
    name: str
    value: Expr
    optional: bool = False
    pos: int = 0


@dataclass(frozen=True, slots=True)
class StructLit:
    """`Name{field: value}`; the DRA environment has no message types except the well-known ones."""

    id: int
    pos: int
    name: str
    fields: tuple[StructField, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A fold: for each item of `range`, while `condition`, `accumulator` = `step`; the value is `result`.

    `second` is the second iteration variable of a two-variable macro, or None. `macro` is the name of the
    original macro (`all`, `exists`, `exists_one`, `map`, `filter`, `cel.bind`, `existsOne`, `transformList`,
    `transformMap`, `transformMapEntry`, `optMap`, `optFlatMap`, `sortBy`).
    """

    id: int
    pos: int
    variable: str
    second: str | None
    range: Expr
    accumulator: str
    init: Expr
    condition: Expr
    step: Expr
    result: Expr
    macro: str = ""


Expr: TypeAlias = "Const | Ident | Select | CallExpr | ListLit | MapLit | StructLit | Comprehension"


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions directly below a node, receiver first, in source order."""
    match expr:
        case Const() | Ident():
            return ()
        case Select():
            return (expr.operand,)
        case CallExpr():
            return expr.args if expr.target is None else (expr.target, *expr.args)
        case ListLit():
            return expr.items
        case MapLit():
            return tuple(part for entry in expr.entries for part in (entry.key, entry.value))
        case StructLit():
            return tuple(field.value for field in expr.fields)
        case Comprehension():
            return (expr.range, expr.init, expr.condition, expr.step, expr.result)


def descend(root: Expr) -> list[Expr]:
    """Return every node of a tree, parents before children."""
    nodes = [root]
    for node in nodes:
        nodes.extend(children(node))
    return nodes
