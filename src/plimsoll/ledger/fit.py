"""Fit of an amount within a node's allocatable resources.

Compares integer amounts: the scheduler's check of a pod's requests (NodeResourcesFit), its check of claim
charges (DynamicResources) and the kubelet's at admission. All three report every shortage in upstream's
order: pods, cpu, memory, ephemeral-storage, then the others by name (docs/spec/accounting.md, "Scheduler").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.messages import format_admission_message
from plimsoll.ledger.units import PODS, STANDARD_RESOURCES, Units, is_extended_resource
from plimsoll.ledger.verdict import Cause, Reason


def find_request_shortages(
    demand: Units,
    allocatable: Units,
    requested: Units,
    pods: int,
    skip: Collection[str] = (),
) -> Iterator[Reason]:
    """Yield the shortages of a node with `pods` pods for one more; `skip` lists resources checked
    elsewhere.
    """
    yield from find_crowding(1, allocatable, pods)
    for name in _in_order(demand):
        if name not in skip and demand[name] > 0:
            yield from _shortage(name, demand[name], allocatable, requested)


def find_crowding(wanted: int, allocatable: Units, pods: int) -> Iterator[Reason]:
    """Yield the shortage of a node with `pods` pods for more of them."""
    allowed = allocatable.get(PODS, 0)
    if pods + wanted > allowed:
        yield Reason(
            cause=Cause.TOO_MANY_PODS,
            resource=PODS,
            wanted=wanted,
            had=allowed - pods,
            capacity=allowed,
            resolvable=True,
        )


def find_claim_shortages(demand: Units, allocatable: Units, requested: Units) -> Iterator[Reason]:
    """Yield the shortages of a node for resources that claims can charge.

    Huge pages are compared even at zero, as upstream does; other resources are left to
    `find_request_shortages`.
    """
    for name in _in_order(demand):
        if is_huge_page(name) or (name in STANDARD_RESOURCES and demand[name] > 0):
            yield from _shortage(name, demand[name], allocatable, requested)


def _in_order(demand: Units) -> list[str]:
    return [name for name in STANDARD_RESOURCES if name in demand] + sorted(
        demand.keys() - set(STANDARD_RESOURCES)
    )


def _shortage(name: str, wanted: int, allocatable: Units, requested: Units) -> Iterator[Reason]:
    capacity = allocatable.get(name, 0)
    had = capacity - requested.get(name, 0)
    if wanted > had:
        yield Reason(
            cause=Cause.INSUFFICIENT,
            resource=name,
            wanted=wanted,
            had=had,
            capacity=capacity,
            resolvable=wanted <= capacity,
        )


@dataclass(frozen=True, slots=True)
class PodAdmitResult:
    """Result of the kubelet's admission: a rejected pod fails with this reason and message."""

    admit: bool
    reason: str = ""
    message: str = ""
    shortages: tuple[Reason, ...] = ()


def admit_pod(
    demand: Units, allocatable: Units, requested: Units, pods: int, pools: Iterable[Reason] = ()
) -> PodAdmitResult:
    """Check whether a kubelet admits one more pod; the message names the first shortage only.

    Shortages of `pools` come after those of the node. Extended resources the node does not have are not
    checked: they may be provided by other components.
    """
    missing = [name for name in demand if is_extended_resource(name) and name not in allocatable]
    shortages = (*find_request_shortages(demand, allocatable, requested, pods, missing), *pools)
    if not shortages:
        return PodAdmitResult(True)
    first = shortages[0]
    return PodAdmitResult(False, f"OutOf{first.resource}", format_admission_message(first), shortages)
