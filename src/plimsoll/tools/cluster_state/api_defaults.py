"""Detection of objects that lack defaults of the API, although they look as if they were stored.

An API server sets the defaults when it stores an object, so objects of dumps are decoded as they are; those
that were edited, or written by hand with a UID and a status, are given their defaults by the code of the
server. Only fields that the tools read are looked at: completing an object takes ten times as long as
decoding it, and dumps often lack fields that do not matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Container, Namespace, Node, Pod
from plimsoll.api.quota import LimitRange
from plimsoll.api.resource import EXACT_COUNT, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate
from plimsoll.api.scheduling import PodGroup, PriorityClass
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from plimsoll.apiserver.validation.priority_classes import SYSTEM_CLASSES
from plimsoll.tools.cluster_state.objects import ClusterObjects

#: Label of namespaces by which selectors name them.
_NAME_LABEL = "kubernetes.io/metadata.name"


def lacks_defaults(thing: Any) -> bool:
    """Return whether a decoded object lacks a default of the API that a tool reads."""
    check = _CHECKS.get(type(thing))
    return check is not None and bool(check(thing))


def _check_pod(pod: Pod) -> bool:
    spec = pod.spec
    if not spec.scheduler_name or not spec.restart_policy:
        return True
    if any(map(_lacks_requests, (*spec.containers, *spec.init_containers))):
        return True
    resources = spec.resources
    return resources is not None and not resources.limits.keys() <= resources.requests.keys()


def _lacks_requests(container: Container) -> bool:
    limits = container.resources.limits
    return bool(limits) and not limits.keys() <= container.resources.requests.keys()


def _check_claim(spec: ResourceClaimSpec) -> bool:
    return any(
        not body.allocation_mode or (body.allocation_mode == EXACT_COUNT and not body.count)
        for request in spec.devices.requests
        for body in (request.exactly, *request.first_available)
        if body is not None
    )


def _check_namespace(namespace: Namespace) -> bool:
    meta = namespace.metadata
    return not namespace.status.phase or meta.labels.get(_NAME_LABEL) != meta.name


def _check_limit_range(ranges: LimitRange) -> bool:
    return any(
        each.type == "Container" and not each.max.keys() <= each.default.keys() <= each.default_request.keys()
        for each in ranges.spec.limits
    )


def set_priorities(objects: ClusterObjects) -> None:
    """Set the priority of pods without one; a class that is not among the objects is left alone."""
    lacking = [pod for pod in objects.all(Pod) if pod.spec.priority is None]
    classes = priority_classes(objects) if lacking else {}
    for pod in lacking:
        objects.set(with_priority(pod, classes) or pod)


def priority_classes(objects: ClusterObjects) -> dict[str, PriorityClass]:
    """Return the priority classes by name, with those of the system."""
    system = {name: PriorityClass(value=value) for name, value in SYSTEM_CLASSES.items()}
    return system | {each.metadata.name: each for each in objects.all(PriorityClass)}


def with_priority(pod: Pod, classes: Mapping[str, PriorityClass]) -> Pod | None:
    """Return a pod with the priority of its class, as admission sets it; None if there is no such class."""
    name = pod.spec.priority_class_name
    # Kubernetes uses the lowest of several global defaults.
    defaults = sorted((each for each in classes.values() if each.global_default), key=lambda each: each.value)
    found = classes.get(name) if name else next(iter(defaults), None)
    if found is None:
        return None
    policy = pod.spec.preemption_policy or found.preemption_policy
    return replace(pod, spec=replace(pod.spec, priority=found.value, preemption_policy=policy))


_CHECKS: dict[type, Callable[[Any], bool]] = {
    Pod: _check_pod,
    Node: lambda node: node.status.capacity and not node.status.allocatable,
    ResourceClaim: lambda claim: _check_claim(claim.spec),
    ResourceClaimTemplate: lambda template: _check_claim(template.spec.spec),
    LimitRange: _check_limit_range,
    Namespace: _check_namespace,
    PersistentVolume: lambda volume: not volume.spec.volume_mode or not volume.status.phase,
    PersistentVolumeClaim: lambda claim: not claim.spec.volume_mode or not claim.status.phase,
    PodGroup: lambda group: group.spec.disruption_mode is None,
    PriorityClass: lambda rank: rank.preemption_policy is None,
    StorageClass: lambda storage: storage.volume_binding_mode is None,
}
