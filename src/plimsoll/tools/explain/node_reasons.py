"""What nodes lack by themselves: labels, tolerated taints, being open, features, room on the books.

Owns the tellers of the rules that look at a node's fields and at its book.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from plimsoll.allocator import Fault
from plimsoll.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint
from plimsoll.api.forms import read_device
from plimsoll.api.node_selection import NAME_FIELD, readable_terms, term_matches
from plimsoll.api.tolerations import tolerated
from plimsoll.ledger.units import PODS
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import required_selector
from plimsoll.scheduler.filters.node_declared_features import needed_features
from plimsoll.scheduler.filters.taint_toleration import NO_EXECUTE, NO_SCHEDULE
from plimsoll.tools.explain.text import Say, listed
from plimsoll.tools.explain.tree import Branch
from plimsoll.tools.explain.pod_view import Teller, View
from plimsoll.tools.top.nodes import Holder, book_of, holders, text_of

#: How many holders of a resource are named.
NAMED = 3
#: What a distance is measured in: parts of what is wanted.
_WHOLE = 1_000_000


class CordonTeller(Teller):
    def tell(self, place: int, alike: Sequence[int]) -> tuple[Branch, ...]:
        return (Branch(Say.CORDONED),)


# -- taints


def hard_taints(pod: Pod, node: Node) -> tuple[Taint, ...]:
    """The taints of a node that keep a pod away."""
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(pod.spec.tolerations, taint)
    )


def taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


class TaintTeller(Teller):
    def _texts(self, place: int) -> tuple[str, ...]:
        return tuple(map(taint_text, hard_taints(self.view.pod, self.view.node(place))))

    def key(self, place: int) -> Hashable:
        return self._texts(place)

    def distance(self, place: int) -> int:
        return len(self._texts(place))

    def tell(self, place: int, alike: Sequence[int]) -> tuple[Branch, ...]:
        return tuple(Branch(Say.TAINT, {"taint": text}) for text in self._texts(place))


# -- labels


def unmet(pod: Pod, node: Node) -> tuple[NodeSelectorRequirement, ...]:
    """What a pod asks of its node that the node has not: of the labels, and of the term that is nearest."""
    found = [
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in sorted(pod.spec.node_selector.items())
        if node.metadata.labels.get(key) != value
    ]
    selector = required_selector(pod)
    if selector is not None:
        terms = [[*_unmet_of(term, node)] for term in _matchable(selector)]
        terms.sort(key=len)
        found += terms[0] if terms else []
    return tuple(found)


def _matchable(selector: NodeSelector) -> list[NodeSelectorTerm]:
    """The terms that could match some node: those that can be read and ask for something."""
    terms = readable_terms(selector.node_selector_terms)
    return [term for term in terms if term.match_expressions or term.match_fields]


def matches_nothing(pod: Pod) -> bool:
    """Whether the required affinity of a pod means no node that there could ever be."""
    selector = required_selector(pod)
    return selector is not None and not _matchable(selector)


def _unmet_of(term: NodeSelectorTerm, node: Node) -> Iterator[NodeSelectorRequirement]:
    for each in term.match_expressions:
        if not term_matches(NodeSelectorTerm(match_expressions=(each,)), node):
            yield each
    for each in term.match_fields:
        if not term_matches(NodeSelectorTerm(match_fields=(each,)), node):
            yield each


def wish_text(wish: NodeSelectorRequirement) -> str:
    """A requirement as people write it."""
    values = listed(list(wish.values), 3)
    match wish.operator:
        case "In":
            return f"{wish.key}={values}" if len(wish.values) == 1 else f"{wish.key} in ({values})"
        case "NotIn":
            return f"{wish.key}!={values}" if len(wish.values) == 1 else f"{wish.key} not in ({values})"
        case "Exists":
            return f"label {wish.key}"
        case "DoesNotExist":
            return f"no label {wish.key}"
        case "Gt":
            return f"{wish.key}>{values}"
        case "Lt":
            return f"{wish.key}<{values}"
    return f"{wish.key} {wish.operator} {values}"


def had_text(wish: NodeSelectorRequirement, node: Node) -> str:
    """What a node has of what is asked for."""
    if wish.key == NAME_FIELD:
        return f"{NAME_FIELD}={node.metadata.name}"
    value = node.metadata.labels.get(wish.key)
    return f"{wish.key}={value}" if value is not None else f"no label {wish.key}"


class AffinityTeller(Teller):
    def __init__(self, view: View, rule: Filter, places: Sequence[int]) -> None:
        super().__init__(view, rule, places)
        self._unmet = {place: unmet(view.pod, view.node(place)) for place in places}

    def key(self, place: int) -> Hashable:
        return tuple((wish.key, wish.operator, wish.values) for wish in self._unmet[place])

    def distance(self, place: int) -> int:
        # A node that has the label with another value is nearer than one that has not got it.
        node = self.view.node(place)
        missing = sum(wish.key not in node.metadata.labels for wish in self._unmet[place])
        return len(self._unmet[place]) * 100 + missing

    def tell(self, place: int, alike: Sequence[int]) -> tuple[Branch, ...]:
        node = self.view.node(place)
        branches = [Branch(Say.NO_TERM)] if matches_nothing(self.view.pod) else []
        for wish in self._unmet[place]:
            values = Counter(self.view.node(each).metadata.labels.get(wish.key) for each in alike)
            told = tuple(f"{value} ({count})" for value, count in values.most_common() if value is not None)
            children: tuple[Branch, ...] = ()
            if wish.key != NAME_FIELD and 1 < len(told) <= len(alike) // 2:
                children = (Branch(Say.LABEL_VALUES, {"values": told}),)
            facts = {"wanted": wish_text(wish), "had": had_text(wish, node)}
            branches.append(Branch(Say.LABEL, facts, children))
        return tuple(branches)


class FeatureTeller(Teller):
    def tell(self, place: int, alike: Sequence[int]) -> tuple[Branch, ...]:
        had = self.view.node(place).status.declared_features
        missing = sorted(needed_features(self.view.pod).difference(had))
        return (Branch(Say.FEATURES, {"wanted": tuple(missing), "had": tuple(had) or "none"}),)


# -- the book


class ResourceTeller(Teller):
    def _short(self, place: int) -> list[Reason]:
        reasons = (reason.cause for reason in self.rule.filter_node(place))
        return [because for because in reasons if isinstance(because, Reason)]

    def key(self, place: int) -> Hashable:
        return tuple((reason.cause, reason.resource, reason.resolvable) for reason in self._short(place))

    def distance(self, place: int) -> int:
        return sum(lack_of(reason) for reason in self._short(place))

    def tell(self, place: int, alike: Sequence[int]) -> tuple[Branch, ...]:
        return tuple(tell_lack(self.view, reason, place) for reason in self._short(place))


def lack_of(reason: Reason) -> int:
    """How much is missing, in parts of what is wanted; far more where no leaving would help."""
    wanted, had = reason.wanted or 1, reason.had or 0
    lack = (wanted - had) * _WHOLE // wanted
    return lack if reason.resolvable or reason.cause is Cause.TOO_MANY_PODS else lack + 100 * _WHOLE


def tell_lack(view: View, reason: Reason, place: int) -> Branch:
    """What a node is short of, whence the demand, and who holds the rest."""
    ledger = view.snapshot.ledger(place)
    if reason.cause is Cause.TOO_MANY_PODS:
        return Branch(Say.TOO_MANY_PODS, {"line": ledger.allocatable.get(PODS, 0), "pods": len(ledger)})
    name = reason.resource
    row = book_of(ledger).row(name)
    wanted, own = reason.wanted or 0, view.task.requests.get(name, 0)
    facts: dict[str, object] = {"resource": name, "wanted": text_of(name, wanted)}
    charged = wanted > own and bool(view.task.claims)
    if charged:
        facts |= {"own": text_of(name, own), "charged": text_of(name, wanted - own)}
    facts["line"] = text_of(name, row.line)
    if not row.line:
        return Branch(Say.NO_RESOURCE, facts)
    if wanted > row.line:
        return Branch(Say.TOO_SMALL_WITH_CLAIMS if charged else Say.TOO_SMALL, facts)
    for column in ("requests", "claims", "overhead", "free"):
        facts[column] = text_of(name, getattr(row, column))
    kind = Say.SHORT_WITH_CLAIMS if charged else Say.SHORT
    if kind is Say.SHORT and may_add(view, place, name):
        kind = Say.SHORT_BEFORE_CLAIMS
    return Branch(kind, facts, tuple(tell_holders(view, place, name)))


def may_add(view: View, place: int, resource: str) -> bool:
    """Whether devices that the pod's claims wait for may charge more of a resource on this node.

    The rule about requests comes first and knows nothing of them.
    """
    devices = view.snapshot.inventory.devices_for(view.node(place)) if view.task.unallocated_claims else None
    if devices is None or isinstance(devices, Fault):
        return False
    return any(resource in read_device(entry.device) for entry in devices.entries)


def tell_holders(view: View, place: int, resource: str) -> Iterator[Branch]:
    """Who holds most of a resource on a node."""
    found = holders(view.cluster_state, view.name(place), resource)
    for holder in found[:NAMED]:
        yield tell_holder(holder)
    rest = found[NAMED:]
    if rest:
        amount = text_of(resource, sum(holder.amount for holder in rest))
        yield Branch(Say.MORE_HOLDERS, {"count": len(rest), "amount": f"{amount} {resource}"})


def tell_holder(holder: Holder) -> Branch:
    facts: dict[str, object] = {
        "amount": f"{text_of(holder.resource, holder.amount)} {holder.resource}",
        "rule": holder.rule,
        "pod": f"{holder.namespace}/{holder.pod}",
    }
    if not holder.claim:
        return Branch(Say.HOLDER_POD, facts)
    facts["claim"] = f"{holder.namespace}/{holder.claim}"
    return Branch(Say.HOLDER_CLAIM if holder.pod else Say.HOLDER_POOL, facts)
