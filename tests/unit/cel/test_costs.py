"""Run-time costs, in the units of the limit."""

from __future__ import annotations

import pytest

from plimsoll.cel import compile_selector
from plimsoll.errors import CelCostError
from tests.unit.cel.evaluation import cost, outcome, sample

A = "device.attributes['gpu.example.com']"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", 0),
        ("1 == 1", 1),
        ("device.driver == ''", 2),  # comparing with an empty string is free
        (f"{A}.model == 'a100'", 5),
        (f"has({A}.model)", 3),
        (f"{A}[device.driver + ''] == 1 || true", 9),
        (f"{A}.?nope.hasValue()", 4),
        (f"{A}.?model.orValue('') == 'a100'", 5),
        (f"{A}.nope == 1 || true", 5),
        ("1 / 0 == 1 || true", 2),
        ("'abc'.matches(dyn('b') + '')", 2),
        ("(1 / 0 == 1 ? 'a' : 'b').matches('a') || true", 2),  # a constant pattern: the call never starts
        ("string(1 / 0) == 'x' || true", 3),
        ("true ? device.driver == 'x' : false", 3),
        ("(true ? device : device).driver == 'gpu'", 2),
        ("has((true ? device : device).driver)", 0),
        ("[device.driver].size() == 1", 14),
        ("[1, 2].size() == 2", 2),
        ("{'a': device.driver}.size() == 1", 34),
        ("google.protobuf.Int64Value{value: 1} == 1", 41),
        ("device.driver in ['a', 'b']", 2),
        ("'a' in [device.driver]", 13),
        ("1 / 0 in [] || true", 0),
        ("[1, 2, 3].all(x, x > 0)", 16),
        ("[1, 2, 3].exists(x, x == 1)", 7 + 3),
        ("[1, 2, 3].exists_one(x, x == 1)", 3 * 2 + 2 + 2),
        ("[1, 2].map(x, x).size() == 2", 2 * 13 + 1 + 2),
        ("[1, 2].map(x, 7).size() == 2", 2 * 2 + 1 + 2),
        ("[1, 2].filter(x, x > 1).size() == 1", 2 * 2 + 13 + 1 + 2),
        ("{'a': 1}.transformMap(k, v, v).size() == 1", 4 + 1 + 2),
        ("{'a': 1}.transformMapEntry(k, v, {k: v}).size() == 1", 1 + 32 + 1 + 1 + 2),
        ("cel.bind(x, device.driver, x == x)", 2 + 2 + 2),
        ("cel.bind(x, device.driver, true)", 0),
        ("'aaaaaaaaaaaaaaa'.startsWith('a')", 2),
        ("'aaaaaaaaaaaaaaa'.contains('aaaaaaaaaaa')", 4),
        ("'aaaaaaaaaaaaaaa' + 'aaaaaa' == 'a'", 4),
        ("'aaaaaaaaaaaaaaa'.replace('a', 'b') == ''", 3),
        ("['a', 'b'].join('-') == ''", 1),
        ("lists.range(5).size() == 5", 16 + 2),
        ("[3, 1].sort().size() == 2", 2 * 4 + 11 + 2),
        ("['b', 'a'].sort().size() == 2", int(2.1 * 4) + 11 + 2),
        ("[1, 2].distinct().size() == 2", 8 + 11 + 2),
        ("[[1], [2]].flatten().size() == 2", 2 + 11 + 2),
        ("sets.contains([1, 2], [1])", 3),
        ("sets.equivalent([1, 2], [1])", 5),
        ("[1, 2, 3].sum() == 6", 4),
        ("['aaaaaaaaaaaaaaa'].max() == ''", 1),
        ("quantity('40Gi') == quantity('40Gi')", 3),
        ("cidr('10.0.0.0/8').containsIP('10.0.0.1')", 1 + 1 + 1),
        ("cidr('10.0.0.0/8').ip() == ip('10.0.0.0')", 1 + 1 + 1 + 1),
        ("format.uuid().validate('x').hasValue()", 1 + 18 + 1),
        ("optional.of('aaaaaaaaaaaaaaa') == optional.of('aaaaaaaaaaaaaaa')", 1 + 1 + 2),
    ],
)
def test_cost(expression: str, expected: int) -> None:
    assert cost(expression) == expected


def test_limit() -> None:
    selector = compile_selector("[1, 2, 3].all(x, x > 0)")
    assert selector.evaluate_exact(sample(), 16).result is True
    cancelled = selector.evaluate_exact(sample(), 15)
    assert isinstance(cancelled.error, CelCostError)
    assert cancelled.cost == 16


def test_limit_is_not_absorbed() -> None:
    selector = compile_selector("lists.range(50).all(x, x > 0) || true")
    assert isinstance(selector.evaluate_exact(sample(), 20).error, CelCostError)


def test_cost_of_a_negative_depth_wraps_like_upstream() -> None:
    assert outcome("[[1], [2]].flatten(-1).size() == 1").cost == 9 + 2
    assert isinstance(
        outcome("lists.range(50).map(x, [x]).flatten(-40).size() == 1 || true").error, CelCostError
    )
