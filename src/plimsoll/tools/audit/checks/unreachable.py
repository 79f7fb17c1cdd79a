"""Checks of devices that are not released: by pods that do not terminate, and on nodes that are not ready."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.meta import Condition
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.controllers.pod_utils import find_condition
from plimsoll.tools.audit.facts import GRACE_SECONDS, AuditFacts, PodClaims, subject_of
from plimsoll.tools.audit.findings import MAX_LISTED, CheckProblem, list_first
from plimsoll.tools.columns import format_count


def find_pods_stuck(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in facts.bound_with_claims:
        pod, meta = each.pod, each.pod.metadata
        due = parse_time(meta.deletion_timestamp)  # includes the grace period
        held = _held_by(each)
        if due is None or facts.latest - due < GRACE_SECONDS or not held:
            continue
        node = facts.nodes.get(pod.spec.node_name)
        ready = _not_ready(node) if node is not None else None
        evidence = [f"on node {pod.spec.node_name}, devices {', '.join(held[:MAX_LISTED])}"]
        if meta.finalizers:
            evidence.append(f"finalizers: {', '.join(meta.finalizers)}")
        fix = (
            f"see the kubelet's log on {pod.spec.node_name}: it waits for the containers or for a driver; "
            "after a deletion with --force, devices are allocated again while containers may still use them"
        )
        if ready is not None:
            evidence.append(f"the node is not ready: {_describe(ready)}")
            fix = _repair(pod.spec.node_name)
        elif meta.finalizers and pod.has_terminated:
            fix = f"find the owner of the finalizers: {', '.join(meta.finalizers)}"
        yield CheckProblem(
            subject_of(pod),
            f"was to be gone at {meta.deletion_timestamp}, is still there at {format_time(facts.latest)}, "
            f"and holds {format_count(len(held), 'device')}",
            tuple(evidence),
            fix,
        )


def find_nodes_not_ready(facts: AuditFacts) -> Iterator[CheckProblem]:
    by_node: dict[str, list[PodClaims]] = {}
    for each in facts.bound_with_claims:
        by_node.setdefault(each.pod.spec.node_name, []).append(each)
    for name, users in sorted(by_node.items()):
        node = facts.nodes.get(name)
        ready = _not_ready(node) if node is not None else None
        holders = [(each.pod, held) for each in users if (held := _held_by(each))]
        if node is None or ready is None or not holders:
            continue
        count = len({device for _, held in holders for device in held})
        lines = (
            f"Pod/{pod.metadata.full_name} holds {', '.join(held[:MAX_LISTED])}" for pod, held in holders
        )
        evidence = [_describe(ready), *list_first(lines, " pods")]
        if not any(taint.effect == "NoExecute" for taint in node.spec.taints):
            evidence.append("it has no NoExecute taint: its pods are not evicted")
        pods, devices = format_count(len(holders), "pod"), format_count(count, "device")
        message = f"is not ready; {pods} on it {'hold' if len(holders) > 1 else 'holds'} {devices}"
        yield CheckProblem(subject_of(node), message, tuple(evidence), _repair(name))


def _held_by(each: PodClaims) -> list[str]:
    """Return the devices that a pod holds by its claims."""
    found = {
        str(DeviceId.of(result)): None
        for claim in each.claims
        for result in claim.allocation_results
        if not result.admin_access
    }
    return list(found)


def _not_ready(node: Node) -> Condition | None:
    """Return the condition Ready of a node that has it and is not ready."""
    ready = find_condition(node.status.conditions, "Ready")
    return None if ready is None or ready.status == "True" else ready


def _describe(ready: Condition) -> str:
    since = f" since {ready.last_transition_time}" if ready.last_transition_time else ""
    why = ": ".join(filter(None, (ready.reason, ready.message)))
    return f"condition Ready is {ready.status}{since}" + (f" ({why})" if why else "")


def _repair(node: str) -> str:
    return (
        f"repair {node}; if it is shut down and stays so, release its pods and devices: "
        f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )


CHECKS = {
    "PLM048": find_pods_stuck,
    "PLM049": find_nodes_not_ready,
}
