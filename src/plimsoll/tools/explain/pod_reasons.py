"""Explainers for the rules on other pods and volumes: host ports, topology spread, inter-pod affinity,
volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from plimsoll.api.core import NodeSelector, Pod
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.quantity import INT32_MAX
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityMessage
from plimsoll.scheduler.filters.node_ports import host_sockets, ports_conflict
from plimsoll.scheduler.filters.node_volume_limits import NodeVolumeLimitsMessage
from plimsoll.scheduler.filters.spread_counts import SpreadState
from plimsoll.scheduler.filters.volume_binding import VolumeBindingMessage
from plimsoll.scheduler.filters.volume_reach import is_reachable
from plimsoll.scheduler.filters.volume_restrictions import VolumeRestrictionsMessage
from plimsoll.scheduler.filters.volume_zone import VolumeZoneMessage
from plimsoll.scheduler.filters.volumes import find_claim, find_volume
from plimsoll.scheduler.topology.affinity_terms import AffinityTerm, read_terms
from plimsoll.scheduler.topology.constraints import DO_NOT_SCHEDULE, SpreadConstraint
from plimsoll.scheduler.topology.counts import NO_DOMAIN
from plimsoll.scheduler.topology.default_constraints import spread_constraints
from plimsoll.scheduler.topology.match_counts import MatchCounts
from plimsoll.tools.explain.pod_view import PodView, RuleExplainer
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.explain.volume_reasons import explain_unbound
from plimsoll.tools.facts import join_names
from plimsoll.tools.node_terms import requirement_text, selector_text

#: Pods listed by name.
MAX_NAMED = 3


# -- ports


class HostPortExplainer(RuleExplainer):
    """Explainer of NodePorts: the pods that use the ports."""

    def _users(self, row: int) -> list[tuple[str, str]]:
        wanted = host_sockets(self.view.pod)
        return [
            (f"{number}/{protocol}", pod.metadata.full_name)
            for pod in self.view.snapshot.pods_at(row)
            for address, (protocol, number) in host_sockets(pod)
            if any(ports_conflict((address, (protocol, number)), socket) for socket in wanted)
        ]

    def distance(self, row: int) -> int:
        return len({pod for _, pod in self._users(row)})

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        return tuple(
            Statement(StatementKind.PORT, {"port": p, "pod": pod}) for p, pod in self._users(row)[:MAX_NAMED]
        )


# -- volumes


class VolumeExplainer(RuleExplainer):
    """Volumes that are not reachable from the node, or are used by other pods."""

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        return tuple(self._describe_reason(row))

    def _describe_reason(self, row: int) -> Iterator[Statement]:
        reasons = self.rule.filter_node(row)
        message = reasons[0].message
        if message is VolumeRestrictionsMessage.DISK_IN_USE:
            yield Statement(StatementKind.DISK)
        if message is NodeVolumeLimitsMessage.TOO_MANY_VOLUMES:
            yield Statement(StatementKind.VOLUME_COUNT)
        pod, snapshot = self.view.pod, self.view.snapshot
        unbound = {str(reason.facts.get("claim", "")): reason.message for reason in reasons}
        for used in dict.fromkeys(volume_claims(pod)):
            claim = find_claim(pod, used, snapshot)
            if claim is None:
                continue
            if used.name in unbound:
                yield explain_unbound(claim, unbound[used.name], self.view.node(row), snapshot)
                continue
            if message is VolumeRestrictionsMessage.VOLUME_IN_USE:
                yield from self._users(used.name)
                continue
            volume = find_volume(claim.spec.volume_name, snapshot)
            affinity = volume.spec.node_affinity if volume is not None else None
            required = affinity.required if affinity is not None else None
            if message is VolumeBindingMessage.AFFINITY and volume is not None and required is not None:
                wanted = "" if is_reachable(required, self.view.node(row)) else terms_text(required)
            elif message is VolumeZoneMessage.ZONE and volume is not None:
                labels = sorted(volume.metadata.labels.items())
                wanted = ", ".join(f"{k}={v}" for k, v in labels if "zone" in k or "region" in k)
            else:
                continue
            if wanted:
                facts = {"volume": volume.metadata.name, "claim": used.name, "wanted": wanted}
                yield Statement(StatementKind.VOLUME, facts)

    def _users(self, claim: str) -> Iterator[Statement]:
        snapshot, namespace = self.view.snapshot, self.view.pod.metadata.namespace
        for row in snapshot.rows():
            for pod in snapshot.pods_at(row):
                if pod.metadata.namespace != namespace or not pod.spec.volumes:
                    continue
                if any(used.name == claim for used in volume_claims(pod)):
                    facts = {"claim": claim, "pod": pod.metadata.full_name, "node": self.view.name(row)}
                    yield Statement(StatementKind.VOLUME_USED, facts)


def terms_text(selector: NodeSelector) -> str:
    """Format a node selector."""
    terms = [
        ", ".join(
            requirement_text(requirement) for requirement in (*term.match_expressions, *term.match_fields)
        )
        for term in selector.node_selector_terms
    ]
    return " or ".join(terms)


# -- spread


class TopologySpreadExplainer(RuleExplainer):
    """Explainer of PodTopologySpread: the violated constraint."""

    def __init__(self, view: PodView, rule: Filter, rows: Sequence[int]) -> None:
        super().__init__(view, rule, rows)
        constraints = spread_constraints(view.pod_info, view.snapshot, DO_NOT_SCHEDULE)
        assert isinstance(constraints, tuple), "the rule has read them before"
        spread = SpreadState(view.pod_info, view.snapshot, constraints)
        self._rows = [
            (constraint, spread.columns[number].ids, spread.sums(number), _least(spread, number))
            for number, constraint in enumerate(constraints)
        ]
        self._fewest = {
            constraint.topology_key: _fewest_text(spread, number)
            for number, constraint in enumerate(constraints)
        }

    def _broken(self, row: int) -> tuple[SpreadConstraint, int | None, int] | None:
        """Return the first violated constraint, the pods in the node's domain (None: no domain), and the
        minimum.
        """
        for constraint, domains, sums, least in self._rows:
            domain = int(domains[row])
            if domain == NO_DOMAIN:
                return constraint, None, least
            had = int(sums[domain])
            if had + constraint.own - least > constraint.max_skew:
                return constraint, had, least
        return None

    def facts(self, row: int) -> dict[str, object] | None:
        """Return the numbers of the violated constraint; None if it is a missing label."""
        broken = self._broken(row)
        if broken is None or broken[1] is None:
            return None
        constraint, had, least = broken
        key = constraint.topology_key
        return {
            "key": key,
            "value": self.view.node(row).metadata.labels[key],
            "had": had,
            "least": least,
            "fewest": self._fewest[key],
            "skew": constraint.max_skew,
            "needed": (had or 0) + constraint.own - least,
        }

    def key(self, row: int) -> Hashable:
        broken = self._broken(row)
        return broken is not None and (broken[0].topology_key, broken[1] is None)

    def distance(self, row: int) -> int:
        broken = self._broken(row)
        return 0 if broken is None else (2**31 if broken[1] is None else broken[1] - broken[2])

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        broken = self._broken(row)
        if broken is None:
            return ()
        facts = self.facts(row)
        if facts is None:
            return (Statement(StatementKind.SPREAD_LABEL, {"key": broken[0].topology_key}),)
        return (Statement(StatementKind.SPREAD, facts),)


def _least(spread: SpreadState, number: int) -> int:
    """Return the smallest number of matching pods in any domain of a constraint."""
    present = spread.present(number)
    enough = int(present.sum()) >= spread.constraints[number].min_domains
    return int(spread.sums(number)[present].min(initial=INT32_MAX)) if enough else 0


def _fewest_text(spread: SpreadState, number: int) -> str:
    """Name the domains with the fewest matching pods; or that there are too few domains."""
    constraint, column = spread.constraints[number], spread.columns[number]
    key, present, sums = constraint.topology_key, spread.present(number), spread.sums(number)
    count, least = int(present.sum()), _least(spread, number)
    if count < constraint.min_domains:
        return f"a missing domain ({count} of minDomains {constraint.min_domains} exist)"
    names = [name for name, domain in column.domains() if present[domain] and int(sums[domain]) == least]
    return f"{key}={join_names(sorted(names), 3)}"


# -- inter-pod affinity


class InterPodAffinityExplainer(RuleExplainer):
    """Explainer of InterPodAffinity: the unmet terms."""

    def key(self, row: int) -> Hashable:
        return self.rule.filter_node(row)[0].message

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        message = self.rule.filter_node(row)[0].message
        terms = read_terms(self.view.pod)
        if message is InterPodAffinityMessage.AFFINITY:
            return tuple(map(self._describe_affinity, terms.affinity))
        if message is InterPodAffinityMessage.ANTI_AFFINITY:
            found = (self._anti_affinity_conflicts(term, row) for term in terms.anti_affinity)
            return tuple(branch for branches in found for branch in branches)[:MAX_NAMED]
        return tuple(self._existing_anti_affinity(row))[:MAX_NAMED]

    def _matching_pods(self, term: AffinityTerm) -> Iterator[tuple[int, Pod]]:
        """Yield the nodes and pods that a term selects."""
        namespaces = self.view.snapshot.index(MatchCounts).namespaces
        for row in self.view.snapshot.rows():
            for pod in self.view.snapshot.pods_at(row):
                if term.selector.matches(pod.metadata.namespace, pod.metadata.labels, namespaces):
                    yield row, pod

    def _describe_affinity(self, term: AffinityTerm) -> Statement:
        selector, key = selector_text(term.selector.selector), term.topology_key
        values = Counter(
            self.view.node(row).metadata.labels.get(key, "(no label)") for row, _ in self._matching_pods(term)
        )
        facts: dict[str, object] = {"selector": selector, "key": key}
        shown = tuple(f"{value} ({count})" for value, count in values.most_common())
        pods = Statement(StatementKind.AFFINITY_PODS, {"key": key, "values": shown})
        none = Statement(StatementKind.AFFINITY_NONE, {"selector": selector})
        return Statement(StatementKind.AFFINITY, facts, (pods if values else none,))

    def _anti_affinity_conflicts(self, term: AffinityTerm, row: int) -> Iterator[Statement]:
        key = term.topology_key
        value = self.view.node(row).metadata.labels.get(key)
        for other, pod in self._matching_pods(term):
            if value is not None and self.view.node(other).metadata.labels.get(key) == value:
                facts = {"key": key, "value": value, "pod": pod.metadata.full_name}
                yield Statement(
                    StatementKind.ANTI_AFFINITY, facts | {"selector": selector_text(term.selector.selector)}
                )

    def _existing_anti_affinity(self, row: int) -> Iterator[Statement]:
        snapshot, own = self.view.snapshot, self.view.pod.metadata
        namespaces = snapshot.index(MatchCounts).namespaces
        for other in snapshot.rows():
            for pod in snapshot.pods_at(other):
                for term in read_terms(pod).anti_affinity:
                    key = term.topology_key
                    value = self.view.node(row).metadata.labels.get(key)
                    near = value is not None and snapshot.node(other).metadata.labels.get(key) == value
                    if near and term.selector.matches(own.namespace, own.labels, namespaces):
                        facts = {"pod": pod.metadata.full_name, "key": key, "value": value}
                        yield Statement(StatementKind.EXISTING_ANTI_AFFINITY, facts)
