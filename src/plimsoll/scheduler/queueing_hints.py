"""Table of the queueing hints of all rules: the events that can make a pod schedulable.

Built from the declarations of the rules (`filters.queueing_hint`); used by the scheduling queue and by
negative caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import pod_group_of
from plimsoll.scheduler.devices import DynamicResourcesFilter
from plimsoll.scheduler.events import ClusterEvent, DeclaredEvent, EventKind
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import only_node
from plimsoll.scheduler.filters.queueing_hint import QueueingHint, WaitingPod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import Rule


class SchedulingGatesHint(QueueingHint):
    """Scheduling gates: no event but an update of the pod removes them."""

    rule = Rule.SCHEDULING_GATES
    events = frozenset()
    pod_fields = frozenset({"scheduling_gates"})


class GangSchedulingHint(QueueingHint):
    """Gang scheduling: a new pod of the group, or the group itself, may complete it."""

    rule = Rule.GANG
    events = frozenset({EventKind.GROUP_CHANGED})
    pod_fields = frozenset({"scheduling_group"})

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        return event.group == (waiting_pod.namespace, waiting_pod.value(pod_group_of))

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        return pod.metadata.namespace, pod_group_of(pod)


class DefaultPreemptionHint(QueueingHint):
    """Preemption: it fails together with filters, which declare the events."""

    rule = Rule.PREEMPTION


#: The rules in the order of kube-scheduler's filters.
RULES: tuple[type[Filter], ...] = (*FILTERS, DynamicResourcesFilter)
_DECLARATIONS: tuple[type[QueueingHint], ...] = (
    SchedulingGatesHint,
    GangSchedulingHint,
    *RULES,
    DefaultPreemptionHint,
)
HINTS: Mapping[Rule, type[QueueingHint]] = {hint.rule: hint for hint in _DECLARATIONS}
#: Events that concern only the pods that refer to the changed object by name.
NAMED_EVENTS = frozenset({EventKind.CLAIM_CHANGED, EventKind.VOLUME_CLAIM_CHANGED})

_NO_RULES: frozenset[Rule] = frozenset()
_RULES_BY_EVENT: Mapping[DeclaredEvent, frozenset[Rule]] = {
    declared: frozenset(rule for rule, hint in HINTS.items() if declared in hint.events)
    for declared in {declared for hint in HINTS.values() for declared in hint.events}
}


def affected_rules(event: ClusterEvent) -> frozenset[Rule]:
    """Return the rules whose result an event can change."""
    return _NO_RULES.union(*(_RULES_BY_EVENT.get(declared, _NO_RULES) for declared in event.types))


def affected_node(event: ClusterEvent, rule: Rule) -> str:
    """Return the only node for which an event can change a rule's result, or "" if there may be several."""
    return HINTS[rule].affected_node(event)


def make_waiting_pod(
    pod: Pod, rules: frozenset[Rule], needs_capacity: bool = True, profile: SchedulerProfile | None = None
) -> WaitingPod:
    """Return the view of a pod, rejected by these rules, that queueing hints read."""
    return WaitingPod(pod, rules, tuple(HINTS[rule] for rule in rules), needs_capacity, profile)


def helps(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    """Return whether an event may make a pod pass a rule that is among the `affected_rules`."""
    node = affected_node(event, rule)
    if node and (own := waiting_pod.value(only_node)) and own != node:
        return False
    return HINTS[rule].queueing_hint(event, waiting_pod)


def any_event_helps(events: Iterable[ClusterEvent], waiting_pod: WaitingPod) -> bool:
    """Return whether one of several events may help a pod; without known rules, every event may."""
    rules = waiting_pod.rules
    return any(
        not rules or any(helps(event, rule, waiting_pod) for rule in rules & affected_rules(event))
        for event in events
    )


# -- changes of the waiting pod itself

_ALL = frozenset(Rule)
#: Fields of a pod's spec that no rule reads.
_UNREAD = frozenset(
    {
        "ephemeral_containers",
        "scheduler_name",
        "restart_policy",
        "termination_grace_period_seconds",
        "node_name",
    }
)
_RULES_BY_FIELD: Mapping[str, frozenset[Rule]] = {
    name: frozenset(rule for rule, hint in HINTS.items() if name in hint.pod_fields)
    for name in {name for hint in HINTS.values() for name in hint.pod_fields} | _UNREAD
}


def rules_affected_by_update(old: Pod, new: Pod) -> frozenset[Rule]:
    """Return the rules whose result can change with an update of the waiting pod."""
    rules: frozenset[Rule] = frozenset()
    if old.spec != new.spec:
        for name in old.spec.__struct_fields__:
            before, after = getattr(old.spec, name), getattr(new.spec, name)
            if before == after:
                continue
            if name in ("containers", "init_containers") and (
                [(c.resources, c.ports) for c in before] == [(c.resources, c.ports) for c in after]
            ):
                continue
            rules |= _RULES_BY_FIELD.get(name, _ALL)
    if old.metadata.labels != new.metadata.labels:
        rules |= _RULES_BY_FIELD["labels"]
    if _claim_statuses(old) != _claim_statuses(new):
        rules |= _RULES_BY_FIELD["claim_statuses"]
    return rules


def _claim_statuses(pod: Pod) -> tuple[object, object]:
    return pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status


def update_helps(changed: frozenset[Rule], rules: frozenset[Rule]) -> bool:
    """Return whether a change of a pod (see `rules_affected_by_update`) may help it.

    A pod without known rules is helped by every change.
    """
    return bool(changed & rules if rules else changed)
