"""Constant folding and the compile errors it finds.

Evaluates literals, lists and maps of constants, type names, and type conversions of constants. A failing
conversion, an invalid constant pattern, a constant index of an invalid type and a variable that is a type
are compile errors, as in Kubernetes.
"""

from __future__ import annotations

from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.functions.conversions import CONVERSIONS
from plimsoll.cel.functions.regex import PATTERN_FUNCTIONS, compile_pattern
from plimsoll.cel.static.checker import TypedExpr
from plimsoll.cel.static.environment import CONSTANTS, RUNTIME_TYPES
from plimsoll.cel.syntax.ast import CallExpr, Const, Expr, Ident, ListLit, MapLit, Uint, descend
from plimsoll.cel.types import TypeKind, is_mutation_type
from plimsoll.cel.values import TypeValue, Value, no_overload
from plimsoll.errors import CelCompileError, CelRuntimeError

_NOT_CONSTANT = object()
# A constant whose evaluation fails, which is an error only if a conversion uses it.
_FAILED = object()


def fold(typed: TypedExpr) -> None:
    """Raise CelCompileError if an evaluation at compile time fails."""
    folder = _ConstantFolder(typed)
    for expr in reversed(descend(typed.root)):
        value = folder.value(expr)
        if value is not _NOT_CONSTANT:
            folder.constants[expr.id] = value


class _ConstantFolder:
    def __init__(self, typed: TypedExpr) -> None:
        self._typed = typed
        self.constants: dict[int, Value] = {}

    def _known(self, expr: Expr) -> Value:
        return self.constants.get(expr.id, _NOT_CONSTANT)

    def value(self, expr: Expr) -> Value:
        """Return the constant value of a node after its children, or _NOT_CONSTANT."""
        match expr:
            case Const():
                return expr.value
            case Ident():
                return self._name(expr)
            case ListLit():
                return self._list(expr)
            case MapLit():
                parts = [self._known(part) for entry in expr.entries for part in (entry.key, entry.value)]
                # The content of a constant map does not matter.
                return _joined(parts, {})
            case CallExpr():
                return self._call(expr)
        return _NOT_CONSTANT

    def _name(self, expr: Ident) -> Value:
        if self._typed.types[expr.id].kind is TypeKind.TYPE:
            known = RUNTIME_TYPES.get(expr.name)
            if known is None and is_mutation_type(expr.name):
                return TypeValue(expr.name)
            if known is None:
                raise CelCompileError(f"{expr.name!r} is a type and cannot be used as a value", expr.pos)
            return TypeValue(known.name)
        return CONSTANTS.get(expr.name, _NOT_CONSTANT)

    def _list(self, expr: ListLit) -> Value:
        items = [self._known(item) for item in expr.items]
        # No constant is an optional value, so a constant optional item always fails.
        return _joined(items, _FAILED if expr.optional else items)

    def _call(self, expr: CallExpr) -> Value:
        args = [self._known(arg) for arg in expr.args]
        if expr.target is not None:
            args.insert(0, self._known(expr.target))
        if expr.function in CONVERSIONS and len(args) == 1 and args[0] is not _NOT_CONSTANT:
            return _convert(expr, args[0])
        if expr.function in PATTERN_FUNCTIONS and isinstance(args[1], str):
            _compile(expr, args[1])
        elif expr.function in ("_[_]", "_[?_]") and not isinstance(args[1], str | int | Uint | float):
            if args[1] is not _NOT_CONSTANT:
                raise CelCompileError("a value of this type cannot be an index", expr.args[1].pos)
        elif self._typed.references[expr.id].overloads == ("in_list",) and args[1] == []:
            return False
        return _NOT_CONSTANT


def _joined(parts: list[Value], whole: Value) -> Value:
    """Return the value of a container of these parts."""
    if any(part is _NOT_CONSTANT for part in parts):
        return _NOT_CONSTANT
    return _FAILED if any(part is _FAILED for part in parts) else whole


def _convert(expr: CallExpr, value: Value) -> Value:
    function = FUNCTIONS[expr.function]
    try:
        if value is _FAILED:
            raise CelRuntimeError("its argument fails")
        if function.dynamic is not None:
            return function.dynamic(value)
        for overload in function.overloads:
            if overload.accepts((value,)):
                return overload.call(value)
        raise no_overload(expr.function, value)
    except CelRuntimeError as error:
        if expr.function in ("duration", "timestamp"):
            raise CelCompileError(f"invalid {expr.function} argument", expr.args[0].pos) from None
        raise CelCompileError(f"{expr.function}() fails on a constant: {error}", expr.pos) from None


def _compile(expr: CallExpr, pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except CelRuntimeError as error:
        raise CelCompileError(str(error), expr.pos) from None
