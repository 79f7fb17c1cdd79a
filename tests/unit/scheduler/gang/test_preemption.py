"""Preemption for a pod group: victims in the whole cluster, restored where possible."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.gang.cycle import GroupResult, schedule_group
from plimsoll.scheduler.gang.preemption import (
    NO_VICTIMS,
    NOT_IN_DOMAINS,
    GroupPreemption,
    plan_group_preemption,
)
from plimsoll.scheduler.preemption.result import PreemptionMessage
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    claim,
    device,
    device_class,
    exactly,
    member,
    node,
    pod,
    pod_group,
    resource_slice,
    result,
)
from tests.sizes import examples
from tests.unit.scheduler.snapshots import snapshot_of

HIGH: dict[str, Any] = {"priority": 10}


def plan(
    group: PodGroup,
    members: Sequence[Pod],
    snapshot: Snapshot,
    budgets: Sequence[PodDisruptionBudget] = (),
    **options: int,
) -> GroupPreemption | str:
    def schedule(steps: int) -> GroupResult:
        return schedule_group(
            group, members, snapshot, lambda each: SchedulerProfile.default(), lambda: next(ids), steps=steps
        )

    ids = (f"share-{i}" for i in itertools.count())
    before = snapshot.pod_keys()
    found = plan_group_preemption(group, members, snapshot, schedule, budgets, **options)
    assert snapshot.pod_keys() == before
    assert verify(snapshot) == []
    return found


def victims(found: GroupPreemption | str) -> list[str]:
    assert isinstance(found, GroupPreemption), found
    assert found.result.is_scheduled
    assert sorted(pod.metadata.name for each in found.nodes for pod in each.victims) == sorted(
        pod.metadata.name for pod in found.victims
    )
    return sorted(pod.metadata.name for pod in found.victims)


def low(name: str, where: str, cpu: str = "1", **fields: Any) -> Pod:
    return pod(name, cpu=cpu, node=where, **fields)


def gang(count: int, cpu: str = "1") -> list[Pod]:
    return [member(f"p{i}", cpu=cpu, priority=10) for i in range(count)]


def test_only_as_many_pods_as_necessary_are_preempted() -> None:
    snapshot = snapshot_of(
        node("a", cpu="2"), node("b", cpu="2"), low("v1", "a"), low("v2", "a"), low("v3", "b"), low("v4", "b")
    )
    assert len(victims(plan(pod_group(min_count=3, **HIGH), gang(3), snapshot))) == 3


def test_important_pods_and_budgets_are_spared() -> None:
    snapshot = snapshot_of(
        node("a", cpu="4"),
        low("guarded", "a", labels={"app": "db"}),
        low("plain", "a"),
        low("middle", "a", priority=5),
        low("high", "a", priority=10),
    )
    budget = convert(
        {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": 0},
        },
        PodDisruptionBudget,
    )
    group = pod_group(min_count=2, **HIGH)
    assert victims(plan(group, gang(2), snapshot, [budget])) == ["middle", "plain"]
    assert victims(plan(group, gang(2), snapshot)) == ["guarded", "plain"]


def test_a_group_is_preempted_as_a_whole_if_it_wants_so() -> None:
    other = pod_group("other", 2, disruption_mode="PodGroup", priority=1)
    objects = [node("a", cpu="1"), node("b", cpu="1"), node("c", cpu="1")]
    running = [low("v1", "a", schedulingGroup={"podGroupName": "other"})]
    running.append(low("v2", "b", schedulingGroup={"podGroupName": "other"}))
    snapshot = snapshot_of(*objects, *running, other, low("v3", "c", priority=5))
    assert victims(plan(pod_group(min_count=1, **HIGH), gang(1), snapshot)) == ["v1", "v2"]


def test_without_the_gate_pods_are_preempted_one_by_one() -> None:
    other = pod_group("other", 2, disruption_mode="PodGroup", priority=100)
    gates = Gates.of({"WorkloadAwarePreemption": False})
    running = [low(f"v{i}", f"n{i}", schedulingGroup={"podGroupName": "other"}) for i in range(2)]
    snapshot = snapshot_of(node("n0", cpu="1"), node("n1", cpu="1"), *running, other, gates=gates)
    assert len(victims(plan(pod_group(min_count=1), gang(1), snapshot))) == 1


def test_devices_of_victims_are_used() -> None:
    held = claim("held", exactly(), results=[result("d", pool="a")], node="a", reserved=["v"])
    snapshot = snapshot_of(
        node("a"), resource_slice([device("d")], "a"), device_class(), held, claim("c", exactly()),
        low("v", "a", claims=["held"]), low("w", "a"),
    )  # fmt: skip
    members = [member("p0", claims=["c"], priority=10), member("p1", priority=10)]
    assert victims(plan(pod_group(min_count=2, **HIGH), members, snapshot)) == ["v"]


def test_attempts_are_limited() -> None:
    nodes = [node(f"n{i}", cpu="1") for i in range(20)]
    running = [low(f"v{i}", f"n{i}") for i in range(20)]
    snapshot = snapshot_of(*nodes, *running)
    group = pod_group(min_count=2, **HIGH)
    assert len(victims(plan(group, gang(2), snapshot))) == 2
    assert len(victims(plan(group, gang(2), snapshot, attempts=1))) == 2
    assert len(victims(plan(group, gang(2), snapshot, attempts=0))) == 2


def test_reasons_against_preemption() -> None:
    full = snapshot_of(node("a", cpu="1"), low("v", "a"))
    assert plan(pod_group(min_count=1, priority=0), gang(1), full) == NO_VICTIMS
    assert plan(pod_group(min_count=2, **HIGH), gang(2), full) == PreemptionMessage.NOT_HELPFUL.value
    never = [member("p", cpu="1", priority=10, preemptionPolicy="Never")]
    assert plan(pod_group(min_count=1, **HIGH), never, full) == PreemptionMessage.POLICY_NEVER.value
    assert plan(pod_group(min_count=1, topology="rack", **HIGH), gang(1), full) == NOT_IN_DOMAINS


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 12)), max_size=6),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_victims_are_minimal(nodes: list[int], pods: list[tuple[int, int, int]], members: list[int]) -> None:
    """No single victim can be restored, and the group fits without them."""
    snapshot = snapshot_of(*(node(f"n{i}", cpu=str(cpu)) for i, cpu in enumerate(nodes)))
    free = dict(enumerate(nodes))
    for index, (where, cpu, priority) in enumerate(pods):
        if free.get(where, 0) >= cpu:
            free[where] -= cpu
            snapshot.set(low(f"v{index}", f"n{where}", str(cpu), priority=priority))
    wanted = [member(f"p{i}", cpu=str(cpu), priority=10) for i, cpu in enumerate(members)]
    group = pod_group(min_count=len(wanted), **HIGH)
    found = plan(group, wanted, snapshot)
    if not isinstance(found, GroupPreemption):
        return
    assert all(each.priority < 10 for each in found.victims)

    def fits(without: Sequence[Pod]) -> bool:
        left = snapshot_of(*(snapshot.node(row) for row in snapshot.rows()))
        for key in snapshot.pod_keys():
            known = snapshot.find_pod(key)
            if known is not None and known[1] not in without:
                left.set(known[1])
        return schedule_group(
            group, wanted, left, lambda each: SchedulerProfile.default(), lambda: "id"
        ).is_scheduled

    assert fits(found.victims)
    for spared in found.victims:
        assert not fits([each for each in found.victims if each is not spared])
