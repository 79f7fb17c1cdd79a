"""Code generator: covered expressions, and no expression text in the generated source."""

from __future__ import annotations

from types import FunctionType

import pytest

from plimsoll.cel import Selector, compile_selector, flatten
from plimsoll.cel.check import check
from plimsoll.cel.codegen import generator as generate
from plimsoll.cel.static.environment import Environment
from plimsoll.errors import CelRuntimeError
from tests.unit.cel.evaluation import DRIVER, LISTS, sample, value

A = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'

COVERED = [
    f'{A}.model == "a100" && {C}.memory.compareTo(quantity("40Gi")) >= 0',
    f'{A}.model != "a100" || {A}["index"] == 3',
    f"{A}.index >= 2 && 5 > {A}.index && {A}.zero == 0 && {A}.index == 1",
    f"{A}.ecc && !{A}.mig && {A}.ecc == true && {A}.mig == false",
    'device.driver == "gpu.example.com" && device.allowMultipleAllocations',
    f'{A}.model in ["a100", "h100"] && {A}.index in [1, 2, 3]',
    f'has({A}.model) && "model" in {A}',
    '"gpu.example.com" in device.attributes && device.driver in device.attributes',
    f'{A}.?model.orValue("x") == "a100" && {A}.?nope.orValue(3) == 3 && {A}.?model.hasValue()',
    f'{C}.?memory.orValue(quantity("0")).isGreaterThan(quantity("1Gi")) && {A}[?"model"].value() == "a100"',
    f"cel.bind(a, {A}, a.model == 'a100' && a.index == 3 && has(a.ecc))",
    f"cel.bind(m, {A}.model, m.startsWith('a') && m.endsWith('0') && m.contains('10'))",
    f'{C}.memory.isLessThan(quantity("80Gi")) && {C}.memory == quantity("40Gi") && {C}.memory != {C}.cores',
    f'{A}.version.compareTo(semver("535.0.0")) > 0 && {A}.version.isGreaterThan(semver("v1", true))',
    f'{A}.version == semver("535.104.5")',
    f"{A}.version.major() == 535 && 0 <= {A}.version.compareTo({A}.version)",
    f'{A}.model.matches("^a[0-9]+$") && device.driver.matches("example") && {A}.model.size() == 4',
    f'["a", "a100"].exists(m, m == {A}.model) && [1, 2].all(x, {A}.index > x)',
    f'{A}.ecc ? {A}.model == "a100" : false',
    f"{A}.index % 2 == 1 && {A}.index + 1 == 4 && {C}.cores.asInteger() / 2 > 3000",
    f'{A}.model.upperAscii() == "A100"',
    f"{A}.model != null && device.attributes[device.driver].model == {A}.model",
    'device.attributes.size() == 2 && device.capacity["nope"].size() == 0',
    "true",
    f"{A}.ecc",
]


def is_generated(selector: Selector) -> bool:
    """Return whether a selector that was evaluated uses generated code, which is a plain function."""
    return isinstance(selector.matches, FunctionType)


@pytest.mark.parametrize("expression", COVERED)
def test_common_expressions_are_generated(expression: str) -> None:
    value(expression)  # compares both back ends
    selector = compile_selector(expression)
    selector.matches(sample())
    assert is_generated(selector)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(3).size() == 3",
        f"{A}.exists(k, k == 'model')",
        "1.5 < 2.0",
        f"{A}.index < 3.5",
        "url('/a') == url('/a')",
    ],
)
def test_other_expressions_use_closures(expression: str) -> None:
    selector = compile_selector(expression)
    selector.matches(sample())
    assert not is_generated(selector)


def test_an_impossible_default_uses_closures() -> None:
    """A missing attribute replaced by a quantity: comparing that with a number is an error, not false."""
    selector = compile_selector(f'{A}.?nope.orValue(quantity("0")) == 5')
    with pytest.raises(CelRuntimeError):
        selector.matches(sample())
    assert not is_generated(selector)


def test_list_attributes_are_generated_where_the_gate_is_on() -> None:
    device = flatten({"attributes": {"names": {"strings": ["a", "b"]}, "x": {"ints": [1]}}}, DRIVER)
    for expression, expected in (
        (f"{A}.names.includes('b')", True),
        (f"{A}.names.exists(n, n == 'b' && n.startsWith('b'))", True),
        (f"{A}.names.all(n, n == 'b')", False),
        (f"{A}.x.exists(n, n > 0)", True),
    ):
        selector = compile_selector(expression, LISTS)
        assert selector.matches(device) is expected
        assert is_generated(selector)


def test_no_text_of_the_expression_reaches_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []

    def spy(source: str, name: str, mode: str) -> object:
        sources.append(source)
        return compile(source, name, mode)

    monkeypatch.setattr(generate, "compile", spy, raising=False)
    secrets = (
        "marker_domain",
        "marker_id",
        "marker_text",
        "marker_var",
        "7654321",
        "marker_pattern",
        "8765Gi",
    )
    expression = (
        'cel.bind(marker_var, device.attributes["marker_domain"], marker_var.marker_id == "marker_text" && '
        'marker_var.?marker_id.orValue("marker_text") in ["marker_text", "x"]) || '
        '["marker_text"].exists(marker_var, marker_var == device.driver) || '
        'device.attributes["marker_domain"].marker_id > 7654321 || '
        'device.driver.matches("marker_pattern") || device.driver.contains("marker_text") || '
        'device.capacity["marker_domain"].marker_id.isLessThan(quantity("8765Gi"))'
    )
    selector = compile_selector(expression)
    with pytest.raises(CelRuntimeError, match="marker_id"):
        selector.matches(sample())
    assert is_generated(selector)
    assert sources
    for secret in secrets:
        assert secret in expression
        assert all(secret not in source for source in sources)


def test_generation_respects_the_cost_limit() -> None:
    checked = check(f'{A}.model == "a100"', Environment())
    assert generate.generate(checked, lambda device: False, 1_000_000) is not None
    assert generate.generate(checked, lambda device: False, 100) is None


def test_long_expressions_are_not_generated() -> None:
    selector = compile_selector(" || ".join(f'{A}.model == "m{index}"' for index in range(150)))
    assert selector.matches(sample()) is False
    wide = compile_selector(" && ".join([f'{A}.model == "a100"'] * 240))
    assert wide.matches(sample())
    deep = compile_selector("!(" * 100 + "true" + ")" * 100)
    assert deep.matches(sample())
    assert not is_generated(deep)
