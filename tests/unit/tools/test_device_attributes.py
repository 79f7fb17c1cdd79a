"""Conditions of selectors, and the values that devices have for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.resource import Device
from plimsoll.cel import compile_selector, flatten
from plimsoll.errors import CelRuntimeError
from plimsoll.tools.device_attributes import (
    attributes_read,
    is_for_driver,
    order_by_nearness,
    path_name,
    read_value,
    split_conditions,
    value_text,
)
from tests.build import device

GPU = "gpu.example.com"


@pytest.mark.parametrize(
    ("text", "path", "wanted"),
    [
        (f"device.driver == '{GPU}'", "driver", GPU),
        ("device.attributes['a.b'].model == 'h100'", "attributes/a.b/model", "h100"),
        ("'h100' == device.attributes['a.b']['model']", "attributes/a.b/model", "h100"),
        ("device.attributes['a.b'].model != 'h100'", "attributes/a.b/model", "other than h100"),
        ("device.attributes['a.b'].?model.orValue('') == 'x'", "attributes/a.b/model", "x"),
        ("device.attributes['a.b'].n > 3", "attributes/a.b/n", "more than 3"),
        ("3 > device.attributes['a.b'].n", "attributes/a.b/n", "less than 3"),
        ("device.attributes['a.b'].n in [1, 2]", "attributes/a.b/n", "1 or 2"),
        (
            "device.attributes['a.b'].model == 'x' || device.attributes['a.b'].model == 'y'",
            "attributes/a.b/model",
            "x or y",
        ),
        ("device.attributes['a.b'].name.lowerAscii().contains('h1')", "attributes/a.b/name", "containing h1"),
        ("has(device.attributes['a.b'].numa)", "attributes/a.b/numa", "present"),
        ("!has(device.attributes['a.b'].numa)", "attributes/a.b/numa", "absent"),
        ("'numa' in device.attributes['a.b']", "attributes/a.b/numa", "present"),
        ("device.attributes['a.b'].rdma", "attributes/a.b/rdma", "true"),
        ("!device.attributes['a.b'].rdma", "attributes/a.b/rdma", "false"),
        ("device.allowMultipleAllocations", "allowMultipleAllocations", "true"),
        (
            "device.capacity['a.b'].memory.compareTo(quantity('80Gi')) >= 0",
            "capacity/a.b/memory",
            "at least 80Gi",
        ),
        (
            "device.attributes['a.b'].cuda.isGreaterThan(semver('9.0.0'))",
            "attributes/a.b/cuda",
            "more than 9.0.0",
        ),
        ("cel.bind(d, device.attributes['a.b'], d.n == 5)", "attributes/a.b", ""),
        ("device.attributes['a.b'].n + 1 == 5", "attributes/a.b/n", ""),
    ],
)
def test_a_condition_names_what_it_reads_and_wants(text: str, path: str, wanted: str) -> None:
    (condition,) = split_conditions(text)
    assert condition.text == text
    assert ["/".join(each) for each in condition.reads] == [path]
    assert condition.wanted == wanted


ATOMS = (
    "device.driver == 'gpu.example.com'",
    "device.driver == 'nic.example.com'",
    "device.attributes['gpu.example.com'].model == 'a'",
    "device.attributes['gpu.example.com'].n > 2",
    "device.allowMultipleAllocations",
    "device.attributes['nic.example.com'].model == 'a'",
)
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.tuples(inner, st.sampled_from(["({} && {})", "{} && {}", "({} || {})"]), inner).map(
        lambda parts: parts[1].format(parts[0], parts[2])
    ),
    max_leaves=6,
)


def matches(expression: str, driver: str, body: Device) -> bool:
    try:
        return compile_selector(expression).matches(flatten(body, driver))
    except CelRuntimeError:
        return False


@given(
    EXPRESSIONS,
    st.sampled_from([GPU, "nic.example.com"]),
    st.sampled_from("ab"),
    st.integers(0, 4),
    st.booleans(),
)
def test_conditions_together_are_the_selector(
    expression: str, driver: str, model: str, n: int, shared: bool
) -> None:
    body = convert(device("d", model=model, n=n, shared=shared), Device)
    each = all(matches(condition.text, driver, body) for condition in split_conditions(expression))
    assert each == matches(expression, driver, body)


@given(EXPRESSIONS, st.sampled_from([GPU, "nic.example.com"]), st.sampled_from("ab"))
def test_a_driver_that_is_excluded_has_no_device_that_matches(
    expression: str, driver: str, model: str
) -> None:
    about = [each for each in split_conditions(expression) if each.is_about_driver]
    if not all(is_for_driver(each.text, driver) for each in about):
        assert not matches(expression, driver, convert(device("d", model=model, n=3), Device))


def test_a_name_without_domain_is_of_its_driver_only() -> None:
    qualified: dict[str, Any] = {"gpu.example.com/model": "x"}
    nic = convert(device("eth0", type="nic", **qualified), Device)
    path = ("attributes", GPU, "type")
    assert read_value(path, GPU, nic) is not None
    assert read_value(path, "nic.example.com", nic) is None
    model = ("attributes", GPU, "model")
    found = read_value(model, "nic.example.com", nic)
    assert found is not None
    assert value_text(found) == "x"
    assert path_name(model, GPU) == "model"
    assert path_name(model, "nic.example.com") == "gpu.example.com/model"
    assert attributes_read("device.attributes['gpu.example.com'].type == 'gpu'", "nic.example.com", nic) == []


@pytest.mark.parametrize(
    ("values", "constant", "first"),
    [
        (["H100", "A100", "L4"], "H200", "H100"),
        (["8", "40", "7"], "10", "8"),
        (["40Gi", "80000Mi", "1Gi"], "80Gi", "80000Mi"),
        (["8.9.0", "9.0.0", "7.0.0"], "10.0.0", "9.0.0"),
        (["b", "a"], "", "a"),
    ],
)
def test_the_nearest_value_is_first(values: list[str], constant: str, first: str) -> None:
    assert order_by_nearness(values, constant)[0] == first
