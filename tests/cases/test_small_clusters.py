"""Questions about small clusters: shared pools, devices that are held, absent classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import explain_claim, explain_pod, explain_workload
from plimsoll.tools.pod_schedulers import SCHEDULER_MODELS
from plimsoll.tools.top.top import top
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.build import (
    DRIVER,
    claim,
    container,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
    result,
)
from tests.dumps import make_cluster_state


def state_of(*objects: Any) -> ClusterState:
    return ClusterState(ClusterObjects(objects))


def answer(report: Any) -> Any:
    return json.loads(json.dumps(report.as_json()))


def text_of(report: Any) -> str:
    return " ".join(" ".join(report.lines(PLAIN)).split())


def test_a_pool_of_several_nodes_counts_once_in_totals() -> None:
    labels = {"clique": "x"}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "clique", "operator": "Exists"}]}]}
    channels = resource_slice([device(f"channel-{n}") for n in range(3)], pool="x", nodeSelector=selector)
    nodes = (node("n1", labels=labels), node("n2", labels=labels), device_class())
    objects = (*nodes, channels, resource_slice([device("own")], "n2"))
    _, all_free = run_whatif(state_of(*objects), WhatifPlan()).fragments
    assert (all_free.free_devices, all_free.most_devices) == ({DRIVER: 4}, {DRIVER: 4})
    taking = pod("p", claims=["c"]), claim("c", exactly(count=2))
    _, after = run_whatif(state_of(*objects, *taking), WhatifPlan()).fragments
    assert after.free_devices == {DRIVER: 2}


def test_types_that_do_not_exclude_each_other_are_not_said_to() -> None:
    slice = resource_slice([device("a", profile="1g"), device("b", profile="3g")], "n1")
    report = top(state_of(node("n1"), device_class(), slice), "classes")
    assert answer(report)["classes"][0]["free"] == 2
    assert "types of one device exclude each other" not in text_of(report)


def test_one_request_for_devices_that_exclude_each_other() -> None:
    slices = (
        resource_slice(
            [device(f"d{n}", draws={"g": {"memory": "20Gi"}}) for n in range(4)], "n1", name="s", count=2
        ),
        resource_slice([], "n1", name="t", count=2, counters={"g": {"memory": "60Gi"}}),
    )
    state = state_of(
        node("n1"), device_class(), *slices, claim("c", exactly(count=4)), pod("p", claims=["c"])
    )
    text = text_of(explain_pod(state, state.pod("p")))
    assert "request 3 devices instead of 4" in text
    assert "each device alone can be allocated" in text
    assert "each request alone" not in text


def test_the_resource_of_an_absent_class() -> None:
    resource = "deviceclass.resource.kubernetes.io/nope"
    state = state_of(node("n1"), device_class(), pod("p", requests={resource: "1"}))
    found = explain_pod(state, state.pod("p")).found
    assert found.fixes == ()
    assert [each.facts["device_class"] for each in found.hints] == ["nope"]


HELD = (
    node("n1"),
    device_class(),
    resource_slice([device("d")], "n1"),
    claim("held", exactly(), results=[result("d", pool="n1")], node="n1", reserved=["holder"]),
    pod("holder", claims=["held"], node="n1"),
    claim("c", exactly()),
    pod("p", claims=["c"], scheduler_name="default-scheduler"),
)


@pytest.mark.parametrize("name", ["kube", "kube-1.36", "kube-1.36-default", "kube-1.37"])
def test_removing_a_pod_by_hand_frees_its_devices_under_every_scheduler(name: str) -> None:
    model = SCHEDULER_MODELS[name]
    state = model.cluster_state(state_of(*HELD))
    nearest = explain_pod(state, state.pod("p"), settings=model.settings()).found.nearest
    assert nearest is not None
    assert "remove pod default/holder" in nearest.text


def test_an_allocated_claim_of_a_pending_pod_is_used() -> None:
    objects = (*HELD[:4], pod("p", claims=["held"]))
    states = state_of(*objects), state_of(*HELD[:4])
    used, unused = (explain_claim(state, state.claim("held")) for state in states)
    assert "default/p" in text_of(used)
    assert "kubectl delete" not in text_of(used)
    assert "kubectl delete" in text_of(unused)


def test_a_bound_pod_without_its_claim_cannot_start() -> None:
    state = state_of(*HELD[:6], pod("p", claims=["c"], node="n1"))
    assert "default/c" in explain_pod(state, state.pod("p")).summary
    assert "cannot start" not in explain_pod(state, state.pod("holder")).summary


def test_devices_of_incomplete_pools_are_named_where_classes_are_counted() -> None:
    slice = resource_slice([device("a"), device("b")], "n1", count=2)
    report = top(state_of(node("n1"), device_class(), slice), "classes")
    assert answer(report)["classes"][0]["devices"] == 0
    assert f"{DRIVER} 2" in text_of(report)


def test_a_pod_that_is_being_deleted_goes_first() -> None:
    """It holds more devices than the other, which would be the less harmful one."""
    leaving = {"deletionTimestamp": "2026-11-18T10:00:00Z"}
    state = state_of(
        node("n1"),
        device_class(),
        resource_slice([device(f"d{number}") for number in range(3)], "n1"),
        claim("one", exactly(), results=[result("d0", pool="n1")], node="n1", reserved=["stays"]),
        claim(
            "two",
            exactly(count=2),
            results=[result(f"d{number}", pool="n1") for number in (1, 2)],
            node="n1",
            reserved=["leaves"],
        ),
        pod("stays", claims=["one"], node="n1"),
        pod("leaves", claims=["two"], node="n1", metadata=leaving),
        claim("c", exactly()),
        pod("p", claims=["c"]),
    )
    nearest = explain_pod(state, state.pod("p")).found.nearest
    assert nearest is not None
    assert "default/leaves (terminating)" in nearest.text


def test_a_stateful_set_creates_its_pods_in_order() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    first = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "db-0", "namespace": "d", "uid": "0", "ownerReferences": [owner]},
        "spec": {**template["spec"], "nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    spec = {"replicas": 2, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    for policy, expected in (("OrderedReady", "d/db-0"), ("Parallel", "has not created it yet")):
        stateful_set = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "d", "uid": "db"},
            "spec": {**spec, "podManagementPolicy": policy},
        }
        state = make_cluster_state([stateful_set, first])
        (reason,) = explain_workload(state, "StatefulSet", "db", "d").missing
        assert expected in reason


@pytest.mark.parametrize(
    ("policy", "held", "asked", "fits"),
    [
        ({"default": "10", "validRange": {"min": "10", "step": "10"}}, "50", "65", "50"),
        ({"default": "10", "validRange": {"min": "10", "step": "10", "max": "40"}}, "50", "65", "40"),
        ({"default": "5", "validValues": ["5", "20", "40"]}, "60", "41", "40"),
        ({"default": "1"}, "60", "70", "45"),
    ],
)
def test_a_smaller_amount_is_one_that_the_request_policy_allows(
    policy: Any, held: str, asked: str, fits: str
) -> None:
    capacity = {"bandwidth": {"value": "105", "requestPolicy": policy}}
    share = {**result("d", pool="n1"), "consumedCapacity": {"bandwidth": held}, "shareID": "1"}
    state = state_of(
        node("n1"),
        device_class(),
        resource_slice([device("d", shared=True, capacity=capacity)], "n1"),
        claim("held", exactly(), results=[share], node="n1", reserved=["holder"]),
        pod("holder", claims=["held"], node="n1"),
        claim("c", exactly(capacity={"bandwidth": asked})),
        pod("p", claims=["c"]),
    )
    nearest = explain_pod(state, state.pod("p")).found.nearest
    assert nearest is not None
    assert f"request at most {fits} of bandwidth instead of {asked}" in nearest.text


def test_tainted_devices_are_not_said_to_be_allocated() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    report = run_whatif(
        state_of(node("n1"), device_class(), resource_slice([device("d", taints=[taint])], "n1")),
        WhatifPlan(),
    )
    assert "without free devices" in text_of(report)


@pytest.mark.parametrize(("kind", "evicted"), [("ReplicaSet", []), ("StatefulSet", ["default/leaves"])])
def test_a_pod_that_is_being_deleted_just_goes_when_its_node_is_drained(
    kind: str, evicted: list[str]
) -> None:
    """Only a StatefulSet has not created its replacement yet."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": True}
    leaving = {"deletionTimestamp": "2026-11-18T10:00:00Z", "ownerReferences": [owner]}
    state = state_of(node("n1"), pod("leaves", node="n1", metadata=leaving))
    report = run_whatif(state, WhatifPlan(drain=("n1",)))
    assert [each["pod"] for each in answer(report)["evicted"]] == evicted
    assert list(map("/".join, report.verdict.pending)) == evicted


def test_pods_of_the_plan_are_not_removed_for_each_other() -> None:
    added = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}} for name in ("one", "two")]
    for each in added:
        each["spec"] = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}
    for running, removed in ((), False), ((pod("runs", node="n1", cpu="5"),), True):
        state = state_of(node("n1", cpu="5" if not running else "10"), *running)
        report = run_whatif(state, WhatifPlan(add=tuple(added)))
        texts = [fix.text for found in report.fixes.values() for fix in found.fixes]
        assert any("remove pod default/runs" in text for text in texts) is removed
        assert not any("default/one" in text for text in texts)


def test_a_pod_that_fits_only_before_others_says_so() -> None:
    pending = [pod(name, cpu="6", priority=priority) for name, priority in (("first", 1), ("last", 0))]
    for cpu, fits_both in (("8", False), ("12", True)):
        state = state_of(node("n1", cpu=cpu), *pending)
        assert "queue" not in explain_pod(state, state.pod("first")).summary
        assert ("default/first" not in explain_pod(state, state.pod("last")).summary) is fits_both


def test_a_large_init_container_can_request_less() -> None:
    state = state_of(node("n1", cpu="8"), pod("p", container(cpu="2"), init=[container("i", cpu="12")]))
    nearest = explain_pod(state, state.pod("p")).found.nearest
    assert nearest is not None
    assert "request at most 8 cpu instead of 12" in nearest.text
