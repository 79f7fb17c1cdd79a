"""Compact notation of expression trees: prefix operators, macros by name."""

from __future__ import annotations

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
    Uint,
)


def show(expr: Expr) -> str:
    """One line per tree: `(_+_ 1 x)`, `a.b`, `a.f(1)`, `[1 ?2]`, `{k:v}`, `<all x in a: ...>`."""
    match expr:
        case Const(value=Uint() as number):
            return f"{number.value}u"
        case Const():
            return repr(expr.value)
        case Ident():
            return expr.name
        case Select():
            return f"{show(expr.operand)}.{expr.field}{'!' if expr.test else ''}"
        case CallExpr():
            args = " ".join(show(arg) for arg in expr.args)
            if expr.target is not None:
                return f"{show(expr.target)}.{expr.function}({args})"
            return f"({expr.function} {args})" if args else f"({expr.function})"
        case ListLit():
            items = ("?" * (i in expr.optional) + show(item) for i, item in enumerate(expr.items))
            return f"[{' '.join(items)}]"
        case MapLit():
            entries = ("?" * e.optional + f"{show(e.key)}:{show(e.value)}" for e in expr.entries)
            return f"{{{' '.join(entries)}}}"
        case StructLit():
            fields = ("?" * f.optional + f"{f.name}:{show(f.value)}" for f in expr.fields)
            return f"{expr.name}{{{' '.join(fields)}}}"
        case Comprehension():
            names = expr.variable if expr.second is None else f"{expr.variable},{expr.second}"
            parts = (expr.init, expr.condition, expr.step, expr.result)
            body = " | ".join(show(part) for part in parts)
            return f"<{expr.macro} {names} in {show(expr.range)}; {expr.accumulator} = {body}>"
