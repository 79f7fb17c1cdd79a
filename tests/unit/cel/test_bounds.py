"""Hostile expressions: bounded time, bounded memory, no overflow of Python's stack."""

from __future__ import annotations

import resource
import sys
import time

import pytest

from plimsoll.cel import compile_selector
from plimsoll.errors import CelCompileError, CelCostError, CelRuntimeError
from tests.unit.cel.evaluation import outcome, sample, value

#: Far above what they take (at most five seconds); hostile work would take hours. The time of a virtual CPU
#: includes what its host takes from it.
SECONDS = 100


def nested_binds(first: str, step: str, levels: int, last: str) -> str:
    """`cel.bind(x0, first, cel.bind(x1, step of x0, ...))`."""
    expression = last.replace("%", f"x{levels}")
    for level in range(levels, 0, -1):
        made = step.replace("%", f"x{level - 1}")
        expression = f"cel.bind(x{level}, {made}, {expression})"
    return f"cel.bind(x0, {first}, {expression})"


HOSTILE = {
    "huge range": "lists.range(1099511627776).size() > 0",
    "range past the limit": "lists.range(1500000).size() > 0",
    "doubling list": nested_binds("[1]", "% + %", 60, "%.size() > 0"),
    "doubling string": nested_binds("'a'", "% + %", 60, "%.size() > 0"),
    "squaring replace": nested_binds("'aaaaaaaa'", "%.replace('a', %)", 20, "%.size() > 0"),
    "growing format": nested_binds("'%s%s%s%s'", "%.format([%, %, %, %])", 20, "%.size() > 0"),
    "growing join": nested_binds("'aaaaaaaa'", "[%, %, %, %, %, %, %, %].join(%)", 20, "%.size() > 0"),
    "wide equality": nested_binds("[1]", "[%, %, %, %, %, %, %, %]", 20, "% == %"),
    "wide empty equality": nested_binds("[]", "[%, %, %, %, %, %, %, %]", 20, "% == [[]]  || % == %").replace(
        "[[]]", "x19"
    ),
    "wide search": nested_binds("[]", "[%, %, %, %, %, %, %, %]", 20, "%.indexOf(%) == 0"),
    "wide flatten": nested_binds(
        "[]", "[%, %, %, %, %, %, %, %]", 20, "dyn(%).flatten(50).size() == 0"
    ).replace("dyn(", "("),
    "wide format": nested_binds(
        "[]", "[%, %, %, %, %, %, %, %]", 20, "'%s'.format([x20]).size() == 0"
    ).replace("'x20s'", "'%s'"),
    "list added again": "lists.range(1000).all(x, (lists.range(300) + lists.range(300)).size() > 0)",
    "long all": "lists.range(100000).all(x, x >= 0)",
    "long map": "lists.range(50000).map(x, x).size() == 50000",
    "long filter": "lists.range(50000).filter(x, x > 0).size() > 0",
    "nested all": "lists.range(1000).all(x, lists.range(1000).all(y, x >= 0))",
    "free terms": "lists.range(200000).all(x, " + " && ".join(["true"] * 1500) + ")",
    "many matches": "'aaaaaaaaaa'.replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').findAll('').size() > 0",
    "sort of many": "lists.range(100000).sort().size() > 0",
    "distinct of many": "lists.range(100000).distinct().size() > 0",
    "sets of many": "sets.equivalent(lists.range(100000), lists.range(100000))",
    "large precision": "'%.999999f'.format([1.0]).size() > 0",
    "larger precision": "'%.999999999f'.format([1.0]).size() > 0",
    "wide message": nested_binds(
        "[]", "[%, %, %, %, %, %, %, %]", 12, "google.protobuf.ListValue{values: %} == []"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_expressions_are_bounded(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        selector = compile_selector(HOSTILE[name])
        outcome = selector.evaluate_exact(sample())
        assert outcome.error is None or isinstance(outcome.error, CelRuntimeError)
    except CelCompileError:
        pass
    assert time.process_time() - start < SECONDS
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400_000  # kilobytes


def test_a_long_all_macro_is_allowed_as_upstream() -> None:
    found = outcome("lists.range(100000).all(x, x >= 0)")
    assert (found.result, found.cost) == (True, 600012)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).map(x, lists.range(900)).flatten().size() == 900000",
        "lists.range(200000) == lists.range(200000)",
        "(lists.range(300000) + lists.range(300000)).size() == 600000",
        "lists.range(50000).map(x, 'aaaaaaaaaa').join().size() == 500000",
        "lists.range(60000).map(x, string(x)).size() == 60000",
    ],
)
def test_expressions_within_the_cost_limit_are_evaluated(expression: str) -> None:
    assert value(expression)


def test_growth_ends_in_a_cost_error() -> None:
    for name in ("huge range", "doubling list", "squaring replace", "wide equality", "wide flatten"):
        error = compile_selector(HOSTILE[name]).evaluate_exact(sample()).error
        assert isinstance(error, CelCostError), name


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 100 + "true" + ")" * 100,
        "!(" * 100 + "true" + ")" * 100,
        " + ".join(["1"] * 200) + " == 200",
        "[" * 80 + "1" + "]" * 80 + " == " + "[" * 80 + "1" + "]" * 80,
        "true ? (" * 80 + "true" + ") : false" * 80,
        "device" + ".driver" + " + ''" * 200 + " == 'gpu.example.com'",
        nested_binds("1", "% + 1", 80, "% == 81"),
        "'a'" + ".lowerAscii()" * 150 + " == 'a'",
        "[1]" + ".map(x, x)" * 60 + " == [1]",
        "[1].all(x, " * 60 + "true" + ")" * 60,
        " && ".join(["device.driver == 'gpu.example.com'"] * 220),
        "optional.of(1)" + ".or(optional.of(1))" * 100 + ".value() == 1",
    ],
)
def test_deep_nesting_evaluates(expression: str) -> None:
    assert value(expression)


def test_deep_nesting_evaluates_near_the_recursion_limit() -> None:
    expression = "!(" * 110 + "true" + ")" * 110

    def down(levels: int) -> bool:
        return down(levels - 1) if levels else value(expression)

    assert down(sys.getrecursionlimit() - _frames() - 120)


def _frames() -> int:
    count, frame = 0, sys._getframe()
    while frame.f_back is not None:
        count, frame = count + 1, frame.f_back
    return count
