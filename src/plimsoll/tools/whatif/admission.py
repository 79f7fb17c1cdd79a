"""Admission of added pods: priority of their PriorityClass, defaults and limits of LimitRanges.

The rules are those of the API server's plugins (`apiserver/admission`), applied to the objects of a cluster
state. A pod that the API server would refuse raises InputError.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quota import LimitRange
from plimsoll.api.scheduling import PriorityClass
from plimsoll.apiserver.admission.limit_ranges import apply_defaults, find_violations
from plimsoll.apiserver.validation.priority_classes import SYSTEM_CLASSES
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class PriorityClassInfo:
    """Priority and preemption policy of a PriorityClass."""

    value: int
    policy: str | None = None
    default: bool = False


def admit_pod(pod: Pod, cluster_state: ClusterState, known: Mapping[str, PriorityClassInfo]) -> Pod:
    """Return a new pod as the API server would store it; `known` are the results of `find_priorities`."""
    return _with_priority(_with_limits(pod, cluster_state), known)


def find_priorities(cluster_state: ClusterState, names: Set[str]) -> dict[str, PriorityClassInfo]:
    """Return the priority classes of a cluster; those of `names` that a dump lacks as its pods use them."""
    given = {
        each.metadata.name: PriorityClassInfo(each.value, each.preemption_policy, each.global_default)
        for each in cluster_state.objects.all(PriorityClass)
    }
    lacking = names - given.keys()
    used = {
        pod.spec.priority_class_name: PriorityClassInfo(pod.spec.priority, pod.spec.preemption_policy)
        for pod in (cluster_state.pods if lacking else ())
        if pod.spec.priority_class_name in lacking and pod.spec.priority is not None
    }
    system = {name: PriorityClassInfo(value) for name, value in SYSTEM_CLASSES.items()}
    return {**system, **used, **given}


def _with_priority(pod: Pod, known: Mapping[str, PriorityClassInfo]) -> Pod:
    """Return the pod with the priority of its class.

    Raises InputError for an unknown class: its value decides which pods are preempted.
    """
    if pod.spec.priority is not None:
        return pod
    name = pod.spec.priority_class_name
    if not name:
        defaults = [each for each in known.values() if each.default]
        # Kubernetes uses the lowest of several global defaults.
        found = min(defaults, key=lambda each: each.value, default=PriorityClassInfo(0))
    elif name in known:
        found = known[name]
    else:
        raise InputError(
            f"pod {pod.metadata.full_name}: spec.priorityClassName: {name} not found; "
            "add the PriorityClass as well, or set spec.priority"
        )
    policy = pod.spec.preemption_policy or found.policy
    return replace(pod, spec=replace(pod.spec, priority=found.value, preemption_policy=policy))


def _with_limits(pod: Pod, cluster_state: ClusterState) -> Pod:
    """Return the pod with the default requests and limits of its namespace."""
    namespace = pod.metadata.namespace
    ranges = [
        codec.to_tree(each)
        for each in cluster_state.objects.all(LimitRange)
        if each.metadata.namespace == namespace
    ]
    if not ranges:
        return pod
    tree = codec.to_tree(pod)
    admitted = apply_defaults(tree, ranges)
    refusal = find_violations("Pod", admitted, ranges)
    if refusal:
        raise InputError(f"pod {pod.metadata.full_name} is forbidden: {refusal}")
    return pod if admitted is tree else codec.convert(admitted, Pod)
