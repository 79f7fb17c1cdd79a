"""`apply_fix`: apply the steps of a fix to a copy of the cluster state.

The original state is not modified. Steps that need a driver or a controller cannot be applied.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Node, NodeSelectorRequirement, NodeStatus, Pod, Taint
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import InputError
from plimsoll.ledger.units import PODS, from_units
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.fixes.fix import Fix, FixStep
from plimsoll.tools.explain.fixes.steps import tolerating, with_raised_budget, with_skew
from plimsoll.tools.explain.text import FixKind


def apply_fix(cluster_state: ClusterState, pod: Pod, fix: Fix) -> tuple[ClusterState, Pod]:
    """Return a copy of the cluster state with the fix applied, and the changed pod. Raise InputError if a
    step cannot be applied.
    """
    copy = cluster_state.copy()
    for step in fix.steps:
        pod = _apply(copy, pod, fix.node, step)
        copy.set(pod)
    return copy, pod


def _apply(cluster_state: ClusterState, pod: Pod, node: str, step: FixStep) -> Pod:
    subject: Any = step.subject
    match step.kind:
        case FixKind.REMOVE_GATES:
            return replace(pod, spec=replace(pod.spec, scheduling_gates=()))
        case FixKind.TOLERATE:
            return tolerating(pod, [subject])
        case FixKind.UNCORDON | FixKind.HEAL_NODE:
            _remove_taint(cluster_state, node, UNSCHEDULABLE if step.kind is FixKind.UNCORDON else subject)
            return pod
        case FixKind.CHOOSE_LABEL | FixKind.GO_ELSEWHERE:
            return _without_requirement(pod, subject)
        case FixKind.DROP_AFFINITY:
            return _without_affinity(pod)
        case FixKind.REMOVE_PODS:
            for each in subject:
                _remove(cluster_state, each)
            return pod
        case FixKind.REMOVE_CLAIM:
            cluster_state.remove(subject)
            return pod
        case FixKind.RELAX_SPREAD:
            return with_skew(pod, subject)
        case FixKind.SHRINK | FixKind.SHRINK_POD:
            (container,) = pod.spec.containers
            smaller = replace(container, resources=replace(container.resources, requests=subject))
            return replace(pod, spec=replace(pod.spec, containers=(smaller,)))
        case FixKind.RAISE_BUDGET:
            return with_raised_budget(pod, subject)
        case (
            FixKind.TOLERATE_DEVICE
            | FixKind.SHRINK_CAPACITY
            | FixKind.RELAX_SELECTOR
            | FixKind.RELAX_CONSTRAINT
        ):
            for claim in subject:
                cluster_state.set(claim)
            return pod
        case FixKind.ADD_NODE | FixKind.ADD_ANOTHER:
            cluster_state.set(_new_node(pod, subject))
            return pod
    raise InputError(f"this step cannot be applied to the cluster state: {step.text}")


def _remove_taint(cluster_state: ClusterState, name: str, gone: Taint) -> None:
    node = cluster_state.objects.find(Node, "", name)
    assert node is not None, "a fix names an existing node"
    taints = tuple(
        taint for taint in node.spec.taints if (taint.key, taint.effect) != (gone.key, gone.effect)
    )
    closed = node.spec.unschedulable and gone.key != UNSCHEDULABLE.key
    cluster_state.set(replace(node, spec=replace(node.spec, taints=taints, unschedulable=closed)))


def _without_requirement(pod: Pod, requirement: NodeSelectorRequirement) -> Pod:
    """Return the pod without the requirement the node does not meet.

    Safer than relabeling the node, whose label other pods may depend on.
    """
    selector = pod.spec.node_selector
    if requirement.operator != "In" or requirement.values != (selector.get(requirement.key),):
        return _without_affinity(pod)
    rest = {key: value for key, value in selector.items() if key != requirement.key}
    return replace(pod, spec=replace(pod.spec, node_selector=rest))


def _without_affinity(pod: Pod) -> Pod:
    affinity = pod.spec.affinity
    assert affinity is not None, "the fix is about the affinity"
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=None)))


def _remove(cluster_state: ClusterState, pod: Pod) -> None:
    """Remove a pod and deallocate the claims that only it used."""
    cluster_state.remove(pod)
    for name in resolve_claim_names(pod).values():
        claim = cluster_state.objects.find(ResourceClaim, pod.metadata.namespace, name)
        if claim is None:
            continue
        users = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
        allocation = claim.status.allocation if users else None
        cluster_state.set(
            replace(claim, status=replace(claim.status, reserved_for=users, allocation=allocation))
        )


def _new_node(pod: Pod, amounts: dict[str, int]) -> Node:
    line = {name: from_units(name, amount) for name, amount in amounts.items()}
    line[PODS] = Quantity.of(110)
    meta = ObjectMeta(name="new-node", labels={**pod.spec.node_selector})
    return Node(metadata=meta, status=NodeStatus(allocatable=line, capacity=line))
