"""Pods that fit nowhere, so ordered that a happening finds those it can help.

Owns `Waiting`. Pods that are alike in all that decides about a wake-up form a group; groups are found by the
rules that stood in the way and by the one node a pod is made for. Changes of a claim find its users by name.
So a happening costs what the groups of its rules cost and what it wakes, not what is waiting; `naive_helped`
in the tests says the same by asking every pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from plimsoll.api.codec import encode
from plimsoll.api.core import Pod
from plimsoll.ledger.claims import claim_names
from plimsoll.scheduler.filters.node_ports import host_sockets
from plimsoll.scheduler.queue.events import ClusterEvent, EventKind
from plimsoll.scheduler.queue.queueing_hints import (
    BY_NAME,
    VOLUMES,
    WaitingPod,
    affected_rules,
    capacity_after,
    helps,
    only_affected_node,
    volume_claims,
)
from plimsoll.scheduler.queue.request_index import RequestIndex
from plimsoll.scheduler.reasons import Rule

#: An object that pods name: which kind, namespace, name.
Named = tuple[EventKind, str, str]


@dataclass(slots=True)
class WaitingGroup:
    """Pods that everything helps alike, except what concerns an object they name."""

    waiting_pod: WaitingPod
    keys: dict[str, None] = field(default_factory=dict)


class UnschedulablePods:
    """The pods that wait for a happening."""

    def __init__(self) -> None:
        self._groups: dict[bytes, WaitingGroup] = {}
        self._group_of: dict[str, bytes] = {}
        self._names_of: dict[str, tuple[Named, ...]] = {}
        self._by_rule: dict[Rule, dict[str, dict[bytes, WaitingGroup]]] = {}
        self._by_name: dict[Named, dict[str, Pod]] = {}
        self._by_size = RequestIndex()  # of those their requests stood in the way of, made for no node
        self._unexplained: dict[bytes, WaitingGroup] = {}
        self._counts: Counter[Rule] = Counter()

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, key: str) -> bool:
        return key in self._group_of

    def counts(self) -> Mapping[Rule, int]:
        """How many pods wait because of each rule; a pod may count for several."""
        return +self._counts

    def add(self, key: str, pod: Pod, rules: frozenset[Rule], needs_capacity: bool = True) -> None:
        """A pod waits because these rules stood in its way; none: nobody knows why."""
        self.remove(key)
        signature = _signature(pod, rules, needs_capacity)
        group = self._groups.get(signature)
        if group is None:
            group = self._groups[signature] = WaitingGroup(WaitingPod(pod, rules, needs_capacity))
            if not rules:
                self._unexplained[signature] = group
            for rule in rules:
                self._by_rule.setdefault(rule, {}).setdefault(group.waiting_pod.only_node, {})[signature] = (
                    group
                )
            if Rule.RESOURCES in rules and not group.waiting_pod.only_node:
                self._by_size.add(signature, group.waiting_pod.priority, group.waiting_pod.cpu_request)
        group.keys[key] = None
        self._group_of[key] = signature
        self._counts.update(rules)
        self._names_of[key] = names = tuple(_names(pod, rules))
        for name in names:
            self._by_name.setdefault(name, {})[key] = pod

    def remove(self, key: str) -> bool:
        """A pod waits no longer; whether it did."""
        signature = self._group_of.pop(key, None)
        if signature is None:
            return False
        group = self._groups[signature]
        del group.keys[key]
        self._counts.subtract(group.waiting_pod.rules)
        if not group.keys:
            del self._groups[signature]
            self._unexplained.pop(signature, None)
            for rule in group.waiting_pod.rules:
                self._leave(rule, group.waiting_pod.only_node, signature)
            if Rule.RESOURCES in group.waiting_pod.rules and not group.waiting_pod.only_node:
                self._by_size.remove(signature, group.waiting_pod.priority, group.waiting_pod.cpu_request)
        for name in self._names_of.pop(key):
            users = self._by_name[name]
            del users[key]
            if not users:
                del self._by_name[name]
        return True

    def _leave(self, rule: Rule, node: str, signature: bytes) -> None:
        by_node = self._by_rule[rule]
        del by_node[node][signature]
        if not by_node[node]:
            del by_node[node]
        if not by_node:
            del self._by_rule[rule]

    def helped_by(self, event: ClusterEvent) -> list[str]:
        """The pods a happening can help, in the order in which they were added to their groups."""
        found: dict[str, None] = {}
        for group in self._unexplained.values():
            found |= group.keys
        rules = affected_rules(event)
        if event.kind in BY_NAME:
            meta = event.object.metadata
            for key, pod in self._by_name.get((event.kind, meta.namespace, meta.name), {}).items():
                waiting_pod = WaitingPod(pod, self._groups[self._group_of[key]].waiting_pod.rules)
                if any(helps(event, rule, waiting_pod) for rule in rules & waiting_pod.rules):
                    found[key] = None
            return list(found)
        asked: set[bytes] = set()
        for rule in rules:
            for signature, group in self._candidates(event, rule):
                if signature not in asked and helps(event, rule, group.waiting_pod):
                    asked.add(signature)
                    found |= group.keys
        return list(found)

    def _candidates(self, event: ClusterEvent, rule: Rule) -> Iterator[tuple[bytes, WaitingGroup]]:
        """The groups a rule stood in the way of, without those that are made for other nodes or too large."""
        by_node = self._by_rule.get(rule)
        if by_node is None:
            return
        node = only_affected_node(event, rule)
        capacity = capacity_after(event) if rule is Rule.RESOURCES and node else None
        if capacity is not None:
            for signature in self._by_size.up_to(capacity.cpu_for):
                yield signature, self._groups[signature]
            yield from by_node.get(node, {}).items()
        else:
            for name in ("", node) if node else tuple(by_node):
                yield from by_node.get(name, {}).items()


def _names(pod: Pod, rules: frozenset[Rule]) -> Iterator[Named]:
    namespace = pod.metadata.namespace
    if Rule.DEVICES in rules and pod.spec.resource_claims:
        for name in set(claim_names(pod).values()):
            yield EventKind.CLAIM_CHANGED, namespace, name
    if pod.spec.volumes and not rules.isdisjoint(VOLUMES | {Rule.UNSUPPORTED}):
        for name in volume_claims(pod):
            yield EventKind.VOLUME_CLAIM_CHANGED, namespace, name


_AMONG_PODS = frozenset({Rule.INTER_POD, Rule.SPREAD})


def _signature(pod: Pod, rules: frozenset[Rule], needs_capacity: bool) -> bytes:
    """Equal for pods that form a group: everything `helps` looks at, where these rules look at it."""
    spec = pod.spec
    return encode((
        sorted(rule.value for rule in rules),
        needs_capacity,
        (pod.metadata.namespace, pod.metadata.labels) if rules & _AMONG_PODS else None,
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
        host_sockets(pod) if Rule.PORTS in rules else None,
        spec.volumes if not rules.isdisjoint(VOLUMES) else None,
    ))  # fmt: skip
