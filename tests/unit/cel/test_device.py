"""Flattened devices in expressions."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api import codec, resource
from plimsoll.cel import Environment, compile_selector, flatten
from plimsoll.cel.values import Semver
from plimsoll.errors import CelRuntimeError
from tests.unit.cel.evaluation import DEVICE, DRIVER, LISTS, fails, sample, value

ATTRIBUTE_LISTS: dict[str, Any] = {
    "attributes": {
        "ints": {"ints": [1, 2, 3]},
        "names": {"strings": ["a", "b"]},
        "flags": {"bools": [True, False]},
        "versions": {"versions": ["1.0.0", "2.0.0"]},
        "none": {"strings": []},
        "name": {"string": "a"},
    }
}


def test_names_without_a_domain_live_under_the_driver() -> None:
    device = sample()
    assert set(device.attributes) == {"gpu.example.com", "other.example.com"}
    assert device.attributes["other.example.com"] == {"model": "b200"}
    assert set(device.capacity["gpu.example.com"]) == {"memory", "cores", "half"}


def test_unknown_domains_are_empty_maps_but_not_contained() -> None:
    assert value("device.attributes['nope'].size() == 0 && device.capacity['nope'] == {}")
    assert value("has(device.attributes.nope) && !('nope' in device.attributes)")
    assert value("!has(device.attributes['nope'].x) && !device.attributes['nope'].?x.hasValue()")
    assert value("device.attributes[dyn(1)].size() == 0")
    assert fails("device.attributes['nope'].x == 1")
    assert value("device.attributes.size() == 2 && 'gpu.example.com' in device.attributes")


def test_comparing_domains_includes_the_default_domain() -> None:
    """Upstream looks keys of the left map up in the right one, where every domain is found."""
    device = flatten({"attributes": {"other.example.com/a": {"int": 1}}}, DRIVER)
    assert value("{'gpu.example.com': {}} == device.attributes", device)
    assert not value("device.attributes == {'gpu.example.com': {}}", device)


def test_device_is_a_map_at_run_time() -> None:
    assert value("type(device) == map && device == device && has(device.driver)")
    assert value("dyn(device).driver == 'gpu.example.com' && dyn(device).size() == 4")


def test_equal_values_are_one_object() -> None:
    first, second = sample(), sample()
    for domain, entries in first.attributes.items():
        for name, entry in entries.items():
            assert second.attributes[domain][name] is entry
    assert first.capacity["gpu.example.com"]["memory"] is second.capacity["gpu.example.com"]["memory"]


def test_typed_and_untyped_devices_flatten_alike() -> None:
    for raw in (DEVICE, ATTRIBUTE_LISTS):
        typed = codec.decode(codec.encode({"name": "d", **raw}), resource.Device)
        one, other = flatten(typed, DRIVER), flatten(raw, DRIVER)
        assert one.variable == other.variable
        assert (one.lists is None) == (other.lists is None)


def test_lists_need_their_gate() -> None:
    device = flatten(ATTRIBUTE_LISTS, DRIVER)
    assert fails("true", device)
    assert value("device.attributes['gpu.example.com'].ints == [1, 2, 3]", device, LISTS)
    assert value("device.attributes['gpu.example.com'].none == []", device, LISTS)
    assert value("device.attributes['gpu.example.com'].names.exists(n, n == 'b')", device, LISTS)
    assert not value("device.attributes['gpu.example.com'].names.all(n, n == 'b')", device, LISTS)
    assert value("device.attributes['gpu.example.com'].names.includes('b')", device, LISTS)
    assert value("device.attributes['gpu.example.com'].name.includes('a')", device, LISTS)
    assert not value("device.attributes['gpu.example.com'].versions.includes('1.0.0')", device, LISTS)
    assert value("device.attributes['gpu.example.com'].versions.exists(v, v.major() == 2)", device, LISTS)
    assert value("2 in device.attributes['gpu.example.com'].ints", device, LISTS)
    assert fails("device.attributes['gpu.example.com'].name.exists(x, true)", device, LISTS)


@pytest.mark.parametrize(
    "raw",
    [
        {"attributes": {"v": {"version": "1.0"}}},
        {"attributes": {"v": {"versions": ["1.0"]}}},
        {"attributes": {"v": {}}},
        {"capacity": {"c": {"value": "1Kb"}}},
    ],
)
def test_an_invalid_device_fails_every_selector(raw: dict[str, Any]) -> None:
    device = flatten(raw, DRIVER)
    assert device.problem is not None
    for expression in ("true", "device.driver == 'x'", "device.attributes['a'].b == 'c' || true"):
        selector = compile_selector(expression, LISTS)
        with pytest.raises(CelRuntimeError):
            selector.matches(device)
        assert isinstance(selector.evaluate_exact(device).error, CelRuntimeError)


def test_very_long_strings_are_evaluated_exactly() -> None:
    device = flatten({"attributes": {"s": {"string": "a" * 5_000_000}}}, DRIVER)
    selector = compile_selector('device.attributes["gpu.example.com"].s.startsWith("a")')
    assert selector.matches(device)
    assert selector.evaluate_exact(device).cost == 500_004
    twice = compile_selector(" && ".join([selector.expression] * 3))
    with pytest.raises(CelRuntimeError, match="cost"):
        twice.matches(device)


def test_missing_parts_are_empty() -> None:
    device = flatten({"attributes": None, "capacity": {"c": {}}}, "")
    assert value("device.driver == '' && device.attributes == {} && !device.allowMultipleAllocations", device)
    assert value("device.capacity[''].c == quantity('0')", device)


def test_versions_compare_only_with_versions() -> None:
    version = Semver((1, 0, 0, True, ()), "1.0.0")
    with pytest.raises(TypeError):
        assert version == "1.0.0"
    assert version == Semver((1, 0, 0, True, ()), "1.0.0+x")


def test_the_gate_for_multiple_allocations_only_binds_new_expressions() -> None:
    assert value(
        "device.allowMultipleAllocations", environment=Environment("stored", consumable_capacity=False)
    )
