"""Type checker for the expanded tree.

Assigns a type to every node and a reference to every name and call, and rewrites the tree so that names and
functions are fully resolved (`a.b` becomes one name if `a.b` is declared; a call on a namespace becomes a
global call). Implements cel-go v0.26's checker; the rules that Kubernetes adds are in `validators`. Returns a
result or raises one CelCompileError for the first error.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.cel import types
from plimsoll.cel.overloads.overload import Overload
from plimsoll.cel.static.assignability import TypeBindings, most_general
from plimsoll.cel.static.environment import Declarations
from plimsoll.cel.syntax.ast import (
    CallExpr,
    Comprehension,
    Const,
    Expr,
    Ident,
    ListLit,
    MapEntry,
    MapLit,
    Select,
    StructField,
    StructLit,
    Uint,
)
from plimsoll.cel.syntax.trampoline import Task, run
from plimsoll.cel.types import CelType, TypeKind, is_dyn, unwrap_optional
from plimsoll.errors import CelCompileError


@dataclass(frozen=True, slots=True)
class ReferenceInfo:
    """Reference of a node: a declared name, or the overloads a call may resolve to."""

    name: str = ""
    overloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TypedExpr:
    """A resolved tree, with types and references by node id."""

    root: Expr
    types: dict[int, CelType]
    references: dict[int, ReferenceInfo]


def resolve(root: Expr, environment: Declarations) -> TypedExpr:
    """Check `root`, or raise CelCompileError."""
    checker = _Checker(environment)
    root = run(checker.check(root))
    if checker.errors:
        first, *others = sorted(checker.errors, key=lambda error: error.position)
        raise CelCompileError(str(first), first.position, tuple(others))
    final = {number: checker.bindings.substitute(one, to_dyn=True) for number, one in checker.types.items()}
    return TypedExpr(root, final, checker.references)


_LITERAL_TYPES: dict[type, CelType] = {
    bool: types.BOOL,
    bytes: types.BYTES,
    float: types.DOUBLE,
    int: types.INT,
    type(None): types.NULL,
    str: types.STRING,
    Uint: types.UINT,
}


def qualified_name(expr: Expr) -> str | None:
    """Return `a.b.c` for a chain of plain selections on a name, else None."""
    fields: list[str] = []
    while isinstance(expr, Select) and not expr.test:
        fields.append(expr.field)
        expr = expr.operand
    if not isinstance(expr, Ident):
        return None
    return ".".join((expr.name, *reversed(fields)))


class _Checker:
    def __init__(self, environment: Declarations) -> None:
        self._environment = environment
        self._functions = environment.functions
        self._fields = environment.fields
        self._scopes: list[dict[str, CelType]] = []
        self.bindings = TypeBindings()
        self.types: dict[int, CelType] = {}
        self.references: dict[int, ReferenceInfo] = {}
        self.errors: list[CelCompileError] = []

    def _fail(self, expr: Expr, error: CelCompileError) -> Expr:
        """Record an error; the check goes on with an expression of unknown type."""
        self.errors.append(error)
        self.types[expr.id] = types.ERROR
        self.references[expr.id] = ReferenceInfo()
        return expr

    def check(self, expr: Expr) -> Task[Expr]:
        match expr:
            case Const():
                self.types[expr.id] = _LITERAL_TYPES[type(expr.value)]
                return expr
            case Ident():
                return self._ident(expr)
            case Select():
                return (yield from self._select(expr))
            case CallExpr():
                if expr.function == "_?._":
                    return (yield from self._optional_select(expr))
                return (yield from self._call(expr))
            case ListLit():
                return (yield from self._list(expr))
            case MapLit():
                return (yield from self._map(expr))
            case StructLit():
                return (yield from self._struct(expr))
            case Comprehension():
                return (yield from self._fold(expr))

    # Names.

    def _look_up(self, name: str) -> tuple[str, CelType] | None:
        name = name.removeprefix(".")
        for scope in reversed(self._scopes):
            found = scope.get(name)
            if found is not None:
                return name, found
        declared = self._environment.variable(name)
        return None if declared is None else (name, declared)

    def _ident(self, expr: Ident) -> Expr:
        found = self._look_up(expr.name)
        if found is None:
            return self._fail(expr, _undeclared(expr.name, expr.pos))
        return self._resolved(expr, *found)

    def _resolved(self, expr: Expr, name: str, declared: CelType) -> Expr:
        self.types[expr.id] = declared
        self.references[expr.id] = ReferenceInfo(name=name)
        if isinstance(expr, Ident) and expr.name == name:
            return expr
        return Ident(expr.id, expr.pos, name)

    # Selections.

    def _select(self, expr: Select) -> Task[Expr]:
        name = qualified_name(expr)
        if name is not None:
            found = self._look_up(name)
            if found is not None:
                return self._resolved(expr, *found)
        operand = yield self.check(expr.operand)
        result = self._field_type(expr, operand, expr.field)
        if expr.test:
            result = types.BOOL
        self.types[expr.id] = self.bindings.substitute(result)
        return Select(expr.id, expr.pos, operand, expr.field, expr.test)

    def _optional_select(self, expr: CallExpr) -> Task[Expr]:
        operand = yield self.check(expr.args[0])
        field = expr.args[1]
        assert isinstance(field, Const)
        assert isinstance(field.value, str)
        result = self._field_type(expr, operand, field.value, optional=True)
        self.types[expr.id] = self.bindings.substitute(result)
        self.types[field.id] = types.STRING
        self.references[expr.id] = ReferenceInfo(overloads=("select_optional_field",))
        return CallExpr(expr.id, expr.pos, expr.function, (operand, field))

    def _field_type(self, expr: Expr, operand: Expr, field: str, optional: bool = False) -> CelType:
        target, from_optional = unwrap_optional(self.bindings.substitute(self.types[operand.id]))
        match target.kind:
            case TypeKind.MAP:
                result = target.params[1]
            case TypeKind.STRUCT:
                result = self._message_field(expr.pos, target.name, field)
            case TypeKind.PARAM:
                # Nothing is known about the operand: it is dynamic from here on.
                self.bindings.assignable(types.DYN, target)
                result = types.DYN
            case TypeKind.DYN | TypeKind.ANY | TypeKind.ERROR:
                result = types.DYN
            case _:
                self.errors.append(
                    CelCompileError(f"type '{target}' does not support field selection", expr.pos)
                )
                return types.ERROR
        return types.optional_of(result) if optional or from_optional else result

    def _message_field(self, pos: int, message: str, field: str) -> CelType:
        fields = self._fields.get(message)
        if fields is None:
            self.errors.append(CelCompileError(f"unexpected failed resolution of '{message}'", pos))
            return types.ERROR
        found = fields.get(field)
        if found is None:
            self.errors.append(CelCompileError(f"undefined field '{field}'", pos))
            return types.ERROR
        return found

    # Calls.

    def _call(self, expr: CallExpr) -> Task[Expr]:
        args = []
        for arg in expr.args:
            args.append((yield self.check(arg)))
        function, target = expr.function, expr.target
        if target is not None:
            prefix = qualified_name(target)
            qualified = None if prefix is None else f"{prefix}.{function}".removeprefix(".")
            if qualified is not None and qualified in self._functions:
                function, target = qualified, None
            else:
                target = yield self.check(target)
        else:
            function = function.removeprefix(".")
        overloads = self._functions.get(function)
        result = CallExpr(expr.id, expr.pos, function, tuple(args), target)
        if overloads is None:
            return self._fail(result, _undeclared(function, expr.pos))
        self._resolve_overload(result, overloads)
        return result

    def _resolve_overload(self, call: CallExpr, overloads: tuple[Overload, ...]) -> None:
        given = [self.types[arg.id] for arg in call.args]
        if call.function in ("_&&_", "_||_"):
            self._logical(call, overloads[0], given)
            return
        if call.target is not None:
            given.insert(0, self.types[call.target.id])
        member = call.target is not None
        matched: list[str] = []
        result: CelType | None = None
        for overload in overloads:
            if overload.member is not member or not _may_accept(overload, given):
                continue
            wanted, produced = self._instantiate(overload)
            if not self.bindings.all_assignable(given, wanted):
                continue
            matched.append(overload.id)
            # The first match decides; others that disagree make the result dynamic.
            produced = self.bindings.substitute(produced)
            if result is None:
                result = produced
            elif not is_dyn(result) and produced != result:
                result = types.DYN
        if result is None:
            self._fail(call, self._no_overload(call, given))
            return
        self.types[call.id] = result
        self.references[call.id] = ReferenceInfo(overloads=tuple(matched))

    def _logical(self, call: CallExpr, overload: Overload, given: list[CelType]) -> None:
        for arg, one in zip(call.args, given, strict=True):
            if not self.bindings.assignable(one, types.BOOL):
                self.errors.append(_mismatch(types.BOOL, one, arg.pos))
        self.types[call.id] = types.BOOL
        self.references[call.id] = ReferenceInfo(overloads=(overload.id,))

    def _instantiate(self, overload: Overload) -> tuple[tuple[CelType, ...], CelType]:
        """Return the overload with fresh type variables for its parameters."""
        if not overload.type_params:
            return overload.args, overload.result
        fresh = {name: self.bindings.fresh() for name in overload.type_params}
        return tuple([_rename(one, fresh) for one in overload.args]), _rename(overload.result, fresh)

    def _no_overload(self, call: CallExpr, given: list[CelType]) -> CelCompileError:
        shown = [str(self.bindings.substitute(one, to_dyn=True)) for one in given]
        receiver = f"{shown.pop(0)}." if call.target is not None else ""
        return CelCompileError(
            f"found no matching overload for '{call.function}' applied to '{receiver}({', '.join(shown)})'",
            call.pos,
        )

    # Literals.

    def _list(self, expr: ListLit) -> Task[Expr]:
        items = []
        joined: CelType | None = None
        for index, item in enumerate(expr.items):
            item = yield self.check(item)
            items.append(item)
            joined = self._join(joined, self._element_type(item, index in expr.optional))
        self.types[expr.id] = types.list_of(joined or self.bindings.fresh())
        return ListLit(expr.id, expr.pos, tuple(items), expr.optional)

    def _map(self, expr: MapLit) -> Task[Expr]:
        entries = []
        keys: CelType | None = None
        values: CelType | None = None
        for entry in expr.entries:
            key = yield self.check(entry.key)
            keys = self._join(keys, self.types[key.id])
            value = yield self.check(entry.value)
            values = self._join(values, self._element_type(value, entry.optional))
            entries.append(MapEntry(entry.id, key, value, entry.optional))
        self.types[expr.id] = types.map_of(keys or self.bindings.fresh(), values or self.bindings.fresh())
        return MapLit(expr.id, expr.pos, tuple(entries))

    def _element_type(self, expr: Expr, optional: bool) -> CelType:
        one = self.types[expr.id]
        if not optional:
            return one
        inner, was_optional = unwrap_optional(one)
        if not was_optional and not is_dyn(inner):
            raise CelCompileError(f"expected an optional value but found {one}", expr.pos)
        return inner

    def _join(self, before: CelType | None, current: CelType) -> CelType:
        if before is None:
            return current
        return most_general(before, current) if self.bindings.assignable(before, current) else types.DYN

    def _struct(self, expr: StructLit) -> Task[Expr]:
        found = self._look_up(expr.name)
        if found is None:
            return self._fail(expr, _undeclared(expr.name, expr.pos))
        name, declared = found
        if declared.kind is not TypeKind.TYPE:
            return self._fail(expr, CelCompileError(f"'{expr.name}' is not a type", expr.pos))
        made = declared.params[0] if declared.params else types.TYPE
        message = types.message_name(made)
        if message is None:
            return self._fail(expr, CelCompileError(f"'{made}' is not a message type", expr.pos))
        self.types[expr.id] = made
        self.references[expr.id] = ReferenceInfo(name=name)
        fields = []
        for field in expr.fields:
            value = yield self.check(field.value)
            wanted = self._message_field(expr.pos, message, field.name)
            given = self._element_type(value, field.optional)
            if not self.bindings.assignable(wanted, given):
                self.errors.append(
                    CelCompileError(
                        f"expected type of field '{field.name}' is '{wanted}' but provided type is '{given}'",
                        field.pos,
                    )
                )
            fields.append(StructField(field.id, field.name, value, field.optional, field.pos))
        return StructLit(expr.id, expr.pos, name, tuple(fields))

    # Comprehensions.

    def _fold(self, expr: Comprehension) -> Task[Expr]:
        over = yield self.check(expr.range)
        init = yield self.check(expr.init)
        accumulated = self.types[init.id]
        first, second = self._iterated(over, expr.second is not None)
        self._scopes.append({expr.accumulator: accumulated})
        scope = {expr.variable: first}
        if expr.second is not None:
            scope[expr.second] = second
        self._scopes.append(scope)
        condition = yield self.check(expr.condition)
        self._require_type(condition, types.BOOL)
        step = yield self.check(expr.step)
        self._require_type(step, accumulated)
        self._scopes.pop()
        result = yield self.check(expr.result)
        self._scopes.pop()
        self.types[expr.id] = self.bindings.substitute(self.types[result.id])
        return Comprehension(
            expr.id,
            expr.pos,
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

    def _iterated(self, over: Expr, pairs: bool) -> tuple[CelType, CelType]:
        """Return the types of the one or two iteration variables."""
        iterated = self.bindings.substitute(self.types[over.id])
        match iterated.kind:
            case TypeKind.LIST:
                return (types.INT, iterated.params[0]) if pairs else (iterated.params[0], types.DYN)
            case TypeKind.MAP:
                return iterated.params[0], iterated.params[1]
            case TypeKind.DYN | TypeKind.ERROR | TypeKind.PARAM:
                self.bindings.assignable(types.DYN, iterated)
                return types.DYN, types.DYN
        self.errors.append(
            CelCompileError(
                f"expression of type '{iterated}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
                over.pos,
            )
        )
        return types.ERROR, types.ERROR

    def _require_type(self, expr: Expr, wanted: CelType) -> None:
        if not self.bindings.assignable(wanted, self.types[expr.id]):
            self.errors.append(_mismatch(wanted, self.types[expr.id], expr.pos))


def _undeclared(name: str, pos: int) -> CelCompileError:
    return CelCompileError(f"undeclared reference to '{name}' (in container '')", pos)


def _mismatch(wanted: CelType, found: CelType, pos: int) -> CelCompileError:
    return CelCompileError(f"expected type '{wanted}' but found '{found}'", pos)


def _may_accept(overload: Overload, given: list[CelType]) -> bool:
    """Check the number and kinds of arguments, which rules out most overloads without instantiating them."""
    if len(overload.args) != len(given):
        return False
    for wanted, one in zip(overload.args, given, strict=True):
        if one.kind is not wanted.kind and one.kind not in _FLEXIBLE and wanted.kind not in _FLEXIBLE:
            return False
    return True


_FLEXIBLE = frozenset({TypeKind.ANY, TypeKind.DYN, TypeKind.ERROR, TypeKind.NULL, TypeKind.PARAM})


def _rename(one: CelType, names: dict[str, CelType]) -> CelType:
    if one.kind is TypeKind.PARAM:
        return names[one.name]
    if not one.open:
        return one
    return one.with_params(tuple([_rename(inner, names) for inner in one.params]))
