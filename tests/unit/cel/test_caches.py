"""Programs, flattened devices and match bits that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.cel import (
    Environment,
    ProgramCache,
    SliceCache,
    SliceVersion,
    caches,
    compile_selector,
    match_all,
)
from plimsoll.errors import CelCompileError
from tests.unit.cel.evaluation import DRIVER

DEVICES: list[dict[str, Any]] = [
    {"attributes": {"model": {"string": "a100"}}},
    {"attributes": {"model": {"string": "h100"}}},
    {"attributes": {}},
    {"attributes": {"model": {"string": "a100"}}},
]
SELECTOR = 'device.attributes["gpu.example.com"].model == "a100"'


class Counting:
    """Devices that say how often they were looked at."""

    def __init__(self) -> None:
        self.times = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.times += 1
        return iter(DEVICES)


def test_programs_are_compiled_once_per_environment() -> None:
    programs = ProgramCache()
    first = programs.compile("device.allowMultipleAllocations", Environment("stored"))
    assert programs.compile("device.allowMultipleAllocations", Environment("stored")) is first
    new = Environment("new", consumable_capacity=False)
    with pytest.raises(CelCompileError):
        programs.compile("device.allowMultipleAllocations", new)
    assert len(programs) == 2


def test_refusals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def spy(expression: str, environment: Environment) -> Any:
        compiled.append(expression)
        return compile_selector(expression, environment)

    monkeypatch.setattr(caches, "compile_selector", spy)
    programs = ProgramCache()
    for _ in range(3):
        with pytest.raises(CelCompileError):
            programs.compile("1 +", Environment())
    assert compiled == ["1 +"]


def test_programs_are_bounded_and_forget_the_oldest() -> None:
    programs = ProgramCache(size=2)
    first = programs.compile("true", Environment())
    programs.compile("false", Environment())
    assert programs.compile("true", Environment()) is first
    programs.compile("1 == 1", Environment())
    assert len(programs) == 2
    assert programs.compile("true", Environment()) is first


def test_match_bits_and_errors() -> None:
    matches = match_all(
        compile_selector(SELECTOR), SliceCache().devices(SliceVersion("u", "1"), DRIVER, DEVICES)
    )
    assert matches.bits == 0b1001
    assert set(matches.errors) == {2}
    assert [index for index in range(4) if index in matches] == [0, 3]


def test_devices_and_matches_are_kept_per_slice_version() -> None:
    slices, devices = SliceCache(), Counting()
    selector = compile_selector(SELECTOR)
    one = SliceVersion("uid", "1")
    flattened = slices.devices(one, DRIVER, devices)
    assert slices.devices(one, DRIVER, devices) is flattened
    matches = slices.matches(selector, one, DRIVER, devices)
    assert slices.matches(compile_selector(SELECTOR), one, DRIVER, devices) is matches
    assert devices.times == 1
    other = slices.matches(
        compile_selector(SELECTOR, Environment(list_attributes=True)), one, DRIVER, devices
    )
    assert other is not matches
    assert other.bits == matches.bits


def test_a_new_version_replaces_the_old_one() -> None:
    slices, devices = SliceCache(), Counting()
    slices.devices(SliceVersion("uid", "1"), DRIVER, devices)
    slices.devices(SliceVersion("uid", "2"), DRIVER, devices)
    assert (len(slices), devices.times) == (1, 2)
    slices.devices(SliceVersion("other", "2"), DRIVER, devices)
    slices.forget("uid")
    slices.forget("unknown")
    assert len(slices) == 1


def test_slices_are_bounded() -> None:
    slices = SliceCache(size=3)
    for number in range(10):
        slices.devices(SliceVersion(f"uid-{number}", "1"), DRIVER, DEVICES)
    assert len(slices) == 3
