"""Suite `pod-requests`: effective requests and limits of pods, under every combination of switches in a row.

Compares by value `requests`, `limits` and the sums over containers of each run, the sequence of uses where a
run has it, and the predicates of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger import in_place, requests
from plimsoll.ledger.containers import ContainerRole, ContainerUse, list_uses

_OPTIONS = {
    "useStatusResources": "use_status",
    "inPlacePodLevelResourcesVerticalScalingEnabled": "in_place_pod_level",
    "excludeOverhead": "exclude_overhead",
    "nonMissingContainerRequests": "non_missing",
    "skipPodLevelResources": "skip_pod_level",
    "skipContainerLevelResources": "skip_containers",
    "useDRANodeAllocatableResourceClaimStatus": "count_claims",
}
_PREDICATES = {
    "pod_level_resources_set": requests.has_pod_level_resources,
    "pod_level_requests_set": requests.has_pod_level_requests,
    "pod_level_limits_set": requests.has_pod_level_limits,
    "resize_infeasible": in_place.is_resize_infeasible,
    "resize_deferred": in_place.is_resize_deferred,
}
_TOTALS = {
    "requests": requests.pod_requests,
    "limits": requests.pod_limits,
    "aggregate_requests": requests.aggregate_container_requests,
    "aggregate_limits": requests.aggregate_container_limits,
}


def _list_request_uses(pod: Pod, options: requests.PodResourcesOptions) -> tuple[ContainerUse, ...]:
    return list_uses(*in_place.list_container_requests(pod, options.use_status, options.non_missing))


_USES = {"container_fn_requests": _list_request_uses, "container_fn_limits": requests.list_limit_uses}


def check(row: dict[str, Any]) -> str | None:
    pod = codec.convert(row["pod"], Pod)
    for name, wanted in row["predicates"].items():
        if (found := _PREDICATES[name](pod)) != wanted:
            return f"{name} is {found}, wanted {wanted}"
    for place, run in enumerate(row["runs"]):
        if (text := _check_run(pod, run)) is not None:
            return f"run {place} ({run['options']}): {text}"
    return None


def read_amounts(tree: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in tree.items()}


def _check_run(pod: Pod, run: dict[str, Any]) -> str | None:
    options = _read_options(run["options"])
    for key, wanted in run.items():
        if key in _TOTALS:
            found = _TOTALS[key](pod, options)
            if found != read_amounts(wanted):
                return f"{key} is {found}, wanted {wanted}"
        elif key in _USES:
            calls = [_as_call(use) for use in _USES[key](pod, options)]
            if calls != [(call["type"], read_amounts(call.get("resources") or {})) for call in wanted]:
                return f"{key} is {calls}, wanted {wanted}"
        elif key != "options":
            return f"unknown key {key}"
    return None


def _read_options(tree: dict[str, Any]) -> requests.PodResourcesOptions:
    given = {_OPTIONS[name]: value for name, value in tree.items()}
    if "non_missing" in given:
        given["non_missing"] = read_amounts(given["non_missing"])
    return requests.PodResourcesOptions(**given)


def _as_call(use: ContainerUse) -> tuple[str, dict[str, Quantity]]:
    return ("container" if use.role is ContainerRole.REGULAR else "init", dict(use.amounts))
