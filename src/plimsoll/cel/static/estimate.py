"""Admission cost estimate: the maximum cost of an expression at run time.

Computes the maximum size of every value and the maximum cost of every node of the checked tree; a value
without a known bound is unlimited. Implements cel-go v0.26's estimator with the size hints of the DRA
environment (`overloads/paths.py`; docs/spec/api.md, "CEL environment"), including its quirks, because tests
compare the numbers with those of Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.overloads.costs import LIST_COST, MAP_COST, STRUCT_COST, AstNode, CallEstimate
from plimsoll.cel.overloads.paths import NO_PATH, ValuePath
from plimsoll.cel.overloads.ranges import EMPTY_RANGE, ONE, UNKNOWN, ZERO, Range, fixed
from plimsoll.cel.static.checker import TypedExpr
from plimsoll.cel.syntax.ast import (
    CallExpr,
    Comprehension,
    Const,
    Expr,
    Ident,
    ListLit,
    MapLit,
    Select,
    StructLit,
)
from plimsoll.cel.syntax.trampoline import Task, run
from plimsoll.cel.types import CelType, TypeKind


def estimate(typed: TypedExpr) -> int:
    """Return the worst-case cost of a checked expression, at most 2**64 - 1."""
    return run(_Estimator(typed).cost(typed.root)).high


@dataclass(frozen=True, slots=True)
class _Entries:
    """The sizes of the keys and values of a container."""

    kind: TypeKind
    key: Range
    value: Range


def _merge(left: _Entries | None, right: _Entries | None) -> _Entries | None:
    if left is None or right is None:
        return None
    return _Entries(left.kind, left.key.union(right.key), left.value.union(right.value))


@dataclass(frozen=True, slots=True)
class _Local:
    """A variable of a comprehension or binding."""

    path: ValuePath
    size: Range | None
    entries: _Entries | None = None


_Costs: TypeAlias = "list[Range]"


class _Estimator:
    def __init__(self, typed: TypedExpr) -> None:
        self._types = typed.types
        self._references = typed.references
        self._paths: dict[int, ValuePath] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, expr: Expr) -> Task[Range]:
        match expr:
            case Const():
                return ZERO
            case Ident():
                local = self._local(expr)
                self._paths[expr.id] = local.path if local else ValuePath.of(expr.name)
                return ONE
            case Select():
                return (yield from self._select(expr))
            case CallExpr(function="dyn"):
                cost: Range = yield self.cost(expr.args[0])
                self._copy_sizes(expr, expr.args[0])
                return ONE.plus(cost)
            case CallExpr():
                return (yield from self._call(expr))
            case ListLit():
                return (yield from self._list(expr))
            case MapLit():
                return (yield from self._map(expr))
            case StructLit():
                total = fixed(STRUCT_COST)
                for field in expr.fields:
                    total = total.plus((yield self.cost(field.value)))
                return total
            case Comprehension():
                if _is_bind(expr):
                    return (yield from self._bind(expr))
                return (yield from self._fold(expr))

    # Properties of a node.

    def _local(self, expr: Expr) -> _Local | None:
        if not isinstance(expr, Ident):
            return None
        stack = self._locals.get(expr.name)
        return stack[-1] if stack else None

    def _path(self, expr: Expr) -> ValuePath:
        local = self._local(expr)
        return local.path if local else self._paths.get(expr.id, NO_PATH)

    def _size(self, expr: Expr) -> Range | None:
        known = self._sizes.get(expr.id)
        if known is not None:
            return known
        known = _literal_size(expr)
        if known is not None:
            return known
        known = self._path(expr).declared_size()
        if known is not None:
            self._sizes[expr.id] = known
            return known
        if _is_scalar(self._types[expr.id]):
            return ONE
        local = self._local(expr)
        return local.size if local else None

    def _some_size(self, expr: Expr) -> Range:
        size = self._size(expr)
        return UNKNOWN if size is None else size

    def _entry_sizes(self, expr: Expr) -> _Entries | None:
        known = self._entries.get(expr.id)
        if known is not None:
            return known
        local = self._local(expr)
        return local.entries if local else None

    def _set(self, expr: Expr, size: Range | None, entries: _Entries | None) -> None:
        if size is not None:
            self._sizes[expr.id] = size
        if entries is not None:
            self._entries[expr.id] = entries

    def _copy_sizes(self, to: Expr, source: Expr) -> None:
        self._set(to, self._size(source), self._entry_sizes(source))

    def _node(self, expr: Expr) -> AstNode:
        return AstNode(expr, self._types[expr.id], self._size(expr), self._path(expr))

    # Selections and literals.

    def _select(self, expr: Select) -> Task[Range]:
        total: Range = yield self.cost(expr.operand)
        if expr.test:
            return total
        if self._types[expr.operand.id].kind in (TypeKind.MAP, TypeKind.STRUCT):
            total = total.plus(ONE)
        self._paths[expr.id] = self._path(expr.operand).to(expr.field)
        return total

    def _list(self, expr: ListLit) -> Task[Range]:
        total = fixed(LIST_COST)
        items = EMPTY_RANGE if expr.items else ZERO
        for item in expr.items:
            total = total.plus((yield self.cost(item)))
            items = items.union(self._some_size(item))
        self._entries[expr.id] = _Entries(TypeKind.LIST, ONE, items)
        return total

    def _map(self, expr: MapLit) -> Task[Range]:
        total = fixed(MAP_COST)
        keys = values = EMPTY_RANGE if expr.entries else ZERO
        for entry in expr.entries:
            total = total.plus((yield self.cost(entry.key)))
            total = total.plus((yield self.cost(entry.value)))
            keys = keys.union(self._some_size(entry.key))
            values = values.union(self._some_size(entry.value))
        self._entries[expr.id] = _Entries(TypeKind.MAP, keys, values)
        return total

    # Comprehensions.

    def _bind(self, expr: Comprehension) -> Task[Range]:
        total: Range = yield self.cost(expr.range)
        total = total.plus((yield self.cost(expr.init)))
        self._push_value(expr.accumulator, expr.init)
        total = total.plus((yield self.cost(expr.result)))
        self._locals[expr.accumulator].pop()
        self._copy_sizes(expr, expr.result)
        return total

    def _fold(self, expr: Comprehension) -> Task[Range]:
        total: Range = yield self.cost(expr.range)
        total = total.plus((yield self.cost(expr.init)))
        self._push_value(expr.accumulator, expr.init)
        self._push_variables(expr)
        each: Range = yield self.cost(expr.condition)
        each = each.plus((yield self.cost(expr.step)))
        self._locals[expr.variable].pop()
        if expr.second is not None:
            self._locals[expr.second].pop()
        total = total.plus((yield self.cost(expr.result)))
        self._locals[expr.accumulator].pop()
        rounds = self._some_size(expr.range)
        if isinstance(expr.init, Const):
            self._set(expr, self._size(expr.init), None)
        elif isinstance(expr.init, ListLit | MapLit):
            self._set(expr, rounds, self._entry_sizes(expr.step))
        return total.plus(rounds.times(each))

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _push_value(self, name: str, init: Expr) -> None:
        self._push(name, _Local(self._path(init), self._size(init), self._entry_sizes(init)))

    def _push_variables(self, expr: Comprehension) -> None:
        entries = self._entry_sizes(expr.range)
        kind = entries.kind if entries else self._types[expr.range.id].kind
        key = entries.key if entries else None
        value = entries.value if entries else None
        is_list = kind is TypeKind.LIST
        path = self._path(expr.range)
        if expr.second is not None:
            self._push(expr.variable, _Local(path.to("@indices" if is_list else "@keys"), key))
            self._push(expr.second, _Local(path.to("@items" if is_list else "@values"), value))
        elif is_list:
            self._push(expr.variable, _Local(path.to("@items"), value))
        else:
            self._push(expr.variable, _Local(path.to("@keys"), key))

    # Calls.

    def _call(self, expr: CallExpr) -> Task[Range]:
        costs: _Costs = []
        args: list[AstNode] = []
        for arg in expr.args:
            costs.append((yield self.cost(arg)))
            args.append(self._node(arg))
        if expr.target is not None:
            costs.insert(0, (yield self.cost(expr.target)))
            args.insert(0, self._node(expr.target))
        cost, size = EMPTY_RANGE, None
        for overload in self._references[expr.id].overloads:
            found = self._overload(expr, overload, args, costs)
            cost = cost.union(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload in ("index_list", "index_map"):
                entries = self._entry_sizes(expr.args[0])
                size = entries.value if entries else None
                step = "@items" if overload == "index_list" else "@values"
                self._paths[expr.id] = self._path(expr.args[0]).to(step)
            if size is None:
                size = self._size(expr)
        self._set(expr, size, None)
        return cost

    def _overload(self, expr: CallExpr, overload: str, args: list[AstNode], costs: _Costs) -> CallEstimate:
        if overload in ("logical_and", "logical_or"):
            # The right side may be skipped.
            return CallEstimate(Range(costs[0].low, costs[0].plus(costs[1]).high))
        if overload == "conditional":
            merged = _merge(self._entry_sizes(args[1].expr), self._entry_sizes(args[2].expr))
            self._set(expr, None, merged)
            cost = costs[0].plus(costs[1].union(costs[2]))
            return CallEstimate(cost, args[1].known_size.union(args[2].known_size))
        if overload in ("add_string", "add_bytes", "add_list"):
            self._set(expr, None, _merge(self._entry_sizes(args[0].expr), self._entry_sizes(args[1].expr)))
        found = FUNCTIONS[expr.function].by_id[overload].cost.estimate(args)
        total = found.cost
        for one in costs:
            total = total.plus(one)
        return CallEstimate(total, found.size)


def _is_bind(expr: Comprehension) -> bool:
    return (
        isinstance(expr.range, ListLit)
        and not expr.range.items
        and isinstance(expr.condition, Const)
        and expr.condition.value is False
        and expr.accumulator != "__result__"
    )


def _literal_size(expr: Expr) -> Range | None:
    match expr:
        case Const(value=str() | bytes() as text):
            return fixed(len(text))
        case Const():
            return ONE
        case ListLit():
            return fixed(len(expr.items))
        case MapLit():
            return fixed(len(expr.entries))
    return None


def _is_scalar(one: CelType) -> bool:
    """Return whether every value of the type has size 1."""
    while one.kind is TypeKind.OPAQUE and one.name == "optional_type" and one.params:
        one = one.params[0]
    return one.kind in (
        TypeKind.BOOL,
        TypeKind.DOUBLE,
        TypeKind.DURATION,
        TypeKind.INT,
        TypeKind.TIMESTAMP,
        TypeKind.UINT,
    )
