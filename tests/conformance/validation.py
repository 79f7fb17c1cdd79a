"""Suite `validation`: rejected fields and their errors.

Compares the multiset of (field, type). Two deliberate differences are checked against our rule instead: a
request policy whose step is negative is rejected at `step` (test_step_must_be_positive), where Kubernetes
1.36 accepts it; and `containers` of a claim's charges is optional and a set
(test_containers_of_a_charge_are_optional_and_unique), where Kubernetes 1.36 requires a name and accepts
duplicates.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from plimsoll.api.quantity import Quantity
from tests.conformance.api_rows import prepare_row

_CHARGES = "status.nodeAllocatableResourceClaimStatuses"


def check(row: dict[str, Any]) -> str | None:
    prepared = prepare_row(row)
    found = Counter((problem.field, problem.type.value) for problem in prepared.errors)
    wanted = Counter((error["field"], error["type"]) for error in row["expect"])
    for step in _negative_steps(prepared.tree):
        wanted = Counter({key: count for key, count in wanted.items() if key[0] != step})
        wanted[step, "FieldValueInvalid"] = 1
    for place, entry in enumerate(_charges(prepared.tree)):
        at = f"{_CHARGES}[{place}].containers"
        wanted.pop((at, "FieldValueRequired"), None)
        names = entry.get("containers") or ()
        for index, name in enumerate(names):
            if name in names[:index]:
                wanted[f"{at}[{index}]", "FieldValueDuplicate"] += 1
    if found != wanted:
        missing, extra = sorted((wanted - found).elements()), sorted((found - wanted).elements())
        return f"missing {missing}, extra {extra}"
    if row.get("warnings") and row["kind"] == "ResourceSlice" and not prepared.warnings:
        return f"no warning, wanted {row['warnings']}"
    return None


def _charges(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the charges in the status of a pod."""
    status = tree.get("status")
    return (
        (status or {}).get("nodeAllocatableResourceClaimStatuses") or [] if isinstance(status, dict) else []
    )


def _negative_steps(tree: dict[str, Any]) -> list[str]:
    """The paths of negative steps, our difference, where the range is complete enough to be checked."""
    found = []
    for place, device in enumerate((tree.get("spec") or {}).get("devices", ())):
        if not isinstance(device, dict) or not device.get("allowMultipleAllocations"):
            continue
        for key, capacity in device.get("capacity", {}).items():
            policy = capacity.get("requestPolicy", {})
            limits = policy.get("validRange", {})
            complete = "default" in policy and "min" in limits and not policy.get("validValues")
            if complete and Quantity.parse(limits.get("step", "1")).sign() < 0:
                found.append(f"spec.devices[{place}].capacity[{key}].requestPolicy.validRange.step")
    return found
