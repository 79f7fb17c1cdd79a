"""Evicting a pod, as posted to `pods/eviction`, within its disruption budgets.

`evaluate_eviction` takes the stored pod, the posted Eviction and the budgets that select the pod, and decides
without modifying anything. The server then writes `pod` and `budget`, if set, and deletes the pod with
`options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.decode import decode_canonical
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrors, FieldPath, invalid
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.conditions import set_condition
from plimsoll.apiserver.validation.write_context import decode_view

_OPTIONS_VIEW = view_of("meta.v1.DeleteOptions")
_EVICTION_VIEW = view_of("policy.v1.Eviction")

DISRUPTED_MAX = 2000
BUDGET_CAUSE = "DisruptionBudget"

_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass(frozen=True, slots=True)
class EvictionRefusal:
    """Refusal of an eviction: HTTP code, message, and the cause given by the budget."""

    code: int
    message: str
    cause: str = ""
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """Decision on an eviction.

    `pod` is the pod to store before it is deleted, `budget` the disruption budget with the disruption
    recorded (None if unchanged).
    """

    options: View
    pod: Tree | None = None
    budget: Tree | None = None
    errors: tuple[FieldError, ...] = ()
    refusal: EvictionRefusal | None = None


def read_eviction(tree: Any) -> View:
    """Decode a posted Eviction; raises DecodeError if it is not one."""
    return decode_view(decode_canonical(tree, _EVICTION_VIEW), _EVICTION_VIEW)


def evaluate_eviction(pod: Tree, eviction: Any, budgets: Sequence[Tree], now: datetime) -> EvictionResult:
    """Decide whether and how to evict a pod; `budgets` are those of its namespace that select it."""
    posted = read_eviction(eviction)
    options = posted.delete_options or _OPTIONS_VIEW()
    errors = tuple(_validate_options(options))
    if errors:
        return EvictionResult(options, errors=errors)
    refusal = _validate_preconditions(pod, options)
    if refusal is not None:
        return EvictionResult(options, refusal=refusal)
    evicted = _with_disruption_target(pod, format_datetime(now))
    phase, terminating = (
        subtree(pod, "status").get("phase"),
        bool(subtree(pod, "metadata").get("deletionTimestamp")),
    )
    if phase in ("Succeeded", "Failed", "Pending") or terminating:
        return EvictionResult(options, evicted)
    if not budgets:
        return EvictionResult(options, evicted)
    if len(budgets) > 1:
        detail = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        return EvictionResult(options, refusal=EvictionRefusal(500, detail))
    if not _is_ready(pod) and _can_evict_unready(budgets[0]):
        return EvictionResult(options, evicted)
    refusal = _validate_budget(budgets[0])
    if refusal is not None:
        return EvictionResult(options, refusal=refusal)
    return EvictionResult(options, evicted, _record_disruption(budgets[0], pod, format_datetime(now)))


def _validate_options(options: View) -> FieldErrors:
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        path = FieldPath("deleteOptions").child("ignoreStoreReadErrorWithClusterBreakingPotential")
        yield invalid(path, True, "can not be set for pod eviction, try after removing the option")


def _validate_preconditions(pod: Tree, options: View) -> EvictionRefusal | None:
    meta, wanted = subtree(pod, "metadata"), options.preconditions
    if wanted is not None:
        uid, version = meta.get("uid", ""), meta.get("resourceVersion", "")
        if wanted.uid and wanted.uid != uid:
            detail = (
                f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid}). "
                "The object might have been deleted and then recreated"
            )
            return EvictionRefusal(409, detail)
        if wanted.resource_version and wanted.resource_version != version:
            detail = (
                f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the "
                f"ResourceVersion in record ({version}). The object might have been modified"
            )
            return EvictionRefusal(409, detail)
    return None


def _with_disruption_target(pod: Tree, now: str) -> Tree:
    status = dict(subtree(pod, "status"))
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status["conditions"] = set_condition(status.get("conditions", []), condition, now)
    return {**pod, "status": status}


def _is_ready(pod: Tree) -> bool:
    conditions = subtree(pod, "status").get("conditions", ())
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


# -- disruption budget


def _can_evict_unready(budget: Tree) -> bool:
    """Report whether a pod that is not ready can be evicted without consuming the budget."""
    if subtree(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    wanted = _number(budget, "desiredHealthy")
    return wanted > 0 and _number(budget, "currentHealthy") >= wanted


def _validate_budget(budget: Tree) -> EvictionRefusal | None:
    name, status = subtree(budget, "metadata").get("name", ""), subtree(budget, "status")
    generation = subtree(budget, "metadata").get("generation", 0)
    if isinstance(generation, int) and _number(budget, "observedGeneration") < generation:
        cause = f"The disruption budget {name} is still being processed by the server."
        return EvictionRefusal(429, _VIOLATED, cause, 10)
    allowed = _number(budget, "disruptionsAllowed")
    if allowed < 0:
        return EvictionRefusal(403, "pdb disruptions allowed is negative")
    if len(subtree(status, "disruptedPods")) > DISRUPTED_MAX:
        detail = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return EvictionRefusal(403, detail)
    if allowed == 0:
        return EvictionRefusal(429, _VIOLATED, _explain(name, budget), 0)
    return None


def _explain(name: str, budget: Tree) -> str:
    condition: Tree = next(
        (c for c in subtree(budget, "status").get("conditions", ()) if c.get("type") == "DisruptionAllowed"),
        {},
    )
    text = condition.get("message", "") if condition.get("status") == "False" else ""
    reason = condition.get("reason", "")
    wanted, healthy = _number(budget, "desiredHealthy"), _number(budget, "currentHealthy")
    refused = f"The disruption budget {name} does not allow evicting pods currently"
    if text and reason == "SyncFailed":
        return f"{refused} because it failed sync: {text}"
    if healthy <= wanted:
        return f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
    return f"{refused} ({reason}): {text}" if text else refused


def _record_disruption(budget: Tree, pod: Tree, now: str) -> Tree:
    """Return the budget with one disruption less and the pod listed in disruptedPods."""
    status = dict(subtree(budget, "status"))
    left = _number(budget, "disruptionsAllowed") - 1
    status["disruptionsAllowed"] = left
    status["disruptedPods"] = {
        **subtree(status, "disruptedPods"),
        subtree(pod, "metadata").get("name", ""): now,
    }
    if left == 0:
        status["conditions"] = _without_disruptions(status.get("conditions", []), budget, now)
    return {**budget, "status": status}


def _without_disruptions(conditions: Sequence[Tree], budget: Tree, now: str) -> list[Tree]:
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": _number(budget, "observedGeneration"),
        "reason": "InsufficientPods",
        "message": "",
    }
    found = set_condition(conditions, condition, now)
    return [
        {name: value for name, value in each.items() if name != "lastProbeTime"}
        if each["type"] == "DisruptionAllowed"
        else each
        for each in found
    ]


def _number(budget: Tree, name: str) -> int:
    value = subtree(budget, "status").get(name, 0)
    return value if isinstance(value, int) else 0
