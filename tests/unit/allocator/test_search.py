"""Search shortcuts that must not change the result."""

from __future__ import annotations

from plimsoll.allocator import Features, SearchLimits
from tests.build import DRIVER, claim, device, exactly, resource_slice
from tests.unit.allocator.allocate import attempt, picked


def test_equal_devices_count_where_the_order_of_values_matters() -> None:
    """With list attributes off a list is accepted first only: s1 before it fails, s2 after it does not."""
    devices = [device("s1", numa=1), device("list", numa=[1, 2]), device("s2", numa=1)]
    wanted = claim("c", exactly(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/numa"}])
    found = attempt([resource_slice(devices)], wanted, features=Features(list_attributes=False))
    assert picked(found) == [["list", "s2"]]


def test_a_plan_is_retried_after_a_failure_of_its_own() -> None:
    """Nothing comes after the plan, but its first pick was wrong: x leaves only y or z."""
    values = {"x": ["a", "q"], "y": ["b"], "z": ["b"], "p": ["a"], "r": ["q"]}
    devices = [device(name, root=roots) for name, roots in values.items()]
    wanted = claim("c", exactly(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/root"}])
    assert picked(attempt([resource_slice(devices)], wanted)) == [["y", "p", "r"]]


def test_an_unrelated_request_is_not_retried_after_a_failure() -> None:
    """The third request does not depend on which two of the twenty devices the second one gets."""
    devices = [
        *(device(f"g{number:02}", kind="gpu", index=number) for number in range(20)),
        *(device(f"n{number}", kind="nic", index=number) for number in range(2)),
    ]
    kind = 'device.attributes["gpu.example.com"].kind == "%s"'
    index = kind + ' && device.attributes["gpu.example.com"].index == 0'
    first, last = exactly("first", select=kind % "nic"), exactly("last", select=index % "nic")
    between = exactly("between", 2, select=kind % "gpu")
    apart = [{"distinctAttribute": f"{DRIVER}/index", "requests": ["between"]}]
    wanted = claim("c", first, between, last, constraints=apart)
    found = attempt([resource_slice(devices)], wanted, limits=SearchLimits(steps=12))
    assert picked(found) == [["n1", "g00", "g01", "n0"]]
