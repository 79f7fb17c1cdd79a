"""`PendingCauses`: keys of the causes for which pods are pending.

Pods of one cause have equal keys, whatever the names of the pods, their claims and requests; pods of
different causes do not, even if kube-scheduler's message is the same. A key is made from values: the rules
that reject the nodes, with the number of nodes, and what these rules read of the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from typing import Any

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault
from plimsoll.api.codec import encode
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import DeviceClaim, DeviceRequest, ResourceClaim
from plimsoll.ledger.verdict import Reason
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.fixes import NO_FIXES, FixKind, FixReport
from plimsoll.tools.node_terms import taint_text, untolerated_taints

#: Facts of reasons and of fixes that are names of the pod's own objects, or texts with them.
_OWN_FACTS = frozenset({"text", "request", "claim", "pod"})
_REQUESTS = frozenset({"request", "requests"})
#: Steps after which a pod fits with the claims that it has.
_NODE_STEPS = frozenset(
    {
        FixKind.TOLERATE,
        FixKind.UNCORDON,
        FixKind.DROP_LABEL,
        FixKind.DROP_REQUIREMENT,
        FixKind.DROP_AFFINITY,
        FixKind.DROP_POD_AFFINITY,
        FixKind.DROP_SPREAD,
        FixKind.RELAX_SPREAD,
        FixKind.DROP_PORT,
    }
)


class PendingCauses:
    """Keys of causes in one state of a cluster."""

    def __init__(self, snapshot: Snapshot) -> None:
        nodes = map(snapshot.node, snapshot.rows())
        #: One node for each combination of taints.
        self._tainted = {node.spec.taints: node for node in nodes if node.spec.taints}

    def key(self, pod: Pod, outcome: FitError | NodeReason, found: FixReport = NO_FIXES) -> Hashable:
        """Return the key of the reason why a pod is not scheduled.

        If its nearest fix leaves its claims as they are, these are not the cause.
        """
        if isinstance(outcome, NodeReason):
            return _reason_key(outcome)
        rules = outcome.rules
        if found.fixes and all(step.kind in _NODE_STEPS for step in found.fixes[0].steps):
            rules -= {Rule.DEVICES}
        reasons = frozenset((_reason_key(reason), count) for reason, count in outcome.reasons)
        details = [(rule, _READERS[rule](outcome.pod_info)) for rule in _READERS if rule in rules]
        return reasons, self._untolerated(pod) if Rule.TAINTS in rules else None, *details

    def _untolerated(self, pod: Pod) -> Hashable:
        nodes = self._tainted.values()
        return frozenset(taint_text(taint) for node in nodes for taint in untolerated_taints(pod, node))


def fix_key(pod: Pod, found: FixReport) -> Hashable:
    """Return a key that is equal for pods that need the same change; `pod` is the one it was found for."""
    if not found.fixes:
        return tuple(hint.kind for hint in found.hints)
    fix, own = found.fixes[0], {pod.metadata.name, pod.metadata.full_name}
    for name in resolve_claim_names(pod).values():
        own |= {name, f"{pod.metadata.namespace}/{name}"}
    return fix.nodes, *((step.kind, _facts_key(step.facts, _REQUESTS, own)) for step in fix.steps)


def _reason_key(reason: NodeReason) -> Hashable:
    cause = reason.cause
    detail: Hashable = None
    if isinstance(cause, Reason):
        detail = cause.cause, cause.resource, cause.driver, cause.key, cause.policy, cause.resolvable
    elif isinstance(cause, AllocationFault):
        detail = cause.kind, _facts_key(cause.facts)
    return reason.rule, reason.message, _facts_key(reason.facts), detail


def _facts_key(
    facts: Mapping[str, Any], without: Container[str] = _OWN_FACTS, own: Container[str] = ()
) -> Hashable:
    texts = ((name, str(fact)) for name, fact in sorted(facts.items()) if name not in without)
    return tuple((name, "" if text in own else text) for name, text in texts)


# -- what the rules read


def _affinity(pod_info: PodInfo) -> Hashable:
    spec = pod_info.pod.spec
    return encode((spec.node_selector, spec.affinity and spec.affinity.node_affinity))


def _pod_affinity(pod_info: PodInfo) -> Hashable:
    affinity = pod_info.pod.spec.affinity
    return encode((affinity and affinity.pod_affinity, affinity and affinity.pod_anti_affinity))


def _ports(pod_info: PodInfo) -> Hashable:
    containers = pod_info.pod.spec.containers
    return frozenset(
        (port.host_ip, port.host_port, port.protocol) for container in containers for port in container.ports
    )


def _claims(pod_info: PodInfo) -> Hashable:
    return tuple(
        claim.metadata.uid if claim.status.allocation is not None else claim_key(claim)
        for claim in pod_info.claims
    )


def claim_key(claim: ResourceClaim) -> bytes:
    """Return a key that is equal for claims that ask for the same, whatever the names of their requests."""
    devices = claim.spec.devices
    numbers = {request.name: str(number) for number, request in enumerate(devices.requests)}
    constraints = tuple(
        replace(each, requests=tuple(sorted(_numbered(name, numbers) for name in each.requests)))
        for each in devices.constraints
    )
    requests = tuple(_without_names(request) for request in devices.requests)
    return encode(DeviceClaim(requests=requests, constraints=constraints))


def _numbered(name: str, numbers: Mapping[str, str]) -> str:
    return numbers.get(name.partition("/")[0], name)


def _without_names(request: DeviceRequest) -> DeviceRequest:
    alternatives = tuple(replace(each, name="") for each in request.first_available)
    return replace(request, name="", first_available=alternatives)


_READERS: Mapping[Rule, Callable[[PodInfo], Hashable]] = {
    Rule.NODE_AFFINITY: _affinity,
    Rule.PORTS: _ports,
    Rule.SPREAD: lambda pod_info: encode(pod_info.pod.spec.topology_spread_constraints),
    Rule.INTER_POD: _pod_affinity,
    Rule.DEVICES: _claims,
}
