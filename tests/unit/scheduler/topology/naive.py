"""Inter-pod affinity and topology spread from their definitions (naive reference)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from plimsoll.api.core import Namespace, Node, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from plimsoll.api.meta import LabelSelector
from plimsoll.api.node_selection import selector_matches
from plimsoll.scheduler.filters.taint_toleration import tolerates_hard_taints
from plimsoll.scheduler.snapshot.snapshot import Snapshot

Labels = Mapping[str, str]
FAR = "node(s) didn't match pod affinity rules"
NEAR = "node(s) didn't match pod anti-affinity rules"
SHUNNED = "node(s) didn't satisfy existing pods anti-affinity rules"
SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = "node(s) didn't match pod topology spread constraints (missing required label)"


def selects(selector: LabelSelector | None, labels: Labels) -> bool:
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for each in selector.match_expressions:
        found = each.key in labels
        fine = {
            "In": found and labels[each.key] in each.values if found else False,
            "NotIn": labels[each.key] not in each.values if found else True,
            "Exists": found,
            "DoesNotExist": not found,
        }
        if not fine[each.operator]:
            return False
    return True


def means(term: PodAffinityTerm, owner: Pod, other: Pod, snapshot: Snapshot) -> bool:
    """Return whether a term of `owner` matches `other`."""
    namespace, inside = other.metadata.namespace, False
    if not term.namespaces and term.namespace_selector is None:
        inside = namespace == owner.metadata.namespace
    else:
        known = snapshot.find(Namespace, "", namespace)
        labels = known.metadata.labels if known is not None else {}
        inside = namespace in term.namespaces or selects(term.namespace_selector, labels)
    own, labels = owner.metadata.labels, other.metadata.labels
    same = all(labels.get(key) == own[key] for key in term.match_label_keys if key in own)
    unlike = all(labels.get(key) != own[key] for key in term.mismatch_label_keys if key in own)
    return inside and selects(term.label_selector, labels) and same and unlike


def _affinity(pod: Pod) -> PodAffinity:
    affinity = pod.spec.affinity
    return (affinity.pod_affinity if affinity is not None else None) or PodAffinity()


def _anti_affinity(pod: Pod) -> PodAffinity:
    affinity = pod.spec.affinity
    return (affinity.pod_anti_affinity if affinity is not None else None) or PodAffinity()


def _neighbours(snapshot: Snapshot, node: Node, key: str) -> list[tuple[Node, Pod]]:
    """Return the pods in a node's domain."""
    value = node.metadata.labels.get(key)
    return [] if value is None else [
        (other, pod)
        for other, pod in everyone(snapshot)
        if other.metadata.labels.get(key) == value
    ]  # fmt: skip


def everyone(snapshot: Snapshot) -> list[tuple[Node, Pod]]:
    return [(snapshot.node(row), pod) for row in snapshot.rows() for pod in snapshot.pods_at(row)]


def why_apart(pod: Pod, snapshot: Snapshot, row: int) -> str:
    """Return the reason why affinity keeps a pod from a node, or ""."""
    node = snapshot.node(row)
    labels, wanted = node.metadata.labels, _affinity(pod).required
    if wanted:
        if any(term.topology_key not in labels for term in wanted):
            return FAR

        def friend(other: Pod) -> bool:
            return all(means(term, pod, other, snapshot) for term in wanted)

        near = all(
            any(friend(other) for _, other in _neighbours(snapshot, node, term.topology_key))
            for term in wanted
        )
        if not near:
            keys = {term.topology_key for term in wanted}
            somewhere = any(
                friend(other) and keys & {*at.metadata.labels} for at, other in everyone(snapshot)
            )
            if somewhere or not friend(pod):
                return FAR
    for term in _anti_affinity(pod).required:
        if any(
            means(term, pod, other, snapshot) for _, other in _neighbours(snapshot, node, term.topology_key)
        ):
            return NEAR
    for at, other in everyone(snapshot):
        for term in _anti_affinity(other).required:
            value = at.metadata.labels.get(term.topology_key)
            same = value is not None and value == labels.get(term.topology_key)
            if same and means(term, other, pod, snapshot):
                return SHUNNED
    return ""


def affinity_score(pod: Pod, snapshot: Snapshot, row: int) -> int:
    """Return the weights of all pods that count for or against a node."""
    score, labels = 0, snapshot.node(row).metadata.labels
    for at, other in everyone(snapshot):
        for owner, target in ((pod, other), (other, pod)):
            terms = [(each.pod_affinity_term, each.weight) for each in _affinity(owner).preferred]
            terms += [(each.pod_affinity_term, -each.weight) for each in _anti_affinity(owner).preferred]
            if owner is other:
                terms += [(term, 1) for term in _affinity(owner).required]
            for term, weight in terms:
                value = at.metadata.labels.get(term.topology_key)
                if value is not None and labels.get(term.topology_key) == value:
                    score += weight * means(term, owner, target, snapshot)
    return score


# -- spreading


def constraints_of(pod: Pod, when: str) -> list[TopologySpreadConstraint]:
    return [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == when]


def _counts(constraint: TopologySpreadConstraint, pod: Pod, labels: Labels) -> bool:
    own = pod.metadata.labels
    keys = [key for key in constraint.match_label_keys if key in own]
    return selects(constraint.label_selector, labels) and all(labels.get(key) == own[key] for key in keys)


def _asks_nothing(constraint: TopologySpreadConstraint, pod: Pod) -> bool:
    keys = [key for key in constraint.match_label_keys if key in pod.metadata.labels]
    return constraint.label_selector == LabelSelector() and not keys


def counted(constraint: TopologySpreadConstraint, pod: Pod, snapshot: Snapshot, row: int) -> int:
    """Return the number of pods that a constraint counts on one node."""
    if _asks_nothing(constraint, pod):
        return 0
    return sum(
        other.metadata.deletion_timestamp is None
        and other.metadata.namespace == pod.metadata.namespace
        and _counts(constraint, pod, other.metadata.labels)
        for other in snapshot.pods_at(row)
    )


def _included(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    if constraint.node_affinity_policy in (None, "Honor"):
        if not pod.spec.node_selector.items() <= node.metadata.labels.items():
            return False
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        if required is not None and selector_matches(required, node) is not True:
            return False
    if constraint.node_taints_policy == "Honor":
        return tolerates_hard_taints(pod.spec.tolerations, node)
    return True


def domain_counts(
    constraint: TopologySpreadConstraint, beside: list[TopologySpreadConstraint], pod: Pod, snapshot: Snapshot
) -> dict[str, int]:
    """Return the number of pods in each domain of the counted nodes."""
    found: dict[str, int] = {}
    for row in snapshot.rows():
        node = snapshot.node(row)
        labels = node.metadata.labels
        if all(each.topology_key in labels for each in beside) and _included(constraint, pod, node):
            value = labels[constraint.topology_key]
            found[value] = found.get(value, 0) + counted(constraint, pod, snapshot, row)
    return found


def why_skewed(pod: Pod, snapshot: Snapshot, row: int) -> str:
    """Return the reason why spread constraints keep a pod from a node, or ""."""
    constraints = constraints_of(pod, "DoNotSchedule")
    for each in constraints:
        value = snapshot.node(row).metadata.labels.get(each.topology_key)
        if value is None:
            return UNLABELLED
        counts = domain_counts(each, constraints, pod, snapshot)
        least = min(counts.values(), default=2**31 - 1)
        if len(counts) < (1 if each.min_domains is None else each.min_domains):
            least = 0
        own = int(_counts(each, pod, pod.metadata.labels))
        if counts.get(value, 0) + own - least > each.max_skew:
            return SKEWED
    return ""


def spread_scores(pod: Pod, snapshot: Snapshot, feasible: list[int]) -> dict[int, int]:
    """Return the score of each feasible node, 0 to 100."""
    constraints = constraints_of(pod, "ScheduleAnyway")
    labels = {row: snapshot.node(row).metadata.labels for row in feasible}
    scored = [row for row in feasible if all(each.topology_key in labels[row] for each in constraints)]
    raw: dict[int, int] = {}
    for row in scored:
        total = 0.0
        for each in constraints:
            key = each.topology_key
            if key == "kubernetes.io/hostname":
                size, pods = len(scored), counted(each, pod, snapshot, row)
            else:
                size = len({labels[other][key] for other in scored})
                counts = domain_counts(each, constraints, pod, snapshot)
                pods = counts.get(labels[row][key], 0)
            total += pods * math.log(size + 2) + each.max_skew - 1
        raw[row] = math.floor(total + 0.5)
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    return {
        row: 0 if row not in raw else 100 if not most else 100 * (most + least - raw[row]) // most
        for row in feasible
    }
