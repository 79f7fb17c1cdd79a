"""Random well-typed expressions and random devices, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

DOMAINS = ("gpu.example.com", "other.example.com", "nope.example.com")
NAMES = ("s", "t", "i", "j", "b", "v", "missing")
AMOUNTS = ("q", "r", "missing")
TEXTS = ("", "a", "a100", "h100", "A-b", "1.2.3", "é☃")
VERSIONS = ("0.0.1", "1.2.3", "1.2.3-rc.1", "535.104.5")
QUANTITIES = ("0", "1", "-3", "500m", "40Gi", "1.5Gi", "9223372036854775808", "1n")
INTS = (-1, 0, 1, 2, 3, 64, 2**63 - 1, -(2**63))


def _quoted(text: str) -> str:
    return '"' + text + '"'


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Any]:
    kinds = [
        st.sampled_from(TEXTS).map(lambda text: {"string": text}),
        st.sampled_from(INTS).map(lambda number: {"int": number}),
        st.booleans().map(lambda flag: {"bool": flag}),
        st.sampled_from(VERSIONS).map(lambda text: {"version": text}),
    ]
    usual = {"s": 0, "t": 0, "i": 1, "j": 1, "b": 2, "v": 3}
    found: dict[str, Any] = {}
    for name, kind in usual.items():
        choice = draw(st.integers(0, 9))
        if choice == 0:
            continue
        found[name] = draw(kinds[kind] if choice < 8 else st.one_of(kinds))
    return found


@st.composite
def devices(draw: st.DrawFn) -> dict[str, Any]:
    found = dict(draw(attributes()))
    for name, entry in draw(attributes()).items():
        found[f"other.example.com/{name}"] = entry
    amounts = {
        name: {"value": draw(st.sampled_from(QUANTITIES))}
        for name in ("q", "r", "other.example.com/q")
        if draw(st.integers(0, 5))
    }
    return {"attributes": found, "capacity": amounts, "allowMultipleAllocations": draw(st.booleans())}


domain = st.sampled_from((*DOMAINS, *DOMAINS[:1] * 4)).map(lambda name: f"[{_quoted(name)}]") | st.just(
    "[device.driver]"
)


def _attribute(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    access = st.sampled_from(names).flatmap(lambda name: st.sampled_from([f".{name}", f"[{_quoted(name)}]"]))
    return st.builds(lambda where, what: f"device.attributes{where}{what}", domain, access)


def _optional(names: tuple[str, ...], default: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda where, name, other: f"device.attributes{where}.?{name}.orValue({other})",
        domain,
        st.sampled_from(names),
        default,
    )


text_literal = st.sampled_from(TEXTS).map(_quoted)
int_literal = st.sampled_from(INTS).map(str)
version_literal = st.sampled_from(VERSIONS).map(lambda text: f'semver("{text}")')
quantity_literal = st.sampled_from(QUANTITIES).map(lambda text: f'quantity("{text}")')


def texts(depth: int) -> st.SearchStrategy[str]:
    base = st.one_of(
        _attribute(("s", "t", "i", "missing")),
        _optional(("s", "missing"), text_literal),
        st.just("device.driver"),
    )
    if depth <= 0:
        return base
    inner = texts(depth - 1)
    return st.one_of(
        base,
        base,
        inner.map(lambda text: f"{text}.lowerAscii()"),
        inner.map(lambda text: f"{text}.upperAscii()"),
        st.builds(lambda text, other: f"({text} + {other})", inner, text_literal),
        inner.map(lambda text: f'{text}.replace("0", "zz")'),
        inner.map(lambda text: f"{text}.trim()"),
    )


def ints(depth: int) -> st.SearchStrategy[str]:
    base = st.one_of(
        _attribute(("i", "j", "s", "b", "missing")),
        _optional(("i", "missing"), int_literal),
        int_literal,
        texts(0).map(lambda text: f"{text}.size()"),
        _attribute(("v", "s")).map(lambda version: f"{version}.major()"),
        quantities(0).map(lambda amount: f"{amount}.asInteger()"),
    )
    if depth <= 0:
        return base
    inner = ints(depth - 1)
    return st.one_of(
        base, base, st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from("+-*/%"), inner)
    )


def quantities(depth: int) -> st.SearchStrategy[str]:
    base = st.one_of(
        st.builds(lambda where, name: f"device.capacity{where}.{name}", domain, st.sampled_from(AMOUNTS)),
        st.builds(
            lambda where, name, other: f"device.capacity{where}.?{name}.orValue({other})",
            domain,
            st.sampled_from(AMOUNTS),
            quantity_literal,
        ),
        quantity_literal,
    )
    if depth <= 0:
        return base
    inner = quantities(depth - 1)
    return st.one_of(base, base, st.builds(lambda a, b: f"{a}.add({b})", inner, inner))


def _comparison(
    left: st.SearchStrategy[str], right: st.SearchStrategy[str], signs: str
) -> st.SearchStrategy[str]:
    return st.builds(lambda a, sign, b: f"{a} {sign} {b}", left, st.sampled_from(signs.split()), right)


def _ordered(left: st.SearchStrategy[str], right: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    calls = st.builds(
        lambda a, name, b: f"{a}.{name}({b})", left, st.sampled_from(("isGreaterThan", "isLessThan")), right
    )
    signed = st.builds(
        lambda a, b, sign, bound: f"{a}.compareTo({b}) {sign} {bound}",
        left,
        right,
        st.sampled_from(("<", "<=", ">", ">=", "==", "!=")),
        st.sampled_from((-1, 0, 1)),
    )
    return st.one_of(calls, signed)


def conditions(depth: int, variable: str = "") -> st.SearchStrategy[str]:
    """Expressions of type bool; `variable` is an int variable in scope, if any."""
    versions = st.one_of(
        _attribute(("v", "s", "missing")), _optional(("v", "missing"), version_literal), version_literal
    )
    amounts, numbers = quantities(min(depth, 1)), ints(min(depth, 1))
    any_attribute = _attribute(NAMES)
    base = st.one_of(
        _comparison(
            any_attribute,
            st.one_of(text_literal, int_literal, st.sampled_from(("true", "false", "null"))),
            "== !=",
        ),
        _comparison(st.one_of(text_literal, int_literal), any_attribute, "== !="),
        _comparison(any_attribute, any_attribute, "== !="),
        _comparison(any_attribute, st.one_of(text_literal, int_literal), "< <= > >="),
        _comparison(numbers, int_literal, "== != < <= > >="),
        _comparison(texts(1), text_literal, "== != < >"),
        _comparison(amounts, amounts, "== !="),
        _ordered(amounts, amounts),
        _ordered(versions, versions),
        st.builds(lambda a, b: f"{a} == {b}", _attribute(("v", "s")), version_literal),
        st.builds(
            lambda a, f, b: f"{a}.{f}({b})",
            texts(1),
            st.sampled_from(("startsWith", "endsWith", "contains")),
            text_literal,
        ),
        st.builds(
            lambda a, p: f'{a}.matches("{p}")', texts(0), st.sampled_from(("^a", "[0-9]+$", "^$", "h.*0"))
        ),
        st.builds(
            lambda a, items: f"{a} in [{', '.join(items)}]", any_attribute, st.lists(text_literal, max_size=3)
        ),
        st.builds(
            lambda a, items: f"{a} in [{', '.join(items)}]", any_attribute, st.lists(int_literal, max_size=3)
        ),
        st.builds(
            lambda where, name: f"has(device.attributes{where}.{name})", domain, st.sampled_from(NAMES)
        ),
        st.builds(
            lambda where, name: f'"{name}" in device.attributes{where}', domain, st.sampled_from(NAMES)
        ),
        st.builds(
            lambda where, name: f"device.capacity{where}.?{name}.hasValue()", domain, st.sampled_from(AMOUNTS)
        ),
        _attribute(("b", "i", "s")),
        st.sampled_from(("true", "false", "device.allowMultipleAllocations", "1 / 0 == 1")),
    )
    if variable:
        base = st.one_of(base, _comparison(st.just(variable), numbers, "== < >"))
    if depth <= 0:
        return base
    inner = conditions(depth - 1, variable)
    name = f"x{depth}"
    loop = conditions(depth - 1, name)
    return st.one_of(
        base,
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", inner, st.sampled_from(("&&", "||")), inner),
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", inner, st.sampled_from(("&&", "||")), inner),
        inner.map(lambda a: f"!({a})"),
        st.builds(lambda a, b, c: f"({a} ? {b} : {c})", inner, inner, inner),
        st.builds(lambda value, body: f"cel.bind({name}, {value}, {body})", numbers, loop),
        st.builds(
            lambda where, text: (
                f"cel.bind(m{depth}, device.attributes{where}, m{depth}.s == {text} || has(m{depth}.b))"
            ),
            domain,
            text_literal,
        ),
        st.builds(
            lambda items, macro, body: f"[{', '.join(items)}].{macro}({name}, {body})",
            st.lists(int_literal, min_size=1, max_size=3),
            st.sampled_from(("all", "exists", "exists_one")),
            loop,
        ),
    )
