"""Nodes that fall silent: their conditions, their taints, and the pods on them.

Owns what is decided about a node (upstream's node lifecycle controller, the part a cluster cannot do
without): a node that neither renews its lease nor posts its status becomes Ready=Unknown; bad conditions
become taints that keep pods away, and a node that is not ready gets a taint that drives them out, unless no
node at all is ready: then the fault is more likely ours.

A sign of life is dated by our own clock when it is seen, because nodes' clocks may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod, Taint
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import NODES
from plimsoll.client.event_recorder import WARNING, Report
from plimsoll.controllers.actions import Action, Patch, Plan
from plimsoll.controllers.plans.pods import find_condition, patch_status, reference, set_condition
from plimsoll.controllers.plans.views import Lease

COMPONENT = "node-controller"
NO_EXECUTE, NO_SCHEDULE = "NoExecute", "NoSchedule"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: A node with this label does not count when it is asked whether any node is ready.
UNCOUNTED = "node.kubernetes.io/exclude-disruption"

#: Condition -> status -> the taint it becomes.
_TAINTS = {
    "Ready": {"False": NOT_READY, "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
}
_OURS = {UNSCHEDULABLE, *(key for statuses in _TAINTS.values() for key in statuses.values())}
#: What only the node itself can know.
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class Pulse(NamedTuple):
    """The last sign of life of a node."""

    seen: float
    heartbeat: str | None = None
    renewed: str | None = None


def feel_pulse(before: Pulse | None, node: Node, lease: Lease | None, now: float) -> Pulse:
    """The last sign of life, given what is there now; a node that is new to us has just given one.

    A node that never posted a status is as old as its object says.
    """
    ready = find_condition(node.status.conditions, "Ready")
    heartbeat = None if ready is None else ready.last_heartbeat_time
    renewed = None if lease is None else lease.spec.renew_time
    if before is None:
        created = parse_time(node.metadata.creation_timestamp)
        silent = ready is None and renewed is None and created is not None
        return Pulse(created if silent and created is not None else now, heartbeat, renewed)
    moved = renewed is not None and (before.renewed is None or renewed > before.renewed)
    alive = moved or heartbeat != before.heartbeat
    return Pulse(now if alive else before.seen, heartbeat, renewed)


def is_counted(node: Node) -> bool:
    return UNCOUNTED not in node.metadata.labels


def is_ready(node: Node) -> bool:
    ready = find_condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def all_are_lost(nodes: Iterable[Node]) -> bool:
    """Whether there are nodes and none is ready."""
    counted = [node for node in nodes if is_counted(node)]
    return bool(counted) and not any(map(is_ready, counted))


class Roll:
    """The same, kept up to date node by node."""

    def __init__(self) -> None:
        self._counted = self._ready = 0

    @property
    def lost(self) -> bool:
        return self._counted > 0 and not self._ready

    def hear(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        for node, sign in ((old, -1), (new, 1)):
            if node is not None and is_counted(node):
                self._counted += sign
                self._ready += sign * is_ready(node)


def plan_silence(node: Node, pulse: Pulse, now: float, *, grace: float, startup_grace: float) -> Plan:
    """Say of a node that has been silent for too long that nothing is known of it; else when to look.

    DIFF: a node that never had a lease has no kubelet: somebody made it by hand, to test or to simulate, and
    it stays as it is (test_a_node_without_a_lease_is_taken_at_its_word).
    """
    if pulse.renewed is None:
        return Plan()
    ready = find_condition(node.status.conditions, "Ready")
    left = pulse.seen + (startup_grace if ready is None else grace) - now
    if left > 0:
        return Plan(again=left)
    changed = []
    for type in _REPORTED:
        condition = find_condition(node.status.conditions, type)
        if condition is None:
            changed.append(
                {
                    "type": type,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node.metadata.creation_timestamp,
                    "lastTransitionTime": format_time(now),
                }
            )
        elif condition.status != "Unknown":
            changed.append(
                {
                    "type": type,
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": format_time(now),
                }
            )
    if not changed:
        return Plan()
    metadata = {"resourceVersion": node.metadata.resource_version}
    patch = {"metadata": metadata, "status": {"conditions": changed}}
    return Plan((Patch(NODES, node.metadata.name, patch, subresource="status", type="strategic"),))


def plan_taints(node: Node, now: float, *, lost: bool = False) -> Plan:
    """Bring a node's taints in line with its conditions; `lost` says that no node is ready at all."""
    wanted = [(key, NO_SCHEDULE) for key in _keys(node)]
    if not lost:
        wanted += [(key, NO_EXECUTE) for key in _keys(node) if key in (NOT_READY, UNREACHABLE)]
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, NO_SCHEDULE))
    kept = [taint for taint in node.spec.taints if not _is_ours(taint) or (taint.key, taint.effect) in wanted]
    known = {(taint.key, taint.effect) for taint in kept}
    added = [(key, effect) for key, effect in wanted if (key, effect) not in known]
    if not added and len(kept) == len(node.spec.taints):
        return Plan()
    taints = [codec.to_tree(taint) for taint in kept]
    taints += [{"key": key, "effect": effect, "timeAdded": format_time(now)} for key, effect in added]
    metadata = {"resourceVersion": node.metadata.resource_version}
    return Plan(
        (Patch(NODES, node.metadata.name, {"metadata": metadata, "spec": {"taints": taints or None}}),)
    )


def _keys(node: Node) -> list[str]:
    found = []
    for condition in node.status.conditions:
        key = _TAINTS.get(condition.type, {}).get(condition.status)
        if key is not None:
            found.append(key)
    return found


def _is_ours(taint: Taint) -> bool:
    if taint.effect == NO_EXECUTE:
        return taint.key in (NOT_READY, UNREACHABLE)
    return taint.effect == NO_SCHEDULE and taint.key in _OURS


def plan_pods_of_lost_node(node: Node, pods: Sequence[Pod], now: float) -> Plan:
    """Of pods on a node that is not ready, nobody can say that they are."""
    if is_ready(node) or find_condition(node.status.conditions, "Ready") is None:
        return Plan()
    actions: list[Action] = []
    for pod in pods:
        ready = find_condition(pod.status.conditions, "Ready")
        if ready is not None and ready.status != "False":
            condition: dict[str, Any] = {
                "type": "Ready",
                "status": "False",
                "lastTransitionTime": format_time(now),
            }
            actions.append(patch_status(pod, set_condition(pod.status.conditions, condition)))
            actions.append(Report(reference(pod), "NodeNotReady", "Node is not ready", COMPONENT, WARNING))
    return Plan(tuple(actions))


def report_not_ready(node: Node) -> Report:
    """Tell that a node has stopped being ready."""
    name = node.metadata.name
    regarding = ObjectReference(api_version="v1", kind="Node", name=name, uid=node.metadata.uid)
    return Report(regarding, "NodeNotReady", f"Node {name} status is now: NodeNotReady", COMPONENT)
