"""Results of the allocator in the form of the reference allocator."""

from __future__ import annotations

import itertools
from typing import Any

from plimsoll.allocator import (
    Allocation,
    AllocationOutcome,
    BudgetLine,
    Inventory,
    NodeBudget,
    Preference,
    allocate_claims,
)
from plimsoll.cel import ProgramCache
from tests.unit.allocator.reference_allocator import AllocationCase

#: Compiled once for all questions.
PROGRAMS = ProgramCache()


def answer(case: AllocationCase, preference: Preference = Preference.FIRST) -> AllocationOutcome:
    """Return the result of the allocator."""
    budget = None
    if case.charge is not None:
        lines = [BudgetLine(f"line {number}", bound) for number, bound in enumerate(case.bounds)]
        budget = NodeBudget(case.charge, lines)
    numbers = itertools.count(1)
    return allocate_claims(
        Inventory(case.slices, case.features, case.taint_rules, PROGRAMS),
        case.state,
        case.claims,
        case.node,
        classes=case.classes,
        new_id=lambda: f"share-{next(numbers)}",
        budget=budget,
        preference=preference,
    )


def picks_of(found: Allocation) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (
                each.request,
                (each.driver, each.pool, each.device),
                bool(each.admin_access),
                {name: str(amount) for name, amount in each.consumed_capacity.items()},
            )
            for each in allocation.devices.results
        ]
        for allocation in found.results
    ]
