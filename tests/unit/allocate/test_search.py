"""The search: what its short cuts must not change."""

from __future__ import annotations

from plimsoll.allocate import Features
from tests.unit.allocate.build import DRIVER, attempt, claim, device, exactly, picked, resource_slice


def test_equal_devices_count_where_the_order_of_values_matters() -> None:
    """With list attributes off a list is let in first only: s1 before it fails, s2 after it does not."""
    devices = [device("s1", numa=1), device("list", numa=[1, 2]), device("s2", numa=1)]
    wanted = claim(exactly(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/numa"}])
    found = attempt([resource_slice(devices)], wanted, features=Features(list_attributes=False))
    assert picked(found) == [["list", "s2"]]
