"""Evaluation of one expression with both back ends, which must agree."""

from __future__ import annotations

from typing import Any

from plimsoll.cel import CelDevice, Environment, EvaluationResult, compile_selector, flatten
from plimsoll.errors import CelRuntimeError

LISTS = Environment(list_attributes=True)

DEVICE: dict[str, Any] = {
    "allowMultipleAllocations": True,
    "attributes": {
        "model": {"string": "a100"},
        "note": {"string": "héllo ☃"},
        "index": {"int": 3},
        "zero": {"int": 0},
        "ecc": {"bool": True},
        "mig": {"bool": False},
        "version": {"version": "535.104.5"},
        "other.example.com/model": {"string": "b200"},
    },
    "capacity": {
        "memory": {"value": "40Gi"},
        "cores": {"value": "6912"},
        "half": {"value": "500m"},
        "other.example.com/slots": {"value": "7"},
    },
}
DRIVER = "gpu.example.com"


def sample() -> CelDevice:
    return flatten(DEVICE, DRIVER)


def outcome(
    expression: str, device: CelDevice | None = None, environment: Environment | None = None
) -> EvaluationResult:
    """Return the exact outcome, after checking that `matches` agrees."""
    selector = compile_selector(expression, environment or Environment())
    device = device or sample()
    exact = selector.evaluate_exact(device)
    try:
        fast: bool | None = selector.matches(device)
    except CelRuntimeError:
        fast = None
    assert fast == exact.result, f"generated code says {fast}, closures say {exact}"
    return exact


def value(expression: str, device: CelDevice | None = None, environment: Environment | None = None) -> bool:
    """Return the result, or raise its error."""
    found = outcome(expression, device, environment)
    if found.error is not None:
        raise found.error
    assert found.result is not None
    return found.result


def fails(expression: str, device: CelDevice | None = None, environment: Environment | None = None) -> bool:
    return outcome(expression, device, environment).error is not None


def cost(expression: str) -> int:
    return outcome(expression).cost
