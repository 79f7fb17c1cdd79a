"""Generated code and closures agree on every expression and device."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.cel import Environment, compile_selector, flatten
from plimsoll.errors import CelCompileError, CelRuntimeError
from tests.sizes import examples
from tests.unit.cel.evaluation import DRIVER
from tests.unit.cel.expressions import conditions, devices

ENVIRONMENTS = (Environment(), Environment(list_attributes=True))


def assert_agreement(expression: str, raw: list[dict[str, Any]]) -> None:
    for environment in ENVIRONMENTS:
        try:
            selector = compile_selector(expression, environment)
        except CelCompileError:
            continue
        for one in raw:
            device = flatten(one, DRIVER)
            exact = selector.evaluate_exact(device)
            try:
                fast: bool | None = selector.matches(device)
            except CelRuntimeError:
                fast = None
            assert fast == exact.result, f"{expression} on {one}: {fast}, exactly {exact}"


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions(2), st.lists(devices(), min_size=1, max_size=3))
def test_back_ends_agree(expression: str, raw: list[dict[str, Any]]) -> None:
    assert_agreement(expression, raw)


@pytest.mark.slow
@settings(max_examples=4_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions(3), st.lists(devices(), min_size=1, max_size=3))
def test_back_ends_agree_for_long(expression: str, raw: list[dict[str, Any]]) -> None:
    assert_agreement(expression, raw)
