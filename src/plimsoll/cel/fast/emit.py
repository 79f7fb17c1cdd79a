"""Python source for one checked tree: every shape that has a fast form, or `Unsupported`.

Owns what each operator and function looks like in generated code and how much it can cost at most. The rules
that make the result safe to use are told in `generate.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from plimsoll.cel.device import MAX_PLAIN_LIST
from plimsoll.cel.fast.source import (
    ARITHMETIC,
    BY_SIGNS,
    FIELDS,
    MIRRORED,
    NAMES,
    OPERATORS,
    PARTS,
    TESTS,
    WALK,
    Code,
    Unsupported,
    literal,
)
from plimsoll.cel.functions import semver
from plimsoll.cel.functions.attributes import MAX_VALUES
from plimsoll.cel.functions.quantity import parse as parse_quantity
from plimsoll.cel.functions.regex import compile_pattern
from plimsoll.cel.syntax.ast import Call, Comprehension, Const, Expr, Ident, ListLit, Select
from plimsoll.cel.values import INT_MAX, Value
from plimsoll.errors import CelRuntimeError

_MAX_DEPTH = 60
_MAX_UNROLLED = 16


_Scope: TypeAlias = dict[str, Code]


class Emitter:
    """Writes source for one tree and collects its constants."""

    def __init__(self) -> None:
        self._constants: list[Value] = []
        self._temporaries = 0
        self._nodes = 0
        self._looping = False
        self.prelude: list[str] = []

    def names(self) -> dict[str, Any]:
        return NAMES | {f"k{index}": value for index, value in enumerate(self._constants)}

    def _constant(self, value: Value) -> str:
        self._constants.append(value)
        return f"k{len(self._constants) - 1}"

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    # -- kinds

    def condition(self, code: Code) -> str:
        """The source as a condition: what is not known to be a bool is checked."""
        if code.kind == "bool":
            return self._read(code)
        if code.kind != "dyn" or code.constant:
            raise Unsupported
        name = self._temporary()
        return f"(({name} := {code.text}) is True or ({name} is not False and STOP()))"

    def _read(self, code: Code) -> str:
        if not code.constant:
            return code.text
        if type(code.value) is bool:
            return "True" if code.value else "False"
        return self._constant(code.value)

    # -- nodes

    def emit(self, expr: Expr, scope: _Scope, depth: int) -> Code:
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
            case Call():
                return self._call(expr, scope, depth + 1)
            case Comprehension():
                return self._comprehension(expr, scope, depth + 1)
        raise Unsupported

    def _name(self, expr: Ident, scope: _Scope) -> Code:
        local = scope.get(expr.name)
        if local is not None:
            return local
        if expr.name != "device":
            raise Unsupported
        return Code("device")

    def _select(self, operand: Code, field: str, test: bool) -> Code:
        if operand.kind == "device":
            code = FIELDS.get(field)
            if code is None:
                raise Unsupported
            return Code("bool", "True", 2) if test else code
        if operand.kind == "domains" and test:
            return Code("bool", "True", operand.bound + 1)  # an unknown domain reads as an empty one
        if operand.kind == "entries" and test:
            return Code("bool", f"({self._constant(field)} in {operand.safe})", operand.bound + 1)
        return self._indexed(operand, literal(field))

    def _indexed(self, operand: Code, key: Code) -> Code:
        if key.kind != "str":
            raise Unsupported
        bound = operand.bound + key.bound + 1
        if operand.kind == "domains":
            text = self._read(key)
            return Code(
                "entries",
                f"{operand.text}[{text}]",
                bound,
                safe=f"{operand.text}.get({text}, E)",
                item=operand.item,
            )
        if operand.kind == "entries":
            return Code(operand.item, f"{operand.text}[{self._read(key)}]", bound)
        raise Unsupported

    # -- calls

    def _call(self, expr: Call, scope: _Scope, depth: int) -> Code:
        function = expr.function
        if function in ("_&&_", "_||_"):
            return self._logical(expr, scope, depth)
        args = expr.args if expr.target is None else (expr.target, *expr.args)
        if function == "@in":
            return self._membership(args[0], args[1], scope, depth)
        codes = [self.emit(arg, scope, depth) for arg in args]
        bound = 1 + sum(code.bound for code in codes)
        handler = _HANDLERS.get((function, len(codes)))
        if handler is None:
            raise Unsupported
        result = handler(self, function, codes)
        return replace(result, bound=result.bound + bound)

    def _logical(self, expr: Call, scope: _Scope, depth: int) -> Code:
        terms: list[str] = []
        bound = 0
        pending: list[Expr] = [expr]
        while pending:
            term = pending.pop()
            if isinstance(term, Call) and term.function == expr.function:
                pending.extend(reversed(term.args))
                continue
            code = self.emit(term, scope, depth)
            terms.append(self.condition(code))
            bound += code.bound
        joined = (" or " if expr.function == "_||_" else " and ").join(terms)
        return Code("bool", f"({joined})", bound)

    def _negation(self, function: str, codes: list[Code]) -> Code:
        return Code("bool", f"(not {self.condition(codes[0])})", 0)

    def _choice(self, function: str, codes: list[Code]) -> Code:
        condition = self.condition(codes[0])
        kinds = {codes[1].kind, codes[2].kind}
        if not kinds <= {"bool", "str", "int", "dyn"}:
            raise Unsupported
        kind = kinds.pop() if len(kinds) == 1 else "dyn"
        return Code(kind, f"({self._read(codes[1])} if {condition} else {self._read(codes[2])})", 0)

    def _index(self, function: str, codes: list[Code]) -> Code:
        return replace(self._indexed(codes[0], codes[1]), bound=0)

    def _optional(self, function: str, codes: list[Code]) -> Code:
        entries, key = codes
        if entries.kind != "entries" or key.kind != "str":
            raise Unsupported
        return Code("optional", "", 0, safe=entries.safe, key=self._read(key), item=entries.item)

    def _or_value(self, function: str, codes: list[Code]) -> Code:
        optional, other = codes
        if optional.kind != "optional" or not other.constant:
            raise Unsupported
        # What reads as dyn is taken to be a kind of value that attributes have, so the default must be too.
        kinds = ("str", "int", "bool", "semver") if optional.item == "dyn" else (optional.item,)
        if other.kind not in kinds:
            raise Unsupported
        return Code(optional.item, f"{optional.safe}.get({optional.key}, {self._read(other)})", 0)

    def _has_value(self, function: str, codes: list[Code]) -> Code:
        if codes[0].kind != "optional":
            raise Unsupported
        return Code("bool", f"({codes[0].key} in {codes[0].safe})", 0)

    def _value(self, function: str, codes: list[Code]) -> Code:
        if codes[0].kind != "optional":
            raise Unsupported
        return Code(codes[0].item, f"{codes[0].safe}[{codes[0].key}]", 0)

    # -- comparison

    def _equality(self, function: str, codes: list[Code]) -> Code:
        if (order := self._compare_to(function, codes)) is not None:
            return order
        left, right = codes
        if left.constant:
            left, right = right, left
        text = self._equal(left, right)
        return Code("bool", text if function == "_==_" else f"(not {text})", WALK)

    def _equal(self, left: Code, right: Code) -> str:
        kinds = (left.kind, right.kind)
        if left.constant or "signs" in kinds:
            raise Unsupported
        if kinds == ("quantity", "quantity"):
            return f"({self._nano(left)} == {self._nano(right)})"
        if right.constant:
            return self._equals_constant(left, right)
        if kinds in (("dyn", "dyn"), ("dyn", "int"), ("int", "dyn"), ("dyn", "bool"), ("bool", "dyn")):
            return f"SAME({left.text}, {right.text})"
        if kinds in (("str", "str"), ("dyn", "str"), ("str", "dyn"), ("int", "int")):
            return f"({left.text} == {right.text})"
        raise Unsupported

    def _equals_constant(self, left: Code, right: Code) -> str:
        value = right.value
        if left.kind == "bool" and type(value) is bool:
            return left.text if value else f"(not {left.text})"
        if left.kind == "dyn" and right.kind == "semver":
            return f"({left.text}.key == {self._constant(value.key)})"
        if left.kind == "dyn" and type(value) is bool:
            test = self.condition(left)
            return test if value else f"(not {test})"
        if left.kind in ("dyn", "str") and type(value) is str:
            return f"({left.text} == {self._constant(value)})"
        if left.kind == "dyn" and right.kind == "null":
            return f"({left.text} is None)"
        if type(value) is int and left.kind == "int":
            return f"({left.text} == {self._constant(value)})"
        if type(value) is int and left.kind == "dyn":
            if value not in (0, 1):
                return f"({left.text} == {self._constant(value)})"
            name = self._temporary()  # to Python, 0 and 1 equal false and true
            return f"(({name} := {left.text}) == {self._constant(value)} and {name}.__class__ is INT)"
        raise Unsupported

    def _order(self, function: str, codes: list[Code]) -> Code:
        if (order := self._compare_to(function, codes)) is not None:
            return order
        left, right = codes
        if left.constant:
            left, right, function = right, left, MIRRORED[function]
        sign = OPERATORS[function]
        if right.constant and type(right.value) is int and left.kind == "dyn":
            name = self._temporary()
            test = f"((({name} := {left.text}).__class__ is INT or STOP()) and {name} {sign} "
            return Code("bool", f"{test}{self._constant(right.value)})", 0)
        allowed = {("int", "int"), ("str", "str"), ("dyn", "str"), ("str", "dyn")}
        if (left.kind, right.kind) not in allowed or left.constant:
            raise Unsupported
        return Code("bool", f"({left.text} {sign} {self._read(right)})", WALK)

    def _compare_to(self, function: str, codes: list[Code]) -> Code | None:
        """`a.compareTo(b) >= 0` compares the two directly."""
        left, right = codes
        if right.kind == "signs":
            left, right, function = right, left, MIRRORED[function]
        if left.kind != "signs" or not right.constant or type(right.value) is not int:
            return None
        test = TESTS[function]
        signs = (test(-1, right.value), test(0, right.value), test(1, right.value))
        operator = BY_SIGNS.get(signs)
        if operator is None:  # true or false for every result
            raise Unsupported
        return Code("bool", f"({left.text} {operator} {left.safe})", 0)

    def _sides(self, codes: list[Code]) -> tuple[str, str]:
        left, right = codes
        if left.kind == right.kind == "quantity":
            return self._nano(left), self._nano(right)
        if {left.kind, right.kind} <= {"semver", "dyn"}:
            return self._version_key(left), self._version_key(right)
        raise Unsupported

    def _signs(self, function: str, codes: list[Code]) -> Code:
        left, right = self._sides(codes)
        return Code("signs", left, 0, safe=right)

    def _relation(self, function: str, codes: list[Code]) -> Code:
        left, right = self._sides(codes)
        return Code("bool", f"({left} {'>' if function == 'isGreaterThan' else '<'} {right})", 0)

    def _nano(self, code: Code) -> str:
        return self._constant(code.value.nano) if code.constant else f"{code.text}.nano"

    def _version_key(self, code: Code) -> str:
        if code.kind == "semver":
            return self._constant(code.value.key)
        if code.constant:
            raise Unsupported
        return f"{code.text}.key"

    # -- library functions

    def _quantity(self, function: str, codes: list[Code]) -> Code:
        text = codes[0]
        if text.kind != "str" or not text.constant:
            raise Unsupported
        try:
            return Code("quantity", bound=len(text.value), constant=True, value=parse_quantity(text.value))
        except CelRuntimeError:
            raise Unsupported from None

    def _semver(self, function: str, codes: list[Code]) -> Code:
        if any(not code.constant for code in codes) or codes[0].kind != "str":
            raise Unsupported
        text, normal = codes[0].value, len(codes) > 1 and codes[1].value
        if type(normal) is not bool:
            raise Unsupported
        try:
            return Code("semver", bound=len(text), constant=True, value=semver.parse_with(text, normal))
        except CelRuntimeError:
            raise Unsupported from None

    def _as_integer(self, function: str, codes: list[Code]) -> Code:
        if codes[0].kind != "quantity" or codes[0].constant:
            raise Unsupported
        return Code("int", f"WHOLE({codes[0].text})", 0)

    def _version_part(self, function: str, codes: list[Code]) -> Code:
        if codes[0].kind != "dyn" or codes[0].constant:
            raise Unsupported
        name = self._temporary()
        part = f"({name} := {codes[0].text}.key[{PARTS[function]}])"
        return Code("int", f"({part} if {name} <= {self._constant(INT_MAX)} else STOP())", 0)

    def _size(self, function: str, codes: list[Code]) -> Code:
        code = codes[0]
        if code.constant or code.kind not in ("dyn", "str", "entries", "domains"):
            raise Unsupported
        return Code("int", f"len({code.safe or code.text})", 0)

    def _string_test(self, function: str, codes: list[Code]) -> Code:
        text, part = codes
        if text.constant or text.kind not in ("dyn", "str") or part.kind != "str":
            raise Unsupported
        if function == "contains":
            source = f"({text.text}.find({self._read(part)}) >= 0)"
            bound = WALK * (len(part.value) + 1 if part.constant else WALK)
            return Code("bool", source, bound)
        return Code("bool", f"{text.text}.{function.lower()}({self._read(part)})", WALK)

    def _matches(self, function: str, codes: list[Code]) -> Code:
        text, pattern = codes
        if text.constant or text.kind not in ("dyn", "str") or not pattern.constant or pattern.kind != "str":
            raise Unsupported
        search = self._constant(compile_pattern(pattern.value).search)
        bound = WALK * (len(pattern.value) + 1)
        return Code("bool", f"({search}({text.text}.encode()) is not None)", bound)

    def _includes(self, function: str, codes: list[Code]) -> Code:
        target, value = codes
        if target.kind != "dyn" or target.constant or not value.constant or value.kind != "str":
            raise Unsupported
        name, key = self._temporary(), self._constant(value.value)
        listed = f"(len({name}) <= {MAX_VALUES} or STOP()) and {key} in {name}"
        source = f"(({listed}) if ({name} := {target.text}).__class__ is LIST else {name} == {key})"
        return Code("bool", source, 0)

    def _ascii(self, function: str, codes: list[Code]) -> Code:
        if codes[0].constant or codes[0].kind not in ("dyn", "str"):
            raise Unsupported
        table = "LOWER" if function == "lowerAscii" else "UPPER"
        return Code("str", f"{codes[0].text}.translate({table})", WALK)

    def _arithmetic(self, function: str, codes: list[Code]) -> Code:
        if not {code.kind for code in codes} <= {"int", "dyn"} or all(code.constant for code in codes):
            raise Unsupported
        name = ARITHMETIC[function][0]
        return Code("int", f"{name}({self._read(codes[0])}, {self._read(codes[1])})", WALK)

    def _dyn(self, function: str, codes: list[Code]) -> Code:
        if codes[0].kind != "dyn":
            raise Unsupported
        return replace(codes[0], bound=0)

    # -- membership and loops

    def _membership(self, item: Expr, container: Expr, scope: _Scope, depth: int) -> Code:
        if isinstance(container, ListLit):
            return self._in_list(item, container, scope, depth)
        value, values = self.emit(item, scope, depth), self.emit(container, scope, depth)
        if value.kind != "str" or values.kind not in ("entries", "domains"):
            raise Unsupported
        bound = 1 + value.bound + values.bound
        return Code("bool", f"({self._read(value)} in {values.safe or values.text})", bound)

    def _in_list(self, item: Expr, container: ListLit, scope: _Scope, depth: int) -> Code:
        constants = [item.value for item in container.items if isinstance(item, Const)]
        kinds = {type(value) for value in constants}
        if len(constants) != len(container.items) or container.optional or kinds not in ({str}, {int}):
            raise Unsupported
        value = self.emit(item, scope, depth)
        if value.constant:
            raise Unsupported
        keys = self._constant(frozenset(constants))
        if value.kind in ("dyn", "str") and kinds == {str}:
            return Code("bool", f"({value.text} in {keys})", value.bound)
        if value.kind == "int" and kinds == {int}:
            return Code("bool", f"({value.text} in {keys})", value.bound)
        if value.kind == "dyn" and kinds == {int}:
            name = self._temporary()
            return Code(
                "bool", f"(({name} := {value.text}) in {keys} and {name}.__class__ is INT)", value.bound
            )
        raise Unsupported

    def _comprehension(self, expr: Comprehension, scope: _Scope, depth: int) -> Code:
        if expr.macro == "cel.bind":
            return self._bind(expr, scope, depth)
        step = expr.step
        if expr.macro not in ("all", "exists") or expr.second is not None or not isinstance(step, Call):
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
        return Code("bool", f"({(' or ' if expr.macro == 'exists' else ' and ').join(terms)})", bound)

    def _iterated(self, expr: Comprehension, predicate: Expr, scope: _Scope, depth: int) -> Code:
        """A loop over a list attribute."""
        items = self.emit(expr.range, scope, depth)
        if items.kind != "dyn" or items.constant or self._looping:
            raise Unsupported
        name, item = self._temporary(), self._temporary()
        self._looping = True
        code = self.emit(predicate, {**scope, expr.variable: Code("dyn", item)}, depth)
        self._looping = False
        loop = "any" if expr.macro == "exists" else "all"
        test = f"{loop}({self.condition(code)} for {item} in {name})"
        source = f"((({name} := {items.text}).__class__ is LIST or STOP()) and {test})"
        return Code("bool", source, items.bound + MAX_PLAIN_LIST * (5 + code.bound))

    def _bind(self, expr: Comprehension, scope: _Scope, depth: int) -> Code:
        init = self.emit(expr.init, scope, depth)
        if self._looping and not init.constant:
            raise Unsupported  # it may depend on the element, and is written before the loop
        if init.kind not in ("entries", "dyn", "str", "int", "quantity", "bool"):
            raise Unsupported
        if init.kind == "entries":
            name = self._temporary()
            self.prelude.append(f"{name} = {init.safe}")
            init = replace(init, text=name, safe=name)
        if len(init.text) > 200:  # it is written out again at every use
            raise Unsupported
        local = replace(init, bound=init.bound + 1)
        return self.emit(expr.result, {**scope, expr.accumulator: local}, depth)


_Handler: TypeAlias = Callable[[Emitter, str, list[Code]], Code]
_HANDLERS: dict[tuple[str, int], _Handler] = {
    ("!_", 1): Emitter._negation,
    ("_?_:_", 3): Emitter._choice,
    ("_[_]", 2): Emitter._index,
    ("_?._", 2): Emitter._optional,
    ("_[?_]", 2): Emitter._optional,
    ("orValue", 2): Emitter._or_value,
    ("hasValue", 1): Emitter._has_value,
    ("value", 1): Emitter._value,
    ("_==_", 2): Emitter._equality,
    ("_!=_", 2): Emitter._equality,
    **{(name, 2): Emitter._order for name in OPERATORS},
    ("compareTo", 2): Emitter._signs,
    ("isGreaterThan", 2): Emitter._relation,
    ("isLessThan", 2): Emitter._relation,
    ("quantity", 1): Emitter._quantity,
    ("semver", 1): Emitter._semver,
    ("semver", 2): Emitter._semver,
    ("asInteger", 1): Emitter._as_integer,
    **{(name, 1): Emitter._version_part for name in PARTS},
    ("size", 1): Emitter._size,
    ("startsWith", 2): Emitter._string_test,
    ("endsWith", 2): Emitter._string_test,
    ("contains", 2): Emitter._string_test,
    ("matches", 2): Emitter._matches,
    ("includes", 2): Emitter._includes,
    ("lowerAscii", 1): Emitter._ascii,
    ("upperAscii", 1): Emitter._ascii,
    **{(name, 2): Emitter._arithmetic for name in ARITHMETIC},
    ("dyn", 1): Emitter._dyn,
}
