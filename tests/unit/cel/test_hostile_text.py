"""Any text either passes `check` or raises CelCompileError, quickly."""

from __future__ import annotations

import inspect
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.cel.check import check
from plimsoll.cel.static.environment import Environment
from plimsoll.errors import CelCompileError
from tests.sizes import examples

ENVIRONMENTS = (
    Environment("stored"),
    Environment("stored", list_attributes=True),
    Environment("new", consumable_capacity=False),
)
WORDS = (
    "( ) [ ] { } . , : ? ! - + * / % == != < <= > >= && || in true false null "
    "0 1 -1 1u 1.5 0x1f 9223372036854775807 '' 'a' \"[\" b'a' r'\\d' '''b''' "
    "device driver attributes capacity x y cel bind has all exists exists_one map filter optMap optFlatMap "
    "existsOne transformList transformMap transformMapEntry sortBy size string int double duration timestamp "
    "type dyn optional of none orValue value matches format quantity semver ip cidr url sets contains lists "
    "range sort google protobuf Duration Int64Value { seconds list A //"
)
TOKENS = WORDS.split(" ")

soup = st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join)
tight_soup = st.lists(st.sampled_from(TOKENS), max_size=40).map("".join)

ATOMS = st.sampled_from(
    [
        "1",
        "2u",
        "1.5",
        "'a'",
        "b'a'",
        "null",
        "true",
        "[]",
        "{}",
        "x",
        "int",
        "device",
        "device.driver",
        "device.attributes['a'].b",
        "device.capacity.a.b",
        "optional.none()",
        "duration('1s')",
        "timestamp(0)",
        "quantity('1')",
    ]
)
SHAPES = [
    "({0} + {1})",
    "({0} == {1})",
    "({0} < {1})",
    "({0} in {1})",
    "({0} && {1})",
    "({0} ? {1} : {2})",
    "!{0}",
    "-{0}",
    "{0}.a",
    "{0}.?a",
    "{0}[{1}]",
    "{0}[?{1}]",
    "[{0}, {1}]",
    "[?{0}]",
    "{{{0}: {1}}}",
    "{{?'a': {0}}}",
    "{0}.map(x, {1})",
    "{0}.all(x, {1})",
    "{0}.filter(x, {1})",
    "{0}.exists(x, y, {1})",
    "{0}.transformMap(x, y, {1}, {2})",
    "{0}.transformMapEntry(x, y, {1})",
    "{0}.sortBy(x, {1})",
    "{0}.optMap(x, {1})",
    "{0}.optFlatMap(x, {1})",
    "cel.bind(x, {0}, {1})",
    "has({0}.b)",
    "size({0})",
    "string({0})",
    "int({0})",
    "dyn({0})",
    "type({0})",
    "optional.of({0})",
    "{0}.orValue({1})",
    "{0}.add({1})",
    "{0}.replace({1}, {2})",
    "{0}.matches({1})",
    "{0}.join({1})",
    "{0}.flatten()",
    "{0}.slice(0, {1})",
    "'%s'.format([{0}])",
    "sets.contains({0}, {1})",
    "google.protobuf.Value{{number_value: {0}}}",
]


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(str.format, st.sampled_from(SHAPES), inner, inner, inner)


expressions = st.recursive(ATOMS, grow, max_leaves=12)


def compiles(source: str, environment: Environment) -> bool:
    refusal: CelCompileError | None = None
    try:
        checked = check(source, environment)
    except CelCompileError as error:
        refusal = error
    if refusal is not None:
        assert str(refusal)
        assert 0 <= refusal.position <= len(source)
        return False
    assert 0 <= checked.estimated_cost < 1 << 64
    return True


@given(source=st.one_of(st.text(max_size=80), soup, tight_soup), environment=st.sampled_from(ENVIRONMENTS))
@settings(max_examples=examples(300), deadline=None)
def test_any_text(source: str, environment: Environment) -> None:
    compiles(source, environment)


@given(source=expressions, environment=st.sampled_from(ENVIRONMENTS))
@settings(max_examples=examples(300), deadline=None)
def test_any_expression(source: str, environment: Environment) -> None:
    # A tree that checks still checks in brackets, at the same cost.
    if compiles(source, environment):
        assert check(f"({source})", environment).estimated_cost == check(source, environment).estimated_cost


@given(source=expressions)
@settings(max_examples=examples(100), deadline=None)
def test_new_expressions_are_also_valid_when_stored(source: str) -> None:
    new = Environment("new", consumable_capacity=False)
    if compiles(source, new):
        assert compiles(source, Environment("stored", consumable_capacity=False))


@pytest.mark.parametrize(
    "source",
    [
        "(" * 10_000,
        "[" * 5_000 + "]" * 5_000,
        "a." * 5_000 + "a",
        "!" * 9_999 + "x",
        "1" + "+1" * 5_000,
        "true" + "||true" * 1_600,
        "x ? y : " * 1_200 + "z",
        "'" * 10_001,
        '"""' * 3_333,
        "/" * 10_000,
        "[" + "[]," * 3_300 + "] == []",
        "{" + "1:1," * 2_500 + "} == {}",
        "[" + "1<2," * 2_500 + "] == []",
        "optional.of(1)" + ".optMap(x, x)" * 200 + ".hasValue()",
        "[1].all(a, " * 240 + "true" + ")" * 240,
        "cel.bind(a, 1, " * 240 + "true" + ")" * 240,
        "dyn(" * 240 + "1" + ")" * 240 + " == 1",
        "1" * 10_000 + " == 1",
        "1." + "1" * 10_000 + " == 1.0",
        "'a'.matches('" + "(" * 4_000 + ")" * 4_000 + "')",
        "'a'.matches('" + "a{1000}" * 1_400 + "')",
        "'" + "%s" * 4_000 + "'.format([" + "1," * 900 + "]) == ''",
        "'%." + "9" * 9_000 + "f'.format([1.0]) == ''",
    ],
    ids=lambda source: source[:20],
)
def test_long_texts_are_parsed_quickly(source: str) -> None:
    before = time.process_time()
    compiles(source, ENVIRONMENTS[0])
    # A generous bound: the worst of these takes a few tenths of a second on a slow machine.
    assert time.process_time() - before < 20


def test_deep_call_stacks_do_not_crash() -> None:
    """The result does not depend on the remaining stack of the caller."""
    nested = "[" * 240 + "]" * 240 + " == []"

    def descend(levels: int) -> bool:
        return compiles(nested, ENVIRONMENTS[0]) if levels == 0 else descend(levels - 1)

    left = sys.getrecursionlimit() - len(inspect.stack(0))
    assert descend(left - 800)
    assert descend(left - 150)
    assert descend(left - 60)
