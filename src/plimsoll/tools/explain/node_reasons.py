"""Explainers for the rules on node fields and resources: labels, taints, cordon, features, allocatable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from plimsoll.allocator import AllocationFault
from plimsoll.api.forms import read_device
from plimsoll.api.node_selection import NAME_FIELD
from plimsoll.ledger.units import PODS
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_declared_features import needed_features
from plimsoll.tools.explain.pod_view import PodView, RuleExplainer
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.facts import AmountFact, compared_amounts
from plimsoll.tools.fixes.hints import unprovided_resources
from plimsoll.tools.node_terms import (
    matches_nothing,
    node_value_text,
    requirement_text,
    taint_text,
    unmet_requirements,
    untolerated_taints,
)
from plimsoll.tools.top.nodes import ResourceHolder, holders, node_row_of
from plimsoll.tools.uncounted import uncounted_on

#: Holders of a resource listed by name.
MAX_NAMED = 3
#: Unit of distances: millionths of the demand.
_WHOLE = 1_000_000


class UnschedulableExplainer(RuleExplainer):
    """Explainer of NodeUnschedulable."""

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        return (Statement(StatementKind.CORDONED),)


# -- taints


class TaintExplainer(RuleExplainer):
    """Explainer of TaintToleration: the untolerated taints."""

    def _texts(self, row: int) -> tuple[str, ...]:
        return tuple(map(taint_text, untolerated_taints(self.view.pod, self.view.node(row))))

    def key(self, row: int) -> Hashable:
        return self._texts(row)

    def distance(self, row: int) -> int:
        return len(self._texts(row))

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        return tuple(Statement(StatementKind.TAINT, {"taint": text}) for text in self._texts(row))


# -- labels


class NodeAffinityExplainer(RuleExplainer):
    """Explainer of NodeAffinity: the unmet labels."""

    def __init__(self, view: PodView, rule: Filter, rows: Sequence[int]) -> None:
        super().__init__(view, rule, rows)
        self._unmet = {row: unmet_requirements(view.pod, view.node(row), view.settings) for row in rows}

    def key(self, row: int) -> Hashable:
        return tuple(
            (requirement.key, requirement.operator, requirement.values) for requirement in self._unmet[row]
        )

    def distance(self, row: int) -> int:
        # A node that has the label with another value is nearer than one without the label.
        node = self.view.node(row)
        missing = sum(requirement.key not in node.metadata.labels for requirement in self._unmet[row])
        return len(self._unmet[row]) * 100 + missing

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        node = self.view.node(row)
        branches = [Statement(StatementKind.NO_TERM)] if matches_nothing(self.view.pod) else []
        for requirement in self._unmet[row]:
            values = Counter(self.view.node(each).metadata.labels.get(requirement.key) for each in members)
            shown = tuple(f"{value} ({count})" for value, count in values.most_common() if value is not None)
            children: tuple[Statement, ...] = ()
            if requirement.key != NAME_FIELD and 1 < len(shown) <= len(members) // 2:
                children = (Statement(StatementKind.LABEL_VALUES, {"values": shown}),)
            facts = {"wanted": requirement_text(requirement), "had": node_value_text(requirement, node)}
            branches.append(Statement(StatementKind.LABEL, facts, children))
        return tuple(branches)


class DeclaredFeaturesExplainer(RuleExplainer):
    """Explainer of NodeDeclaredFeatures: the missing features."""

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        had = self.view.node(row).status.declared_features
        missing = sorted(needed_features(self.view.pod).difference(had))
        return (Statement(StatementKind.FEATURES, {"wanted": tuple(missing), "had": tuple(had) or "none"}),)


# -- resources


class ResourceExplainer(RuleExplainer):
    """Explainer of NodeResourcesFit: shortages and the largest holders."""

    def _short(self, row: int) -> list[Reason]:
        reasons = (reason.cause for reason in self.rule.filter_node(row))
        return [cause for cause in reasons if isinstance(cause, Reason)]

    def key(self, row: int) -> Hashable:
        return tuple((reason.cause, reason.resource, reason.resolvable) for reason in self._short(row))

    def distance(self, row: int) -> int:
        return sum(measure_shortage(reason) for reason in self._short(row))

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        return tuple(describe_shortage(self.view, reason, row) for reason in self._short(row))


def measure_shortage(reason: Reason) -> int:
    """Return the missing share in millionths; much larger if evicting pods would not help."""
    wanted, had = reason.wanted or 1, reason.had or 0
    lack = (wanted - had) * _WHOLE // wanted
    return lack if reason.resolvable or reason.cause is Cause.TOO_MANY_PODS else lack + 100 * _WHOLE


def describe_shortage(view: PodView, reason: Reason, row: int) -> Statement:
    """Describe what a node is short of, the sources of the demand, and the holders of the rest."""
    ledger = view.snapshot.ledger(row)
    if reason.cause is Cause.TOO_MANY_PODS:
        return Statement(
            StatementKind.TOO_MANY_PODS, {"line": ledger.allocatable.get(PODS, 0), "pods": len(ledger)}
        )
    name = reason.resource
    usage = node_row_of(ledger).row(name)
    wanted, own = reason.wanted or 0, view.pod_info.requests.get(name, 0)
    facts: dict[str, object] = {"resource": name, "wanted": AmountFact(name, wanted)}
    charged = wanted > own and bool(view.pod_info.claims)
    if charged:
        facts |= {"own": AmountFact(name, own), "charged": AmountFact(name, wanted - own)}
    facts["line"] = AmountFact(name, usage.line)
    if not usage.line:
        is_unprovided = name in unprovided_resources(view.pod_info, view.snapshot)
        kind = StatementKind.UNPROVIDED if is_unprovided else StatementKind.NO_RESOURCE
        return Statement(kind, facts)
    if wanted > usage.line:
        facts |= compared_amounts(name, wanted=wanted, line=usage.line)
        return Statement(StatementKind.TOO_SMALL_WITH_CLAIMS if charged else StatementKind.TOO_SMALL, facts)
    for column in ("requests", "claims", "overhead"):
        facts[column] = AmountFact(name, getattr(usage, column))
    facts |= compared_amounts(name, wanted=wanted, free=usage.free)
    kind = StatementKind.SHORT_WITH_CLAIMS if charged else StatementKind.SHORT
    if kind is StatementKind.SHORT and may_charge_more(view, row, name):
        kind = StatementKind.SHORT_BEFORE_CLAIMS
    return Statement(kind, facts, tuple(describe_holders(view, row, name)))


def may_charge_more(view: PodView, row: int, resource: str) -> bool:
    """Return whether devices of pending claims may charge more of a resource on this node.

    The filter of requests runs first, without devices.
    """
    devices = (
        view.snapshot.inventory.devices_for(view.node(row)) if view.pod_info.unallocated_claims else None
    )
    if devices is None or isinstance(devices, AllocationFault):
        return False
    return any(resource in read_device(entry.device) for entry in devices.entries)


def describe_holders(view: PodView, row: int, resource: str) -> Iterator[Statement]:
    """Yield the largest holders of a resource on a node."""
    found = holders(view.cluster_state, view.name(row), resource)
    for holder in found[:MAX_NAMED]:
        yield describe_holder(holder)
    rest = found[MAX_NAMED:]
    if rest:
        amount = AmountFact(resource, sum(holder.amount for holder in rest), is_named=True)
        yield Statement(StatementKind.MORE_HOLDERS, {"count": len(rest), "amount": amount})
    uncounted = sum(
        each.missing for each in uncounted_on(view.cluster_state, row) if each.resource == resource
    )
    if uncounted:
        amount = AmountFact(resource, uncounted, is_named=True)
        yield Statement(StatementKind.UNCOUNTED, {"amount": amount})


def describe_holder(holder: ResourceHolder) -> Statement:
    facts: dict[str, object] = {
        "amount": AmountFact(holder.resource, holder.amount, is_named=True),
        "rule": holder.rule,
        "pod": f"{holder.namespace}/{holder.pod}",
    }
    if holder.stands_for:
        facts["owner"] = holder.stands_for
        return Statement(StatementKind.HOLDER_PLACEHOLDER, facts)
    if not holder.claim:
        return Statement(StatementKind.HOLDER_POD, facts)
    facts["claim"] = f"{holder.namespace}/{holder.claim}"
    return Statement(StatementKind.HOLDER_CLAIM if holder.pod else StatementKind.HOLDER_POOL, facts)
