"""Admission of added pods: priority of their PriorityClass, defaults and limits of LimitRanges.

The rules are those of the API server's plugins (`apiserver/admission`), applied to the objects of a cluster
state. A pod that the API server would refuse raises InputError.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quota import LimitRange
from plimsoll.api.scheduling import PriorityClass
from plimsoll.apiserver.admission.limit_ranges import apply_defaults, find_violations
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.api_defaults import priority_classes, with_priority


def admit_pod(pod: Pod, cluster_state: ClusterState, known: Mapping[str, PriorityClass]) -> Pod:
    """Return a new pod as the API server would store it; `known` are the results of `find_priorities`."""
    return _with_priority(_with_limits(pod, cluster_state), known)


def find_priorities(cluster_state: ClusterState, names: Set[str]) -> dict[str, PriorityClass]:
    """Return the priority classes of a cluster; those of `names` that a dump lacks as its pods use them."""
    known = priority_classes(cluster_state.objects)
    lacking = names - known.keys()
    for pod in cluster_state.pods if lacking else ():
        spec = pod.spec
        if spec.priority_class_name in lacking and spec.priority is not None:
            used = PriorityClass(value=spec.priority, preemption_policy=spec.preemption_policy)
            known[spec.priority_class_name] = used
    return known


def _with_priority(pod: Pod, known: Mapping[str, PriorityClass]) -> Pod:
    """Return the pod with the priority of its class.

    Raises InputError for an unknown class: its value decides which pods are preempted.
    """
    if pod.spec.priority is not None:
        return pod
    name = pod.spec.priority_class_name
    admitted = with_priority(pod, known)
    if admitted is None and name:
        raise InputError(
            f"pod {pod.metadata.full_name}: spec.priorityClassName: {name} not found; "
            "add the PriorityClass as well, or set spec.priority"
        )
    return admitted or replace(pod, spec=replace(pod.spec, priority=0))


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
