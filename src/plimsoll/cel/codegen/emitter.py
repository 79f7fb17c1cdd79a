"""Emitter of Python source for one checked tree; raises `Unsupported` for other shapes.

Walks the tree: device fields, logic, membership, loops and bindings, with the maximum cost of each. Calls are
emitted by the functions' handlers; the rules that make the result safe are described in `generator.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.overloads.fragments import (
    FIELDS,
    MAX_PLAIN_LIST,
    CodeFragment,
    SourceWriter,
    Unsupported,
    literal,
)
from plimsoll.cel.syntax.ast import CallExpr, Comprehension, Const, Expr, Ident, ListLit, Select

_MAX_DEPTH = 60
_MAX_UNROLLED = 16

_Scope: TypeAlias = dict[str, CodeFragment]


class Emitter(SourceWriter):
    """Writes source for one tree and collects its constants."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes = 0
        self._looping = False
        self.prelude: list[str] = []

    def emit(self, expr: Expr, scope: _Scope, depth: int) -> CodeFragment:
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > 2000:
            raise Unsupported
        match expr:
            case Const():
                return literal(expr.value)
            case Ident():
                return self._name(expr, scope)
            case Select():
                return self._select(self.emit(expr.operand, scope, depth + 1), expr.field, expr.test)
            case CallExpr():
                return self._call(expr, scope, depth + 1)
            case Comprehension():
                return self._comprehension(expr, scope, depth + 1)
        raise Unsupported

    def _name(self, expr: Ident, scope: _Scope) -> CodeFragment:
        local = scope.get(expr.name)
        if local is not None:
            return local
        if expr.name != "device":
            raise Unsupported
        return CodeFragment("device")

    def _select(self, operand: CodeFragment, field: str, test: bool) -> CodeFragment:
        if operand.kind == "device":
            code = FIELDS.get(field)
            if code is None:
                raise Unsupported
            return CodeFragment("bool", "True", 2) if test else code
        if operand.kind == "domains" and test:
            return CodeFragment("bool", "True", operand.bound + 1)  # an unknown domain is an empty map
        if operand.kind == "entries" and test:
            return CodeFragment("bool", f"({self.constant(field)} in {operand.safe})", operand.bound + 1)
        return self.indexed(operand, literal(field))

    # -- calls

    def _call(self, expr: CallExpr, scope: _Scope, depth: int) -> CodeFragment:
        function = expr.function
        if function in ("_&&_", "_||_"):
            return self._logical(expr, scope, depth)
        args = expr.args if expr.target is None else (expr.target, *expr.args)
        if function == "@in":
            return self._membership(args[0], args[1], scope, depth)
        codes = [self.emit(arg, scope, depth) for arg in args]
        bound = 1 + sum(code.bound for code in codes)
        handler = FUNCTIONS[function].handler
        if handler is None:
            raise Unsupported
        result = handler(self, function, codes)
        return replace(result, bound=result.bound + bound)

    def _logical(self, expr: CallExpr, scope: _Scope, depth: int) -> CodeFragment:
        terms: list[str] = []
        bound = 0
        pending: list[Expr] = [expr]
        while pending:
            term = pending.pop()
            if isinstance(term, CallExpr) and term.function == expr.function:
                pending.extend(reversed(term.args))
                continue
            code = self.emit(term, scope, depth)
            terms.append(self.condition(code))
            bound += code.bound
        joined = (" or " if expr.function == "_||_" else " and ").join(terms)
        return CodeFragment("bool", f"({joined})", bound)

    # -- membership and loops

    def _membership(self, item: Expr, container: Expr, scope: _Scope, depth: int) -> CodeFragment:
        if isinstance(container, ListLit):
            return self._in_list(item, container, scope, depth)
        value, values = self.emit(item, scope, depth), self.emit(container, scope, depth)
        if value.kind != "str" or values.kind not in ("entries", "domains"):
            raise Unsupported
        bound = 1 + value.bound + values.bound
        return CodeFragment("bool", f"({self.read(value)} in {values.safe or values.text})", bound)

    def _in_list(self, item: Expr, container: ListLit, scope: _Scope, depth: int) -> CodeFragment:
        constants = [item.value for item in container.items if isinstance(item, Const)]
        kinds = {type(value) for value in constants}
        if len(constants) != len(container.items) or container.optional or kinds not in ({str}, {int}):
            raise Unsupported
        value = self.emit(item, scope, depth)
        if value.constant:
            raise Unsupported
        keys = self.constant(frozenset(constants))
        if value.kind in ("dyn", "str") and kinds == {str}:
            return CodeFragment("bool", f"({value.text} in {keys})", value.bound)
        if value.kind == "int" and kinds == {int}:
            return CodeFragment("bool", f"({value.text} in {keys})", value.bound)
        if value.kind == "dyn" and kinds == {int}:
            name = self.temporary()
            return CodeFragment(
                "bool", f"(({name} := {value.text}) in {keys} and {name}.__class__ is INT)", value.bound
            )
        raise Unsupported

    def _comprehension(self, expr: Comprehension, scope: _Scope, depth: int) -> CodeFragment:
        if expr.macro == "cel.bind":
            return self._bind(expr, scope, depth)
        step = expr.step
        if expr.macro not in ("all", "exists") or expr.second is not None or not isinstance(step, CallExpr):
            raise Unsupported
        items = expr.range
        if not isinstance(items, ListLit):
            return self._iterated(expr, step.args[1], scope, depth)
        if not 0 < len(items.items) <= _MAX_UNROLLED or items.optional:
            raise Unsupported
        terms: list[str] = []
        bound = 4
        for item in items.items:
            if not isinstance(item, Const) or type(item.value) not in (str, int):
                raise Unsupported
            code = self.emit(step.args[1], {**scope, expr.variable: literal(item.value)}, depth)
            terms.append(self.condition(code))
            bound += 5 + code.bound + 10
        return CodeFragment("bool", f"({(' or ' if expr.macro == 'exists' else ' and ').join(terms)})", bound)

    def _iterated(self, expr: Comprehension, predicate: Expr, scope: _Scope, depth: int) -> CodeFragment:
        """Emit a loop over a list attribute."""
        items = self.emit(expr.range, scope, depth)
        if items.kind != "dyn" or items.constant or self._looping:
            raise Unsupported
        name, item = self.temporary(), self.temporary()
        self._looping = True
        code = self.emit(predicate, {**scope, expr.variable: CodeFragment("dyn", item)}, depth)
        self._looping = False
        loop = "any" if expr.macro == "exists" else "all"
        test = f"{loop}({self.condition(code)} for {item} in {name})"
        source = f"((({name} := {items.text}).__class__ is LIST or STOP()) and {test})"
        return CodeFragment("bool", source, items.bound + MAX_PLAIN_LIST * (5 + code.bound))

    def _bind(self, expr: Comprehension, scope: _Scope, depth: int) -> CodeFragment:
        init = self.emit(expr.init, scope, depth)
        if self._looping and not init.constant:
            raise Unsupported  # the value may depend on the element, but is computed before the loop
        if init.kind not in ("entries", "dyn", "str", "int", "quantity", "bool"):
            raise Unsupported
        if init.kind == "entries":
            name = self.temporary()
            self.prelude.append(f"{name} = {init.safe}")
            init = replace(init, text=name, safe=name)
        if len(init.text) > 200:  # the text is repeated at every use
            raise Unsupported
        local = replace(init, bound=init.bound + 1)
        return self.emit(expr.result, {**scope, expr.accumulator: local}, depth)
