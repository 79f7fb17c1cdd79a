"""Devices with binding conditions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.codec import convert
from plimsoll.api.resource import AllocatedDeviceStatus, ResourceClaim
from plimsoll.scheduler.binding.binding_conditions import (
    DeviceBindingFailure,
    check_binding_conditions,
    has_binding_conditions,
)
from tests.build import claim, exactly

WAITS = {"bindingConditions": ["Attached", "Powered"], "bindingFailureConditions": ["Broken"]}


def result(device: str, **more: Any) -> dict[str, Any]:
    return {"request": "r", "driver": "d", "pool": "p", "device": device, **more}


def with_conditions(made: ResourceClaim, *devices: tuple[str, str | None, dict[str, str]]) -> ResourceClaim:
    statuses = [
        convert(
            {
                "driver": "d",
                "pool": "p",
                "device": name,
                "conditions": [
                    {"type": kind, "status": status, "reason": "R", "message": "M"}
                    for kind, status in conditions.items()
                ],
                **({"shareID": share} if share else {}),
            },
            AllocatedDeviceStatus,
        )
        for name, share, conditions in devices
    ]
    return replace(made, status=replace(made.status, devices=tuple(statuses)))


@pytest.mark.parametrize(
    ("conditions", "verdict"),
    [
        ({}, False),
        ({"Attached": "True"}, False),
        ({"Attached": "True", "Powered": "False"}, False),
        ({"Attached": "True", "Powered": "Unknown"}, False),
        ({"Attached": "True", "Powered": "True"}, True),
        ({"Attached": "True", "Powered": "True", "Broken": "False"}, True),
        ({"Attached": "True", "Powered": "True", "Broken": "True"}, DeviceBindingFailure("R", "M")),
        ({"Broken": "True"}, DeviceBindingFailure("R", "M")),
    ],
)
def test_all_conditions_and_no_failure(
    conditions: dict[str, str], verdict: bool | DeviceBindingFailure
) -> None:
    made = claim("c", exactly(), results=[result("one", **WAITS)])
    assert has_binding_conditions(made.status.allocation)
    assert check_binding_conditions(with_conditions(made, ("one", None, conditions))) == verdict


def test_a_device_without_status_is_not_ready() -> None:
    made = claim("c", exactly(), results=[result("one", **WAITS)])
    assert check_binding_conditions(made) is False
    assert (
        check_binding_conditions(
            with_conditions(made, ("two", None, {"Attached": "True", "Powered": "True"}))
        )
        is False
    )


def test_devices_without_conditions_are_ready() -> None:
    made = claim("c", exactly(), results=[result("one")])
    assert not has_binding_conditions(made.status.allocation)
    assert check_binding_conditions(made) is True
    assert check_binding_conditions(claim("c", exactly())) is False
    assert not has_binding_conditions(None)


def test_a_failure_counts_however_many_are_not_ready() -> None:
    made = claim("c", exactly(), results=[result("one", **WAITS), result("two", **WAITS)])
    assert check_binding_conditions(
        with_conditions(made, ("two", None, {"Broken": "True"}))
    ) == DeviceBindingFailure("R", "M")


def test_each_share_has_its_own_conditions() -> None:
    shares = [result("one", shareID=share, **WAITS) for share in ("a", "b")]
    made = claim("c", exactly(), results=shares)
    good = {"Attached": "True", "Powered": "True"}
    assert check_binding_conditions(with_conditions(made, ("one", "a", good))) is False
    assert check_binding_conditions(with_conditions(made, ("one", "a", good), ("one", "b", good))) is True
    assert check_binding_conditions(
        with_conditions(made, ("one", "a", good), ("one", "b", {"Broken": "True"}))
    ) == DeviceBindingFailure("R", "M")
