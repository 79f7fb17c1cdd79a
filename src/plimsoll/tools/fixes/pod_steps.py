"""Steps for problems of the pod itself: scheduling gates, names of claims, classes and resources."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import device_requests, resolve_claim_names
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.ledger.units import is_extended_resource
from plimsoll.ledger.verdict import Reason
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.fixes.device_steps import request_path, use_claim
from plimsoll.tools.fixes.edits import set_field
from plimsoll.tools.fixes.fix import FixKind, FixStep
from plimsoll.tools.fixes.node_steps import use_resource
from plimsoll.tools.fixes.similar import is_similar, is_similar_resource


def gate_step(pod: Pod) -> FixStep:
    gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
    return FixStep(FixKind.REMOVE_GATES, {"gates": gates}, (set_field(pod, (), "spec", "schedulingGates"),))


def propose_for_pod(cluster_state: ClusterState, pod: Pod, reason: NodeReason) -> Iterator[FixStep]:
    """Yield the steps that may resolve a reason for which no node was considered."""
    objects, namespace, facts = cluster_state.objects, pod.metadata.namespace, reason.facts
    if reason.message is ClaimMessage.MISSING:
        name = str(facts["claim"])
        for claim in objects.all(ResourceClaim):
            near = claim.metadata.name
            if claim.metadata.namespace == namespace and is_similar(name, near):
                edits = (*use_claim(pod, name, near),)
                yield FixStep(FixKind.USE_CLAIM, {"claim": name, "near": near}, edits)
    elif reason.message is ClaimMessage.CLASS_MISSING:
        name = str(facts["device_class"])
        names = set(resolve_claim_names(pod).values())
        places = [
            (claim, request)
            for claim in objects.all(ResourceClaim)
            if claim.metadata.namespace == namespace and claim.metadata.name in names
            for request, body in device_requests(claim)
            if body.device_class_name == name
        ]
        for near in sorted(each.metadata.name for each in objects.all(DeviceClass)):
            if is_similar(name, near):
                edits = tuple(
                    set_field(claim, near, *request_path(claim, request), "deviceClassName")
                    for claim, request in places
                )
                yield FixStep(FixKind.USE_CLASS, {"device_class": name, "near": near}, edits)


def propose_resources(cluster_state: ClusterState, pod: Pod, reason: NodeReason) -> Iterator[FixStep]:
    """Yield the extended resources with a similar name, for one that no node has."""
    cause = reason.cause
    if not isinstance(cause, Reason) or not is_extended_resource(cause.resource) or cause.capacity:
        return
    snapshot = cluster_state.snapshot
    known = {name for row in snapshot.rows() for name in snapshot.ledger(row).allocatable if "/" in name}
    known |= {each.spec.extended_resource_name or "" for each in cluster_state.objects.all(DeviceClass)}
    if cause.resource in known:
        return
    for near in sorted(known):
        if is_similar_resource(cause.resource, near):
            facts = {"resource": cause.resource, "near": near}
            yield FixStep(FixKind.USE_RESOURCE, facts, (*use_resource(pod, cause.resource, near),))
