"""`shape_of`: grouping of pods that cost the same under every policy. Pure.

Two pods of one shape, each the only user of its claims, are charged the same under any policy and admitted by
the same rules. Pods of a workload differ in names only, so one evaluation serves thousands. A pod with
exceptional fields has no shape and is evaluated on its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.in_place import is_resize_deferred, is_resize_infeasible


def shape_of(pod: Pod, *billed: Sequence[ChargedClaim]) -> Hashable | None:
    """Return the key that a pod's charges depend on, or None if it must be evaluated on its own."""
    if pod.spec.resources is not None or pod.status.extended_resource_claim_status is not None:
        return None
    if is_resize_infeasible(pod) or is_resize_deferred(pod):
        return None
    return (
        tuple(map(_container, pod.spec.containers)),
        tuple(map(_container, pod.spec.init_containers)),
        _amounts(pod.spec.overhead),
        tuple(_reports(pod)),
        tuple(tuple(map(_charge_key, charged_claims)) for charged_claims in billed),
    )


def _container(container: Container) -> Hashable:
    return container.name, container.restart_policy, _amounts(container.resources.requests)


def _reports(pod: Pod) -> Iterable[Hashable]:
    """Yield container statuses that matter for a pod being resized."""
    status = pod.status
    for report in (*status.container_statuses, *status.init_container_statuses):
        applied = report.resources
        if applied is not None or report.allocated_resources:
            set_up = None if applied is None else _amounts(applied.requests)
            yield report.name, set_up, _amounts(report.allocated_resources)
    if status.resources is not None or status.allocated_resources:
        applied_total = None if status.resources is None else _amounts(status.resources.requests)
        yield applied_total, _amounts(status.allocated_resources)


def _charge_key(charged_claim: ChargedClaim) -> Hashable:
    """Return a charge without the names of claim and devices."""
    drivers = frozenset((part.resource, part.device.driver) for part in charged_claim.parts)
    return charged_claim.charge.containers, tuple(charged_claim.charge.resources.items()), drivers


def _amounts(amounts: Mapping[str, Quantity]) -> Hashable:
    return tuple(amounts.items())
