"""Whether an amount still fits below a node's line.

Owns the comparisons of whole amounts: Kubernetes' check of a pod's requests (NodeResourcesFit), its check of
what claims add (DynamicResources) and the kubelet's at admission. All three tell every shortage, in
upstream's order: pods, cpu, memory, ephemeral-storage, then the others by name. Section 3 of the accounting
semantics.
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
    """What a node with `pods` pods on it lacks for one more; resources to `skip` are checked elsewhere."""
    allowed = allocatable.get(PODS, 0)
    if pods + 1 > allowed:
        yield Reason(
            cause=Cause.TOO_MANY_PODS,
            resource=PODS,
            wanted=1,
            had=allowed - pods,
            capacity=allowed,
            resolvable=True,
        )
    for name in _in_order(demand):
        if name not in skip and demand[name] > 0:
            yield from _shortage(name, demand[name], allocatable, requested)


def find_claim_shortages(demand: Units, allocatable: Units, requested: Units) -> Iterator[Reason]:
    """What a node lacks of the resources that claims can charge.

    Huge pages are compared even where nothing is asked for, as upstream does; resources that claims cannot
    charge are left to `find_request_shortages`.
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
    """The kubelet's answer: a rejected pod fails with this reason and message."""

    admit: bool
    reason: str = ""
    message: str = ""
    shortages: tuple[Reason, ...] = ()


def admit_pod(
    demand: Units, allocatable: Units, requested: Units, pods: int, pools: Iterable[Reason] = ()
) -> PodAdmitResult:
    """Whether a kubelet with these pods takes one more; it names the first shortage only.

    What `pools` lack comes after what the node lacks. Extended resources the node does not have are no matter
    of the kubelet: others may provide them.
    """
    missing = [name for name in demand if is_extended_resource(name) and name not in allocatable]
    shortages = (*find_request_shortages(demand, allocatable, requested, pods, missing), *pools)
    if not shortages:
        return PodAdmitResult(True)
    first = shortages[0]
    return PodAdmitResult(False, f"OutOf{first.resource}", format_admission_message(first), shortages)
