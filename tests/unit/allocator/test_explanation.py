"""Texts of refusals (`explain_lines`)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.allocator import (
    AllocationState,
    BudgetLine,
    NodeBudget,
    explain_lines,
)
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from tests.build import DRIVER, claim, device, exactly, resource_slice
from tests.unit.allocator.allocate import attempt, id, partitions, refused, shared
from tests.unit.allocator.holdings import hold_device


def test_an_explanation_fits_one_screen() -> None:
    """For each rule, the number of excluded devices and the one that came closest."""
    state = AllocationState()
    hold_device(state, id("d0"))
    taint = {"key": "sick", "value": "yes", "effect": "NoSchedule"}
    devices = [
        device("d0", model="a", capacity={"mem": "8Gi"}),
        device("d1", model="a", capacity={"mem": "8Gi"}, taints=[taint]),
        device("d2", model="a", capacity={"mem": "2Gi"}),
        device("d3", model="a", capacity={"mem": "3Gi"}),
        device("d4", model="b", capacity={"mem": "8Gi"}),
        device("d5", model="a", capacity={"mem": "8Gi"}),
    ]
    wanted = claim(
        "c", exactly(count=2, select=f'device.attributes["{DRIVER}"].model == "a"', capacity={"mem": "4Gi"})
    )
    outcome = attempt(
        [resource_slice(devices), resource_slice([], name="t", pool="q", count=2)], wanted, state=state
    )
    assert explain_lines(refused(outcome)) == [
        f"pool {DRIVER}/q is incomplete: has 1 of 2 slices of generation 1",
        "claim default/c, request r: wants 2 of 6 devices, 1 left",
        f'  1 x request selector: {DRIVER}/p/d4 #0 device.attributes["{DRIVER}"].model == "a"',
        f"  2 x capacity: {DRIVER}/p/d3 mem: wants 4Gi, has 3Gi left",
        f"  1 x already allocated: {DRIVER}/p/d0",
        f"  1 x taint: {DRIVER}/p/d1 sick=yes:NoSchedule",
    ]


def test_an_explanation_of_a_failed_search() -> None:
    slices = [resource_slice([device("d0", shared=True, capacity={"mem": "8"})])]
    wanted = claim("c", exactly("a", capacity={"mem": "5"}), exactly("b", capacity={"mem": "4"}))
    assert explain_lines(refused(attempt(slices, wanted))) == [
        "claim default/c, request a: wants 1 of 1 devices, 1 left",
        "claim default/c, request b: wants 1 of 1 devices, 1 left",
        "each request alone could be served; together they cannot",
        f"once a had {DRIVER}/p/d0:",
        "  claim default/c, request b: wants 1 of 1 devices, 0 left",
        f"    1 x capacity: {DRIVER}/p/d0 mem: wants 4, has 3 left",
    ]


def test_an_explanation_of_devices_that_exclude_each_other() -> None:
    """Two partitions of 3 and 2 units out of 4: either, but not both."""
    lines = explain_lines(refused(attempt(partitions("4", "3", "2"), claim("c", exactly(count=2)))))
    assert "each device alone could be had; together they cannot" in lines
    assert any("counter set/units: wants 2, 1 left" in line for line in lines)


@pytest.mark.parametrize(
    ("slices", "wanted", "options", "text"),
    [
        (partitions("1", "2"), claim("c", exactly()), {}, "counter set/units: wants 2, 1 left"),
        (
            [
                resource_slice(
                    [device("d0", shared=True, capacity=shared("8", default="1", validValues=["1"]))]
                )
            ],
            claim("c", exactly(capacity={"mem": "3"})),
            {},
            "mem: wants 3, the largest valid value is 1",
        ),
        (
            [
                resource_slice(
                    [
                        device(
                            "d0",
                            shared=True,
                            capacity=shared("8", default="1", validRange={"min": "1", "max": "2"}),
                        )
                    ]
                )
            ],
            claim("c", exactly(capacity={"mem": "3"})),
            {},
            "mem: wants 3, the policy allows at most 2",
        ),
        (
            [resource_slice([device("d0", shared=True, capacity=shared("8", validRange={"step": "2"}))])],
            claim("c", exactly(capacity={"mem": "3"})),
            {},
            "mem: 3 is no whole number of steps of 2",
        ),
        (
            [resource_slice([device("d0")])],
            claim("c", exactly(capacity={"mem": "3"})),
            {},
            "has no capacity mem",
        ),
        (
            [resource_slice([device("d0")])],
            claim("c", exactly(), constraints=[{"matchAttribute": f"{DRIVER}/numa"}]),
            {},
            f"has no attribute {DRIVER}/numa",
        ),
        (
            [resource_slice([device("d0")])],
            claim("c", exactly()),
            {"budget": NodeBudget(lambda *_: {"cpu": 8}, [BudgetLine("pod-level request", {"cpu": 6})])},
            "node resources: gpu.example.com/p/d0 cpu: charges 8, pod-level request leaves 6",
        ),
        (
            [resource_slice([device("d0", numa=0), device("d1", numa=1)])],
            claim("c", exactly(count=2), constraints=[{"matchAttribute": f"{DRIVER}/numa"}]),
            {},
            f"at most 1 of them go together: {DRIVER}/p/d1 {DRIVER}/numa=1 must match {DRIVER}/p/d0 (0)",
        ),
        (
            [resource_slice([device("d0", on=True), device("d1", on=True)])],
            claim("c", exactly(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/on"}]),
            {},
            f"{DRIVER}/on=true must differ from {DRIVER}/p/d0 (true)",
        ),
        (
            [resource_slice([device("d0")])],
            claim("c", exactly(mode="All", select="false")),
            {},
            "wants all matching of 1 devices, 0 left",
        ),
    ],
)
def test_wording_of_reasons(
    slices: list[ResourceSlice], wanted: ResourceClaim, options: dict[str, Any], text: str
) -> None:
    lines = explain_lines(refused(attempt(slices, wanted, **options)))
    assert any(text in line for line in lines), lines
