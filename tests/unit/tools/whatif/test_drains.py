"""Drains: what `kubectl drain` would do, with disruption budgets and the flags that it needs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import convert, to_tree
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.controllers.disruption import plan_budget
from plimsoll.controllers.workload_views import DisruptionBudgetView
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.whatif import Whatif, WhatifPlan, run_whatif
from plimsoll.tools.whatif.drains import DELETE_EMPTY_DIR, FORCE, IGNORE_DAEMON_SETS, read_budgets
from tests.build import node
from tests.build import pod as make_pod
from tests.unit.tools.whatif.workloads import owned

DB = {"app": "db"}


def pod(name: str, *, owner: str = "ReplicaSet", ready: bool = True, **fields: Any) -> Any:
    labels = fields.pop("labels", DB)
    metadata = owned(owner) if owner else {}
    condition = {"type": "Ready", "status": str(ready)}
    status = {"phase": "Running", "conditions": [condition]}
    return make_pod(name, cpu="1", node="a", labels=labels, metadata=metadata, status=status, **fields)


def budget(allowed: int, *, healthy: int = 3, wanted: int = 2, name: str = "pdb", **spec: Any) -> Any:
    status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": wanted}
    tree = {"metadata": {"name": name, "namespace": "default"}, "status": status}
    return convert({**tree, "spec": {"selector": {"matchLabels": DB}, **spec}}, PodDisruptionBudget)


def whatif(*objects: Any, free: int = 8) -> Whatif:
    return Whatif(ClusterState(ClusterObjects([node("a", cpu="8"), node("b", cpu=str(free)), *objects])))


def blocked(operations: Any) -> list[str]:
    return [pod[1] for drain in operations.drains for pod in drain.blocked]


def test_a_budget_that_allows_no_disruption_blocks() -> None:
    with whatif(pod("db-0"), pod("web", labels={"app": "web"}), budget(0)) as w:
        w.drain("a")
        assert blocked(w) == ["db-0"]
        w.schedule()
        assert w.state()["default", "db-0"].node == "a"
        assert w.state()["default", "web"].node == "b"


def test_pods_of_a_budget_go_one_at_a_time_as_replacements_are_scheduled() -> None:
    pods = [pod(f"db-{number}") for number in range(3)]
    with whatif(*pods, budget(1)) as w:
        drain = w.drain("a")
        assert (drain.blocked, len(drain.later)) == ({}, 2)
        assert len(w.schedule().placed) == 3


@given(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=60)
def test_as_many_are_evicted_as_the_budget_and_the_free_nodes_allow(
    pods: int, allowed: int, free: int
) -> None:
    """Naively: while the budget allows it, take one; it comes back to the budget if there is room for it."""
    evicted, room, left = 0, free, allowed
    while evicted < pods and left:
        evicted += 1
        room, left = (room - 1, left) if room else (room, left - 1)
    with whatif(*(pod(f"db-{number}") for number in range(pods)), budget(allowed), free=free) as w:
        w.drain("a")
        assert len(blocked(w)) == pods - evicted
        w.schedule()
        assert sum(each.node == "b" for each in w.state().values()) == min(free, evicted)


def test_pods_that_are_not_ready() -> None:
    """They can be evicted while enough others are healthy, or always by the policy of the budget."""
    for healthy, policy, expected in ((2, None, []), (1, None, ["db-0"]), (1, "AlwaysAllow", [])):
        with whatif(
            pod("db-0", ready=False), budget(0, healthy=healthy, unhealthyPodEvictionPolicy=policy)
        ) as w:
            w.drain("a")
            assert blocked(w) == expected


def test_two_budgets_of_one_pod_block() -> None:
    with whatif(pod("db-0"), budget(1), budget(1, name="other")) as w:
        w.drain("a")
        assert "more than one PodDisruptionBudget" in next(iter(w.drains[0].blocked.values()))


@pytest.mark.parametrize(
    ("made", "flags"),
    [
        (pod("p", owner=""), {FORCE}),
        (pod("p", owner="DaemonSet"), {IGNORE_DAEMON_SETS}),
        (pod("p", volumes=[{"name": "v", "emptyDir": {}}]), {DELETE_EMPTY_DIR}),
        (pod("p", volumes=[{"name": "v", "configMap": {"name": "c"}}]), set()),
        (pod("p", owner="Node"), set()),
    ],
)
def test_flags_that_kubectl_needs(made: Any, flags: set[str]) -> None:
    with whatif(made) as w:
        assert w.drain("a").flags.keys() == flags
    report = run_whatif(whatif(made).cluster_state, WhatifPlan(drain=("a",)))
    text = "\n".join(report.lines(PLAIN))
    assert all(flag in text for flag in flags)
    assert report.as_json()["drains"][0]["command"] == " ".join(("kubectl drain a", *sorted(flags)))


def test_a_drain_that_blocks_fails() -> None:
    report = run_whatif(whatif(pod("db-0"), budget(0)).cluster_state, WhatifPlan(drain=("a",)))
    assert not report.all_placed
    assert report.verdict.text() == "the drain blocks: 1 pod cannot be evicted"
    assert report.verdict.blocked == (("default", "db-0"),)


@given(
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.sampled_from([{"minAvailable": 0}, {"minAvailable": 2}, {"minAvailable": "50%"}, {"maxUnavailable": 0},
                     {"maxUnavailable": 1}, {"maxUnavailable": "34%"}]),
)  # fmt: skip
@settings(max_examples=60)
def test_a_budget_without_a_status_is_counted_as_the_disruption_controller_does(
    ready: list[bool], spec: dict[str, Any]
) -> None:
    """Against the controller itself, to which the owner of the pods has as many as it should."""
    pods = [pod(f"db-{number}", ready=each) for number, each in enumerate(ready)]
    tree = {
        "metadata": {"name": "pdb", "namespace": "default"},
        "spec": {"selector": {"matchLabels": DB}, **spec},
    }
    sizes = {pods[0].metadata.owner_references[0].uid: len(pods)}
    (patch,) = plan_budget(convert(tree, DisruptionBudgetView), pods, sizes, 0.0).actions
    expected = patch.patch["status"]  # type: ignore[union-attr]
    with whatif(*pods, convert(tree, PodDisruptionBudget)) as w:
        (found,) = read_budgets(w.cluster_state)
        status = to_tree(found.status)
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        assert status.get(name, 0) == expected.get(name, 0)
