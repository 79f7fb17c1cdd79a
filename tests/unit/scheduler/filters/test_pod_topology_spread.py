"""Topology spread constraints that must hold, case by case."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.filters.pod_topology_spread import PodTopologySpreadFilter
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of
from tests.unit.scheduler.topology.naive import SKEWED, UNLABELLED
from tests.unit.scheduler.topology.rules import HOSTNAME, spread

A = {"app": "a"}


def host(name: str, zone: str | None = None, **more: Any) -> Node:
    labels = {HOSTNAME: name, **({} if zone is None else {"zone": zone}), **more.pop("labels", {})}
    return node(name, labels=labels, **more)


def pods_at(**counts: int) -> list[Pod]:
    return [
        pod(f"{name}-{number}", node=name, labels=A)
        for name, count in counts.items()
        for number in range(count)
    ]


def filter_reasons(snapshot: Snapshot, new: Pod) -> dict[str, str]:
    found = PodTopologySpreadFilter.pre_filter(pod_info_of(new, snapshot), snapshot)
    assert isinstance(found, PodTopologySpreadFilter)
    feasible = found.filter()
    names = {snapshot.node(row).metadata.name: row for row in snapshot.rows()}
    reasons = {name: "".join(map(render, found.filter_node(row))) for name, row in names.items()}
    assert {name: bool(feasible[row]) for name, row in names.items()} == {
        name: not text for name, text in reasons.items()
    }
    return reasons


def fits(snapshot: Snapshot, *constraints: Any, **fields: Any) -> set[str]:
    new = pod("new", **{"labels": A, **fields}, topology_spread_constraints=list(constraints))
    return {name for name, text in filter_reasons(snapshot, new).items() if not text}


def test_skew_is_measured_from_the_emptiest_domain() -> None:
    objects = [host("n0", "z0"), host("n1", "z0"), host("n2", "z1"), *pods_at(n0=1, n1=1, n2=1)]
    snapshot = snapshot_of(*objects)
    assert fits(snapshot, spread()) == {"n2"}
    assert fits(snapshot, spread(skew=2)) == {"n0", "n1", "n2"}


def test_a_pod_that_does_not_count_itself() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=1))
    assert fits(snapshot, spread()) == {"n1"}
    assert fits(snapshot, spread(), labels={"app": "b"}) == {"n0", "n1"}


def test_codes_and_messages() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), host("n2"), *pods_at(n0=1))
    new = pod("new", labels=A, topology_spread_constraints=[spread()])
    assert filter_reasons(snapshot, new) == {"n0": SKEWED, "n1": "", "n2": UNLABELLED}
    found = PodTopologySpreadFilter.pre_filter(pod_info_of(new, snapshot), snapshot)
    assert isinstance(found, PodTopologySpreadFilter)
    assert [reason.code for reason in found.filter_node(0)] == [VerdictCode.UNSCHEDULABLE]
    assert [reason.code for reason in found.filter_node(2)] == [VerdictCode.UNRESOLVABLE]


def test_nodes_without_all_labels_do_not_count() -> None:
    """n2 has no zone, so it adds no host domain; otherwise the minimum would be 0."""
    objects = [host("n0", "z0"), host("n1", "z1"), host("n2"), *pods_at(n0=1, n1=1)]
    assert fits(snapshot_of(*objects), spread(), spread(HOSTNAME)) == {"n0", "n1"}
    objects = [host("n0", "z0"), host("n1", "z1"), host("n2"), *pods_at(n0=2, n1=1)]
    assert fits(snapshot_of(*objects), spread(), spread(HOSTNAME)) == {"n1"}


def test_both_constraints_must_hold() -> None:
    objects = [host("n0", "z0"), host("n1", "z0"), host("n2", "z1"), *pods_at(n0=1, n2=1)]
    assert fits(snapshot_of(*objects), spread()) == {"n0", "n1", "n2"}
    assert fits(snapshot_of(*objects), spread(), spread(HOSTNAME)) == {"n1"}


class TestMinDomains:
    objects: ClassVar = [host("n0", "z0"), host("n1", "z1"), *pods_at(n0=1, n1=1)]

    def test_too_few_domains_count_as_empty(self) -> None:
        assert fits(snapshot_of(*self.objects), spread(minDomains=3)) == set()
        assert fits(snapshot_of(*self.objects), spread(minDomains=3, skew=2)) == {"n0", "n1"}

    def test_enough_domains(self) -> None:
        assert fits(snapshot_of(*self.objects), spread(minDomains=2)) == {"n0", "n1"}


class TestCountedNodes:
    def test_node_affinity_is_honored_by_default(self) -> None:
        slow = host("n2", "z2")
        fast = {"disk": "fast"}
        objects = [host("n0", "z0", labels=fast), host("n1", "z1", labels=fast), slow, *pods_at(n0=1, n1=1)]
        wants = {"node_selector": fast}
        assert fits(snapshot_of(*objects), spread(), **wants) == {"n0", "n1", "n2"}
        assert fits(snapshot_of(*objects), spread(nodeAffinityPolicy="Ignore"), **wants) == {"n2"}

    def test_required_node_affinity_is_honored(self) -> None:
        chosen = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [chosen]}}
        objects = [host("n0", "z0"), host("n1", "z1"), *pods_at(n0=1)]
        assert fits(snapshot_of(*objects), spread(), affinity={"nodeAffinity": required}) == {"n0", "n1"}

    def test_taints_are_ignored_by_default(self) -> None:
        objects = [host("n0", "z0"), host("n1", "z1", taints=["no:NoSchedule"]), *pods_at(n0=1)]
        snapshot = snapshot_of(*objects)
        assert fits(snapshot, spread()) == {"n1"}
        assert fits(snapshot, spread(nodeTaintsPolicy="Honor")) == {"n0", "n1"}
        tolerant = {"tolerations": [{"key": "no", "operator": "Exists"}]}
        assert fits(snapshot, spread(nodeTaintsPolicy="Honor"), **tolerant) == {"n1"}

    def test_prefer_no_schedule_taints_are_ignored(self) -> None:
        objects = [host("n0", "z0"), host("n1", "z1", taints=["no:PreferNoSchedule"]), *pods_at(n0=1)]
        assert fits(snapshot_of(*objects), spread(nodeTaintsPolicy="Honor")) == {"n1"}

    def test_no_node_matches(self) -> None:
        """Without a domain the minimum is 0, and every domain is empty."""
        snapshot = snapshot_of(host("n0", "z0"), *pods_at(n0=3))
        assert fits(snapshot, spread(), node_selector={"disk": "fast"}) == {"n0"}


class TestCountedPods:
    def test_pods_of_the_same_namespace(self) -> None:
        stranger = pod("p", node="n0", namespace="other", labels=A)
        assert fits(snapshot_of(host("n0", "z0"), host("n1", "z1"), stranger), spread()) == {"n0", "n1"}

    def test_terminating_pods_are_not_counted(self) -> None:
        going = pod("p", node="n0", labels=A, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=1))
        assert fits(snapshot, spread()) == {"n1"}
        snapshot.remove(pods_at(n0=1)[0])
        snapshot.set(going)
        assert fits(snapshot, spread()) == {"n0", "n1"}

    def test_an_unmatched_selector_counts_only_the_pod_itself(self) -> None:
        snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=5))
        assert fits(snapshot, spread(app=None, labelSelector={})) == {"n0", "n1"}

    def test_no_selector_counts_no_pod(self) -> None:
        snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=5))
        assert fits(snapshot, spread(app=None)) == {"n0", "n1"}

    def test_match_label_keys(self) -> None:
        old = pod("p", node="n0", labels={"app": "a", "version": "1"})
        snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), old)
        new = {"labels": {"app": "a", "version": "2"}}
        assert fits(snapshot, spread(), **new) == {"n1"}
        assert fits(snapshot, spread(matchLabelKeys=["version"]), **new) == {"n0", "n1"}
        assert fits(snapshot, spread(matchLabelKeys=["nothing"]), **new) == {"n1"}


def test_a_huge_max_skew() -> None:
    snapshot = snapshot_of(host("n0", "z0"), *pods_at(n0=3))
    assert fits(snapshot, spread(skew=2**63 - 1)) == {"n0"}


@pytest.mark.parametrize("must", [True, False])
def test_schedule_anyway_is_not_a_filter(must: bool) -> None:
    snapshot = snapshot_of(host("n0", "z0"))
    new = pod("new", topology_spread_constraints=[spread(must=must)])
    assert (PodTopologySpreadFilter.pre_filter(pod_info_of(new, snapshot), snapshot) is not None) is must
    assert PodTopologySpreadFilter.pre_filter(pod_info_of(pod("new"), snapshot), snapshot) is None


def test_invalid_selectors_are_reported() -> None:
    bad = spread(labelSelector={"matchExpressions": [{"key": "app", "operator": "In"}]})
    snapshot = snapshot_of(host("n0", "z0"))
    found = PodTopologySpreadFilter.pre_filter(
        pod_info_of(pod("new", topology_spread_constraints=[bad]), snapshot), snapshot
    )
    assert isinstance(found, NodeReason)
    assert render(found) == (
        "parsing pod: topologySpreadConstraints[0].labelSelector.matchExpressions[0]: "
        "operator In needs at least one value"
    )
