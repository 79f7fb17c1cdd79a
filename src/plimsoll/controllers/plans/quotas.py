"""The status of a ResourceQuota.

Owns the sums over what is in a namespace (upstream's resource quota controller). What an object counts for,
and for which quotas, stands in `ledger.quota_usage` and `ledger.quota_scopes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plimsoll.api.meta import Wire
from plimsoll.api.quantity import Quantity
from plimsoll.api.quota import CountedPod, ResourceQuota, Service, VolumeClaim
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import RESOURCE_QUOTAS
from plimsoll.controllers.actions import NOTHING, Patch, Plan
from plimsoll.ledger.amounts import add_to
from plimsoll.ledger.quota_scopes import booked, concerned, in_scopes, requirements_of
from plimsoll.ledger.quota_usage import (
    CLAIMS,
    MEASURED,
    NONE,
    PODS,
    SERVICES,
    VOLUME_CLAIMS,
    ExtendedNames,
    Surroundings,
    asking_pod,
    count_usage,
    usage_of,
)

#: For how many seconds a quota must be left alone before it is lowered.
SETTLED_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a namespace."""

    pods: Sequence[CountedPod] = ()
    claims: Sequence[ResourceClaim] = ()
    volume_claims: Sequence[VolumeClaim] = ()
    services: Sequence[Service] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  #: `plural.group` -> how many, of every kind
    extended: ExtendedNames = field(default_factory=ExtendedNames)

    def measured(self) -> Iterator[tuple[str, Sequence[Wire]]]:
        """The objects that count for more than their number, kind by kind."""
        yield PODS, self.pods
        yield CLAIMS, self.claims
        yield VOLUME_CLAIMS, self.volume_claims
        yield SERVICES, self.services

    def look_around(self, now: float) -> Surroundings:
        pods = {pod.metadata.name: pod for pod in self.pods}
        made: dict[str, list[ResourceClaim]] = {}
        for claim in self.claims:
            owner = asking_pod(claim)
            if owner is not None:
                made.setdefault(owner.uid, []).append(claim)
        return Surroundings(
            datetime.fromtimestamp(now, UTC),
            extended=self.extended,
            find_pod=pods.get,
            find_claims=lambda uid: made.get(uid, ()),
        )


def plan_quota(quota: ResourceQuota, contents: Contents, now: float, *, quiet: float = SETTLED_AFTER) -> Plan:
    """Bring a quota's status up to date; `quiet` is for how many seconds nobody has changed it.

    Whoever admits an object charges the quota before the object is there: a quota that has just been
    charged is not lowered, because what it was charged for may not be in sight yet.
    """
    hard = quota.spec.hard
    before = quota.status.used or {}
    used = {name: amount for name, amount in before.items() if name in hard}
    used.update(measure(quota, contents, now))
    if quota.status.hard is not None and quota.status.used is not None:
        same = _texts(quota.status.hard) == _texts(hard) and quota.status.used == used
        if same:
            return NOTHING
        if quiet < SETTLED_AFTER and any(used[name] < before[name] for name in used if name in before):
            return Plan(again=SETTLED_AFTER - quiet)
    patch = {
        "metadata": {"resourceVersion": quota.metadata.resource_version},
        "status": {"hard": _replace(quota.status.hard, hard), "used": _replace(quota.status.used, used)},
    }
    metadata = quota.metadata
    return Plan(
        (Patch(RESOURCE_QUOTAS, metadata.name, patch, namespace=metadata.namespace, subresource="status"),)
    )


def measure(quota: ResourceQuota, contents: Contents, now: float) -> dict[str, Quantity]:
    """What is used of those of a quota's resources that can be measured."""
    hard, scopes = quota.spec.hard, requirements_of(quota.spec)
    around = contents.look_around(now)
    usage: dict[str, Quantity] = {}
    for resource, items in contents.measured():
        names = concerned(resource, hard, around)
        add_to(usage, dict.fromkeys(names, NONE))
        for item in items if names else ():
            if in_scopes(item, scopes, around.gates):
                add_to(usage, booked(usage_of(resource, item, around), hard))
    for resource, number in contents.counts.items():
        if resource not in MEASURED:
            names = concerned(resource, hard, around)
            add_to(usage, dict.fromkeys(names, NONE))
            if names and not scopes:  # what is only counted is in no scope
                add_to(usage, booked(count_usage(resource, number), hard))
    return usage


# -- patches


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _replace(old: Mapping[str, Quantity] | None, new: Mapping[str, Quantity]) -> dict[str, Any]:
    """A merge patch that leaves exactly the new amounts."""
    return {**dict.fromkeys(old or (), None), **_texts(new)}
