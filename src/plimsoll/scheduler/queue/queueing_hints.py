"""Which happening helps which pod: the table of rules and happenings, and what pods themselves say to it.

Owns `can_help`. A pod waits because certain rules stood in its way; it is woken by what can change the answer
of one of them, and only if it can do so for this very pod: a pod that goes to a node of its own is not
interested in others, one without affinities not in labels. In doubt a pod is woken.

Why no pod sleeps through its chance: whenever a pod has been tried, each node is refused by one of the rules
it waits for. A happening may be passed over only if it leaves each node refused by one of them; so a hint
asks the rules the pod waits for and no others, because a change of heart of those others wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from plimsoll.api.core import Node, Pod
from plimsoll.api.label_selection import read_selector
from plimsoll.api.node_selection import SelectorProblem
from plimsoll.api.tolerations import tolerated
from plimsoll.ledger.claims import claim_names
from plimsoll.ledger.requests import pod_requests
from plimsoll.ledger.units import CPU, PODS, units_of
from plimsoll.scheduler.filters.node_affinity import (
    meets_requirements,
    named_nodes,
    node_requirements,
    required_selector,
)
from plimsoll.scheduler.filters.node_ports import Socket, collide, host_sockets
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE, tolerates_hard_taints
from plimsoll.scheduler.queue.events import (
    ClusterEvent,
    EventKind,
    NodeCapacity,
    UpdateType,
)
from plimsoll.scheduler.reasons import ReasonMessage, Rule
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.topology.affinity_terms import Term, Terms, read_terms

VOLUMES = frozenset({Rule.VOLUME_RESTRICTIONS, Rule.VOLUME_LIMITS, Rule.VOLUME_BINDING, Rule.VOLUME_ZONE})
_NODE_RULES = frozenset(Rule) - {Rule.SCHEDULING_GATES, Rule.UNSUPPORTED}
_AMONG_PODS = frozenset({Rule.INTER_POD, Rule.SPREAD})
_ROOM = frozenset({Rule.RESOURCES, Rule.DEVICES})

#: DIFF: a pod that was refused for its devices is woken when any pod leaves a node, also one without claims:
#: what its claims charge may fit now. Upstream wakes it by changes of claims alone, so that it waits for the
#: next flush (test_a_plain_pod_that_goes_wakes_pods_that_wait_for_devices).
_BY_KIND: Mapping[EventKind, frozenset[Rule]] = {
    EventKind.NODE_ADDED: _NODE_RULES,
    EventKind.NODE_REMOVED: _AMONG_PODS,
    EventKind.POD_ASSIGNED: _AMONG_PODS,
    EventKind.POD_DELETED: frozenset({Rule.PORTS, Rule.VOLUME_RESTRICTIONS, Rule.VOLUME_LIMITS,
                                 Rule.VOLUME_BINDING}) | _AMONG_PODS | _ROOM,
    EventKind.CLAIM_CHANGED: frozenset({Rule.DEVICES}),
    EventKind.CLAIM_FREED: frozenset({Rule.DEVICES}),
    EventKind.CLASS_CHANGED: _ROOM,
    EventKind.SLICE_CHANGED: _ROOM,
    EventKind.TAINT_RULE_CHANGED: frozenset({Rule.DEVICES}),
    EventKind.NAMESPACE_CHANGED: frozenset({Rule.INTER_POD}),
    EventKind.VOLUME_CLAIM_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    EventKind.VOLUME_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    EventKind.STORAGE_CLASS_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    EventKind.CSI_NODE_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    EventKind.VOLUME_DETACHED: frozenset({Rule.VOLUME_LIMITS}),
    EventKind.OTHER: VOLUMES | {Rule.UNSUPPORTED},
}  # fmt: skip
_BY_NODE_ASPECT: Mapping[UpdateType, frozenset[Rule]] = {
    UpdateType.LABELS: frozenset({Rule.NODE_AFFINITY, Rule.DEVICES, Rule.VOLUME_BINDING, Rule.VOLUME_ZONE})
    | _AMONG_PODS,
    UpdateType.TAINTS: frozenset({Rule.TAINTS, Rule.SPREAD}),
    UpdateType.SCHEDULABLE: frozenset({Rule.UNSCHEDULABLE}),
    UpdateType.ALLOCATABLE: _ROOM | {Rule.VOLUME_LIMITS},
    UpdateType.FEATURES: frozenset({Rule.DECLARED_FEATURES}),
}
_BY_POD_ASPECT: Mapping[UpdateType, frozenset[Rule]] = {
    UpdateType.LABELS: _AMONG_PODS,
    UpdateType.TERMINATING: frozenset({Rule.SPREAD}),
    UpdateType.SCALED_DOWN: _ROOM,
}
#: Rules that only the very node a happening is about can satisfy.
_LOCAL = _NODE_RULES - _AMONG_PODS - {Rule.VOLUME_RESTRICTIONS}
#: Happenings that concern the pods that use an object, and nobody else.
BY_NAME = frozenset({EventKind.CLAIM_CHANGED, EventKind.VOLUME_CLAIM_CHANGED})
#: Refusals for devices that more room on a node does not change.
_NO_ROOM = frozenset({
    ReasonMessage.CANNOT_ALLOCATE, ReasonMessage.CLAIM_ELSEWHERE, ReasonMessage.CLAIM_IN_USE,
    ReasonMessage.CLAIM_PENDING,
    ReasonMessage.NO_CLASS,
})  # fmt: skip
_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"


def affected_rules(event: ClusterEvent) -> frozenset[Rule]:
    """The rules whose answer a happening can change."""
    if event.kind is EventKind.NODE_CHANGED:
        return frozenset().union(*(_BY_NODE_ASPECT.get(each, ()) for each in event.updates))
    if event.kind is EventKind.POD_UPDATED:
        return frozenset().union(*(_BY_POD_ASPECT.get(each, ()) for each in event.updates))
    return _BY_KIND[event.kind]


def only_affected_node(event: ClusterEvent, rule: Rule) -> str:
    """The only node on which a happening can satisfy a rule; "" if it may be any."""
    if rule not in _LOCAL:
        return ""
    kind = event.kind
    if kind in (EventKind.NODE_ADDED, EventKind.NODE_CHANGED):
        return str(event.new.metadata.name)
    if kind in (EventKind.POD_DELETED, EventKind.POD_UPDATED):
        if rule is Rule.DEVICES and _gives_devices_back(event):
            return ""  # they may be reached from elsewhere
        name = event.old.spec.node_name or (event.capacity.node.metadata.name if event.capacity else "")
        return str(name)
    if kind is EventKind.SLICE_CHANGED:
        nodes = {each.spec.node_name or "" for each in (event.old, event.new) if each is not None}
        return nodes.pop() if len(nodes) == 1 else ""
    return ""


def affected_claims(event: ClusterEvent) -> list[tuple[str, str]]:
    """The claims a happening is about, by namespace and name: one that changed, or those of an assumed pod
    that goes, which are not promised to it any longer."""
    if event.kind in (
        EventKind.CLAIM_CHANGED,
        EventKind.CLAIM_FREED,
        EventKind.VOLUME_CLAIM_CHANGED,
    ):
        meta = event.object.metadata
        return [(meta.namespace, meta.name)]
    if event.kind is EventKind.POD_DELETED and _gives_devices_back(event):
        gone = event.old
        return [(gone.metadata.namespace, name) for name in dict.fromkeys(claim_names(gone).values())]
    return []


def capacity_after(event: ClusterEvent) -> NodeCapacity | None:
    """The room that a pod's requests must fit if a happening is to help against their not fitting; None if
    it is not known or does not matter."""
    if event.kind in (EventKind.NODE_ADDED, EventKind.NODE_CHANGED):
        return _empty(event.new)
    return event.capacity if event.kind in (EventKind.POD_DELETED, EventKind.POD_UPDATED) else None


def can_help(
    event: ClusterEvent,
    rule: Rule,
    pod: Pod,
    rules: frozenset[Rule] = frozenset(),
    needs_capacity: bool = True,
) -> bool:
    """Whether a happening may help a pod that a rule stood in the way of; `rules` are all that did."""
    return rule in affected_rules(event) and helps(
        event, rule, WaitingPod(pod, rules | {rule}, needs_capacity)
    )


def needs_capacity(fit_error: FitError) -> bool:
    """Whether room on a node may have been short for what claims charge; if not, it was devices alone."""
    return any(
        reason.rule is Rule.DEVICES and reason.message not in _NO_ROOM for reason, _ in fit_error.reasons
    )


def any_event_helps(
    events: Iterable[ClusterEvent], rules: frozenset[Rule], pod: Pod, needs_capacity: bool = True
) -> bool:
    """Whether one of several happenings may help a pod that these rules stood in the way of."""
    waiting_pod = WaitingPod(pod, rules, needs_capacity)
    return any(
        not rules or any(helps(event, rule, waiting_pod) for rule in rules & affected_rules(event))
        for event in events
    )


def update_helps(changed: frozenset[Rule], rules: frozenset[Rule]) -> bool:
    """Whether a change of the pod itself (see `own_change`) may help it; without rules every change may."""
    return bool(changed & rules if rules else changed)


class WaitingPod:
    """What of a waiting pod decides whether something helps it; read when needed, once."""

    def __init__(self, pod: Pod, rules: frozenset[Rule], needs_capacity: bool = True) -> None:
        """`room`: whether room on nodes was short for what its claims charge, as far as is known."""
        self.pod = pod
        self.rules = rules
        self.needs_capacity = needs_capacity
        self.priority = pod.spec.priority or 0
        self.namespace = pod.metadata.namespace
        self.node_requirements = node_requirements(pod)

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """What it requests by itself, in whole units."""
        return units_of(pod_requests(self.pod))

    @cached_property
    def terms(self) -> Terms:
        return read_terms(self.pod)

    @cached_property
    def sockets(self) -> tuple[Socket, ...]:
        return host_sockets(self.pod)

    @cached_property
    def claims(self) -> frozenset[str]:
        return frozenset(claim_names(self.pod).values())

    @cached_property
    def volume_claims(self) -> frozenset[str]:
        return volume_claims(self.pod)

    @cached_property
    def only_node(self) -> str:
        """The one node its affinity leaves it, as with pods of a DaemonSet; "" if there may be more."""
        names = named_nodes(required_selector(self.pod))
        return next(iter(names)) if names is not None and len(names) == 1 else ""

    @cached_property
    def cpu_request(self) -> int:
        """How much of the commonest resource it needs at least."""
        return 0 if self.pod.spec.resource_claims else self.requests.get(CPU, 0)

    def matches_node(self, node: Node) -> bool:
        """Whether its node selector and affinity mean a node."""
        return self.node_requirements is None or meets_requirements(self.node_requirements, node)

    def tolerates(self, node: Node) -> bool:
        """Whether it tolerates the taints of a node."""
        return tolerates_hard_taints(self.pod.spec.tolerations, node)

    def fits(self, capacity: NodeCapacity) -> bool:
        """Whether its requests leave it a chance."""
        if self.pod.spec.resource_claims:
            return True  # claims may bring what it requests
        return capacity.can_fit(self.requests, self.priority)

    def is_refused(self, node: Node, capacity: NodeCapacity | None = None) -> bool:
        """Whether a rule that it waits for refuses a node as it is now."""
        rules, spec = self.rules, node.spec
        return (
            (Rule.NODE_AFFINITY in rules and not self.matches_node(node))
            or (Rule.TAINTS in rules and not self.tolerates(node))
            or (Rule.UNSCHEDULABLE in rules and spec.unschedulable and not self._tolerates_unschedulable())
            or (Rule.RESOURCES in rules and not self.fits(capacity or _empty(node)))
        )

    def _tolerates_unschedulable(self) -> bool:
        return tolerated(self.pod.spec.tolerations, UNSCHEDULABLE)


def _empty(node: Node) -> NodeCapacity:
    line = units_of(node.status.allocatable)
    if PODS in node.status.allocatable:
        line[PODS] = node.status.allocatable[PODS].value()
    return NodeCapacity(node, line, line)


def helps(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    """`can_help` for a pod that has been read, and a rule that is among `rules_of` the happening."""
    only = only_affected_node(event, rule)
    if only and waiting_pod.only_node and waiting_pod.only_node != only:
        return False
    hint = _HINTS.get(event.kind)
    return hint is None or hint(event, rule, waiting_pod)


# -- what pods say


def _node_added(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    if rule in _AMONG_PODS:
        return True  # it may bring pods that were bound to it before it was known, or count as a domain
    return not waiting_pod.is_refused(event.new)


def _node_changed(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    old, new = event.old, event.new
    match rule:
        case Rule.INTER_POD | Rule.SPREAD:
            return True
        case Rule.NODE_AFFINITY if waiting_pod.matches_node(old):
            return False
        case Rule.TAINTS if waiting_pod.tolerates(old):
            return False
        case Rule.DEVICES if not waiting_pod.needs_capacity and UpdateType.LABELS not in event.updates:
            return False
        case Rule.RESOURCES if not _grew_for(waiting_pod, old, new):
            return False
    return not waiting_pod.is_refused(new)


def _grew_for(waiting_pod: WaitingPod, old: Node, new: Node) -> bool:
    """Whether a node has more of something a pod asks for."""
    before, after = _empty(old).allocatable, _empty(new).allocatable
    return any(after.get(name, 0) > before.get(name, 0) for name in (PODS, *waiting_pod.requests))


def _gives_devices_back(event: ClusterEvent) -> bool:
    """Whether devices come free at once, as when an assumed pod goes; those of a bound pod are held until its
    claims say otherwise."""
    gone = event.old
    return bool(gone.spec.resource_claims) and not gone.spec.node_name


def _pod_left(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    gone, capacity = event.old, event.capacity
    match rule:
        case Rule.PORTS:
            return any(collide(one, other) for one in host_sockets(gone) for other in waiting_pod.sockets)
        case Rule.DEVICES if _gives_devices_back(event):
            return True
        case Rule.DEVICES if not waiting_pod.needs_capacity:
            return False
        case Rule.RESOURCES | Rule.DEVICES:
            return capacity is None or not waiting_pod.is_refused(capacity.node, capacity)
        case Rule.VOLUME_RESTRICTIONS | Rule.VOLUME_LIMITS | Rule.VOLUME_BINDING:
            return bool(gone.spec.volumes)
        case Rule.SPREAD:
            return _spreads_over(waiting_pod.pod, gone)
        case Rule.INTER_POD:
            return _heeds(waiting_pod, gone)
    return True


def _pod_came(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    if rule is Rule.SPREAD:
        return _spreads_over(waiting_pod.pod, event.new)
    terms = waiting_pod.terms
    return bool(terms.problem) or any(_may_mean(term, event.new) for term in terms.affinity)


def _pod_updated(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    if rule is Rule.SPREAD or rule is Rule.INTER_POD:
        return _pod_came(event, rule, waiting_pod) or _pod_left(event, rule, waiting_pod)
    return _pod_left(event, rule, waiting_pod)


def _class_changed(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    if rule is Rule.DEVICES:
        return True
    device_class = event.new
    names = {_CLASS_RESOURCE + device_class.metadata.name, device_class.spec.extended_resource_name}
    return bool(waiting_pod.pod.spec.resource_claims) or not names.isdisjoint(waiting_pod.requests)


def _slice_changed(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    # What devices bring may spare the pod a request of its own.
    return rule is Rule.DEVICES or bool(waiting_pod.pod.spec.resource_claims)


def _claim_changed(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    meta = event.object.metadata
    return meta.namespace == waiting_pod.namespace and meta.name in waiting_pod.claims


def _volume_claim_changed(event: ClusterEvent, rule: Rule, waiting_pod: WaitingPod) -> bool:
    meta = event.object.metadata
    return meta.namespace == waiting_pod.namespace and meta.name in waiting_pod.volume_claims


_HINTS: Mapping[EventKind, Callable[[ClusterEvent, Rule, WaitingPod], bool]] = {
    EventKind.NODE_ADDED: _node_added,
    EventKind.NODE_CHANGED: _node_changed,
    EventKind.POD_DELETED: _pod_left,
    EventKind.POD_ASSIGNED: _pod_came,
    EventKind.POD_UPDATED: _pod_updated,
    EventKind.CLASS_CHANGED: _class_changed,
    EventKind.SLICE_CHANGED: _slice_changed,
    EventKind.CLAIM_CHANGED: _claim_changed,
    EventKind.VOLUME_CLAIM_CHANGED: _volume_claim_changed,
}


# -- the pod itself

_ALL = frozenset(Rule)
_BY_FIELD: Mapping[str, frozenset[Rule]] = {
    "tolerations": frozenset({Rule.TAINTS, Rule.UNSCHEDULABLE, Rule.SPREAD}),
    "node_selector": frozenset({Rule.NODE_AFFINITY, Rule.SPREAD}),
    "affinity": frozenset({Rule.NODE_AFFINITY}) | _AMONG_PODS,
    "topology_spread_constraints": frozenset({Rule.SPREAD}),
    "resource_claims": frozenset({Rule.DEVICES}),
    "resources": _ROOM,
    "overhead": _ROOM,
    "volumes": VOLUMES | {Rule.UNSUPPORTED},
    "scheduling_gates": frozenset({Rule.SCHEDULING_GATES}),
    "ephemeral_containers": frozenset(),
    "scheduler_name": frozenset(),
    "restart_policy": frozenset(),
    "termination_grace_period_seconds": frozenset(),
    "node_name": frozenset(),
}


def rules_affected_by_update(old: Pod, new: Pod) -> frozenset[Rule]:
    """The rules whose answer a change of the waiting pod itself can change; conditions are none of them."""
    rules: frozenset[Rule] = frozenset()
    if old.spec != new.spec:
        for name in old.spec.__struct_fields__:
            one, other = getattr(old.spec, name), getattr(new.spec, name)
            if one == other:
                continue
            if name not in ("containers", "init_containers"):
                rules |= _BY_FIELD.get(name, _ALL)
            elif [(c.resources, c.ports) for c in one] != [(c.resources, c.ports) for c in other]:
                rules |= _ROOM | {Rule.PORTS}
    if old.metadata.labels != new.metadata.labels:
        rules |= _AMONG_PODS
    if (old.status.resource_claim_statuses, old.status.extended_resource_claim_status) != (
        new.status.resource_claim_statuses, new.status.extended_resource_claim_status
    ):  # fmt: skip
        rules |= {Rule.DEVICES}
    return rules


# -- about pods


def volume_claims(pod: Pod) -> frozenset[str]:
    """The names of the volume claims a pod uses, generated ones too."""
    names = set()
    for volume in pod.spec.volumes:
        source = volume.get("persistentVolumeClaim")
        if isinstance(source, dict):
            names.add(str(source.get("claimName", "")))
        elif volume.get("ephemeral") is not None:
            names.add(f"{pod.metadata.name}-{volume.get('name', '')}")
    return frozenset(names)


def _spreads_over(pod: Pod, other: Pod) -> bool:
    """Whether a spread constraint of a pod counts another pod."""
    if pod.metadata.namespace != other.metadata.namespace:
        return False
    for constraint in pod.spec.topology_spread_constraints:
        selector = read_selector(constraint.label_selector)
        if isinstance(selector, SelectorProblem) or selector.matches(other.metadata.labels):
            return True
    return False


def _heeds(waiting_pod: WaitingPod, gone: Pod) -> bool:
    """Whether a pod that is gone stood in the way: one of the two kept away from the other, or a pod that
    wants company may now be the first of its kind."""
    own, theirs = waiting_pod.terms, read_terms(gone)
    if own.problem or theirs.problem:
        return True
    return any(_may_mean(term, gone) for term in (*own.anti_affinity, *own.affinity)) or any(
        _may_mean(term, waiting_pod.pod) for term in theirs.anti_affinity
    )


def _may_mean(term: Term, pod: Pod) -> bool:
    """Whether a term means a pod; what it would need the labels of namespaces for is taken as given."""
    crowd = term.crowd
    near = pod.metadata.namespace in crowd.namespaces or crowd.namespace_selector is not None
    return near and crowd.selector.matches(pod.metadata.labels)
