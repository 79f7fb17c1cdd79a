"""Branches are undone exactly, and their ledgers equal those rebuilt from the objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.errors import InputError
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import Whatif, WhatifOutcome
from plimsoll.tools.whatif.whatif import WhatifOperations
from tests.build import DRIVER, charging_device, claim, device_class, exactly, node, pod, resource_slice
from tests.sizes import examples

OWNER = {"ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [exactly()]}}},
}


def cluster() -> list[Any]:
    """Return three nodes with two charging devices each, running and pending pods."""
    objects: list[Any] = [device_class()]
    for name in ("a", "b", "c"):
        objects.append(node(name, cpu="6"))
        offered = [charging_device(f"d{number}", cpu=str(number + 1)) for number in range(2)]
        objects.append(resource_slice(offered, name))
    objects.append(claim("shared", exactly()))
    objects += [pod(f"run-{n}", cpu="1", node=name, metadata=OWNER) for n, name in enumerate("abc")]
    objects.append(pod("low", cpu="2", node="a", priority=-5))
    objects.append(pod("wait", cpu="1", claims=["shared"]))
    return objects


def pod_tree(name: str, cpu: str, claims: int, priority: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    }
    if claims:
        spec["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "one"}]
        spec["containers"][0]["resources"]["claims"] = [{"name": "r"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def everything(moves: WhatifOperations) -> dict[str, str]:
    """Return all objects, independent of their order."""
    return {f"{type(each).__name__}/{each.metadata.namespace}/{each.metadata.name}": repr(each)
            for each in moves.cluster_state.objects}  # fmt: skip


def amounts_by_node(moves: WhatifOperations) -> dict[str, Any]:
    """Return the amounts of every node ledger."""
    snapshot = moves.cluster_state.snapshot
    return {
        snapshot.node(place).metadata.name: (
            {name: units for name, units in snapshot.ledger(place).requested.items() if units},
            sorted(snapshot.ledger(place).entries),
            snapshot.ledger(place).headroom(),
        )
        for place in snapshot.rows()
    }


def rebuilt(moves: WhatifOperations) -> Whatif:
    """Return a new snapshot of the same objects (naive reference)."""
    return Whatif(
        ClusterState(moves.cluster_state.objects, moves.cluster_state.gates, moves.cluster_state.profile)
    )


def summary(outcome: WhatifOutcome) -> tuple[Any, ...]:
    return outcome.placed, outcome.pending, outcome.evicted


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("123"), st.integers(0, 1), st.sampled_from([0, 10])),
    st.tuples(st.just("schedule")),
    st.tuples(st.just("drain"), st.sampled_from("abc")),
    st.tuples(st.just("cordon"), st.sampled_from("abc")),
    st.tuples(st.just("taint"), st.sampled_from("abc"), st.sampled_from(["x=y:NoExecute", "x=y:NoSchedule"])),
    st.tuples(
        st.just("devices"), st.sampled_from(["d0", "d1"]), st.sampled_from(["NoExecute", "NoSchedule"])
    ),
    st.tuples(
        st.just("remove"), st.sampled_from(["Node/a", "Pod/low", "Pod/run-1", "Pod/wait", "ResourceSlice/b"])
    ),
    st.tuples(st.just("nodes"), st.sampled_from("abc")),
    st.tuples(st.just("policy"), st.sampled_from(["Max", "AddPerReference", "ConsumeFrom"])),
    st.tuples(st.just("branch")),
)


def do(moves: WhatifOperations, number: int, step: tuple[Any, ...]) -> None:
    what = step[0]
    try:
        if what == "add":
            moves.add(TEMPLATE, pod_tree(f"new-{number}", step[1], step[2], step[3]))
        elif what == "schedule":
            moves.schedule()
        elif what == "drain":
            moves.drain(step[1])
        elif what == "cordon":
            moves.cordon(step[1])
        elif what == "taint":
            moves.taint(step[1], step[2])
        elif what == "devices":
            moves.taint_devices(f"driver={DRIVER},device={step[1]}:broken=yes:{step[2]}")
        elif what == "remove":
            moves.remove(step[1])
        elif what == "nodes":
            moves.add_nodes(1, step[1])
        elif what == "policy":
            moves.replace_policy(step[1])
        else:
            with moves.branch() as inner:
                inner.drain("b")
                inner.schedule()
    except InputError:
        pass  # it is gone already


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=8))
def test_a_branch_is_undone_exactly(steps: list[tuple[Any, ...]]) -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    objects, amounts = everything(whatif), amounts_by_node(whatif)
    with whatif.branch() as first:
        fresh = summary(first.schedule())
    with whatif.branch() as branch:
        for number, step in enumerate(steps):
            do(branch, number, step)
            assert verify(branch.cluster_state.snapshot) == []
        assert amounts_by_node(rebuilt(branch)) == amounts_by_node(branch)
    assert everything(whatif) == objects
    assert amounts_by_node(whatif) == amounts
    assert verify(whatif.cluster_state.snapshot) == []
    with whatif.branch() as last:
        assert summary(last.schedule()) == fresh


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(STEPS, max_size=6))
def test_scheduling_resumes_as_from_scratch(steps: list[tuple[Any, ...]]) -> None:
    """A changed snapshot schedules pods as a new one does."""
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    for number, step in enumerate(steps):
        do(whatif, number, step)
    naive = rebuilt(whatif)
    naive.cluster.arrivals = dict(whatif.cluster.arrivals)
    ours, theirs = whatif.schedule(), naive.schedule()
    assert {each.pod for each in ours.placed} == {each.pod for each in theirs.placed}


def test_a_branch_can_be_kept() -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    with whatif.branch() as outer:
        with outer.branch() as inner:
            inner.remove("Pod/low")
            inner.keep()
        assert outer.cluster_state.objects.find(Pod, "default", "low") is None
    assert whatif.cluster_state.objects.find(Pod, "default", "low") is not None


def test_a_branch_that_fails_is_undone_though_it_was_kept() -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))

    def fail() -> None:
        with whatif.branch() as branch:
            branch.keep()
            branch.remove("Pod/low")
            branch.drain("nowhere")

    with pytest.raises(InputError, match="Node not found"):
        fail()
    assert whatif.cluster_state.objects.find(Pod, "default", "low") is not None


def test_the_original_cluster_state_is_unchanged() -> None:
    cluster_state = ClusterState(ClusterObjects(cluster()))
    before = len(cluster_state.objects)
    whatif = Whatif(cluster_state)
    whatif.add(TEMPLATE, pod_tree("p", "1", 1, 0))
    whatif.schedule()
    assert len(cluster_state.objects) == before
    assert verify(cluster_state.snapshot) == []
