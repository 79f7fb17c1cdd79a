"""Node lifecycle controller: conditions, taints and pods of nodes that stop reporting.

The essential part of kube-controller-manager's controller: a node that neither renews its lease nor posts its
status becomes Ready=Unknown; bad conditions become NoSchedule taints, and a node that is not ready gets a
NoExecute taint, unless no node is ready at all: then the fault is more likely on this side.

Heartbeats are dated by the local clock when observed, because nodes' clocks may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod, Taint
from plimsoll.api.kept import is_kept
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import LEASES, NODES, PODS
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.object_views import LeaseView
from plimsoll.controllers.pod_utils import find_condition, patch_status, set_condition
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue

COMPONENT = "node-controller"
NO_EXECUTE, NO_SCHEDULE = "NoExecute", "NoSchedule"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: Nodes with this label are not counted as ready or not ready.
EXCLUDE_DISRUPTION = "node.kubernetes.io/exclude-disruption"

#: Condition -> status -> taint key.
_TAINTS = {
    "Ready": {"False": NOT_READY, "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
}
_MANAGED_TAINTS = {UNSCHEDULABLE, *(key for statuses in _TAINTS.values() for key in statuses.values())}
#: Conditions that only the kubelet can report.
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeHealth(NamedTuple):
    """Last observed heartbeat of a node."""

    probed_at: float
    heartbeat: str | None = None
    lease_renewed: str | None = None


def update_node_health(
    before: NodeHealth | None, node: Node, lease: LeaseView | None, now: float
) -> NodeHealth:
    """Update the health of a node from its status and lease; a node seen for the first time counts as alive.

    A node that never posted a status is dated by its creation time.
    """
    ready = find_condition(node.status.conditions, "Ready")
    heartbeat = None if ready is None else ready.last_heartbeat_time
    lease_renewed = None if lease is None else lease.spec.renew_time
    if before is None:
        created = parse_time(node.metadata.creation_timestamp)
        silent = ready is None and lease_renewed is None and created is not None
        return NodeHealth(created if silent and created is not None else now, heartbeat, lease_renewed)
    moved = lease_renewed is not None and (
        before.lease_renewed is None or lease_renewed > before.lease_renewed
    )
    alive = moved or heartbeat != before.heartbeat
    return NodeHealth(now if alive else before.probed_at, heartbeat, lease_renewed)


def is_counted(node: Node) -> bool:
    return EXCLUDE_DISRUPTION not in node.metadata.labels


def is_ready(node: Node) -> bool:
    ready = find_condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


class ReadyCount:
    """Number of counted nodes and of those that are ready, updated with every change of a node."""

    def __init__(self) -> None:
        self._counted = self._ready = 0

    @property
    def none_ready(self) -> bool:
        """True if there are counted nodes and none of them is ready."""
        return self._counted > 0 and not self._ready

    def update(self, old: Node | None, new: Node | None) -> None:
        """Apply the addition, change or removal of a node."""
        for node, sign in ((old, -1), (new, 1)):
            if node is not None and is_counted(node):
                self._counted += sign
                self._ready += sign * is_ready(node)


def plan_unknown_conditions(
    node: Node, health: NodeHealth, now: float, *, grace: float, startup_grace: float
) -> ActionPlan:
    """Plan the conditions Unknown for a node without heartbeats; else the time of the next check.

    DIFF: a node that never had a lease has no kubelet: it was created by hand, to test or to simulate, and it
    stays as it is (test_a_node_without_a_lease_is_judged_by_its_status).
    """
    if health.lease_renewed is None:
        return ActionPlan()
    ready = find_condition(node.status.conditions, "Ready")
    left = health.probed_at + (startup_grace if ready is None else grace) - now
    if left > 0:
        return ActionPlan(requeue_after=left)
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
        return ActionPlan()
    metadata = {"resourceVersion": node.metadata.resource_version}
    patch = {"metadata": metadata, "status": {"conditions": changed}}
    return ActionPlan(
        (PatchAction(NODES, node.metadata.name, patch, subresource="status", type="strategic"),)
    )


def plan_taints(node: Node, now: float, *, none_ready: bool = False) -> ActionPlan:
    """Plan the taints that match a node's conditions; `none_ready` suppresses NoExecute taints."""
    wanted = [(key, NO_SCHEDULE) for key in _condition_taints(node)]
    if not none_ready:
        wanted += [(key, NO_EXECUTE) for key in _condition_taints(node) if key in (NOT_READY, UNREACHABLE)]
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, NO_SCHEDULE))
    kept = [
        taint for taint in node.spec.taints if not _is_managed(taint) or (taint.key, taint.effect) in wanted
    ]
    known = {(taint.key, taint.effect) for taint in kept}
    added = [(key, effect) for key, effect in wanted if (key, effect) not in known]
    if not added and len(kept) == len(node.spec.taints):
        return ActionPlan()
    taints = [codec.to_tree(taint) for taint in kept]
    taints += [{"key": key, "effect": effect, "timeAdded": format_time(now)} for key, effect in added]
    metadata = {"resourceVersion": node.metadata.resource_version}
    return ActionPlan(
        (PatchAction(NODES, node.metadata.name, {"metadata": metadata, "spec": {"taints": taints or None}}),)
    )


def _condition_taints(node: Node) -> list[str]:
    found = []
    for condition in node.status.conditions:
        key = _TAINTS.get(condition.type, {}).get(condition.status)
        if key is not None:
            found.append(key)
    return found


def _is_managed(taint: Taint) -> bool:
    if taint.effect == NO_EXECUTE:
        return taint.key in (NOT_READY, UNREACHABLE)
    return taint.effect == NO_SCHEDULE and taint.key in _MANAGED_TAINTS


def plan_pods_not_ready(node: Node, pods: Sequence[Pod], now: float) -> ActionPlan:
    """Plan the condition Ready=False for the pods of a node that is not ready."""
    if is_ready(node) or find_condition(node.status.conditions, "Ready") is None:
        return ActionPlan()
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
            actions.append(
                EventRecord(
                    ObjectReference.to_version(pod.metadata, "Pod"),
                    "NodeNotReady",
                    "Node is not ready",
                    COMPONENT,
                    WARNING,
                )
            )
    return ActionPlan(tuple(actions))


def not_ready_event(node: Node) -> EventRecord:
    """Build the event for a node that stopped being ready."""
    name = node.metadata.name
    regarding = ObjectReference.to(node.metadata, "Node")
    return EventRecord(regarding, "NodeNotReady", f"Node {name} status is now: NodeNotReady", COMPONENT)


_NODE_LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycleController:
    """Controller of node health; keys are node names."""

    name = "node-lifecycle-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._nodes = context.informers.get(NODES)
        self._leases = context.informers.get(LEASES)
        self._pods_by_node: ObjectIndex[Pod, str] = ObjectIndex(_node_of)
        self._health: dict[str, tuple[str, NodeHealth]] = {}  # by node name, with the node's UID
        self._ready_count = ReadyCount()
        context.informers.get(PODS).add_handler(self._pods_by_node)
        context.informers.get(PODS).add_handler(CallbackHandler(self._on_pod))
        self._nodes.add_handler(CallbackHandler(self._on_node))
        self._leases.add_handler(CallbackHandler(self._on_lease))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._health.pop(old.metadata.name, None)
        else:
            self._probe(new)
            self.queue.add(new.metadata.name)
        before = self._ready_count.none_ready
        self._ready_count.update(old, new)
        if self._ready_count.none_ready != before:
            for node in self._nodes.items():
                self.queue.add(node.metadata.name)

    def _on_lease(self, old: LeaseView | None, new: LeaseView | None) -> None:
        """Record a renewal; a first lease also queues the node, whose heartbeats are expected from now on."""
        if new is not None and new.metadata.namespace == _NODE_LEASE_NAMESPACE:
            node: Node | None = self._nodes.get("", new.metadata.name)
            if node is not None:
                self._probe(node)
                if old is None:  # heartbeats are expected from now on
                    self.queue.add(node.metadata.name)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
            self.queue.add(new.spec.node_name)

    def _probe(self, node: Node) -> NodeHealth:
        name, uid = node.metadata.name, node.metadata.uid
        known = self._health.get(name)
        before = known[1] if known is not None and known[0] == uid else None
        lease: LeaseView | None = self._leases.get(_NODE_LEASE_NAMESPACE, name)
        health = update_node_health(before, node, lease, self._context.clock.now())
        self._health[name] = (uid, health)
        return health

    async def reconcile(self, key: str) -> ActionPlan:
        node: Node | None = self._nodes.get("", key)
        if node is None or is_kept(node.metadata):
            return EMPTY_PLAN
        settings, now = self._context.settings, self._context.clock.now()
        execute = self._context.executor.execute
        unknown = plan_unknown_conditions(
            node, self._probe(node), now, grace=settings.node_grace, startup_grace=settings.node_startup_grace
        )
        if unknown:
            was_ready = is_ready(node)
            done = await execute(unknown.actions)
            if not done.objects:
                return EMPTY_PLAN
            node = codec.convert(done.objects[-1], Node)
            if was_ready:
                await self._context.recorder.record(not_ready_event(node))
        await execute(plan_taints(node, now, none_ready=self._ready_count.none_ready).actions)
        await execute(plan_pods_not_ready(node, self._pods_by_node.find(key), now).actions)
        return ActionPlan(requeue_after=unknown.requeue_after)


def _node_of(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []
