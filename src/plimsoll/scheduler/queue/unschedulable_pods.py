"""Unschedulable pods, indexed so that an event finds the pods it may help.

Pods that are equal for queueing hints form a group; groups are indexed by the rules that rejected them and by
the only node that affinity allows. Events about a named object find the pods that refer to it. The cost of an
event depends on the groups of its rules and on the woken pods, not on all waiting pods; `naive_helps` in the
tests evaluates every pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from plimsoll.api.codec import encode
from plimsoll.api.core import Pod
from plimsoll.scheduler.events import ClusterEvent
from plimsoll.scheduler.filters.node_affinity import only_node
from plimsoll.scheduler.filters.node_resources import minimum_cpu
from plimsoll.scheduler.filters.queueing_hint import NamedObject, WaitingPod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue.request_index import RequestIndex
from plimsoll.scheduler.queueing_hints import (
    HINTS,
    NAMED_EVENTS,
    affected_node,
    affected_rules,
    helps,
    make_waiting_pod,
)
from plimsoll.scheduler.reasons import Rule


@dataclass(slots=True)
class WaitingGroup:
    """Pods that are equal for queueing hints, except for the objects they refer to."""

    waiting_pod: WaitingPod
    only_node: str
    minimum_cpu: int
    keys: dict[str, None] = field(default_factory=dict)


class UnschedulablePods:
    """Pods that wait for an event."""

    def __init__(self, profiles: Mapping[str, SchedulerProfile] | None = None) -> None:
        self._profiles = profiles or {}
        self.groups: dict[bytes, WaitingGroup] = {}
        self._group_of: dict[str, bytes] = {}
        self.names_of: dict[str, tuple[NamedObject, ...]] = {}
        self.by_rule: dict[Rule, dict[str, dict[bytes, WaitingGroup]]] = {}
        self.by_name: dict[NamedObject, dict[str, Pod]] = {}
        self._by_cpu = RequestIndex()  # groups that NodeResourcesFit rejected, not bound to one node
        self.unexplained: dict[bytes, WaitingGroup] = {}
        self._counts: Counter[Rule] = Counter()

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, key: str) -> bool:
        return key in self._group_of

    def counts(self) -> Mapping[Rule, int]:
        """Return the number of pods each rule rejected; a pod may count for several rules."""
        return +self._counts

    def add(self, key: str, pod: Pod, rules: frozenset[Rule], needs_capacity: bool = True) -> None:
        """Add a pod that these rules rejected; without rules, every event wakes it."""
        self.remove(key)
        signature = _signature(pod, rules, needs_capacity)
        group = self.groups.get(signature)
        if group is None:
            group = self.groups[signature] = WaitingGroup(
                self._waiting_pod(pod, rules, needs_capacity), only_node(pod), minimum_cpu(pod)
            )
            if not rules:
                self.unexplained[signature] = group
            for rule in rules:
                self.by_rule.setdefault(rule, {}).setdefault(group.only_node, {})[signature] = group
            if Rule.RESOURCES in rules and not group.only_node:
                self._by_cpu.add(signature, group.waiting_pod.priority, group.minimum_cpu)
        group.keys[key] = None
        self._group_of[key] = signature
        self._counts.update(rules)
        self.names_of[key] = names = tuple(
            {each for rule in rules for each in HINTS[rule].named_objects(pod)}
        )
        for name in names:
            self.by_name.setdefault(name, {})[key] = pod

    def _waiting_pod(self, pod: Pod, rules: frozenset[Rule], needs_capacity: bool = True) -> WaitingPod:
        return make_waiting_pod(pod, rules, needs_capacity, self._profiles.get(pod.spec.scheduler_name))

    def remove(self, key: str) -> bool:
        """Remove a pod and return whether it was there."""
        signature = self._group_of.pop(key, None)
        if signature is None:
            return False
        group = self.groups[signature]
        del group.keys[key]
        self._counts.subtract(group.waiting_pod.rules)
        if not group.keys:
            del self.groups[signature]
            self.unexplained.pop(signature, None)
            for rule in group.waiting_pod.rules:
                self._leave(rule, group.only_node, signature)
            if Rule.RESOURCES in group.waiting_pod.rules and not group.only_node:
                self._by_cpu.remove(signature, group.waiting_pod.priority, group.minimum_cpu)
        for name in self.names_of.pop(key):
            users = self.by_name[name]
            del users[key]
            if not users:
                del self.by_name[name]
        return True

    def _leave(self, rule: Rule, node: str, signature: bytes) -> None:
        by_node = self.by_rule[rule]
        del by_node[node][signature]
        if not by_node[node]:
            del by_node[node]
        if not by_node:
            del self.by_rule[rule]

    def helped_by(self, event: ClusterEvent) -> list[str]:
        """Return the pods an event may help, in the order in which they were added to their groups."""
        found: dict[str, None] = {}
        for group in self.unexplained.values():
            found |= group.keys
        rules = affected_rules(event)
        if event.kind in NAMED_EVENTS:
            meta = event.object.metadata
            for key, pod in self.by_name.get((event.kind, meta.namespace, meta.name), {}).items():
                waiting_pod = self._waiting_pod(pod, self.groups[self._group_of[key]].waiting_pod.rules)
                if any(helps(event, rule, waiting_pod) for rule in rules & waiting_pod.rules):
                    found[key] = None
            return list(found)
        checked: set[bytes] = set()
        for rule in rules:
            for signature, group in self._candidates(event, rule):
                if signature not in checked and helps(event, rule, group.waiting_pod):
                    checked.add(signature)
                    found |= group.keys
        return list(found)

    def _candidates(self, event: ClusterEvent, rule: Rule) -> Iterator[tuple[bytes, WaitingGroup]]:
        """Yield the groups a rule rejected, except those that need another node or more than its capacity."""
        by_node = self.by_rule.get(rule)
        if by_node is None:
            return
        node = affected_node(event, rule)
        capacity = event.capacity_after if rule is Rule.RESOURCES and node else None
        if capacity is not None:
            for signature in self._by_cpu.up_to(capacity.cpu_for):
                yield signature, self.groups[signature]
            yield from by_node.get(node, {}).items()
        else:
            for name in ("", node) if node else tuple(by_node):
                yield from by_node.get(name, {}).items()


def _signature(pod: Pod, rules: frozenset[Rule], needs_capacity: bool) -> bytes:
    """Return a key that is equal for pods of one group: everything that hints of these rules read."""
    spec = pod.spec
    ordered = sorted(rules, key=lambda rule: rule.value)
    return encode((
        [(rule.value, HINTS[rule].hint_key(pod)) for rule in ordered],
        needs_capacity,
        spec.scheduler_name,
        spec.priority or 0,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        [each.resources for each in spec.containers],
        [(each.resources, each.restart_policy) for each in spec.init_containers],
        spec.resources,
        spec.overhead,
        bool(spec.resource_claims),
    ))  # fmt: skip
