"""Cached programs, and matches of a selector on many devices."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cel import Environment, ProgramCache, caches, compile_selector, flatten, match_all
from plimsoll.errors import CelCompileError
from tests.unit.cel.evaluation import DRIVER

DEVICES: list[dict[str, Any]] = [
    {"attributes": {"model": {"string": "a100"}}},
    {"attributes": {"model": {"string": "h100"}}},
    {"attributes": {}},
    {"attributes": {"model": {"string": "a100"}}},
]
SELECTOR = 'device.attributes["gpu.example.com"].model == "a100"'


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
    matches = match_all(compile_selector(SELECTOR), [flatten(device, DRIVER) for device in DEVICES])
    assert matches.bits == 0b1001
    assert set(matches.errors) == {2}
    assert [index for index in range(4) if index in matches] == [0, 3]
