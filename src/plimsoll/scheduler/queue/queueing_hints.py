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
from plimsoll.scheduler.filters.node_affinity import matches, named_nodes, required_selector, wanted_nodes
from plimsoll.scheduler.filters.node_ports import Socket, collide, host_sockets
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE, tolerates_hard_taints
from plimsoll.scheduler.queue.events import Aspect, Happening, Kind, Room, classify, released, room_at
from plimsoll.scheduler.reasons import Rule, Sentence
from plimsoll.scheduler.result import Unplaced
from plimsoll.scheduler.topology.affinity_terms import Term, Terms, read_terms

__all__ = [
    "Aspect", "Happening", "Kind", "Outlook", "Room", "any_helps", "can_help", "classify",
    "concerned_claims", "confined_to", "helps", "own_change", "released", "room_at", "room_of", "rules_of",
    "settles", "wants_room",
]  # fmt: skip

VOLUMES = frozenset({Rule.VOLUME_RESTRICTIONS, Rule.VOLUME_LIMITS, Rule.VOLUME_BINDING, Rule.VOLUME_ZONE})
_NODE_RULES = frozenset(Rule) - {Rule.SCHEDULING_GATES, Rule.UNSUPPORTED}
_AMONG_PODS = frozenset({Rule.INTER_POD, Rule.SPREAD})
_ROOM = frozenset({Rule.RESOURCES, Rule.DEVICES})

#: DIFF: a pod that was refused for its devices is woken when any pod leaves a node, also one without claims:
#: what its claims charge may fit now. Upstream wakes it by changes of claims alone, so that it waits for the
#: next flush (test_a_plain_pod_that_goes_wakes_pods_that_wait_for_devices).
_BY_KIND: Mapping[Kind, frozenset[Rule]] = {
    Kind.NODE_ADDED: _NODE_RULES,
    Kind.NODE_REMOVED: _AMONG_PODS,
    Kind.POD_ASSIGNED: _AMONG_PODS,
    Kind.POD_DELETED: frozenset({Rule.PORTS, Rule.VOLUME_RESTRICTIONS, Rule.VOLUME_LIMITS,
                                 Rule.VOLUME_BINDING}) | _AMONG_PODS | _ROOM,
    Kind.CLAIM_CHANGED: frozenset({Rule.DEVICES}),
    Kind.CLAIM_FREED: frozenset({Rule.DEVICES}),
    Kind.CLASS_CHANGED: _ROOM,
    Kind.SLICE_CHANGED: _ROOM,
    Kind.TAINT_RULE_CHANGED: frozenset({Rule.DEVICES}),
    Kind.NAMESPACE_CHANGED: frozenset({Rule.INTER_POD}),
    Kind.VOLUME_CLAIM_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    Kind.VOLUME_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    Kind.STORAGE_CLASS_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    Kind.CSI_NODE_CHANGED: VOLUMES | {Rule.UNSUPPORTED},
    Kind.VOLUME_DETACHED: frozenset({Rule.VOLUME_LIMITS}),
    Kind.OTHER: VOLUMES | {Rule.UNSUPPORTED},
}  # fmt: skip
_BY_NODE_ASPECT: Mapping[Aspect, frozenset[Rule]] = {
    Aspect.LABELS: frozenset({Rule.NODE_AFFINITY, Rule.DEVICES, Rule.VOLUME_BINDING, Rule.VOLUME_ZONE})
    | _AMONG_PODS,
    Aspect.TAINTS: frozenset({Rule.TAINTS, Rule.SPREAD}),
    Aspect.SCHEDULABLE: frozenset({Rule.UNSCHEDULABLE}),
    Aspect.ALLOCATABLE: _ROOM | {Rule.VOLUME_LIMITS},
    Aspect.FEATURES: frozenset({Rule.DECLARED_FEATURES}),
}
_BY_POD_ASPECT: Mapping[Aspect, frozenset[Rule]] = {
    Aspect.LABELS: _AMONG_PODS,
    Aspect.TERMINATING: frozenset({Rule.SPREAD}),
    Aspect.SCALED_DOWN: _ROOM,
}
#: Rules that only the very node a happening is about can satisfy.
_LOCAL = _NODE_RULES - _AMONG_PODS - {Rule.VOLUME_RESTRICTIONS}
#: Happenings that concern the pods that use an object, and nobody else.
BY_NAME = frozenset({Kind.CLAIM_CHANGED, Kind.VOLUME_CLAIM_CHANGED})
#: Refusals for devices that more room on a node does not change.
_NO_ROOM = frozenset({
    Sentence.CANNOT_ALLOCATE, Sentence.CLAIM_ELSEWHERE, Sentence.CLAIM_IN_USE, Sentence.CLAIM_PENDING,
    Sentence.NO_CLASS,
})  # fmt: skip
_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"


def rules_of(happening: Happening) -> frozenset[Rule]:
    """The rules whose answer a happening can change."""
    if happening.kind is Kind.NODE_CHANGED:
        return frozenset().union(*(_BY_NODE_ASPECT.get(each, ()) for each in happening.aspects))
    if happening.kind is Kind.POD_UPDATED:
        return frozenset().union(*(_BY_POD_ASPECT.get(each, ()) for each in happening.aspects))
    return _BY_KIND[happening.kind]


def confined_to(happening: Happening, rule: Rule) -> str:
    """The only node on which a happening can satisfy a rule; "" if it may be any."""
    if rule not in _LOCAL:
        return ""
    kind = happening.kind
    if kind in (Kind.NODE_ADDED, Kind.NODE_CHANGED):
        return str(happening.new.metadata.name)
    if kind in (Kind.POD_DELETED, Kind.POD_UPDATED):
        if rule is Rule.DEVICES and _gives_devices_back(happening):
            return ""  # they may be reached from elsewhere
        name = happening.old.spec.node_name or (happening.room.node.metadata.name if happening.room else "")
        return str(name)
    if kind is Kind.SLICE_CHANGED:
        nodes = {each.spec.node_name or "" for each in (happening.old, happening.new) if each is not None}
        return nodes.pop() if len(nodes) == 1 else ""
    return ""


def concerned_claims(happening: Happening) -> list[tuple[str, str]]:
    """The claims a happening is about, by namespace and name: one that changed, or those of an assumed pod
    that goes, which are not promised to it any longer."""
    if happening.kind in (Kind.CLAIM_CHANGED, Kind.CLAIM_FREED, Kind.VOLUME_CLAIM_CHANGED):
        meta = happening.object.metadata
        return [(meta.namespace, meta.name)]
    if happening.kind is Kind.POD_DELETED and _gives_devices_back(happening):
        gone = happening.old
        return [(gone.metadata.namespace, name) for name in dict.fromkeys(claim_names(gone).values())]
    return []


def room_of(happening: Happening) -> Room | None:
    """The room that a pod's requests must fit if a happening is to help against their not fitting; None if
    it is not known or does not matter."""
    if happening.kind in (Kind.NODE_ADDED, Kind.NODE_CHANGED):
        return _empty(happening.new)
    return happening.room if happening.kind in (Kind.POD_DELETED, Kind.POD_UPDATED) else None


def can_help(
    happening: Happening, rule: Rule, pod: Pod, rules: frozenset[Rule] = frozenset(), room: bool = True
) -> bool:
    """Whether a happening may help a pod that a rule stood in the way of; `rules` are all that did."""
    return rule in rules_of(happening) and helps(happening, rule, Outlook(pod, rules | {rule}, room))


def wants_room(unplaced: Unplaced) -> bool:
    """Whether room on a node may have been short for what claims charge; if not, it was devices alone."""
    return any(
        reason.rule is Rule.DEVICES and reason.sentence not in _NO_ROOM for reason, _ in unplaced.reasons
    )


def any_helps(happenings: Iterable[Happening], rules: frozenset[Rule], pod: Pod, room: bool = True) -> bool:
    """Whether one of several happenings may help a pod that these rules stood in the way of."""
    outlook = Outlook(pod, rules, room)
    return any(
        not rules or any(helps(happening, rule, outlook) for rule in rules & rules_of(happening))
        for happening in happenings
    )


def settles(changed: frozenset[Rule], rules: frozenset[Rule]) -> bool:
    """Whether a change of the pod itself (see `own_change`) may help it; without rules every change may."""
    return bool(changed & rules if rules else changed)


class Outlook:
    """What of a waiting pod decides whether something helps it; read when needed, once."""

    def __init__(self, pod: Pod, rules: frozenset[Rule], room: bool = True) -> None:
        """`room`: whether room on nodes was short for what its claims charge, as far as is known."""
        self.pod = pod
        self.rules = rules
        self.room = room
        self.priority = pod.spec.priority or 0
        self.namespace = pod.metadata.namespace
        self.wanted = wanted_nodes(pod)

    @cached_property
    def demand(self) -> Mapping[str, int]:
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
    def size(self) -> int:
        """How much of the commonest resource it needs at least."""
        return 0 if self.pod.spec.resource_claims else self.demand.get(CPU, 0)

    def chooses(self, node: Node) -> bool:
        """Whether its node selector and affinity mean a node."""
        return self.wanted is None or matches(self.wanted, node)

    def bears(self, node: Node) -> bool:
        """Whether it tolerates the taints of a node."""
        return tolerates_hard_taints(self.pod.spec.tolerations, node)

    def fits(self, room: Room) -> bool:
        """Whether its requests leave it a chance."""
        if self.pod.spec.resource_claims:
            return True  # claims may bring what it requests
        return room.takes(self.demand, self.priority)

    def is_refused(self, node: Node, room: Room | None = None) -> bool:
        """Whether a rule that it waits for refuses a node as it is now."""
        rules, spec = self.rules, node.spec
        return (
            (Rule.NODE_AFFINITY in rules and not self.chooses(node))
            or (Rule.TAINTS in rules and not self.bears(node))
            or (Rule.UNSCHEDULABLE in rules and spec.unschedulable and not self._bears_closed())
            or (Rule.RESOURCES in rules and not self.fits(room or _empty(node)))
        )

    def _bears_closed(self) -> bool:
        return tolerated(self.pod.spec.tolerations, UNSCHEDULABLE)


def _empty(node: Node) -> Room:
    line = units_of(node.status.allocatable)
    if PODS in node.status.allocatable:
        line[PODS] = node.status.allocatable[PODS].value()
    return Room(node, line, line)


def helps(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    """`can_help` for a pod that has been read, and a rule that is among `rules_of` the happening."""
    only = confined_to(happening, rule)
    if only and outlook.only_node and outlook.only_node != only:
        return False
    hint = _HINTS.get(happening.kind)
    return hint is None or hint(happening, rule, outlook)


# -- what pods say


def _node_added(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    if rule in _AMONG_PODS:
        return True  # it may bring pods that were bound to it before it was known, or count as a domain
    return not outlook.is_refused(happening.new)


def _node_changed(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    old, new = happening.old, happening.new
    match rule:
        case Rule.INTER_POD | Rule.SPREAD:
            return True
        case Rule.NODE_AFFINITY if outlook.chooses(old):
            return False
        case Rule.TAINTS if outlook.bears(old):
            return False
        case Rule.DEVICES if not outlook.room and Aspect.LABELS not in happening.aspects:
            return False
        case Rule.RESOURCES if not _grew_for(outlook, old, new):
            return False
    return not outlook.is_refused(new)


def _grew_for(outlook: Outlook, old: Node, new: Node) -> bool:
    """Whether a node has more of something a pod asks for."""
    before, after = _empty(old).line, _empty(new).line
    return any(after.get(name, 0) > before.get(name, 0) for name in (PODS, *outlook.demand))


def _gives_devices_back(happening: Happening) -> bool:
    """Whether devices come free at once, as when an assumed pod goes; those of a bound pod are held until its
    claims say otherwise."""
    gone = happening.old
    return bool(gone.spec.resource_claims) and not gone.spec.node_name


def _pod_left(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    gone, room = happening.old, happening.room
    match rule:
        case Rule.PORTS:
            return any(collide(one, other) for one in host_sockets(gone) for other in outlook.sockets)
        case Rule.DEVICES if _gives_devices_back(happening):
            return True
        case Rule.DEVICES if not outlook.room:
            return False
        case Rule.RESOURCES | Rule.DEVICES:
            return room is None or not outlook.is_refused(room.node, room)
        case Rule.VOLUME_RESTRICTIONS | Rule.VOLUME_LIMITS | Rule.VOLUME_BINDING:
            return bool(gone.spec.volumes)
        case Rule.SPREAD:
            return _spreads_over(outlook.pod, gone)
        case Rule.INTER_POD:
            return _heeds(outlook, gone)
    return True


def _pod_came(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    if rule is Rule.SPREAD:
        return _spreads_over(outlook.pod, happening.new)
    terms = outlook.terms
    return bool(terms.problem) or any(_may_mean(term, happening.new) for term in terms.affinity)


def _pod_updated(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    if rule is Rule.SPREAD or rule is Rule.INTER_POD:
        return _pod_came(happening, rule, outlook) or _pod_left(happening, rule, outlook)
    return _pod_left(happening, rule, outlook)


def _class_changed(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    if rule is Rule.DEVICES:
        return True
    device_class = happening.new
    names = {_CLASS_RESOURCE + device_class.metadata.name, device_class.spec.extended_resource_name}
    return bool(outlook.pod.spec.resource_claims) or not names.isdisjoint(outlook.demand)


def _slice_changed(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    # What devices bring may spare the pod a request of its own.
    return rule is Rule.DEVICES or bool(outlook.pod.spec.resource_claims)


def _claim_changed(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    meta = happening.object.metadata
    return meta.namespace == outlook.namespace and meta.name in outlook.claims


def _volume_claim_changed(happening: Happening, rule: Rule, outlook: Outlook) -> bool:
    meta = happening.object.metadata
    return meta.namespace == outlook.namespace and meta.name in outlook.volume_claims


_HINTS: Mapping[Kind, Callable[[Happening, Rule, Outlook], bool]] = {
    Kind.NODE_ADDED: _node_added,
    Kind.NODE_CHANGED: _node_changed,
    Kind.POD_DELETED: _pod_left,
    Kind.POD_ASSIGNED: _pod_came,
    Kind.POD_UPDATED: _pod_updated,
    Kind.CLASS_CHANGED: _class_changed,
    Kind.SLICE_CHANGED: _slice_changed,
    Kind.CLAIM_CHANGED: _claim_changed,
    Kind.VOLUME_CLAIM_CHANGED: _volume_claim_changed,
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


def own_change(old: Pod, new: Pod) -> frozenset[Rule]:
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


def _heeds(outlook: Outlook, gone: Pod) -> bool:
    """Whether a pod that is gone stood in the way: one of the two kept away from the other, or a pod that
    wants company may now be the first of its kind."""
    own, theirs = outlook.terms, read_terms(gone)
    if own.problem or theirs.problem:
        return True
    return any(_may_mean(term, gone) for term in (*own.anti_affinity, *own.affinity)) or any(
        _may_mean(term, outlook.pod) for term in theirs.anti_affinity
    )


def _may_mean(term: Term, pod: Pod) -> bool:
    """Whether a term means a pod; what it would need the labels of namespaces for is taken as given."""
    crowd = term.crowd
    near = pod.metadata.namespace in crowd.namespaces or crowd.namespace_selector is not None
    return near and crowd.selector.matches(pod.metadata.labels)
