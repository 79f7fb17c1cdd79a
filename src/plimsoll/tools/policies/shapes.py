"""Pods that are alike as far as books go.

Owns `shape_of`, which is pure: two pods of one shape, each the only one that uses its claims, cost their
nodes the same under any policy, and the same rules let them in or keep them out. Pods of a workload differ in
names alone, so what was worked out for the first holds for thousands. A pod that has something unusual about
it has no shape, and is worked out by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.in_place import is_resize_deferred, is_resize_infeasible


def shape_of(pod: Pod, *billed: Sequence[ChargedClaim]) -> Hashable | None:
    """What an entry of this pod with these bills depends on; None if it had better be worked out itself."""
    if pod.spec.resources is not None or pod.status.extended_resource_claim_status is not None:
        return None
    if is_resize_infeasible(pod) or is_resize_deferred(pod):
        return None
    return (
        tuple(map(_container, pod.spec.containers)),
        tuple(map(_container, pod.spec.init_containers)),
        _amounts(pod.spec.overhead),
        tuple(_reports(pod)),
        tuple(tuple(map(_bill, charged_claims)) for charged_claims in billed),
    )


def _container(container: Container) -> Hashable:
    return container.name, container.restart_policy, _amounts(container.resources.requests)


def _reports(pod: Pod) -> Iterable[Hashable]:
    """What the node says of containers, of which some counts for a pod that is being resized."""
    status = pod.status
    for report in (*status.container_statuses, *status.init_container_statuses):
        applied = report.resources
        if applied is not None or report.allocated_resources:
            set_up = None if applied is None else _amounts(applied.requests)
            yield report.name, set_up, _amounts(report.allocated_resources)
    if status.resources is not None or status.allocated_resources:
        applied_total = None if status.resources is None else _amounts(status.resources.requests)
        yield applied_total, _amounts(status.allocated_resources)


def _bill(charged_claim: ChargedClaim) -> Hashable:
    """All of a bill but the names of claim and devices."""
    drivers = frozenset((part.resource, part.device.driver) for part in charged_claim.parts)
    return charged_claim.charge.containers, tuple(charged_claim.charge.resources.items()), drivers


def _amounts(amounts: Mapping[str, Quantity]) -> Hashable:
    return tuple(amounts.items())
