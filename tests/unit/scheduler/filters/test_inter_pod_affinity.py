"""Inter-pod affinity and anti-affinity, case by case."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityFilter
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of
from tests.unit.scheduler.topology.naive import FAR, NEAR, SHUNNED
from tests.unit.scheduler.topology.rules import HOSTNAME, affinity, namespace, term

A = {"app": "a"}


def zones(*names: str | None) -> list[Node]:
    """Return a node for each zone, n0 and so on; None has no zone."""
    return [
        node(f"n{number}", labels={HOSTNAME: f"n{number}", **({} if zone is None else {"zone": zone})})
        for number, zone in enumerate(names)
    ]


def filter_reasons(snapshot: Snapshot, new: Pod) -> dict[str, str]:
    """Return the reason for each node; "" if it passes."""
    found = InterPodAffinityFilter.pre_filter(pod_info_of(new, snapshot), snapshot)
    assert not isinstance(found, NodeReason)
    names = {snapshot.node(row).metadata.name: row for row in snapshot.rows()}
    if found is None:
        return dict.fromkeys(names, "")
    feasible = found.filter()
    reasons = {name: "".join(map(render, found.filter_node(row))) for name, row in names.items()}
    assert {name: bool(feasible[row]) for name, row in names.items()} == {
        name: not text for name, text in reasons.items()
    }
    return reasons


def test_affinity() -> None:
    snapshot = snapshot_of(*zones("z0", "z0", "z1", None), pod("p", node="n0", labels=A))
    new = pod("new", affinity=affinity(term()))
    assert filter_reasons(snapshot, new) == {"n0": "", "n1": "", "n2": FAR, "n3": FAR}


def test_anti_affinity() -> None:
    snapshot = snapshot_of(*zones("z0", "z0", "z1", None), pod("p", node="n0", labels=A))
    new = pod("new", affinity=affinity(apart=(term(),)))
    assert filter_reasons(snapshot, new) == {"n0": NEAR, "n1": NEAR, "n2": "", "n3": ""}


def test_anti_affinity_of_existing_pods() -> None:
    snapshot = snapshot_of(*zones("z0", "z0", "z1"), pod("p", node="n0", affinity=affinity(apart=(term(),))))
    assert filter_reasons(snapshot, pod("new", labels=A)) == {"n0": SHUNNED, "n1": SHUNNED, "n2": ""}
    assert (
        InterPodAffinityFilter.pre_filter(pod_info_of(pod("new", labels={"app": "b"}), snapshot), snapshot)
        is None
    )


def test_codes() -> None:
    """Removing other pods helps against anti-affinity, not against unmet affinity."""
    snapshot = snapshot_of(
        *zones("z0", "z1"),
        pod("p", node="n0", labels=A, affinity=affinity(apart=(term("b"),))),
        pod("q", node="n1", labels={"app": "b"}),
    )
    cases = [
        (pod("new", affinity=affinity(term())), 1, VerdictCode.UNRESOLVABLE),
        (pod("new", affinity=affinity(apart=(term(),))), 0, VerdictCode.UNSCHEDULABLE),
        (pod("new", labels={"app": "b"}), 0, VerdictCode.UNSCHEDULABLE),
    ]
    for new, row, code in cases:
        found = InterPodAffinityFilter.pre_filter(pod_info_of(new, snapshot), snapshot)
        assert isinstance(found, InterPodAffinityFilter)
        (reason,) = found.filter_node(row)
        assert reason.code is code


def test_a_pod_must_match_all_terms() -> None:
    objects = [
        *zones("z0", "z1", "z2"),
        pod("p", node="n0", labels=A),
        pod("q", node="n0", labels={"tier": "x"}),
        pod("r", node="n1", labels={"app": "a", "tier": "x"}),
    ]
    other = {"labelSelector": {"matchLabels": {"tier": "x"}}, "topologyKey": HOSTNAME}
    new = pod("new", affinity=affinity(term(), other))
    assert filter_reasons(snapshot_of(*objects), new) == {"n0": FAR, "n1": "", "n2": FAR}


class TestFirstOfAGroup:
    new = pod("new", labels=A, affinity=affinity(term()))

    def test_the_first_pod_of_a_group_fits_where_the_topology_label_is(self) -> None:
        assert filter_reasons(snapshot_of(*zones("z0", "z1", None)), self.new) == {
            "n0": "",
            "n1": "",
            "n2": FAR,
        }

    def test_the_first_pod_must_match_its_own_term(self) -> None:
        stranger = pod("new", labels={"app": "b"}, affinity=affinity(term()))
        assert filter_reasons(snapshot_of(*zones("z0")), stranger) == {"n0": FAR}

    def test_the_exception_ends_with_the_first_pod(self) -> None:
        snapshot = snapshot_of(*zones("z0", "z1"), pod("p", node="n1", labels=A))
        assert filter_reasons(snapshot, self.new) == {"n0": FAR, "n1": ""}

    def test_pods_on_nodes_without_the_label_do_not_count(self) -> None:
        snapshot = snapshot_of(*zones("z0", None), pod("p", node="n1", labels=A))
        assert filter_reasons(snapshot, self.new) == {"n0": "", "n1": FAR}

    def test_pods_on_nodes_with_one_label_of_two_count(self) -> None:
        new = pod("new", labels=A, affinity=affinity(term(), term(key=HOSTNAME)))
        snapshot = snapshot_of(*zones("z0", None), pod("p", node="n1", labels=A))
        assert filter_reasons(snapshot, new) == {"n0": FAR, "n1": FAR}

    def test_a_term_for_another_namespace_does_not_match_the_pod(self) -> None:
        new = pod("new", labels=A, affinity=affinity(term(namespaces=["other"])))
        assert filter_reasons(snapshot_of(*zones("z0")), new) == {"n0": FAR}


class TestNamespaces:
    """Terms match pods of the same namespace unless they name others."""

    def apart(self, **fields: Any) -> set[str]:
        objects = [*zones("z0", "z1", "z2", "z3"), namespace("red", team="red"), namespace("blue")]
        objects += [
            pod(f"p{number}", node=f"n{number}", namespace=name, labels=A)
            for number, name in enumerate(["default", "red", "blue", "unknown"])
        ]
        reasons = filter_reasons(
            snapshot_of(*objects), pod("new", affinity=affinity(apart=(term(**fields),)))
        )
        return {name for name, text in reasons.items() if text}

    def test_own_namespace_by_default(self) -> None:
        assert self.apart() == {"n0"}

    def test_named_namespaces(self) -> None:
        assert self.apart(namespaces=["red", "unknown"]) == {"n1", "n3"}

    def test_namespaces_by_label(self) -> None:
        assert self.apart(namespaceSelector={"matchLabels": {"team": "red"}}) == {"n1"}

    def test_namespaces_by_name_and_label(self) -> None:
        chosen = {"matchLabels": {"team": "red"}}
        assert self.apart(namespaces=["blue"], namespaceSelector=chosen) == {"n1", "n2"}

    def test_all_namespaces(self) -> None:
        assert self.apart(namespaceSelector={}) == {"n0", "n1", "n2", "n3"}

    def test_a_namespace_selector_that_excludes(self) -> None:
        """Excluded namespaces do not match; upstream treats NotIn and DoesNotExist as all namespaces."""
        not_red = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
        assert self.apart(namespaceSelector=not_red) == {"n0", "n2", "n3"}
        no_team = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
        assert self.apart(namespaceSelector=no_team) == {"n0", "n2", "n3"}

    def test_unusual_selectors_agree(self) -> None:
        chosen = {"matchLabels": {"team": "red"}}
        rule = affinity(apart=(term(namespaceSelector=chosen),))
        snapshot = snapshot_of(*zones("z0"), pod("p", node="n0", affinity=rule))
        new = pod("new", namespace="red", labels=A)
        assert filter_reasons(snapshot, new) == {"n0": ""}
        snapshot.set(namespace("red", team="red"))
        assert filter_reasons(snapshot, new) == {"n0": SHUNNED}
        snapshot.set(namespace("red", team="blue"))
        assert filter_reasons(snapshot, new) == {"n0": ""}


class TestMatchLabelKeys:
    """`matchLabelKeys` are the pod's own values, whether or not the API server has merged them."""

    labels: ClassVar = {"app": "a", "version": "2"}

    def near(self, **fields: Any) -> set[str]:
        objects = [
            *zones("z0", "z1"),
            pod("p", node="n0", labels={"app": "a", "version": "1"}),
            pod("q", node="n1", labels=self.labels),
        ]
        new = pod("new", labels=self.labels, affinity=affinity(term(**fields)))
        return {name for name, text in filter_reasons(snapshot_of(*objects), new).items() if not text}

    def test_match_label_keys(self) -> None:
        assert self.near() == {"n0", "n1"}
        assert self.near(matchLabelKeys=["version"]) == {"n1"}

    def test_mismatch_label_keys(self) -> None:
        assert self.near(mismatchLabelKeys=["version"]) == {"n0"}

    def test_a_missing_match_label_key_is_ignored(self) -> None:
        assert self.near(matchLabelKeys=["nothing"], mismatchLabelKeys=["more"]) == {"n0", "n1"}

    def test_merged_label_keys_keep_their_value(self) -> None:
        """The pod's label has changed since."""
        old = {"key": "version", "operator": "In", "values": ["1"]}
        chosen = {"matchLabels": {"app": "a"}, "matchExpressions": [old]}
        assert self.near(labelSelector=chosen, matchLabelKeys=["version"]) == {"n0"}


def test_no_selector_matches_no_pod() -> None:
    snapshot = snapshot_of(*zones("z0"), pod("p", node="n0", labels=A))
    assert filter_reasons(snapshot, pod("new", affinity=affinity(apart=(term(None),)))) == {"n0": ""}
    assert filter_reasons(snapshot, pod("new", affinity=affinity(term(None)))) == {"n0": FAR}


def test_an_empty_selector_matches_every_pod() -> None:
    snapshot = snapshot_of(*zones("z0", "z1"), pod("p", node="n0"))
    rule = term(None, labelSelector={})
    assert filter_reasons(snapshot, pod("new", affinity=affinity(apart=(rule,)))) == {"n0": NEAR, "n1": ""}


def test_terminating_pods_still_match() -> None:
    going = pod("p", node="n0", labels=A, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    snapshot = snapshot_of(*zones("z0"), going)
    new = pod("new", affinity=affinity(apart=(term(),)))
    assert filter_reasons(snapshot, new) == {"n0": NEAR}
    snapshot.remove(going)
    assert filter_reasons(snapshot, new) == {"n0": ""}


def test_the_first_reason_is_reported() -> None:
    snapshot = snapshot_of(
        *zones("z0", "z1"), pod("p", node="n0", labels=A, affinity=affinity(apart=(term(),)))
    )
    new = pod("new", labels=A, affinity=affinity(term("b"), apart=(term(),)))
    assert filter_reasons(snapshot, new) == {"n0": FAR, "n1": FAR}
    new = pod("new", labels=A, affinity=affinity(apart=(term(),)))
    assert filter_reasons(snapshot, new) == {"n0": NEAR, "n1": ""}


def test_a_relabeled_node_moves_its_pods() -> None:
    snapshot = snapshot_of(*zones("z0", "z1"), pod("p", node="n0", labels=A))
    new = pod("new", affinity=affinity(apart=(term(),)))
    assert filter_reasons(snapshot, new) == {"n0": NEAR, "n1": ""}
    snapshot.set(node("n0", labels={"zone": "z1"}))
    assert filter_reasons(snapshot, new) == {"n0": NEAR, "n1": NEAR}
    snapshot.set(node("n0"))
    assert filter_reasons(snapshot, new) == {"n0": "", "n1": ""}


@pytest.mark.parametrize("where", ["near", "apart", "likes"])
def test_invalid_selectors_are_reported(where: str) -> None:
    bad = term(labelSelector={"matchExpressions": [{"key": "app", "operator": "Like"}]})
    rule = {"near": affinity(bad), "apart": affinity(apart=(bad,)), "likes": affinity(likes=((1, bad),))}
    snapshot = snapshot_of(*zones("z0"))
    found = InterPodAffinityFilter.pre_filter(
        pod_info_of(pod("new", affinity=rule[where]), snapshot), snapshot
    )
    assert isinstance(found, NodeReason)
    assert found.code is VerdictCode.UNRESOLVABLE
    assert "labelSelector.matchExpressions[0]: 'Like' is not a valid label selector operator" in render(found)


def test_invalid_selectors_of_existing_pods_are_ignored() -> None:
    bad = term(labelSelector={"matchExpressions": [{"key": "app", "operator": "Like"}]})
    there = pod("p", node="n0", labels=A, affinity=affinity(apart=(bad, term())))
    snapshot = snapshot_of(*zones("z0"), there)
    assert filter_reasons(snapshot, pod("new", labels=A)) == {"n0": ""}
    snapshot.remove(there)
    assert filter_reasons(snapshot, pod("new", labels=A)) == {"n0": ""}


def test_unaffected_pods_skip_the_filter() -> None:
    snapshot = snapshot_of(
        *zones("z0"), pod("p", node="n0", labels=A, affinity=affinity(term(), likes=((1, term()),)))
    )
    assert InterPodAffinityFilter.pre_filter(pod_info_of(pod("new", labels=A), snapshot), snapshot) is None
