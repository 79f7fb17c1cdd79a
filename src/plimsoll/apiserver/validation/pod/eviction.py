"""Evicting a pod: what is posted to `pods/eviction`, and whether disruption budgets let the pod go.

`judge_eviction` takes the stored pod, the posted Eviction and the budgets that select the pod, and says what
to do; it changes nothing itself. The server then writes `pod` and `budget` where they are given and deletes
the pod with `options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plimsoll.apiserver.validation.core_views import DeleteOptions, Eviction
from plimsoll.apiserver.validation.decode import take_in
from plimsoll.apiserver.validation.field_errors import Path, Problem, Problems, invalid
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.pod.conditions import set_condition
from plimsoll.apiserver.validation.timestamps import write_time
from plimsoll.apiserver.validation.write_context import look

DISRUPTED_MAX = 2000
BUDGET_CAUSE = "DisruptionBudget"

_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod stays: an HTTP code, a message, and what the budget says."""

    code: int
    message: str
    cause: str = ""
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Evicted:
    """What an eviction comes to.

    `pod` is the pod as it is to be stored before it is deleted, `budget` the disruption budget it was
    charged to (None where none is touched). `holds_version` says that the deletion must find the pod at the
    version that was judged.
    """

    options: DeleteOptions
    pod: Tree | None = None
    budget: Tree | None = None
    holds_version: bool = False
    problems: tuple[Problem, ...] = ()
    refusal: Refusal | None = None


def read_eviction(tree: Any) -> Eviction:
    """A posted Eviction; raises DecodeError where it is none."""
    return look(take_in(tree, Eviction), Eviction)


def judge_eviction(pod: Tree, eviction: Any, budgets: Sequence[Tree], now: datetime) -> Evicted:
    """Whether and how a pod is evicted; `budgets` are those of its namespace that select it."""
    posted = read_eviction(eviction)
    options = posted.delete_options or DeleteOptions()
    problems = tuple(_check_options(options))
    if problems:
        return Evicted(options, problems=problems)
    refusal = _check_preconditions(pod, options)
    if refusal is not None:
        return Evicted(options, refusal=refusal)
    leaving = _mark(pod, write_time(now))
    phase, ending = part(pod, "status").get("phase"), bool(part(pod, "metadata").get("deletionTimestamp"))
    if phase in ("Succeeded", "Failed", "Pending") or ending:
        return Evicted(options, leaving, holds_version=phase == "Pending" and not ending)
    if not budgets:
        return Evicted(options, leaving)
    if len(budgets) > 1:
        detail = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        return Evicted(options, refusal=Refusal(500, detail))
    if not _is_ready(pod) and _lets_unready_go(budgets[0]):
        return Evicted(options, leaving, holds_version=True)
    refusal = _check_budget(budgets[0])
    if refusal is not None:
        return Evicted(options, refusal=refusal)
    return Evicted(options, leaving, _charge(budgets[0], pod, write_time(now)))


def _check_options(options: DeleteOptions) -> Problems:
    if options.ignore_store_read_error:
        path = Path("deleteOptions").child("ignoreStoreReadErrorWithClusterBreakingPotential")
        yield invalid(path, True, "can not be set for pod eviction, try after removing the option")


def _check_preconditions(pod: Tree, options: DeleteOptions) -> Refusal | None:
    meta, wanted = part(pod, "metadata"), options.preconditions
    if wanted is not None:
        uid, version = meta.get("uid", ""), meta.get("resourceVersion", "")
        if wanted.uid and wanted.uid != uid:
            detail = (
                f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid}). "
                "The object might have been deleted and then recreated"
            )
            return Refusal(409, detail)
        if wanted.resource_version and wanted.resource_version != version:
            detail = (
                f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the "
                f"ResourceVersion in record ({version}). The object might have been modified"
            )
            return Refusal(409, detail)
    return None


def _mark(pod: Tree, now: str) -> Tree:
    status = dict(part(pod, "status"))
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status["conditions"] = set_condition(status.get("conditions", []), condition, now)
    return {**pod, "status": status}


def _is_ready(pod: Tree) -> bool:
    conditions = part(pod, "status").get("conditions", ())
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


# -- the budget


def _lets_unready_go(budget: Tree) -> bool:
    """Pods that do no work may go, always or as long as enough others do."""
    if part(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    wanted = _number(budget, "desiredHealthy")
    return wanted > 0 and _number(budget, "currentHealthy") >= wanted


def _check_budget(budget: Tree) -> Refusal | None:
    name, status = part(budget, "metadata").get("name", ""), part(budget, "status")
    generation = part(budget, "metadata").get("generation", 0)
    if isinstance(generation, int) and _number(budget, "observedGeneration") < generation:
        cause = f"The disruption budget {name} is still being processed by the server."
        return Refusal(429, _VIOLATED, cause, 10)
    allowed = _number(budget, "disruptionsAllowed")
    if allowed < 0:
        return Refusal(403, "pdb disruptions allowed is negative")
    if len(part(status, "disruptedPods")) > DISRUPTED_MAX:
        detail = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return Refusal(403, detail)
    if allowed == 0:
        return Refusal(429, _VIOLATED, _explain(name, budget), 0)
    return None


def _explain(name: str, budget: Tree) -> str:
    condition: Tree = next(
        (c for c in part(budget, "status").get("conditions", ()) if c.get("type") == "DisruptionAllowed"), {}
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


def _charge(budget: Tree, pod: Tree, now: str) -> Tree:
    """One disruption less, and the pod noted down as going."""
    status = dict(part(budget, "status"))
    left = _number(budget, "disruptionsAllowed") - 1
    status["disruptionsAllowed"] = left
    status["disruptedPods"] = {**part(status, "disruptedPods"), part(pod, "metadata").get("name", ""): now}
    if left == 0:
        status["conditions"] = _close(status.get("conditions", []), budget, now)
    return {**budget, "status": status}


def _close(conditions: Sequence[Tree], budget: Tree, now: str) -> list[Tree]:
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
    value = part(budget, "status").get(name, 0)
    return value if isinstance(value, int) else 0
