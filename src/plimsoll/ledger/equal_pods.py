"""Keys of pods whose totals are equal, so that the totals of the replicas of a workload are computed once.

A key holds everything that the totals of a pod are computed from (`entries.py`), except for pods with rare
fields, which have no key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from plimsoll.api.core import ContainerStatus, Pod
from plimsoll.api.forms import Form
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.in_place import is_resize_infeasible
from plimsoll.ledger.policy import is_additive
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions


def find_key(
    pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions, profile: AccountingProfile
) -> Hashable | None:
    """Return the key of a pod with these charges; None if it must be computed by itself.

    Pods with init containers, overhead or pod-level resources have none, nor have those with charges that
    depend on more than their amounts.
    """
    spec = pod.spec
    if spec.init_containers or spec.resources is not None or spec.overhead:
        return None
    if options.non_missing or options.skip_containers:
        return None
    requests = tuple([tuple(container.resources.requests.items()) for container in spec.containers])
    reported: Hashable = None
    if options.use_status:
        if options.form is not Form.V1_36:
            return None
        if pod.status.container_statuses or pod.status.init_container_statuses:
            reported = _reported_key(pod)
    if not charged_claims or not options.count_claims:
        return requests, reported
    charges = None if profile.share_per_claim else _charges_key(charged_claims)
    return None if charges is None else (requests, reported, charges)


def _reported_key(pod: Pod) -> Hashable:
    """Return what the node reports, and the names by which it is found."""
    names = tuple([container.name for container in pod.spec.containers])
    statuses = pod.status.container_statuses, pod.status.init_container_statuses
    return names, is_resize_infeasible(pod), *map(_statuses_key, statuses)


def _statuses_key(statuses: Iterable[ContainerStatus]) -> Hashable:
    return tuple(
        [
            (
                status.name,
                None if status.resources is None else tuple(status.resources.requests.items()),
                tuple(status.allocated_resources.items()),
            )
            for status in statuses
        ]
    )


def _charges_key(charged_claims: Iterable[ChargedClaim]) -> Hashable | None:
    """Return the amounts of charges that are added once; None if there are others."""
    amounts = []
    for charged_claim in charged_claims:
        for name, charge in charged_claim.charge.resources.items():
            if not is_additive(charge) or charge.per_container is not None:
                return None
            amounts.append((name, charge.quantity, charge.per_pod))
    return tuple(amounts)
