"""Queueing hints: each rule's declaration of the events that can make a rejected pod pass.

They correspond to kube-scheduler's `EventsToRegister`. The scheduling queue wakes pods by these declarations,
and the negative cache of scheduling results (`unschedulable_cache`) keeps a result until one of them matches.

No pod may miss an event that makes it schedulable: after an attempt, each node is rejected by at least one of
the rules the pod waits for, and an event may be ignored only if every node stays rejected by one of them. A
hint may therefore consult the rules the pod waits for (`WaitingPod.is_rejected`), but no others. If in doubt,
it wakes the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.events import ClusterEvent, DeclaredEvent, EventKind, NodeCapacity
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import Rule

T = TypeVar("T")
#: An object that a pod refers to by name: the kind of its events, namespace and name.
NamedObject = tuple[EventKind, str, str]


class QueueingHint:
    """Events that can make a pod pass one rule; the base class of filters."""

    rule: ClassVar[Rule]
    #: Events that can change the result of the rule.
    events: ClassVar[frozenset[DeclaredEvent]] = frozenset({EventKind.NODE_ADDED})
    #: Whether an event about a node can change the result for that node only.
    is_node_local: ClassVar[bool] = True
    #: Fields of a waiting pod whose change can change the result: fields of its spec, `labels`, or
    #: `claim_statuses`.
    pod_fields: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        """Return whether an event that matches `events` may make the pod pass the rule."""
        if event.kind is EventKind.NODE_ADDED or event.kind is EventKind.NODE_CHANGED:
            return not waiting_pod.is_rejected(event.new)
        return True

    @classmethod
    def affected_node(cls, event: ClusterEvent) -> str:
        """Return the only node for which an event can change the result, or "" if there may be several."""
        return event.node_name if cls.is_node_local else ""

    @classmethod
    def rejects_node(cls, waiting_pod: WaitingPod, node: Node, capacity: NodeCapacity | None) -> bool:
        """Return whether the rule rejects a node, judged by the node and its capacity alone."""
        return False

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        """Return the fields of a pod that only this hint reads; the queue groups pods with equal fields."""
        return None

    @classmethod
    def named_objects(cls, pod: Pod) -> Iterable[NamedObject]:
        """Return the objects whose events concern only the pods that refer to them."""
        return ()


class WaitingPod:
    """Unschedulable pod as seen by queueing hints; values derived from the pod are computed once."""

    __slots__ = ("_hints", "_values", "namespace", "needs_capacity", "pod", "priority", "profile", "rules")

    def __init__(
        self,
        pod: Pod,
        rules: frozenset[Rule],
        hints: tuple[type[QueueingHint], ...],
        needs_capacity: bool = True,
        profile: SchedulerProfile | None = None,
    ) -> None:
        """Create the view of a pod that `rules` rejected.

        `hints` are the declarations of those rules. `needs_capacity` is False if its claims lack devices, but
        not node capacity for the charges of devices. `profile` is that of the attempt.
        """
        self.pod = pod
        self.rules = rules
        self.needs_capacity = needs_capacity
        self.priority = pod.priority
        self.namespace = pod.metadata.namespace
        self.profile = profile or SchedulerProfile.default()
        self._hints = hints
        self._values: dict[Callable[[Pod], Any], Any] = {}

    def value(self, read: Callable[[Pod], T]) -> T:
        """Return the value that a function derives from the pod, computed on first use."""
        try:
            found: T = self._values[read]
        except KeyError:
            found = self._values[read] = read(self.pod)
        return found

    def is_rejected(self, node: Node, capacity: NodeCapacity | None = None) -> bool:
        """Return whether a rule that the pod waits for rejects a node in its current state."""
        return any(hint.rejects_node(self, node, capacity) for hint in self._hints)
