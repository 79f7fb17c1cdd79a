"""Admission of a kubelet: what a pod takes of its node, computed independently of the product.

A pod takes the sum of its containers or the largest of its init containers, whichever is more, its overhead,
and one of `pods`. Where the server keeps the charges of claims, each claim is added once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.simulation.node.amounts import Amounts, add_amounts, amounts_of, largest_amounts

Tree = dict[str, Any]


class Rejection(NamedTuple):
    """Reason and message of a rejected pod, as a kubelet reports them."""

    reason: str
    message: str


class PodLoad(NamedTuple):
    """Amounts that an admitted pod takes: its own, and those of its claims."""

    requests: Amounts
    charges: dict[tuple[str, str], Amounts]  #: by namespace and name of the claim


def load_of(pod: Tree, *, counts_claims: bool) -> PodLoad:
    charges = {}
    for entry in pod["status"].get("nodeAllocatableResourceClaimStatuses") or () if counts_claims else ():
        key = (pod["metadata"]["namespace"], entry["resourceClaimName"])
        charges[key] = amounts_of(entry.get("resources"))
    return PodLoad(effective_requests(pod), charges)


def effective_requests(pod: Tree) -> Amounts:
    """Return the requests of a pod as a kubelet sums them."""
    spec = pod["spec"]
    regular: Amounts = {}
    for container in spec["containers"]:
        add_amounts(regular, _requests(container))
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            add_amounts(sidecars, _requests(container))
            initial = largest_amounts(initial, sidecars)
        else:
            alone = dict(sidecars)
            add_amounts(alone, _requests(container))
            initial = largest_amounts(initial, alone)
    add_amounts(regular, sidecars)
    total = largest_amounts(regular, initial)
    total |= _requests(spec)
    add_amounts(total, amounts_of(spec.get("overhead")))
    extended = pod["status"].get("extendedResourceClaimStatus") or {}
    for mapping in extended.get("requestMappings") or ():  # devices of a claim serve these
        total.pop(mapping["resourceName"], None)
    return total


def _requests(part: Tree) -> Amounts:
    return amounts_of((part.get("resources") or {}).get("requests"))


def total_load(pods: Iterable[PodLoad]) -> Amounts:
    """Return what the admitted pods of a node take."""
    total: Amounts = {}
    charged: dict[tuple[str, str], Amounts] = {}
    for pod in pods:
        add_amounts(total, pod.requests)
        add_amounts(total, {"pods": 1000})
        charged |= pod.charges
    for amounts in charged.values():
        add_amounts(total, amounts)
    return total


def check_fit(pod: PodLoad, admitted: Iterable[PodLoad], allocatable: Mapping[str, str]) -> Rejection | None:
    """Return why a pod does not fit beside those already admitted."""
    before = list(admitted)
    total, limits = total_load([*before, pod]), amounts_of(allocatable)
    needed = {**pod.requests, "pods": 1000}
    for amounts in pod.charges.values():
        add_amounts(needed, amounts)
    taken = total_load(before)
    for name, amount in needed.items():
        limit = limits.get(name, 0)
        if amount and total[name] > limit:
            used = taken.get(name, 0)
            return Rejection(
                f"OutOf{name}",
                f"Node didn't have enough resource: {name}, requested: {amount / 1000:g}, "
                f"used: {used / 1000:g}, capacity: {limit / 1000:g}",
            )
    return None
