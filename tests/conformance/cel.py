"""Suite `cel`: device selectors as Kubernetes compiled and evaluated them.

A case passes if the outcome is of the same kind (true, false, compile error, run-time error), admission would
refuse the same expressions as too expensive, and both back ends agree. Cases marked with a quirk may come out
either way; ours is in docs/compat.md. Costs are compared by `cost_difference`, which the unit tests of the
vectors use: they are not part of a case's verdict where upstream's depend on the order of a Go map.
"""

from __future__ import annotations

from typing import Any

from plimsoll.cel import (
    COST_LIMIT,
    CelDevice,
    Environment,
    EvaluationResult,
    Selector,
    compile_selector,
    flatten,
)
from plimsoll.errors import CelCompileError, CelRuntimeError


def check(row: dict[str, Any]) -> str | None:
    wanted = _wanted(row)
    try:
        selector = compile_selector(row["expression"], _environment(row))
    except CelCompileError as error:
        return (
            None
            if wanted == "compile error" or "quirk" in row
            else f"wants {wanted}, does not compile: {error}"
        )
    device = flatten(row["device"], row["device"].get("driver", ""))
    outcome = selector.evaluate_exact(device, row.get("costLimit", COST_LIMIT))
    if problem := _disagreement(selector, device):
        return problem
    if "quirk" not in row and (got := _kind(outcome)) != wanted:
        return f"wants {wanted}, gives {got}" + (f": {outcome.error}" if outcome.error else "")
    if row.get("tooExpensive", False) != (selector.estimated_cost > COST_LIMIT):
        return f"estimated cost {selector.estimated_cost}, wants {row.get('estimatedCost')}"
    return None


def cost_difference(row: dict[str, Any]) -> str | None:
    """Return the difference between the costs of a case and those of the vector, or None."""
    try:
        selector = compile_selector(row["expression"], _environment(row))
    except CelCompileError:
        return None
    if row.get("estimatedCost", selector.estimated_cost) != selector.estimated_cost:
        return f"estimated cost {selector.estimated_cost}, wants {row['estimatedCost']}"
    device = flatten(row["device"], row["device"].get("driver", ""))
    cost = selector.evaluate_exact(device, row.get("costLimit", COST_LIMIT)).cost
    return f"cost {cost}, wants {row['cost']}" if row.get("cost", cost) != cost else None


def _environment(row: dict[str, Any]) -> Environment:
    gates = row["gates"]
    return Environment(row["env"], gates["DRAConsumableCapacity"], gates["DRAListTypeAttributes"])


def _wanted(row: dict[str, Any]) -> str:
    expected = row["expect"]
    if isinstance(expected, bool):
        return str(expected).lower()
    return "compile error" if "compileError" in expected else "run-time error"


def _kind(outcome: EvaluationResult) -> str:
    return "run-time error" if outcome.error is not None else str(outcome.result).lower()


def _disagreement(selector: Selector, device: CelDevice) -> str | None:
    """Compare both back ends under the default cost limit."""
    exact = _kind(selector.evaluate_exact(device))
    try:
        fast = str(selector.matches(device)).lower()
    except CelRuntimeError:
        fast = "run-time error"
    return None if fast == exact else f"the generated code says {fast}, the closures say {exact}"
