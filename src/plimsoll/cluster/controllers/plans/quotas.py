"""The status of a ResourceQuota.

Owns which objects a quota is for (its scopes), which of its limits a kind counts towards, and the sums
(upstream's resource quota controller).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.core import PodAffinity
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.cluster.client.endpoints import RESOURCE_QUOTAS
from plimsoll.cluster.controllers.actions import NOTHING, Patch, Plan
from plimsoll.cluster.controllers.plans.usage import (
    CLASS_PREFIX,
    NONE,
    OF_STORAGE_CLASS,
    ONE,
    REQUESTS,
    STORAGE,
    VOLUME_CLAIMS,
    ExtendedNames,
    pod_usage,
    service_usage,
    usage_of_claim,
    volume_claim_usage,
)
from plimsoll.cluster.controllers.plans.views import (
    ResourceQuota,
    ScopeRequirement,
    Service,
    VolumeClaim,
    WatchedPod,
)
from plimsoll.ledger.amounts import add_to
from plimsoll.ledger.qos import BEST_EFFORT, qos_class
from plimsoll.ledger.quota import COUNT_CLAIMS, COUNT_PODS, DEVICES_OF_CLASS

#: For how many seconds a quota must be left alone before it is lowered.
SETTLED_AFTER = 1.0
#: Kinds that are counted under their bare name too.
_ALIASES = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
#: Kinds whose counts are worked out with the rest of what they use.
_MEASURED = ("pods", "resourceclaims.resource.k8s.io", VOLUME_CLAIMS, "services")
_POD_NAMES = frozenset(
    {COUNT_PODS, "pods"}
    | {
        prefix + name
        for prefix in ("", REQUESTS, "limits.")
        for name in ("cpu", "memory", "ephemeral-storage")
    }
)
_SERVICE_NAMES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a namespace."""

    pods: Sequence[WatchedPod] = ()
    claims: Sequence[ResourceClaim] = ()
    volume_claims: Sequence[VolumeClaim] = ()
    services: Sequence[Service] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  #: `plural.group` -> how many, of every kind
    extended: ExtendedNames = field(default_factory=ExtendedNames)


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
    hard = quota.spec.hard
    by_name = {pod.metadata.name: pod for pod in contents.pods}
    extended = contents.extended
    usage: dict[str, Quantity] = {}

    def count(matches: Callable[[str], bool], items: Iterable[Mapping[str, Quantity]]) -> None:
        names = [name for name in hard if matches(name)]
        if names:
            add_to(usage, dict.fromkeys(names, NONE))
            for item in items:
                add_to(usage, {name: item[name] for name in names if name in item})

    scopes = [
        *(ScopeRequirement(scope_name=name, operator="Exists") for name in quota.spec.scopes),
        *(quota.spec.scope_selector.match_expressions if quota.spec.scope_selector else ()),
    ]
    count(
        is_for_pods,
        (pod_usage(pod, now) for pod in contents.pods if all(in_pod_scope(pod, scope) for scope in scopes)),
    )
    count(
        is_for_volume_claims,
        (
            volume_claim_usage(claim)
            for claim in contents.volume_claims
            if all(in_volume_scope(claim, scope) for scope in scopes)
        ),
    )
    # No other kind is in any scope.
    count(
        lambda name: is_for_claims(name, extended),
        (
            usage_of_claim(claim, extended, by_name, contents.claims, now)
            for claim in contents.claims
            if not scopes
        ),
    )
    count(_SERVICE_NAMES.__contains__, (service_usage(item) for item in contents.services if not scopes))
    for kind, number in contents.counts.items():
        if kind not in _MEASURED:
            names = {f"count/{kind}", *((kind,) if kind in _ALIASES else ())}
            amount = ONE.times(number) if not scopes and number else NONE
            count(names.__contains__, [dict.fromkeys(names, amount)])
    return usage


# -- which limits a kind counts towards


def is_for_pods(name: str) -> bool:
    return name in _POD_NAMES or name.startswith(("hugepages-", "requests.hugepages-")) or _is_extended(name)


def _is_extended(name: str) -> bool:
    foreign = "/" in name and "kubernetes.io/" not in name
    return name.startswith(REQUESTS) and (foreign or name.startswith(REQUESTS + CLASS_PREFIX))


def is_for_claims(name: str, extended: ExtendedNames) -> bool:
    if name == COUNT_CLAIMS or name.endswith(DEVICES_OF_CLASS):
        return True
    if name.startswith(REQUESTS + CLASS_PREFIX):
        of = name.removeprefix(REQUESTS + CLASS_PREFIX)
        return of in extended.names
    return _is_extended(name) and name.removeprefix(REQUESTS) in extended.classes


def is_for_volume_claims(name: str) -> bool:
    bare = (VOLUME_CLAIMS, STORAGE)
    return name in (*bare, f"count/{VOLUME_CLAIMS}") or name.endswith(
        tuple(OF_STORAGE_CLASS + part for part in bare)
    )


# -- scopes


def in_pod_scope(pod: WatchedPod, scope: ScopeRequirement) -> bool:
    deadline = pod.spec.active_deadline_seconds
    terminating = deadline is not None and deadline >= 0
    match scope.scope_name:
        case "Terminating":
            return terminating
        case "NotTerminating":
            return not terminating
        case "BestEffort":
            return qos_class(pod.spec) == BEST_EFFORT
        case "NotBestEffort":
            return qos_class(pod.spec) != BEST_EFFORT
        case "PriorityClass":
            return _selects(scope, {pod.spec.priority_class_name} - {""})
        case "CrossNamespacePodAffinity":
            affinity = pod.spec.affinity
            return affinity is not None and any(
                map(_crosses_namespaces, (affinity.pod_affinity, affinity.pod_anti_affinity))
            )
    return False


def in_volume_scope(claim: VolumeClaim, scope: ScopeRequirement) -> bool:
    if scope.scope_name != "VolumeAttributesClass":
        return False
    names = {claim.spec.volume_attributes_class_name, claim.status.current_volume_attributes_class_name}
    return _selects(scope, {name for name in names if name})


def _selects(scope: ScopeRequirement, names: set[str]) -> bool:
    match scope.operator:
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return bool(names & set(scope.values))
        case "NotIn":
            return not names or bool(names - set(scope.values))
    return False


def _crosses_namespaces(affinity: PodAffinity | None) -> bool:
    if affinity is None:
        return False
    terms = [*affinity.required, *(weighted.pod_affinity_term for weighted in affinity.preferred)]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


# -- patches


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _replace(old: Mapping[str, Quantity] | None, new: Mapping[str, Quantity]) -> dict[str, Any]:
    """A merge patch that leaves exactly the new amounts."""
    return {**dict.fromkeys(old or (), None), **_texts(new)}
