"""Lower bounds of counter consumption: 32 of 40 devices with different amounts."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.allocator import AllocationOutcome, Refusal, SearchLimits
from tests.build import claim, device, exactly, resource_slice
from tests.unit.allocator.allocate import attempt, picked

SMALLEST = sum(range(1, 33))  # what the 32 devices that draw least draw together


def ask(
    units: int, *requests: dict[str, Any], backwards: bool = False, second: bool = False
) -> AllocationOutcome:
    amounts = list(range(1, 41))[:: -1 if backwards else 1]
    devices = [
        device(f"d{n:02}", serial=n, draws={"set": {"x": str(a)} | ({"y": str(41 - a)} if second else {})})
        for n, a in enumerate(amounts)
    ]
    counters = {"x": str(units)} | ({"y": str(units)} if second else {})
    slices = [
        resource_slice(devices, name="a", count=2),
        resource_slice(counters={"set": counters}, name="b", count=2),
    ]
    return attempt(slices, claim("c", *requests), limits=SearchLimits(steps=2_000))


@pytest.mark.parametrize("backwards", [False, True])
def test_32_devices_that_exceed_a_counter_are_refused_quickly(backwards: bool) -> None:
    assert isinstance(ask(SMALLEST - 1, exactly(count=32), backwards=backwards), Refusal)
    halves = [exactly("a", count=16), exactly("b", count=16)]
    assert isinstance(ask(SMALLEST - 1, *halves, backwards=backwards), Refusal)


@pytest.mark.parametrize("backwards", [False, True])
def test_32_devices_that_use_up_a_counter_are_found_quickly(backwards: bool) -> None:
    found = picked(ask(SMALLEST, exactly(count=32), backwards=backwards))
    assert found == [[f"d{n:02}" for n in (range(8, 40) if backwards else range(32))]]


def test_devices_that_trade_one_counter_for_another() -> None:
    assert isinstance(ask(640, exactly(count=32), second=True), Refusal)
