"""Optional values and optional access."""

from __future__ import annotations

import pytest

from tests.unit.cel.evaluation import fails, value

D = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    "expression",
    [
        f"{D}.?model.hasValue() && !{D}.?nope.hasValue() && {D}[?'model'].value() == 'a100'",
        f"{D}.?nope.orValue('x') == 'x' && {D}.?model.orValue('x') == 'a100'",
        f"{D}.?nope.or({D}.?model).value() == 'a100'",
        f"{D}.?nope.?deeper.hasValue() == false",
        f"{D}.?version.optMap(v, v.major()).orValue(0) == 535",
        f"{D}.?nope.optMap(v, v.major()).orValue(7) == 7",
        f"{D}.?model.optFlatMap(m, m == 'a100' ? optional.of(1) : optional.none()).value() == 1",
        "device.attributes.?nope.hasValue() && device.attributes[?'nope'].value().size() == 0",
        "device.?driver.value() == 'gpu.example.com'",
        "[1, 2][?1].value() == 2 && ![1, 2][?2].hasValue() && ![1, 2][?-1].hasValue()",
        "{'a': {'b': 1}}.?a.b.value() == 1 && !{'a': {}}.?a.b.hasValue()",
        "has({'a': {'b': 1}}.?a.b) && !has({'a': {}}.?a.b) && !has({}.?a.b)",
        "[?optional.of(1), ?optional.none(), 2] == [1, 2]",
        "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
        "optional.of(1) == optional.of(1) && optional.of(1) != optional.none()",
        "optional.none() == optional.none()",
        "optional.ofNonZeroValue(0) == optional.none() && optional.ofNonZeroValue('x').hasValue()",
        "!optional.ofNonZeroValue([]).hasValue() && !optional.ofNonZeroValue({}).hasValue()",
        "!optional.ofNonZeroValue(duration('0s')).hasValue() && !optional.ofNonZeroValue(0u).hasValue()",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1]",
        "[optional.of('a')].unwrapOpt() == ['a']",
        "optional.of([1, 2])[0].value() == 1 && optional.of({'a': 1}).a.value() == 1",
        "cel.bind(o, device.attributes['gpu.example.com'].?model, o.hasValue() && o.value() == 'a100')",
    ],
)
def test_holds(expression: str) -> None:
    assert value(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "optional.none().value() == 1",
        f"{D}.?nope.value() == 'x'",
        "dyn(1).hasValue()",
        "[?dyn(1)].size() == 1",
        "{?'a': dyn(1)}.size() == 1",
        "optional.unwrap([dyn(2)]).size() == 1",
        # Upstream adapts the value of an optional variable anew, which it cannot do for its own types.
        f"cel.bind(o, {D}.?version, o.value().major() == 535)",
        "cel.bind(o, device.capacity['gpu.example.com'].?memory, o.value().isInteger())",
    ],
)
def test_fails(expression: str) -> None:
    assert fails(expression)
