"""Quota scopes: selection of the quotas that apply to an object.

Matches the scopes of a ResourceQuota and the resources it tracks for a kind. Used by both admission and the
quota controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod, PodAffinity
from plimsoll.api.gates import Gates
from plimsoll.api.meta import Wire
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE
from plimsoll.api.quantity import Quantity
from plimsoll.api.quota import (
    CountedVolumeClaim,
    ResourceQuotaSpec,
    ScopedResourceSelectorRequirement,
)
from plimsoll.controllers.quota.usage import (
    BARE,
    CLAIMS,
    COUNT,
    DEVICES_OF_CLASS,
    LIMITS,
    OF_STORAGE_CLASS,
    PODS,
    REQUESTS,
    SERVICES,
    STORAGE,
    VOLUME_CLAIMS,
    QuotaContext,
)
from plimsoll.ledger.amounts import Amounts
from plimsoll.ledger.qos import BEST_EFFORT, pod_qos
from plimsoll.ledger.units import STANDARD_RESOURCES

#: Kinds that quotas never count.
UNCOUNTED = frozenset(
    (
        "bindings",
        "componentstatuses",
        "events",
        "events.events.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
    )
)
_ALL_ON = Gates.default()
_OF_PODS = frozenset((PODS, *(side + name for side in ("", REQUESTS, LIMITS) for name in STANDARD_RESOURCES)))
_OF_VOLUMES = (VOLUME_CLAIMS, STORAGE)
_OF_CLASSES = tuple(OF_STORAGE_CLASS + name for name in _OF_VOLUMES)
_OF_SERVICES = frozenset(("services", "services.loadbalancers", "services.nodeports"))


# -- resources


def matches_resource(resource: str, name: str, context: QuotaContext) -> bool:
    """Return whether a resource of a quota tracks objects of this kind."""
    if resource in UNCOUNTED:
        return False
    if name == COUNT + resource:
        return True
    if resource == PODS:
        pages = name.startswith(("hugepages-", "requests.hugepages-"))
        return name in _OF_PODS or pages or _is_extended(name)
    if resource == CLAIMS:
        is_served = _is_extended(name) and context.extended.serve(name.removeprefix(REQUESTS))
        return name.endswith(DEVICES_OF_CLASS) or (context.serves_extended and is_served)
    if resource == VOLUME_CLAIMS:
        return name in _OF_VOLUMES or name.endswith(_OF_CLASSES)
    if resource == SERVICES:
        return name in _OF_SERVICES
    return resource in BARE and name == resource


def _is_extended(name: str) -> bool:
    foreign = "/" in name and "kubernetes.io/" not in name
    return name.startswith(REQUESTS) and (foreign or name.startswith(REQUESTS + DEVICE_CLASS_RESOURCE))


def matching_resources(resource: str, hard: Iterable[str], context: QuotaContext) -> list[str]:
    """Return those of a quota's resources that track a kind; a quota without any does not apply."""
    return [name for name in hard if matches_resource(resource, name, context)]


def filter_usage(usage: Amounts, hard: Iterable[str]) -> dict[str, Quantity]:
    """Return the part of an object's usage that a quota tracks."""
    return {name: usage[name] for name in hard if name in usage}


# -- scopes


def scope_requirements(spec: ResourceQuotaSpec) -> tuple[ScopedResourceSelectorRequirement, ...]:
    """Return all scope requirements of a quota, from `scopes` and `scopeSelector`."""
    listed = tuple(
        ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in spec.scopes
    )
    return listed + (() if spec.scope_selector is None else spec.scope_selector.match_expressions)


def matches_scopes(
    item: Wire, requirements: Iterable[ScopedResourceSelectorRequirement], gates: Gates = _ALL_ON
) -> bool:
    """Return whether an object matches all scopes; only pods and volume claims can match any."""
    return all(_in_scope(item, requirement, gates) for requirement in requirements)


def _in_scope(item: Wire, requirement: ScopedResourceSelectorRequirement, gates: Gates) -> bool:
    if isinstance(item, Pod):
        return _in_pod_scope(item, requirement, gates)
    if isinstance(item, CountedVolumeClaim) and requirement.scope_name == "VolumeAttributesClass":
        return _matches_names(requirement, _attributes_classes(item))
    return False


def _in_pod_scope(pod: Pod, requirement: ScopedResourceSelectorRequirement, gates: Gates) -> bool:
    match requirement.scope_name:
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return _is_best_effort(pod, gates)
        case "NotBestEffort":
            return not _is_best_effort(pod, gates)
        case "PriorityClass":
            return _matches_names(requirement, {pod.spec.priority_class_name} - {""})
        case "CrossNamespacePodAffinity":
            affinity = pod.spec.affinity
            return affinity is not None and any(
                map(_crosses_namespaces, (affinity.pod_affinity, affinity.pod_anti_affinity))
            )
    return False


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod has an active deadline (scope Terminating); unrelated to deletion."""
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def _is_best_effort(pod: Pod, gates: Gates) -> bool:
    return pod_qos(pod, pod_level=gates.enabled("PodLevelResources")) == BEST_EFFORT


def _attributes_classes(claim: CountedVolumeClaim) -> set[str]:
    """Return the classes of a volume claim; one being modified belongs to both."""
    status = claim.status
    names = {claim.spec.volume_attributes_class_name, status.current_volume_attributes_class_name}
    if status.modify_volume_status is not None:
        names.add(status.modify_volume_status.target_volume_attributes_class_name)
    return {name for name in names if name}


def _matches_names(requirement: ScopedResourceSelectorRequirement, names: set[str]) -> bool:
    """Return whether any of the names is selected; a missing list of values selects nothing."""
    values = set(requirement.values)
    match requirement.operator:
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return bool(names & values)
        case "NotIn":
            return bool(values) and (not names or bool(names - values))
    return False


def _crosses_namespaces(affinity: PodAffinity | None) -> bool:
    """Return whether affinity or anti-affinity refers to other namespaces."""
    if affinity is None:
        return False
    terms = [*affinity.required, *(weighted.pod_affinity_term for weighted in affinity.preferred)]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)
