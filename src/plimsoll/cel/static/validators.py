"""Rules on literals that Kubernetes adds to type checking.

Checks the literal arguments of `matches` and `format`, and that the items of a list literal, and the keys and
values of a map literal, have one exact type. Implements the validators of cel-go v0.26 that the Kubernetes
environment enables; literals inside a `format` call are exempt from the rule on items. The validators of
`duration` and `timestamp` are not needed: `folding` rejects the same literals.
"""

from __future__ import annotations

import re

from plimsoll.cel.functions.regex import compile_pattern
from plimsoll.cel.static.checker import TypedExpr
from plimsoll.cel.syntax.ast import CallExpr, Const, Expr, ListLit, MapLit, children
from plimsoll.cel.types import CelType, TypeKind, unwrap_optional
from plimsoll.errors import CelCompileError, CelRuntimeError


def validate(typed: TypedExpr) -> None:
    """Raise CelCompileError for the first literal that breaks a rule."""
    pending: list[tuple[Expr, bool]] = [(typed.root, False)]
    while pending:
        expr, exempt = pending.pop()
        match expr:
            case ListLit() if not exempt:
                _same_items(typed, expr)
            case MapLit() if not exempt:
                _same_entries(typed, expr)
            case CallExpr(function="matches"):
                _pattern(expr)
            case CallExpr(function="format"):
                exempt = True
                _format(typed, expr)
        pending.extend((child, exempt) for child in children(expr))


def _type(typed: TypedExpr, expr: Expr, optional: bool = False) -> CelType:
    one = typed.types[expr.id]
    return unwrap_optional(one)[0] if optional else one


def _same_items(typed: TypedExpr, expr: ListLit) -> None:
    first: CelType | None = None
    for index, item in enumerate(expr.items):
        first = _same(first, _type(typed, item, index in expr.optional), item)


def _same_entries(typed: TypedExpr, expr: MapLit) -> None:
    key: CelType | None = None
    value: CelType | None = None
    for entry in expr.entries:
        key = _same(key, _type(typed, entry.key), entry.key)
        value = _same(value, _type(typed, entry.value, entry.optional), entry.value)


def _same(first: CelType | None, current: CelType, expr: Expr) -> CelType:
    if first is not None and first != current:
        raise CelCompileError(f"expected type '{first}' but found '{current}'", expr.pos)
    return current


def _pattern(call: CallExpr) -> None:
    """Check the first argument: the pattern of a method call or, as upstream, the text of a global one."""
    arg = call.args[0]
    if isinstance(arg, Const) and isinstance(arg.value, str):
        try:
            compile_pattern(arg.value)
        except CelRuntimeError:
            raise CelCompileError("invalid matches argument", arg.pos) from None


# Format strings.

_CLAUSE = re.compile(r"%(?:%|(?P<precision>\.[0-9]*)?(?P<verb>.)?)", re.DOTALL)
_TEXT = frozenset(
    {
        TypeKind.BOOL,
        TypeKind.BYTES,
        TypeKind.DOUBLE,
        TypeKind.DURATION,
        TypeKind.INT,
        TypeKind.LIST,
        TypeKind.MAP,
        TypeKind.NULL,
        TypeKind.STRING,
        TypeKind.TIMESTAMP,
        TypeKind.TYPE,
        TypeKind.UINT,
    }
)
_WHOLE = frozenset({TypeKind.INT, TypeKind.UINT})
# NaN and the infinities may be given as strings.
_REAL = frozenset({TypeKind.DOUBLE, TypeKind.STRING})
_VERBS = {
    "s": _TEXT,
    "d": _WHOLE,
    "f": _REAL,
    "e": _REAL,
    "b": _WHOLE | {TypeKind.BOOL},
    "x": _WHOLE | {TypeKind.STRING, TypeKind.BYTES},
    "X": _WHOLE | {TypeKind.STRING, TypeKind.BYTES},
    "o": _WHOLE,
}


def _format(typed: TypedExpr, call: CallExpr) -> None:
    """Check a literal format string against a literal list of arguments."""
    if not isinstance(call.target, Const) or not isinstance(call.target.value, str):
        return
    if len(call.args) != 1 or not isinstance(call.args[0], ListLit):
        return
    args = call.args[0].items
    used = 0
    for clause in _CLAUSE.finditer(call.target.value):
        if clause.group() == "%%":
            continue
        _clause(typed, call, clause, args[used] if used < len(args) else None)
        used += 1
    if used < len(args):
        raise CelCompileError(f"format takes {used} arguments but was given {len(args)}", call.pos)


def _clause(typed: TypedExpr, call: CallExpr, clause: re.Match[str], arg: Expr | None) -> None:
    verb, precision = clause["verb"], clause["precision"]
    if verb is None:
        raise CelCompileError("format string ends within a clause", call.pos)
    if arg is None:
        raise CelCompileError("format string has more clauses than arguments", call.pos)
    if precision is not None and not _readable(precision[1:]):
        raise CelCompileError(f"format clause {clause.group()[:24]!r} has a wrong precision", call.pos)
    if verb not in _VERBS:
        raise CelCompileError(f"unknown format clause {clause.group()!r}", call.pos)
    pending: list[Expr] = [arg]
    while pending:
        expr = pending.pop()
        one = typed.types[expr.id]
        if one.kind is not TypeKind.DYN and one.kind not in _VERBS[verb]:
            raise CelCompileError(f"format clause %{verb} does not take a value of type {one}", expr.pos)
        if verb == "s" and isinstance(expr, ListLit | MapLit):
            pending.extend(children(expr))


def _readable(digits: str) -> bool:
    """Return whether a precision is present and fits in 64 bits."""
    return bool(digits) and int(digits.lstrip("0")[:20] or "0") < 1 << 63
