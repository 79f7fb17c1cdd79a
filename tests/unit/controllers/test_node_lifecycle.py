"""Node lifecycle: unreachable nodes, taints and eviction; plan and controllers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Node, Taint, Toleration
from plimsoll.api.timestamps import format_micro_time, format_time
from plimsoll.api.tolerations import tolerates
from plimsoll.client.endpoints import LEASES, NODES, PODS
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import DeleteAction, PatchAction
from plimsoll.controllers.node_lifecycle import (
    NOT_READY,
    UNREACHABLE,
    NodeHealth,
    ReadyCount,
    is_counted,
    is_ready,
    plan_pods_not_ready,
    plan_taints,
    plan_unknown_conditions,
    update_node_health,
)
from plimsoll.controllers.object_views import LeaseView
from plimsoll.controllers.taint_eviction import eviction_time, plan_eviction
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.makers import metadata, pod, view

ONLY = ["node-lifecycle-controller", "taint-eviction-controller"]
T0 = "2025-01-01T00:00:00Z"
AT = 1735689600.0  # T0


def node(
    ready: str | None = "True", *, taints: Any = (), beat: str = T0, others: Any = (), **spec: Any
) -> Node:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat}]
    labels = spec.pop("labels", {})
    return view(
        {
            "metadata": metadata("w", "", creationTimestamp=T0, labels=labels),
            "spec": {"taints": list(taints), **spec},
            "status": {"conditions": [*conditions, *others]},
        },
        Node,
    )


def lease(lease_renewed: float) -> LeaseView:
    spec = {"holderIdentity": "w", "renewTime": format_micro_time(AT + lease_renewed)}
    return view({"metadata": metadata("w"), "spec": spec}, LeaseView)


# -- heartbeats


def test_a_node_is_alive_when_its_lease_or_its_status_moves() -> None:
    first = update_node_health(None, node(), lease(0), AT + 100)
    assert first.probed_at == AT + 100, "whatever its own clock says"
    assert update_node_health(first, node(), lease(0), AT + 110).probed_at == AT + 100
    assert update_node_health(first, node(), lease(1), AT + 110).probed_at == AT + 110
    assert update_node_health(first, node(beat=format_time(AT + 5)), lease(0), AT + 110).probed_at == AT + 110
    assert update_node_health(first, node(), None, AT + 110).probed_at == AT + 100


def test_a_node_without_status_is_as_old_as_its_object() -> None:
    assert update_node_health(None, node(None), None, AT + 100).probed_at == AT
    assert update_node_health(None, node(None), lease(0), AT + 100).probed_at == AT + 100


def unknown(of: Node, seconds: float) -> Any:
    health = NodeHealth(AT, lease_renewed=format_micro_time(AT))
    return plan_unknown_conditions(of, health, AT + seconds, grace=50.0, startup_grace=60.0)


def test_a_node_without_a_lease_is_judged_by_its_status() -> None:
    plan = plan_unknown_conditions(
        node(), NodeHealth(AT, heartbeat=T0), AT + 1e6, grace=50.0, startup_grace=60.0
    )
    assert not plan.actions
    assert plan.requeue_after is None


def test_a_silent_node_is_unknown() -> None:
    early = unknown(node(), 20)
    assert not early.actions
    assert early.requeue_after == 30
    (patch,) = unknown(node(), 51).actions
    assert isinstance(patch, PatchAction)
    reported = {
        c["type"]: (c["status"], c["reason"], c["message"]) for c in patch.patch["status"]["conditions"]
    }
    never = ("Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.")
    assert reported == {
        "Ready": ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
        "MemoryPressure": never,
        "DiskPressure": never,
        "PIDPressure": never,
    }


def test_a_new_node_gets_more_time() -> None:
    assert not unknown(node(None), 59).actions
    (patch,) = unknown(node(None), 61).actions
    assert isinstance(patch, PatchAction)
    assert patch.patch["status"]["conditions"][0]["lastHeartbeatTime"] == T0


def test_an_unknown_node_is_reported_once() -> None:
    others = [
        {"type": kind, "status": "Unknown"} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    assert unknown(node("Unknown", others=others), 99).actions == ()


# -- taints


def taints(of: Node, **options: Any) -> list[tuple[str, str]] | None:
    plan = plan_taints(of, AT, **options)
    if not plan:
        return None
    (patch,) = plan.actions
    assert isinstance(patch, PatchAction)
    return [(taint["key"], taint["effect"]) for taint in patch.patch["spec"]["taints"] or ()]


def test_conditions_become_taints() -> None:
    assert taints(node()) is None
    assert taints(node("False")) == [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    assert taints(node("Unknown")) == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    pressed = node(others=[{"type": "DiskPressure", "status": "True"}])
    assert taints(pressed) == [("node.kubernetes.io/disk-pressure", "NoSchedule")]
    assert taints(node(unschedulable=True)) == [("node.kubernetes.io/unschedulable", "NoSchedule")]


def test_taints_follow_conditions_and_others_stay() -> None:
    mine = {"key": "mine", "effect": "NoExecute"}
    assert taints(node(taints=[mine, {"key": "mine", "effect": "NoSchedule"}])) is None
    assert taints(node(taints=[{"key": NOT_READY, "effect": "PreferNoSchedule"}])) is None
    had = [mine, {"key": UNREACHABLE, "effect": "NoSchedule"}, {"key": UNREACHABLE, "effect": "NoExecute"}]
    assert taints(node(taints=had)) == [("mine", "NoExecute")]
    assert taints(node("Unknown", taints=had)) is None
    assert taints(node("False", taints=had)) == [
        ("mine", "NoExecute"),
        (NOT_READY, "NoSchedule"),
        (NOT_READY, "NoExecute"),
    ]


def count_ready(*nodes: Node) -> ReadyCount:
    count = ReadyCount()
    for each in nodes:
        count.update(None, each)
    return count


def test_no_pod_is_evicted_if_no_node_is_ready() -> None:
    assert taints(node("Unknown"), none_ready=True) == [(UNREACHABLE, "NoSchedule")]
    assert not count_ready().none_ready
    assert count_ready(node("Unknown"), node("False"), node(None)).none_ready
    assert not count_ready(node("Unknown"), node()).none_ready
    apart = node(labels={"node.kubernetes.io/exclude-disruption": ""})
    assert count_ready(node("Unknown"), apart).none_ready


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["True", "False", None, "gone"]), st.booleans())
    )
)
def test_the_ready_count_agrees_with_all_nodes(steps: list[tuple[str, str | None, bool]]) -> None:
    roll = ReadyCount()
    nodes: dict[str, Node] = {}
    for name, ready, apart in steps:
        old = nodes.pop(name, None)
        if ready != "gone":
            labels = {"node.kubernetes.io/exclude-disruption": ""} if apart else {}
            nodes[name] = node(ready, labels=labels)
        roll.update(old, nodes.get(name))
        counted = [each for each in nodes.values() if is_counted(each)]
        assert roll.none_ready == (bool(counted) and not any(map(is_ready, counted)))


def test_pods_on_a_lost_node_are_not_ready() -> None:
    ready = {"type": "Ready", "status": "True"}
    pods = [
        pod("p", node="w", status={"conditions": [{"type": "PodScheduled", "status": "True"}, ready]}),
        pod("q", node="w", status={"conditions": [{**ready, "status": "False"}]}),
        pod("r", node="w"),
    ]
    patch, report = plan_pods_not_ready(node("Unknown"), pods, AT).actions
    assert isinstance(patch, PatchAction)
    assert patch.name == "p"
    assert patch.patch["status"]["conditions"] == [
        {"type": "Ready", "status": "False", "lastTransitionTime": T0}
    ]
    assert isinstance(report, EventRecord)
    assert (report.type, report.reason) == ("Warning", "NodeNotReady")
    assert not plan_pods_not_ready(node(), pods, AT)
    assert not plan_pods_not_ready(node(None), pods, AT)


# -- evictions


def tainted(key: str = "k", value: str = "", effect: str = "NoExecute", added: float | None = 0.0) -> Taint:
    when = {} if added is None else {"timeAdded": format_time(AT + added)}
    return view({"key": key, "value": value, "effect": effect, **when}, Taint)


def goes(*tolerations: dict[str, Any], taints: Any = None, probed_at: float = 0.0) -> float | None:
    """Return the eviction time in seconds after T0; 0 if at once."""
    of = pod("p", node="w", spec={"tolerations": list(tolerations)})
    due = eviction_time(of, [tainted()] if taints is None else taints, AT + probed_at)
    return None if due is None else max(0.0, due - AT)


FOREVER = {"key": "k", "operator": "Exists"}


def test_untolerated_taints_evict_at_once() -> None:
    assert goes() == 0
    assert goes({"key": "other", "operator": "Exists"}) == 0
    assert goes(taints=[]) is None
    assert goes(taints=[tainted(effect="NoSchedule")]) is None
    assert goes(FOREVER, taints=[tainted(), tainted("l")]) == 0


def test_indefinitely_tolerated_taints_do_not_evict() -> None:
    assert goes(FOREVER) is None
    assert goes({"operator": "Exists"}) is None


def test_seconds_count_from_when_the_taint_was_added() -> None:
    seconds = {**FOREVER, "tolerationSeconds": 30}
    assert goes(seconds) == 30
    assert goes(seconds, taints=[tainted(added=10)]) == 40
    assert goes(seconds, taints=[tainted(added=10)], probed_at=99) == 40, "also after a restart"
    assert goes(seconds, taints=[tainted(added=None)], probed_at=7) == 37
    assert goes({**FOREVER, "tolerationSeconds": -3}) == 0
    assert goes(seconds, FOREVER) == 30, "the first that fits counts"


@pytest.mark.parametrize(
    ("toleration", "taint", "fits"),
    [
        ({"key": "k", "value": "v"}, tainted(value="v"), True),
        ({"key": "k", "value": "v"}, tainted(value="w"), False),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, tainted(), False),
        ({"key": "k", "operator": "Lt", "value": "5"}, tainted(value="4"), True),
        ({"key": "k", "operator": "Lt", "value": "5"}, tainted(value="5"), False),
        ({"key": "k", "operator": "Gt", "value": "5"}, tainted(value="6"), True),
        ({"key": "k", "operator": "Gt", "value": "5"}, tainted(value="06"), False),
        ({"key": "k", "operator": "Gt", "value": "x"}, tainted(value="6"), False),
        ({"key": "k", "operator": "Odd"}, tainted(), False),
    ],
)
def test_tolerations(toleration: dict[str, Any], taint: Taint, fits: bool) -> None:
    assert tolerates(view(toleration, Toleration), taint) is fits


@given(
    st.lists(st.tuples(st.sampled_from("kl"), st.sampled_from([0, 10])), max_size=3),
    st.lists(st.tuples(st.sampled_from(["", "k", "l"]), st.sampled_from([None, 5, 20])), max_size=3),
)
def test_eviction_time_agrees_with_the_rules(
    taints: list[tuple[str, int]], tolerations: list[tuple[str, int | None]]
) -> None:
    times: list[float] = []
    for key, added in taints:
        fitting = [seconds for name, seconds in tolerations if name in ("", key)]
        if not fitting:
            times = [0]
            break
        if fitting[0] is not None:
            times.append(added + fitting[0])
    shapes = [
        {"key": name, "operator": "Exists", **({} if seconds is None else {"tolerationSeconds": seconds})}
        for name, seconds in tolerations
    ]
    found = goes(*shapes, taints=[tainted(key, added=added) for key, added in taints])
    assert found == min(times, default=None)


def test_an_evicted_pod_gets_an_event_and_a_condition_and_is_deleted() -> None:
    report, mark, delete = plan_eviction(pod("p", node="w", generation=2), AT).actions
    assert isinstance(report, EventRecord)
    assert (report.reason, report.message) == ("TaintManagerEviction", "Marking for deletion Pod n/p")
    assert isinstance(mark, PatchAction)
    (condition,) = mark.patch["status"]["conditions"]
    assert (condition["reason"], condition["observedGeneration"]) == ("DeletionByTaintManager", 2)
    assert delete == DeleteAction(PODS, "p", "n", uid="uid-p")
    assert not plan_eviction(pod("p", node="w", deletionTimestamp=T0), AT)


# -- controllers


async def beat(cluster: Cluster, name: str, status: str = "True") -> None:
    now = format_time(cluster.clock.now())
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now}
    await cluster.client.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")


async def settle_in(cluster: Cluster, *tolerations: dict[str, Any]) -> None:
    """Create two nodes with leases, and a pod on one of them."""
    for name in ("w", "v"):
        await cluster.client.create(NODES, {"metadata": {"name": name}})
        await beat(cluster, name)
        spec = {"holderIdentity": name, "renewTime": format_micro_time(cluster.clock.now())}
        await cluster.client.create(LEASES, {"metadata": {"name": name}, "spec": spec}, "kube-node-lease")
    container = {"name": "c", "image": "i"}
    placed = {"containers": [container], "nodeName": "w", "tolerations": list(tolerations)}
    await cluster.client.create(PODS, {"metadata": {"name": "p"}, "spec": placed}, "n")


async def renew(cluster: Cluster, name: str, seconds: int) -> None:
    """Advance the clock while a node renews its lease every ten seconds."""
    for _ in range(seconds // 10):
        await cluster.advance(10)
        spec = {"holderIdentity": name, "renewTime": format_micro_time(cluster.clock.now())}
        tree = {"metadata": {"name": name}, "spec": spec}
        if await cluster.get(LEASES, name, "kube-node-lease") is None:
            await cluster.client.create(LEASES, tree, "kube-node-lease")
        else:
            await cluster.client.patch(LEASES, name, {"spec": spec}, "kube-node-lease")
    await cluster.settle(max_wait=0)


TOLERATED = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}


@run_by(run_scenario, only=ONLY)
async def test_pods_of_an_unreachable_node_are_evicted(cluster: Cluster) -> None:
    await settle_in(cluster, TOLERATED)
    await renew(cluster, "v", 40)
    assert not (await cluster.client.get(NODES, "w")).get("spec", {}).get("taints")
    await renew(cluster, "v", 20)
    none_ready = await cluster.client.get(NODES, "w")
    ready = {c["type"]: c["status"] for c in none_ready["status"]["conditions"]}["Ready"]
    assert ready == "Unknown"
    found = {(taint["key"], taint["effect"]) for taint in none_ready["spec"]["taints"]}
    assert found == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    there = await cluster.client.get(NODES, "v")
    assert not there.get("spec", {}).get("taints")
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" not in tree["metadata"]
    await renew(cluster, "v", 40)
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" in tree["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_a_recovered_node_keeps_its_pods(cluster: Cluster) -> None:
    await settle_in(cluster, TOLERATED)
    await renew(cluster, "v", 70)
    await beat(cluster, "w")
    await renew(cluster, "v", 40)
    assert not (await cluster.client.get(NODES, "w")).get("spec", {}).get("taints")
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" not in tree["metadata"]
    reasons = {(reason, message) for _, reason, message in await cluster.events()}
    assert ("TaintManagerEviction", "Cancelling deletion of Pod n/p") in reasons


@run_by(run_scenario, only=ONLY)
async def test_no_eviction_if_all_nodes_are_unreachable(cluster: Cluster) -> None:
    await settle_in(cluster, TOLERATED)
    await cluster.advance(300)
    none_ready = await cluster.client.get(NODES, "w")
    assert [(taint["key"], taint["effect"]) for taint in none_ready["spec"]["taints"]] == [
        (UNREACHABLE, "NoSchedule")
    ]
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" not in tree["metadata"]
