"""Unimplemented fields are rejected by name; kubelet features are required of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.core import Node
from plimsoll.scheduler.events import classify_change
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_declared_features import NodeDeclaredFeaturesFilter
from plimsoll.scheduler.filters.unsupported import UnsupportedFilter, unsupported
from plimsoll.scheduler.queue import QueueState, SchedulingQueue
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from tests.build import container, node, pod
from tests.unit.scheduler.filters import volume_objects
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of


def _spread(**fields: Any) -> list[dict[str, Any]]:
    good = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return [good, good | fields]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "spec.workloadRef w"),
        (
            {"topologySpreadConstraints": _spread(whenUnsatisfiable="Maybe")},
            "spec.topologySpreadConstraints[1].whenUnsatisfiable Maybe",
        ),
        (
            {"topologySpreadConstraints": _spread(nodeTaintsPolicy="Some")},
            "spec.topologySpreadConstraints[1].nodeTaintsPolicy Some",
        ),
        (
            {"topologySpreadConstraints": _spread(nodeAffinityPolicy="Some")},
            "spec.topologySpreadConstraints[1].nodeAffinityPolicy Some",
        ),
    ],
)
def test_a_rule_that_is_not_implemented_is_refused(spec: dict[str, Any], text: str) -> None:
    snapshot = snapshot_of(node("a"))
    found = UnsupportedFilter.pre_filter(pod_info_of(pod("p", **spec), snapshot), snapshot)
    assert isinstance(found, NodeReason)
    assert (found.rule, found.resolvable) == (Rule.UNSUPPORTED, False)
    assert render(found) == f"{text} is not implemented by this scheduler"


def test_implemented_fields_pass() -> None:
    for policy in (None, "Honor", "Ignore"):
        for action in ("DoNotSchedule", "ScheduleAnyway"):
            spread = _spread(whenUnsatisfiable=action, nodeTaintsPolicy=policy, nodeAffinityPolicy=policy)
            assert unsupported(pod("p", topologySpreadConstraints=spread)) is None
    assert unsupported(pod("p")) is None


def test_only_an_update_wakes_a_pod_with_an_unimplemented_field() -> None:
    spread = _spread(whenUnsatisfiable="Maybe")
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    queue = SchedulingQueue()
    queue.add(pod("p", volumes=volumes, topologySpreadConstraints=spread), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", frozenset({Rule.UNSUPPORTED}), 0)
    for new in (volume_objects.claim("data"), node("n")):
        event = classify_change(None, new)
        assert event is not None
        assert queue.on_event(event, 1) == 0
    queue.update(pod("p", volumes=volumes), 2)
    assert queue.state_of("uid-p") is not QueueState.UNSCHEDULABLE


def test_refusals_come_first() -> None:
    assert FILTERS[0] is UnsupportedFilter


def _with(features: tuple[str, ...], name: str) -> Node:
    plain = node(name)
    return replace(plain, status=replace(plain.status, declared_features=features))


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        (
            {"containers": [container() | {"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "RestartAllContainersOnContainerExits",
        ),
        (
            {
                "initContainers": [
                    container() | {"restartPolicyRules": [{}, {"action": "RestartAllContainers"}]}
                ]
            },
            "RestartAllContainersOnContainerExits",
        ),
    ],
)
def test_a_pod_fits_on_nodes_with_the_features_it_needs(spec: dict[str, Any], feature: str) -> None:
    snapshot = snapshot_of(_with((feature, "Another"), "able"), _with(("Another",), "unable"))
    rule = NodeDeclaredFeaturesFilter.pre_filter(pod_info_of(pod("p", **spec), snapshot), snapshot)
    assert isinstance(rule, Filter)
    able, unable = snapshot.row_of("able"), snapshot.row_of("unable")
    assert able is not None
    assert unable is not None
    assert rule.filter()[[able, unable]].tolist() == [True, False]
    assert rule.filter_node(able) == ()
    assert [render(each) for each in rule.filter_node(unable)] == [
        "node(s) didn't match Pod's required features"
    ]
    snapshot.set(_with((feature,), "unable"))
    again = NodeDeclaredFeaturesFilter.pre_filter(pod_info_of(pod("p", **spec), snapshot), snapshot)
    assert isinstance(again, Filter)
    assert again.filter()[unable]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"hostNetwork": True},
        {"hostUsers": False},
        {"hostNetwork": True, "hostUsers": True},
        {"containers": [container() | {"restartPolicyRules": [{"action": "Restart"}]}]},
    ],
)
def test_pods_without_special_features_skip_the_filter(spec: dict[str, Any]) -> None:
    snapshot = snapshot_of(node("a"))
    assert NodeDeclaredFeaturesFilter.pre_filter(pod_info_of(pod("p", **spec), snapshot), snapshot) is None
