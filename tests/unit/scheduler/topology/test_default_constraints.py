"""Default spread constraints: their selectors, and scores and filters on random clusters against upstream."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.codec import convert
from plimsoll.api.core import Node, Pod
from plimsoll.api.workloads import ReplicaSet, ReplicationController, Service, StatefulSet
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.scores.pod_topology_spread import PodTopologySpreadScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.default_constraints import DefaultSelectors
from tests.build import node, pod
from tests.unit.scheduler.samples import SEEDS
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_VERSIONS: dict[Any, str] = {ReplicaSet: "apps/v1", StatefulSet: "apps/v1", ReplicationController: "v1"}


def service(name: str, namespace: str = "default", **selector: str) -> Service:
    return convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}, Service
    )


def controller(kind: type[Any], name: str, selector: Any) -> Any:
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}
    return convert(tree, kind)


def owned(by: Any = None, **labels: str) -> Pod:
    owners = []
    if by is not None:
        owners = [
            {"apiVersion": _VERSIONS[type(by)], "kind": type(by).__name__, "name": by.metadata.name}
            | {"uid": "u", "controller": True}
        ]
    return pod("new", labels=labels, metadata={"ownerReferences": owners})


def selector_of(new: Pod, *objects: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    snapshot = snapshot_of(*objects)
    selector = snapshot.index(DefaultSelectors).selector_of(new, snapshot)
    return [(each.key, each.operator, each.values) for each in selector.requirements]


# -- selectors


def test_all_services_and_the_controller_select_together() -> None:
    by = controller(
        ReplicaSet,
        "rs",
        {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "v", "operator": "Exists"}]},
    )
    found = selector_of(
        owned(by, app="a", tier="web", v="1"),
        service("web", tier="web"),
        service("other", tier="db"),
        service("elsewhere", namespace="x", app="a"),
        service("headless-without-selector"),
        by,
    )
    assert found == [("app", "In", ("a",)), ("tier", "In", ("web",)), ("v", "Exists", ())]


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        (ReplicationController, {"app": "a"}),
        (ReplicaSet, {"matchLabels": {"app": "a"}}),
        (StatefulSet, {"matchLabels": {"app": "a"}}),
    ],
)
def test_every_kind_of_controller_selects(kind: type[Any], selector: Any) -> None:
    by = controller(kind, "c", selector)
    assert selector_of(owned(by, app="a"), by) == [("app", "In", ("a",))]
    assert selector_of(owned(by, app="a")) == []  # it does not exist (yet)


def test_an_invalid_or_missing_selector_of_a_controller_is_ignored() -> None:
    for selector in (None, {}, {"matchExpressions": [{"key": "app", "operator": "Near"}]}):
        by = controller(ReplicaSet, "rs", selector)
        assert selector_of(owned(by, app="a"), by, service("s", app="a")) == [("app", "In", ("a",))]


def test_changed_selectors_are_noticed() -> None:
    snapshot, new = snapshot_of(service("s", app="a")), owned(app="a", tier="web")
    index = snapshot.index(DefaultSelectors)
    assert [each.key for each in index.selector_of(new, snapshot).requirements] == ["app"]
    snapshot.set(service("t", tier="web"))
    assert [each.key for each in index.selector_of(new, snapshot).requirements] == ["app", "tier"]
    snapshot.remove(service("s", app="a"))
    assert [each.key for each in index.selector_of(new, snapshot).requirements] == ["tier"]


def test_objects_that_only_select_do_not_invalidate_results() -> None:
    snapshot = snapshot_of(node("n"))
    before = snapshot.generations.last
    snapshot.set(service("s", app="a"))
    snapshot.remove(service("s", app="a"))
    assert snapshot.generations.last == before


# -- scores


def upstream_scores(new: Pod, nodes: list[Node], pods: list[Pod], selector: dict[str, str]) -> dict[str, int]:
    """Compute kube-scheduler's scores with the constraints of the system, in float64."""
    constraints = ((HOSTNAME, 3), (ZONE, 5))

    def count(name: str) -> int:
        return sum(
            each.spec.node_name == name
            and each.metadata.namespace == new.metadata.namespace
            and each.metadata.deletion_timestamp is None
            and all(each.metadata.labels.get(key) == value for key, value in selector.items())
            for each in pods
        )

    wanted = new.spec.node_selector
    domains: dict[str, int] = dict.fromkeys((each.metadata.labels.get(ZONE, "") for each in nodes), 0)
    weights = (math.log(len(nodes) + 2), math.log(len(domains) + 2))
    for each in nodes:
        labels = each.metadata.labels
        if all(labels.get(key) == value for key, value in wanted.items()):
            domains[labels.get(ZONE, "")] += count(each.metadata.name)
    raw = {}
    for each in nodes:
        labels, score = each.metadata.labels, 0.0
        for (key, skew), weight in zip(constraints, weights, strict=True):
            if key in labels:
                amount = count(each.metadata.name) if key == HOSTNAME else domains[labels[ZONE]]
                score += amount * weight + (skew - 1)
        raw[each.metadata.name] = math.floor(score + 0.5)
    most, least = max(raw.values()), min(raw.values())
    return {name: 100 * (most + least - each) // most if most else 100 for name, each in raw.items()}


@given(seed=SEEDS)
def test_scores_are_those_of_kube_scheduler(seed: int) -> None:
    random = Random(seed)
    nodes = []
    for number in range(random.randint(1, 7)):
        name, labels = f"n{number}", {"disk": random.choice("xy")}
        if random.random() < 0.9:
            labels[HOSTNAME] = name
        if random.random() < 0.7:
            labels[ZONE] = random.choice("abc")
        nodes.append(node(name, labels=labels))
    pods = [
        pod(
            f"p{number}",
            node=random.choice(nodes).metadata.name,
            labels={"app": random.choice("ab"), "tier": random.choice("cd")},
            namespace=random.choice(["default", "default", "other"]),
            metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if random.random() < 0.1 else None,
        )
        for number in range(random.randint(0, 20))
    ]
    by = controller(ReplicaSet, "rs", {"matchLabels": {"app": "a"}})
    new = pod(
        "new",
        labels={"app": "a", "tier": "c"},
        metadata={"ownerReferences": owned(by).metadata.owner_references and [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
        ]},
        node_selector={"disk": "x"} if random.random() < 0.3 else {},
    )  # fmt: skip
    selector = {"app": "a"}
    objects: list[Any] = [by]
    if random.random() < 0.5:
        objects.append(service("s", tier="c"))
        selector["tier"] = "c"
    snapshot = snapshot_of(*nodes, *pods, *objects)
    scorer = PodTopologySpreadScorer.pre_score(
        pod_info_of(new, snapshot), snapshot, SchedulerProfile.default()
    )
    assert scorer is not None
    column = scorer.scores(snapshot.alive)
    found = {snapshot.node(row).metadata.name: int(column[row]) for row in snapshot.rows()}
    assert found == upstream_scores(new, nodes, pods, selector)


def test_pods_of_a_service_are_spread_over_hosts() -> None:
    snapshot = snapshot_of(*(node(name, labels={HOSTNAME: name}) for name in "abc"), service("s", app="x"))
    taken = []
    for number in range(3):
        new = pod(f"p{number}", labels={"app": "x"}, cpu="10m")
        found = schedule_one(pod_info_of(new, snapshot), snapshot, SchedulerProfile.default(), lambda: "")
        assert isinstance(found, Placement)
        snapshot.assume(found)
        taken.append(found.node)
    assert sorted(taken) == ["a", "b", "c"]


# -- constraints of the profile


def profile(*constraints: dict[str, Any]) -> SchedulerProfile:
    return SchedulerProfile.read({"defaultConstraints": list(constraints)})


def attempt(snapshot: Snapshot, settings: SchedulerProfile, **spec: Any) -> Placement | FitError:
    return schedule_one(pod_info_of(owned(app="a"), snapshot), snapshot, settings, lambda: "")


def test_a_profile_can_require_spreading() -> None:
    must = profile({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"})
    nodes = [node("full", labels={ZONE: "a"}), node("free", labels={ZONE: "b"}, cpu="1m")]
    here = [pod(f"p{number}", node="full", labels={"app": "a"}) for number in range(2)]
    snapshot = snapshot_of(*nodes, *here, service("s", app="a"))
    new = pod("new", labels={"app": "a"}, cpu="2")
    refused = schedule_one(pod_info_of(new, snapshot), snapshot, must, lambda: "")
    assert isinstance(refused, FitError)
    assert sorted(rule.value for rule in refused.rules) == ["NodeResourcesFit", "PodTopologySpread"]
    # Without the service nothing selects the pod, and a cached refusal must not hide that.
    snapshot.remove(service("s", app="a"))
    assert isinstance(schedule_one(pod_info_of(new, snapshot), snapshot, must, lambda: ""), Placement)


def test_an_empty_list_of_defaults_spreads_nothing() -> None:
    snapshot = snapshot_of(node("a", labels={HOSTNAME: "a"}), service("s", app="a"))
    none = profile()
    scorer = PodTopologySpreadScorer.pre_score(pod_info_of(owned(app="a"), snapshot), snapshot, none)
    assert scorer is None


def test_defaults_of_a_profile_need_all_labels() -> None:
    settings = profile({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"})
    snapshot = snapshot_of(node("a", labels={ZONE: "a"}), node("b"), service("s", app="a"))
    info = pod_info_of(owned(app="a"), snapshot).with_profile(settings)
    scorer = PodTopologySpreadScorer.pre_score(info, snapshot, settings)
    assert scorer is not None
    assert [int(scorer.scores(snapshot.alive)[row]) for row in snapshot.rows()] == [100, 0]
