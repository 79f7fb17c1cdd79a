"""Suite `validation`: rejected fields and their errors.

Compares the multiset of (field, type). Deliberate differences from Kubernetes 1.36 are checked against our
rules instead; docs/compat.md lists them with their tests:

- A step of a request policy that is not positive is rejected, and so are a negative `min`, an empty policy,
  a constraint with two attributes, a negative capacity request and a mapping to `pods`.
- `containers` of a claim's charges is optional and a set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
    wanted.update(_additional_errors(prepared.tree))
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


def _additional_errors(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the errors of fields that Kubernetes 1.36 accepts."""
    spec, at = tree.get("spec") or {}, "spec"
    if tree.get("kind") == "ResourceClaimTemplate":
        spec, at = spec.get("spec") or {}, "spec.spec"
    devices = spec.get("devices") or {}
    if isinstance(devices, list):
        yield from _additional_errors_of_slice(devices)
        return
    for place, constraint in enumerate(devices.get("constraints") or ()):
        if "matchAttribute" in constraint and "distinctAttribute" in constraint:
            yield f"{at}.devices.constraints[{place}]", "FieldValueInvalid"
    for place, request in enumerate(devices.get("requests") or ()):
        path = f"{at}.devices.requests[{place}]"
        parts = {f"{path}.exactly": request.get("exactly") or {}}
        for number, each in enumerate(request.get("firstAvailable") or ()):
            parts[f"{path}.firstAvailable[{number}]"] = each
        for where, part in parts.items():
            for name, amount in ((part.get("capacity") or {}).get("requests") or {}).items():
                if Quantity.parse(str(amount)).sign() < 0:
                    yield f"{where}.capacity.requests[{name}]", "FieldValueInvalid"


def _additional_errors_of_slice(devices: list[Any]) -> Iterator[tuple[str, str]]:
    for place, device in enumerate(devices):
        at = f"spec.devices[{place}]"
        if "pods" in (device.get("nodeAllocatableResourceMappings") or {}):
            yield f"{at}.nodeAllocatableResourceMappings[pods]", "FieldValueInvalid"
        if not device.get("allowMultipleAllocations"):
            continue
        for key, capacity in (device.get("capacity") or {}).items():
            policy = capacity.get("requestPolicy")
            if policy is None:
                continue
            path = f"{at}.capacity[{key}].requestPolicy"
            if not any(policy.get(name) is not None for name in ("default", "validValues", "validRange")):
                yield path, "FieldValueRequired"
            low = (policy.get("validRange") or {}).get("min")
            checked = low is not None and policy.get("default") is not None and not policy.get("validValues")
            if checked and Quantity.parse(str(low)).sign() < 0:
                yield f"{path}.validRange.min", "FieldValueInvalid"


def _charges(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the charges in the status of a pod."""
    status = tree.get("status")
    return (
        (status or {}).get("nodeAllocatableResourceClaimStatuses") or [] if isinstance(status, dict) else []
    )


def _negative_steps(tree: dict[str, Any]) -> list[str]:
    """Return the paths of negative steps, a documented difference, where the range can be checked."""
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
