"""Joint allocation: the device search respects the remaining capacity of the node ledger."""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import Allocation, AllocationState, BudgetLine, Inventory, NodeBudget, allocate_claims
from plimsoll.ledger.claim_headroom import compute_claim_headroom
from tests.build import charging_device, claim, container, device_class, pod, resource_slice
from tests.unit.ledger.fixture import LedgerFixture


def test_a_search_with_a_node_budget_allocates_devices_that_fit() -> None:
    """Story 4: a GPU or 8 CPUs, on a node that has no room for 8 CPUs, and on one that has no GPU."""
    either = [
        {"name": "cpus", "deviceClassName": "cpu", "allocationMode": "ExactCount", "count": 1},
        {"name": "gpu", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    ]
    wanted = claim("c", {"name": "r", "firstAvailable": either})
    classes = [
        device_class(name, selectors=[{"cel": {"expression": f"device.driver == '{name}.example.com'"}}])
        for name in ("cpu", "gpu")
    ]
    slices = [
        resource_slice([charging_device("eight", cpu="8")], driver="cpu.example.com"),
        resource_slice([charging_device("gpu0", cpu="1")], driver="gpu.example.com"),
    ]

    def chosen(cpu: str) -> list[str]:
        fixture = LedgerFixture(*slices, claims=[wanted], classes=classes, cpu=cpu)
        one = pod("p", container("a", "c", cpu="1"))
        allowance = compute_claim_headroom(fixture.ledger, one, fixture.charge_context)
        budget = NodeBudget(allowance.charge, [BudgetLine(n, b) for n, b in allowance.bounds.items()])
        found = allocate_claims(
            Inventory(slices), AllocationState(), [wanted], fixture.node,
            classes={c.metadata.name: c for c in classes}, new_id=lambda: "id", budget=budget,
        )  # fmt: skip
        return [r.device for r in found.results[0].devices.results] if isinstance(found, Allocation) else []

    assert chosen("9") == ["eight"]
    assert chosen("8") == ["gpu0"]
    assert chosen("1") == []


def test_a_device_that_needs_huge_pages_of_a_size_the_node_lacks_is_skipped() -> None:
    pages: dict[str, Any] = {"hugepages-2Mi": "1Gi"}
    devices = [charging_device("pages", **pages), charging_device("plain", cpu="1")]
    one_slice = resource_slice(devices)
    wanted = claim(
        "c", {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}}
    )
    any_class = device_class("any")

    def choose(pages: str | None) -> list[str]:
        capacity: dict[str, Any] = {"cpu": "4"} if pages is None else {"cpu": "4", "hugepages-2Mi": pages}
        fixture = LedgerFixture(one_slice, claims=[wanted], classes=[any_class], **capacity)
        headroom = compute_claim_headroom(
            fixture.ledger, pod("p", container("a", "c")), fixture.charge_context
        )
        budget = NodeBudget(headroom.charge, [BudgetLine(n, b) for n, b in headroom.bounds.items()])
        found = allocate_claims(
            Inventory([one_slice]), AllocationState(), [wanted], fixture.node,
            classes={"any": any_class}, new_id=lambda: "id", budget=budget,
        )  # fmt: skip
        assert isinstance(found, Allocation)
        return [result.device for result in found.results[0].devices.results]

    assert choose(None) == ["plain"]
    assert choose("512Mi") == ["plain"]
    assert choose("1Gi") == ["pages"]
