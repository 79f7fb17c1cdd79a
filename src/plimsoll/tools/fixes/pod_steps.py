"""Steps for problems of the pod itself: scheduling gates, names of claims, classes and resources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from plimsoll.api.core import Pod, PodSpec
from plimsoll.api.pod_claims import device_requests, resolve_claim_names
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.ledger.units import is_extended_resource
from plimsoll.ledger.verdict import Reason
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.fixes.device_steps import edit_request, use_claim
from plimsoll.tools.fixes.fix import FixKind, FixStep, FixTarget, edits_spec
from plimsoll.tools.fixes.similar import is_similar


def gate_step(pod: Pod) -> FixStep:
    gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
    return FixStep(
        FixKind.REMOVE_GATES, {"gates": gates}, edits_spec(lambda spec: replace(spec, scheduling_gates=()))
    )


def propose_for_pod(cluster_state: ClusterState, pod: Pod, reason: NodeReason) -> Iterator[FixStep]:
    """Yield the steps that may resolve a reason for which no node was considered."""
    namespace, facts = pod.metadata.namespace, reason.facts
    if reason.message is ClaimMessage.MISSING:
        name = str(facts["claim"])
        for claim in cluster_state.objects.all(ResourceClaim):
            near = claim.metadata.name
            if claim.metadata.namespace == namespace and is_similar(name, near):
                change = partial(use_claim, name, near)
                yield FixStep(FixKind.USE_CLAIM, {"claim": name, "near": near}, change)
    elif reason.message is ClaimMessage.CLASS_MISSING:
        name = str(facts["device_class"])
        for each in sorted(cluster_state.objects.all(DeviceClass), key=lambda each: each.metadata.name):
            near = each.metadata.name
            if is_similar(name, near):
                change = partial(_use_class, name, near)
                yield FixStep(FixKind.USE_CLASS, {"device_class": name, "near": near}, change)


def _use_class(old: str, new: str, target: FixTarget) -> None:
    """Let the pod's claims that ask for a class use another one."""
    for claim_name in dict.fromkeys(resolve_claim_names(target.pod).values()):
        claim = target.find(ResourceClaim, claim_name)
        for name, body in device_requests(claim) if claim is not None else ():
            if claim is not None and body.device_class_name == old:
                claim = edit_request(name, lambda each: replace(each, device_class_name=new), claim)
        if claim is not None:
            target.changes.set(claim)


def propose_resources(cluster_state: ClusterState, reason: NodeReason) -> Iterator[FixStep]:
    """Yield the extended resources with a similar name, for one that no node has."""
    cause = reason.cause
    if not isinstance(cause, Reason) or not is_extended_resource(cause.resource) or cause.capacity:
        return
    domain, _, kind = cause.resource.partition("/")
    snapshot = cluster_state.snapshot
    known = {name for row in snapshot.rows() for name in snapshot.ledger(row).allocatable if "/" in name}
    known |= {each.spec.extended_resource_name or "" for each in cluster_state.objects.all(DeviceClass)}
    if cause.resource in known:
        return
    for near in sorted(known):
        its_domain, _, its_kind = near.partition("/")
        if near and is_similar(kind, its_kind) and is_similar(domain, its_domain):
            facts = {"resource": cause.resource, "near": near}
            yield FixStep(
                FixKind.USE_RESOURCE, facts, edits_spec(partial(_use_resource, cause.resource, near))
            )


def _use_resource(old: str, new: str, spec: PodSpec) -> PodSpec:
    containers = []
    for each in spec.containers:
        amounts = [
            {new if name == old else name: amount for name, amount in given.items()}
            for given in (each.resources.requests, each.resources.limits)
        ]
        resources = replace(each.resources, requests=amounts[0], limits=amounts[1])
        containers.append(replace(each, resources=resources))
    return replace(spec, containers=tuple(containers))
