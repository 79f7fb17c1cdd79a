"""The node controller and the taint eviction controller: nodes that fall silent lose their pods.

Owns the loops around `plans/nodes.py` and `plans/evictions.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.client.endpoints import LEASES, NODES, PODS
from plimsoll.controllers.actions import NOTHING, Plan
from plimsoll.controllers.caches import Index, Listener
from plimsoll.controllers.common import Context
from plimsoll.controllers.plans import evictions
from plimsoll.controllers.plans.nodes import (
    Pulse,
    Roll,
    feel_pulse,
    is_ready,
    plan_pods_of_lost_node,
    plan_silence,
    plan_taints,
    report_not_ready,
)
from plimsoll.controllers.plans.pods import ref
from plimsoll.controllers.plans.views import Lease
from plimsoll.controllers.queue import WorkQueue
from plimsoll.errors import ApiError

_LEASES_OF_NODES = "kube-node-lease"


class NodeController:
    """See the module; keys are names of nodes."""

    name = "node-lifecycle-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._nodes = context.caches.of(NODES)
        self._leases = context.caches.of(LEASES)
        self._placed: Index[Pod, str] = Index(_node_of)
        self._pulses: dict[str, tuple[str, Pulse]] = {}  # by name, with the node's UID
        self._roll = Roll()
        context.caches.of(PODS).add_handler(self._placed)
        context.caches.of(PODS).add_handler(Listener(self._hear_pod))
        self._nodes.add_handler(Listener(self._hear_node))
        self._leases.add_handler(Listener(self._hear_lease))

    def _hear_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._pulses.pop(old.metadata.name, None)
        else:
            self._feel(new)
            self.queue.add(new.metadata.name)
        before = self._roll.lost
        self._roll.hear(old, new)
        if self._roll.lost != before:
            for node in self._nodes.items():
                self.queue.add(node.metadata.name)

    def _hear_lease(self, old: Lease | None, new: Lease | None) -> None:
        """A renewal only moves the time at which the node would be missed; the first lease begins it."""
        if new is not None and new.metadata.namespace == _LEASES_OF_NODES:
            node: Node | None = self._nodes.get("", new.metadata.name)
            if node is not None:
                self._feel(node)
                if old is None:  # from now on it can be missed
                    self.queue.add(node.metadata.name)

    def _hear_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
            self.queue.add(new.spec.node_name)

    def _feel(self, node: Node) -> Pulse:
        name, uid = node.metadata.name, node.metadata.uid
        known = self._pulses.get(name)
        before = known[1] if known is not None and known[0] == uid else None
        lease: Lease | None = self._leases.get(_LEASES_OF_NODES, name)
        pulse = feel_pulse(before, node, lease, self._context.clock.now())
        self._pulses[name] = (uid, pulse)
        return pulse

    async def reconcile(self, key: str) -> Plan:
        node: Node | None = self._nodes.get("", key)
        if node is None:
            return NOTHING
        settings, now = self._context.settings, self._context.clock.now()
        perform = self._context.performer.perform
        silence = plan_silence(
            node, self._feel(node), now, grace=settings.node_grace, startup_grace=settings.node_startup_grace
        )
        if silence:
            was_ready = is_ready(node)
            done = await perform(silence.actions)
            if not done.objects:
                return NOTHING
            node = codec.convert(done.objects[-1], Node)
            if was_ready:
                await self._context.recorder.record(report_not_ready(node))
        await perform(plan_taints(node, now, lost=self._roll.lost).actions)
        await perform(plan_pods_of_lost_node(node, self._placed.find(key), now).actions)
        return Plan(again=silence.again)


class Key(NamedTuple):
    """A pod, this very one and no later one of its name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class TaintEvictionController:
    """See the module."""

    name = "taint-eviction-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._nodes = context.caches.of(NODES)
        self._pods = context.caches.of(PODS)
        self._placed: Index[Pod, str] = Index(_node_of)
        self._planned: dict[Key, float] = {}  # pods that are to go, with when that was decided
        self._pods.add_handler(self._placed)
        self._pods.add_handler(Listener(self._hear_pod))
        self._nodes.add_handler(Listener(self._hear_node))

    def _hear_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and (old is None or old.spec.taints != new.spec.taints):
            for pod in self._placed.find(new.metadata.name):
                self.queue.add(_pod_key(pod))

    def _hear_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._planned.pop(_pod_key(old), None)
        elif new.spec.node_name and (
            old is None
            or old.spec.node_name != new.spec.node_name
            or old.spec.tolerations != new.spec.tolerations
        ):
            self.queue.add(_pod_key(new))

    async def reconcile(self, key: Key) -> Plan:
        pod: Pod | None = self._pods.get(key.namespace, key.name)
        if pod is None or pod.metadata.uid != key.uid or pod.metadata.deletion_timestamp is not None:
            return NOTHING
        node: Node | None = self._nodes.get("", pod.spec.node_name)
        now = self._context.clock.now()
        seen = self._planned.get(key, now)
        due = None if node is None else evictions.eviction_time(pod, node.spec.taints, seen)
        if due is None:
            if self._planned.pop(key, None) is not None:
                await self._context.recorder.record(evictions.report_cancelled(pod))
            return NOTHING
        self._planned[key] = seen
        if due > now:
            return Plan(again=due - now)
        await self._evict(key)
        return NOTHING

    async def _evict(self, key: Key) -> None:
        try:
            raw = await self._context.client.get_raw(PODS, key.name, key.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return
        pod = codec.decode(raw, Pod)
        if pod.metadata.uid == key.uid:
            plan = evictions.plan_eviction(pod, self._context.clock.now())
            await self._context.performer.perform(plan.actions)


def _node_of(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def _pod_key(pod: Pod) -> Key:
    return Key(*ref(pod.metadata), pod.metadata.uid)
