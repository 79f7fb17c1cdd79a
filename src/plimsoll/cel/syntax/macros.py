"""Macros of the DRA environment: `has`, `all`, `exists`, `exists_one`, `map`, `filter`, `cel.bind`, `optMap`,
`optFlatMap`, the two-variable macros and `sortBy`.

A macro is identified by name, number of arguments and whether it has a receiver; a call that matches none
stays a call. Implements the expansions of cel-go v0.26, because types and costs are defined on their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.cel.syntax.ast import (
    CallExpr,
    Comprehension,
    Const,
    Expr,
    Ident,
    ListLit,
    Literal,
    MapEntry,
    MapLit,
    Select,
    StructField,
    StructLit,
)
from plimsoll.cel.syntax.trampoline import Task, run
from plimsoll.errors import CelCompileError

# optMap and optFlatMap copy their target, so each one in a chain doubles the tree.
# DIFF: cel-go has no such limit and runs out of memory; see test_tree_size_is_bounded.
MAX_NODES = 50_000

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
_UNUSED = "#unused"


class NodeIds:
    """Generator of node IDs; raises CelCompileError beyond MAX_NODES."""

    def __init__(self) -> None:
        self._last = 0

    def fresh(self, pos: int) -> int:
        self._last += 1
        if self._last > MAX_NODES:
            raise CelCompileError(f"expression expands to more than {MAX_NODES} nodes", pos)
        return self._last


@dataclass(frozen=True, slots=True)
class _NodeFactory:
    """Factory for the nodes of one expansion, all at the position of the macro."""

    nodes: NodeIds
    pos: int

    def const(self, value: Literal) -> Const:
        return Const(self.nodes.fresh(self.pos), self.pos, value)

    def ident(self, name: str) -> Ident:
        return Ident(self.nodes.fresh(self.pos), self.pos, name)

    def accumulated(self) -> Ident:
        return self.ident(ACCUMULATOR)

    def call(self, function: str, *args: Expr) -> CallExpr:
        return CallExpr(self.nodes.fresh(self.pos), self.pos, function, args)

    def method(self, function: str, target: Expr, *args: Expr) -> CallExpr:
        return CallExpr(self.nodes.fresh(self.pos), self.pos, function, args, target)

    def list(self, *items: Expr) -> ListLit:
        return ListLit(self.nodes.fresh(self.pos), self.pos, items)

    def map(self) -> MapLit:
        return MapLit(self.nodes.fresh(self.pos), self.pos, ())

    def fold(
        self,
        macro: str,
        over: Expr,
        variables: tuple[str, str | None],
        accumulator: str,
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> Comprehension:
        number = self.nodes.fresh(self.pos)
        first, second = variables
        return Comprehension(
            number, self.pos, first, second, over, accumulator, init, condition, step, result, macro
        )

    def bind(self, macro: str, name: str, init: Expr, result: Expr) -> Comprehension:
        """Expand `cel.bind` to a fold over an empty list whose accumulator is the bound value."""
        step = self.ident(name)
        return self.fold(macro, self.list(), (_UNUSED, None), name, init, self.const(False), step, result)

    def copy(self, expr: Expr) -> Expr:
        return run(_copy(self.nodes, expr))


def expand(
    nodes: NodeIds, pos: int, function: str, target: Expr | None, args: tuple[Expr, ...]
) -> Expr | None:
    """Expand a macro call, or return None if the call is not one."""
    macro = _MACROS.get((function, len(args), target is not None))
    if macro is None:
        return None
    return macro(_NodeFactory(nodes, pos), function, target, args)


def _has(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    (field,) = args
    if not isinstance(field, Select):
        raise CelCompileError("has() needs a field selection, such as has(a.b)", field.pos)
    return Select(make.nodes.fresh(make.pos), make.pos, field.operand, field.field, test=True)


def _name(arg: Expr, what: str) -> str:
    if not isinstance(arg, Ident):
        raise CelCompileError(f"{what} must be a simple name", arg.pos)
    return arg.name


def _variables(args: tuple[Expr, ...], count: int) -> tuple[str, str | None]:
    names = [_name(arg, "iteration variable") for arg in args[:count]]
    for name, arg in zip(names, args, strict=False):
        if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
            raise CelCompileError(f"iteration variable must not be called {name}", arg.pos)
    if count == 1:
        return names[0], None
    if names[0] == names[1]:
        raise CelCompileError(f"duplicate iteration variable {names[0]}", args[1].pos)
    return names[0], names[1]


def _quantifier(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    variables = _variables(args, len(args) - 1)
    predicate = args[-1]
    init: Expr
    condition: Expr
    step: Expr
    result: Expr
    if function == "all":
        init = make.const(True)
        condition = make.call("@not_strictly_false", make.accumulated())
        step = make.call("_&&_", make.accumulated(), predicate)
        result = make.accumulated()
    elif function == "exists":
        init = make.const(False)
        condition = make.call("@not_strictly_false", make.call("!_", make.accumulated()))
        step = make.call("_||_", make.accumulated(), predicate)
        result = make.accumulated()
    else:
        init = make.const(0)
        condition = make.const(True)
        one_more = make.call("_+_", make.accumulated(), make.const(1))
        step = make.call("_?_:_", predicate, one_more, make.accumulated())
        result = make.call("_==_", make.accumulated(), make.const(1))
    return make.fold(function, target, variables, ACCUMULATOR, init, condition, step, result)


def _to_list(
    make: _NodeFactory,
    macro: str,
    over: Expr,
    variables: tuple[str, str | None],
    keep: Expr | None,
    item: Expr,
) -> Expr:
    init = make.list()
    condition = make.const(True)
    step: Expr = make.call("_+_", make.accumulated(), make.list(item))
    if keep is not None:
        step = make.call("_?_:_", keep, step, make.accumulated())
    return make.fold(macro, over, variables, ACCUMULATOR, init, condition, step, make.accumulated())


def _map(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    keep = args[1] if len(args) == 3 else None
    return _to_list(make, function, target, _variables(args, 1), keep, args[-1])


def _filter(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    return _to_list(make, function, target, _variables(args, 1), args[1], args[0])


def _transform_list(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    keep = args[2] if len(args) == 4 else None
    return _to_list(make, function, target, _variables(args, 2), keep, args[-1])


def _transform_map(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    variables = _variables(args, 2)
    entry: tuple[Expr, ...] = (args[-1],)
    if function == "transformMap":
        entry = (make.ident(variables[0]), args[-1])
    step: Expr = make.call("cel.@mapInsert", make.accumulated(), *entry)
    if len(args) == 4:
        step = make.call("_?_:_", args[2], step, make.accumulated())
    init, condition = make.map(), make.const(True)
    return make.fold(function, target, variables, ACCUMULATOR, init, condition, step, make.accumulated())


def _bind(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _name(args[0], "cel.bind() variable")
    return make.bind("cel.bind", name, args[1], args[2])


def _opt_map(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    name = _name(args[0], f"{function}() variable")
    value = make.method("value", make.copy(target))
    mapped: Expr = make.bind(function, name, value, args[1])
    if function == "optMap":
        mapped = make.call("optional.of", mapped)
    return make.call("_?_:_", make.method("hasValue", target), mapped, make.call("optional.none"))


def _sort_by(make: _NodeFactory, function: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
    assert target is not None
    if not isinstance(target, ListLit | Select | Ident | Comprehension | CallExpr):
        raise CelCompileError("sortBy() needs a list, name, call or selection before the dot", target.pos)
    hidden = "@__sortBy_input__"
    keys = _to_list(make, "map", make.ident(hidden), _variables(args, 1), None, args[1])
    ordered = make.method("@sortByAssociatedKeys", make.ident(hidden), keys)
    return make.bind(function, hidden, target, ordered)


_Macro: TypeAlias = "Callable[[_NodeFactory, str, Expr | None, tuple[Expr, ...]], Expr | None]"
_MACROS: dict[tuple[str, int, bool], _Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier,
    ("all", 3, True): _quantifier,
    ("exists", 2, True): _quantifier,
    ("exists", 3, True): _quantifier,
    ("exists_one", 2, True): _quantifier,
    ("exists_one", 3, True): _quantifier,
    ("existsOne", 3, True): _quantifier,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map,
    ("optFlatMap", 2, True): _opt_map,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map,
    ("transformMapEntry", 4, True): _transform_map,
    ("sortBy", 2, True): _sort_by,
}


def _copy(nodes: NodeIds, expr: Expr) -> Task[Expr]:
    """Copy a tree with new node IDs."""
    number, pos = nodes.fresh(expr.pos), expr.pos
    match expr:
        case Const():
            return Const(number, pos, expr.value)
        case Ident():
            return Ident(number, pos, expr.name)
        case Select():
            operand = yield _copy(nodes, expr.operand)
            return Select(number, pos, operand, expr.field, expr.test)
        case CallExpr():
            args = []
            for arg in expr.args:
                args.append((yield _copy(nodes, arg)))
            target = None if expr.target is None else (yield _copy(nodes, expr.target))
            return CallExpr(number, pos, expr.function, tuple(args), target)
        case ListLit():
            items = []
            for item in expr.items:
                items.append((yield _copy(nodes, item)))
            return ListLit(number, pos, tuple(items), expr.optional)
        case MapLit():
            entries = []
            for entry in expr.entries:
                key = yield _copy(nodes, entry.key)
                value = yield _copy(nodes, entry.value)
                entries.append(MapEntry(nodes.fresh(pos), key, value, entry.optional))
            return MapLit(number, pos, tuple(entries))
        case StructLit():
            fields = []
            for field in expr.fields:
                value = yield _copy(nodes, field.value)
                fields.append(StructField(nodes.fresh(pos), field.name, value, field.optional, field.pos))
            return StructLit(number, pos, expr.name, tuple(fields))
        case Comprehension():
            over = yield _copy(nodes, expr.range)
            init = yield _copy(nodes, expr.init)
            condition = yield _copy(nodes, expr.condition)
            step = yield _copy(nodes, expr.step)
            result = yield _copy(nodes, expr.result)
            return Comprehension(
                number,
                pos,
                expr.variable,
                expr.second,
                over,
                expr.accumulator,
                init,
                condition,
                step,
                result,
                expr.macro,
            )
