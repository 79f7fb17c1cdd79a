"""Parser: tokens to the expanded tree of `ast`.

Implements the grammar: precedence, literals, optional syntax (`.?f`, `[?i]`, `[?e]`, `{?k: v}`), message
literals, reserved names, and the two depth limits of cel-go v0.26 (250 open rules of one kind; 250 nested
selections, calls, indexings, relations, sums or conditions). Returns a tree or raises CelCompileError with
the offset of the first error, never RecursionError. Time is linear in the text, except for macros that copy
(bounded by `macros.MAX_NODES`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from plimsoll.cel.syntax import lexer
from plimsoll.cel.syntax.ast import (
    CallExpr,
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
    Uint,
)
from plimsoll.cel.syntax.macros import NodeIds, expand
from plimsoll.cel.syntax.trampoline import Task, run
from plimsoll.errors import CelCompileError

MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250

_RELATIONS = {
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "==": "_==_",
    "!=": "_!=_",
    "in": "@in",
}
_SUMS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"}
    | {"package", "namespace", "return", "var", "void", "while"}
)
#: Names that no variable can have, and that fields of declared types escape.
RESERVED = _RESERVED | {"true", "false", "null", "in"}

# A tree and its nesting depth: selections, calls, indexings, relations, sums and conditions.
_Part: TypeAlias = "tuple[Expr, int]"


def parse(source: str, *, has_bindings: bool = True) -> Expr:
    """Parse and expand `source`, with the macro `cel.bind` if the environment has it; raise CelCompileError
    if it is not CEL.
    """
    if len(source) > MAX_CODE_POINTS:
        raise CelCompileError(f"expression is longer than {MAX_CODE_POINTS} characters")
    root, _ = run(_Parser(source, has_bindings).start())
    return root


class _Parser:
    def __init__(self, source: str, has_bindings: bool) -> None:
        self._has_bindings = has_bindings
        self._tokens = lexer.split(source)
        self._at = 0
        self._token = self._tokens[0]
        self._nodes = NodeIds()
        # Number of open rules of each kind, counted as in cel-go's parser.
        self._expressions = 0
        self._relations = 0
        self._calculations = 0

    # Tokens.

    def _advance(self) -> lexer.Token:
        token = self._token
        self._at += 1
        self._token = self._tokens[min(self._at, len(self._tokens) - 1)]
        return token

    def _accept(self, kind: str) -> bool:
        if self._token.kind == kind:
            self._advance()
            return True
        return False

    def _expect(self, kind: str) -> lexer.Token:
        if self._token.kind != kind:
            raise self._unexpected(f"expected {_describe(kind)}")
        return self._advance()

    def _unexpected(self, hint: str) -> CelCompileError:
        token = self._token
        seen = "end of text" if token.kind == lexer.END else repr(token.text[:40])
        return CelCompileError(f"syntax error at {seen}: {hint}", token.pos)

    def _peek(self, ahead: int) -> str:
        index = self._at + ahead
        return self._tokens[index].kind if index < len(self._tokens) else lexer.END

    # Nodes.

    def _deeper(self, pos: int, *depths: int) -> int:
        depth = max(depths) + 1
        if depth > MAX_DEPTH:
            raise CelCompileError(f"expression nests deeper than {MAX_DEPTH} levels", pos)
        return depth

    def _limit(self, count: int) -> int:
        if count > MAX_DEPTH:
            raise CelCompileError(f"expression nests deeper than {MAX_DEPTH} levels", self._token.pos)
        return count

    def _const(self, pos: int, value: Literal) -> Const:
        return Const(self._nodes.fresh(pos), pos, value)

    def _call(self, pos: int, function: str, args: tuple[Expr, ...], target: Expr | None = None) -> Expr:
        if self._has_bindings or function != "bind":
            expanded = expand(self._nodes, pos, function, target, args)
            if expanded is not None:
                return expanded
        return CallExpr(self._nodes.fresh(pos), pos, function, args, target)

    # Rules, from the loosest binding to the tightest.

    def start(self) -> Task[_Part]:
        part: _Part = yield self._expression()
        if self._token.kind != lexer.END:
            raise self._unexpected("expected an operator or the end")
        return part

    def _expression(self) -> Task[_Part]:
        self._expressions = self._limit(self._expressions + 1)
        part = yield from self._logic("||", "_||_")
        if self._token.kind == "?":
            pos = self._advance().pos
            yes = yield from self._logic("||", "_||_")
            self._expect(":")
            no = yield self._expression()
            depth = self._deeper(pos, part[1], yes[1], no[1])
            part = self._call(pos, "_?_:_", (part[0], yes[0], no[0])), depth
        self._expressions -= 1
        return part

    def _logic(self, operator: str, function: str) -> Task[_Part]:
        """Parse `a && b && c ...`, or `||` over such: a balanced tree, as in cel-go."""
        part = yield from self._logic("&&", "_&&_") if operator == "||" else self._relation()
        if self._token.kind != operator:
            return part
        terms, places, depth = [part[0]], [], part[1]
        while self._token.kind == operator:
            places.append(self._advance().pos)
            part = yield from self._logic("&&", "_&&_") if operator == "||" else self._relation()
            terms.append(part[0])
            depth = max(depth, part[1])
        return self._balance(function, terms, places, 0, len(places) - 1), depth

    def _balance(self, function: str, terms: list[Expr], places: list[int], low: int, high: int) -> Expr:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else self._balance(function, terms, places, low, middle - 1)
        right = (
            terms[middle + 1] if middle == high else self._balance(function, terms, places, middle + 1, high)
        )
        return self._call(places[middle], function, (left, right))

    def _relation(self) -> Task[_Part]:
        self._relations = self._limit(self._relations + 1)
        left = yield from self._sum()
        while self._token.kind in _RELATIONS:
            operator = self._advance()
            self._relations = self._limit(self._relations + 1)
            right = yield from self._sum()
            self._relations -= 1
            left = self._operation(operator, _RELATIONS, left, right)
        self._relations -= 1
        return left

    def _sum(self) -> Task[_Part]:
        self._calculations = self._limit(self._calculations + 1)
        left = yield from self._product()
        while self._token.kind in _SUMS:
            operator = self._advance()
            self._calculations = self._limit(self._calculations + 1)
            right = yield from self._product()
            self._calculations -= 1
            left = self._operation(operator, _SUMS, left, right)
        self._calculations -= 1
        return left

    def _product(self) -> Task[_Part]:
        left = yield from self._unary()
        while self._token.kind in _PRODUCTS:
            operator = self._advance()
            self._calculations = self._limit(self._calculations + 1)
            right = yield from self._unary()
            self._calculations -= 1
            left = self._operation(operator, _PRODUCTS, left, right)
        return left

    def _operation(self, operator: lexer.Token, names: dict[str, str], left: _Part, right: _Part) -> _Part:
        depth = self._deeper(operator.pos, left[1], right[1])
        return self._call(operator.pos, names[operator.kind], (left[0], right[0])), depth

    def _unary(self) -> Task[_Part]:
        kind = self._token.kind
        # A single minus before a number is part of the number, even before a selection: -1.f() is (-1).f().
        if kind not in ("!", "-") or (kind == "-" and self._peek(1) in (lexer.INT, lexer.FLOAT)):
            return (yield from self._member())
        pos = self._token.pos
        count = 0
        while self._accept(kind):
            count += 1
        part = yield from self._member()
        if count % 2 == 0:
            return part
        return self._call(pos, f"{kind}_", (part[0],)), part[1]

    def _member(self) -> Task[_Part]:
        expr, depth = yield from self._primary()
        while True:
            kind = self._token.kind
            if kind == ".":
                pos = self._advance().pos
                optional = self._accept("?")
                name = self._expect(lexer.NAME)
                if optional:
                    field = self._const(name.pos, name.text)
                    expr = CallExpr(self._nodes.fresh(pos), pos, "_?._", (expr, field))
                    depth = self._deeper(pos, depth)
                elif self._token.kind == "(":
                    pos = self._advance().pos
                    args, below = yield from self._arguments()
                    depth = self._deeper(pos, depth, below)
                    expr = self._call(pos, name.text, args, expr)
                else:
                    expr = Select(self._nodes.fresh(pos), pos, expr, name.text)
                    depth = self._deeper(pos, depth)
            elif kind == "[":
                pos = self._advance().pos
                optional = self._accept("?")
                index, below = yield self._expression()
                self._expect("]")
                depth = self._deeper(pos, depth, below)
                expr = self._call(pos, "_[?_]" if optional else "_[_]", (expr, index))
            else:
                return expr, depth

    def _arguments(self) -> Task[tuple[tuple[Expr, ...], int]]:
        """Parse the arguments of a call and its closing bracket; a trailing comma is an error."""
        args: list[Expr] = []
        depth = 0
        if not self._accept(")"):
            while True:
                arg, below = yield self._expression()
                args.append(arg)
                depth = max(depth, below)
                if not self._accept(","):
                    break
            self._expect(")")
        return tuple(args), depth

    def _primary(self) -> Task[_Part]:
        kind, text, pos = self._token
        if kind == lexer.NAME or (kind == "." and self._peek(1) == lexer.NAME):
            return (yield from self._named())
        if kind == "(":
            self._advance()
            part: _Part = yield self._expression()
            self._expect(")")
            return part
        if kind == "[":
            return (yield from self._list())
        if kind == "{":
            return (yield from self._map())
        if kind == "-" and self._peek(1) in (lexer.INT, lexer.FLOAT):
            self._advance()
            kind, text = self._token.kind, "-" + self._token.text
        if kind == lexer.END or kind not in _LITERALS:
            raise self._unexpected("expected a value")
        self._advance()
        return self._const(pos, _LITERALS[kind](text, pos)), 0

    def _named(self) -> Task[_Part]:
        """Parse a name, a call of a global function, or a message literal."""
        prefix = "." if self._accept(".") else ""
        last = self._at
        while self._tokens[last + 1].kind == "." and self._tokens[last + 2].kind == lexer.NAME:
            last += 2
        if self._tokens[last + 1].kind == "{":
            name = prefix + "".join(token.text for token in self._tokens[self._at : last + 1])
            self._at = last
            self._advance()
            return (yield from self._message(name))
        token = self._advance()
        if token.text in _RESERVED:
            raise CelCompileError(f"{token.text} is a reserved name", token.pos)
        name = prefix + token.text
        if self._token.kind != "(":
            return Ident(self._nodes.fresh(token.pos), token.pos, name), 0
        pos = self._advance().pos
        args, depth = yield from self._arguments()
        return self._call(pos, name, args), depth

    def _list(self) -> Task[_Part]:
        pos = self._advance().pos
        number = self._nodes.fresh(pos)
        items: list[Expr] = []
        optional: set[int] = set()
        depth = 0
        while not self._closes("]", bool(items)):
            if self._accept("?"):
                optional.add(len(items))
            item, below = yield self._expression()
            items.append(item)
            depth = max(depth, below)
        return ListLit(number, pos, tuple(items), frozenset(optional)), depth

    def _map(self) -> Task[_Part]:
        pos = self._advance().pos
        number = self._nodes.fresh(pos)
        entries: list[MapEntry] = []
        depth = 0
        while not self._closes("}", bool(entries)):
            optional = self._accept("?")
            key, below = yield self._expression()
            colon = self._expect(":").pos
            value, value_depth = yield self._expression()
            entries.append(MapEntry(self._nodes.fresh(colon), key, value, optional))
            depth = max(depth, below, value_depth)
        return MapLit(number, pos, tuple(entries)), depth

    def _message(self, name: str) -> Task[_Part]:
        pos = self._advance().pos
        number = self._nodes.fresh(pos)
        fields: list[StructField] = []
        depth = 0
        while not self._closes("}", bool(fields)):
            optional = self._accept("?")
            field = self._expect(lexer.NAME).text
            colon = self._expect(":").pos
            value, below = yield self._expression()
            fields.append(StructField(self._nodes.fresh(colon), field, value, optional, colon))
            depth = max(depth, below)
        return StructLit(number, pos, name, tuple(fields)), depth

    def _closes(self, bracket: str, after_item: bool) -> bool:
        """Consume the separator before the next item, or the closing bracket after an optional comma."""
        if after_item:
            if self._accept(bracket):
                return True
            if not self._accept(","):
                raise self._unexpected(f"expected , or {bracket}")
            return self._accept(bracket)
        if self._token.kind == "," and self._peek(1) == bracket:
            self._advance()
        return self._accept(bracket)


def _describe(kind: str) -> str:
    return "a name" if kind == lexer.NAME else kind


def _number(text: str) -> int:
    """Parse decimal or hexadecimal digits; decimal digits that exceed every range are ignored."""
    if text.startswith("0x"):
        return int(text, 16)
    return int(text.lstrip("0")[:32] or "0")


def _int(text: str, pos: int) -> int:
    value = -_number(text[1:]) if text[0] == "-" else _number(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise CelCompileError("int literal is out of range: it must fit in 64 bits", pos)
    return value


def _uint(text: str, pos: int) -> Uint:
    value = _number(text[:-1])
    if value >= 1 << 64:
        raise CelCompileError("uint literal is out of range: it must fit in 64 bits", pos)
    return Uint(value)


def _float(text: str, pos: int) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise CelCompileError("double literal is out of range", pos)
    return value


_LITERALS: dict[str, Callable[[str, int], Literal]] = {
    lexer.INT: _int,
    lexer.UINT: _uint,
    lexer.FLOAT: _float,
    lexer.STRING: lexer.unquote,
    lexer.BYTES: lexer.unquote_bytes,
    "true": lambda text, pos: True,
    "false": lambda text, pos: False,
    "null": lambda text, pos: None,
}
