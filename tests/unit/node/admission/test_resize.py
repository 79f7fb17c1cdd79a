"""In-place resize: feasibility, conditions and events, and an order of steps that the kernel accepts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.errors import InputError
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.node.admission.allocation import PodAllocation
from plimsoll.node.admission.resize import (
    ResizeDecision,
    ResizeOutcome,
    ResizePlan,
    check_resize,
    format_resize_event,
    in_progress_condition,
    pending_condition,
    plan_resize,
)
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans import CgroupSettings, ContainerPlan, PodPlan
from plimsoll.node.cgroups import PodUsage, open_cgroups
from plimsoll.node.resources import resources_from_plan
from tests.sizes import examples
from tests.unit.node.cgroups.stand_in import V1StandIn

GI = 1 << 30
MAPPED = {"resourceClaimName": "x", "containers": ["a"], "mapping": [{"name": "cpu", "quantity": "2"}]}
V1_37 = AccountingProfile(form=Form.V1_37)
RESTART = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def pod(*containers: dict[str, Any], uid: str = "u", charged: bool = False, **spec: Any) -> Pod:
    status = {"nodeAllocatableResourceClaimStatuses": [MAPPED]} if charged else {}
    full = {"containers": list(containers), **spec}
    metadata = {"name": uid, "namespace": "n", "uid": uid, "generation": 3}
    return codec.convert({"metadata": metadata, "spec": full, "status": status}, Pod)


def one(requests: dict[str, str], limits: dict[str, str] | None = None, name: str = "a", **more: Any) -> Any:
    return {"name": name, "resources": {"requests": requests, "limits": limits or {}}, **more}


def node_ledger(
    *others: Pod, cpu: str = "8", profile: AccountingProfile = V1_37, gates: Gates | None = None
) -> NodeLedger:
    line = {"cpu": cpu, "memory": "16Gi", "pods": "10"}
    node = codec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": line}}, Node)
    ledger = NodeLedger(node, gates, profile)
    for other in others:
        ledger.add(other)
    return ledger


def judge(before: Pod, after: Pod, ledger: NodeLedger | None = None, **more: Any) -> ResizeDecision | None:
    return check_resize(after, PodAllocation.from_spec(before), ledger or node_ledger(before), **more)


SMALL = pod(one({"cpu": "1", "memory": "1Gi"}))


# -- feasibility


def test_a_pod_without_changes_needs_no_resize() -> None:
    assert judge(SMALL, SMALL) is None
    # Other spellings of the same amount, and other resources, are no resize.
    assert judge(SMALL, pod(one({"cpu": "1000m", "memory": "1024Mi", "example.com/x": "1"}))) is None


def test_a_resize_that_fits_is_feasible() -> None:
    assert judge(SMALL, pod(one({"cpu": "8", "memory": "1Gi"}))) == ResizeDecision(ResizeOutcome.ACCEPTED)


def test_a_resize_that_does_not_fit_now_is_deferred_with_the_kubelets_message() -> None:
    other = pod(one({"cpu": "5"}), uid="other")
    judged = judge(SMALL, pod(one({"cpu": "4", "memory": "1Gi"})), node_ledger(SMALL, other))
    text = "Node didn't have enough resource: cpu, requested: 4000, used: 5000, capacity: 8000"
    assert judged == ResizeDecision(ResizeOutcome.DEFERRED, text)


def test_more_than_the_node_has_is_infeasible() -> None:
    judged = judge(SMALL, pod(one({"cpu": "9", "memory": "1Gi"})))
    text = "Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000"
    assert judged == ResizeDecision(ResizeOutcome.INFEASIBLE, text)


def test_shrinking_is_never_deferred() -> None:
    """Even if allocatable has fallen below the admitted requests."""
    other = pod(one({"cpu": "7"}), uid="other")
    before = pod(one({"cpu": "6", "memory": "1Gi"}))
    after = pod(one({"cpu": "5", "memory": "1Gi"}))
    assert judge(before, after, node_ledger(before, other, cpu="4")) == ResizeDecision(ResizeOutcome.ACCEPTED)
    # What grows beside it is looked at.
    after = pod(one({"cpu": "5", "memory": "17Gi"}))
    judged = judge(before, after, node_ledger(before, other, cpu="4"))
    assert judged is not None
    assert "memory" in judged.message


def test_pods_with_claim_charges_are_not_resized_in_1_36() -> None:
    before = pod(one({"cpu": "1"}), charged=True)
    after = pod(one({"cpu": "2"}), charged=True)
    judged = judge(before, after, node_ledger(before, profile=AccountingProfile()))
    text = "pods with node allocatable resource claims cannot be resized"
    assert judged == ResizeDecision(ResizeOutcome.INFEASIBLE, text)
    assert judge(before, after) == ResizeDecision(ResizeOutcome.ACCEPTED)
    assert judge(before, after, form=Form.V1_36) == judged


def test_claims_count_towards_the_line_in_1_37() -> None:
    before = pod(one({"cpu": "1"}), charged=True)
    assert judge(before, pod(one({"cpu": "6"}), charged=True)) == ResizeDecision(ResizeOutcome.ACCEPTED)
    judged = judge(before, pod(one({"cpu": "7"}), charged=True))
    assert judged is not None
    assert judged.outcome is ResizeOutcome.INFEASIBLE
    assert "requested: 9000" in judged.message


def test_the_budget_of_the_pod_covers_claims() -> None:
    whole = {"requests": {"cpu": "4"}}
    before = pod(one({"cpu": "1"}), charged=True, resources=whole)
    assert judge(before, pod(one({"cpu": "2"}), charged=True, resources=whole)) == ResizeDecision(
        ResizeOutcome.ACCEPTED
    )
    judged = judge(before, pod(one({"cpu": "3"}), charged=True, resources=whole))
    assert judged == ResizeDecision(
        ResizeOutcome.INFEASIBLE,
        "pod level request for cpu is insufficient to cover the aggregated container and "
        "node-allocatable DRA requests",
    )
    wider = {"requests": {"cpu": "5"}}
    assert judge(before, pod(one({"cpu": "3"}), charged=True, resources=wider)) == ResizeDecision(
        ResizeOutcome.ACCEPTED
    )


def test_limits_of_the_pod_cover_claims() -> None:
    whole = {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}
    before = pod(one({"cpu": "1"}, {"cpu": "1"}), charged=True, resources=whole)
    after = pod(one({"cpu": "1"}, {"cpu": "3"}), charged=True, resources=whole)
    judged = judge(before, after)
    assert judged is not None
    assert judged.message.endswith("the limit and DRA overhead for container a")


def test_a_change_of_qos_class_is_infeasible() -> None:
    guaranteed = pod(one({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}))
    after = pod(one({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}))
    judged = judge(guaranteed, after)
    assert judged == ResizeDecision(ResizeOutcome.INFEASIBLE, "the QoS class cannot be changed by a resize")


def test_resize_follows_its_feature_gates() -> None:
    after = pod(one({"cpu": "2", "memory": "1Gi"}))
    off = Gates.parse("InPlacePodVerticalScaling=false,InPlacePodLevelResourcesVerticalScaling=false")
    judged = judge(SMALL, after, node_ledger(SMALL, gates=off))
    assert judged == ResizeDecision(ResizeOutcome.INFEASIBLE, "InPlacePodVerticalScaling is disabled")
    off = Gates.parse("InPlacePodLevelResourcesVerticalScaling=false")
    before = pod(one({}), resources={"requests": {"cpu": "1"}})
    after = pod(one({}), resources={"requests": {"cpu": "2"}})
    judged = judge(before, after, node_ledger(before, gates=off))
    assert judged == ResizeDecision(
        ResizeOutcome.INFEASIBLE, "InPlacePodLevelResourcesVerticalScaling is disabled"
    )


def test_amounts_drawn_from_a_claim_cannot_be_resized() -> None:
    item = {"name": "cpu", "quantity": "6", "accountingPolicy": "ConsumeFrom", "drawn": "1"}
    entry = {"resourceClaimName": "x", "containers": ["a"], "mapping": [item]}

    def drawing(cpu: str, memory: str = "1Gi") -> Pod:
        made = pod(
            one({"cpu": cpu, "memory": memory}), resourceClaims=[{"name": "x", "resourceClaimName": "x"}]
        )
        status = codec.convert({"status": {"nodeAllocatableResourceClaimStatuses": [entry]}}, Pod).status
        return msgspec.structs.replace(made, status=status)

    judged = judge(drawing("1"), drawing("2"))
    text = "claim x: the amount of cpu drawn from it was fixed when the pod was scheduled"
    assert judged == ResizeDecision(ResizeOutcome.INFEASIBLE, text)
    assert judge(drawing("1"), drawing("1", "2Gi")) == ResizeDecision(ResizeOutcome.ACCEPTED)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 12), st.integers(1, 12), st.booleans())
def test_resize_fit_equals_the_naive_sum(
    before: int, after: int, others: int, line: int, charged: bool
) -> None:
    """Compare with plain sums of CPU requests."""
    was, now = (pod(one({"cpu": str(cpu)}), charged=charged) for cpu in (before, after))
    ledger = node_ledger(was, pod(one({"cpu": str(others)}), uid="other"), cpu=str(line))
    judged = judge(was, now, ledger)
    claim = 2 if charged else 0
    if before == after:
        expected = None
    elif after < before or after + claim + others <= line:
        expected = ResizeOutcome.ACCEPTED
    else:
        expected = ResizeOutcome.DEFERRED if after + claim <= line else ResizeOutcome.INFEASIBLE
    assert (None if judged is None else judged.outcome) == expected
    assert ledger.verify() == []


# -- reported resources


def test_conditions() -> None:
    condition = pending_condition(SMALL, ResizeDecision(ResizeOutcome.DEFERRED, "not now"))
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "PodResizePending",
        "True",
        "Deferred",
        "not now",
    )
    assert condition.observed_generation == 3
    condition = in_progress_condition(SMALL)
    assert (condition.type, condition.reason, condition.message) == ("PodResizeInProgress", "", "")
    assert in_progress_condition(SMALL, "no").reason == "Error"


def test_events() -> None:
    text = format_resize_event(SMALL, "started")
    assert text.startswith("Pod resize started: ")
    assert json.loads(text.partition(": ")[2]) == {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "generation": 3,
    }
    assert '"error":"why"' in format_resize_event(SMALL, "Infeasible", "why")


# -- steps


SETTINGS = CgroupSettings(memory_capacity=16 * GI, cgroup_version=1)


def steps(before: Pod, after: Pod, running: set[str] | None = None, **more: Any) -> ResizePlan | str:
    enforcement = CgroupPlanner(SETTINGS)
    names = {container.name for container in after.spec.containers} if running is None else running
    return plan_resize(
        after,
        PodAllocation.from_spec(before),
        enforcement.plan(before),
        enforcement.plan(after),
        names,
        **more,
    )


def names(plan: ResizePlan | str) -> list[str]:
    assert isinstance(plan, ResizePlan)
    return [step.container for step in plan.steps]


LOW = {"cpu": "1", "memory": "1Gi"}
HIGH = {"cpu": "2", "memory": "2Gi"}


def test_a_pod_grows_before_its_containers_and_shrinks_after_them() -> None:
    low, high = pod(one(LOW, LOW)), pod(one(HIGH, HIGH))
    assert names(steps(low, high)) == ["", "a"]
    assert names(steps(high, low)) == ["a", ""]
    assert steps(low, low) == ResizePlan()


def test_shrinking_updates_precede_growing_ones() -> None:
    before = pod(one(LOW, LOW), one(HIGH, HIGH, name="b"))
    after = pod(one(HIGH, HIGH), one(LOW, LOW, name="b"))
    assert names(steps(before, after)) == ["b", "a"]


def test_cpu_may_grow_while_memory_shrinks() -> None:
    before = pod(one({"cpu": "1", "memory": "2Gi"}, {"cpu": "1", "memory": "2Gi"}))
    after = pod(one({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}))
    plan = steps(before, after)
    assert names(plan) == ["", "a", ""]
    assert isinstance(plan, ResizePlan)
    first, last = plan.steps[0].plan, plan.steps[-1].plan
    assert isinstance(first, PodPlan)
    assert isinstance(last, PodPlan)
    assert (first.cpu_quota, first.memory) == (200_000, 2 * GI)
    assert (last.cpu_quota, last.memory) == (200_000, GI)


def test_containers_that_have_to_restart_are_not_updated() -> None:
    before = pod(one(LOW, LOW, resizePolicy=RESTART), one(LOW, LOW, name="b"))
    after = pod(one(HIGH, HIGH, resizePolicy=RESTART), one(HIGH, HIGH, name="b"))
    plan = steps(before, after)
    assert isinstance(plan, ResizePlan)
    assert plan.restart == ("a",)
    assert names(plan) == ["", "b"]
    assert plan.rest is None
    # Only cpu changes, and the policy is about memory.
    after = pod(one({**LOW, "cpu": "2"}, {**LOW, "cpu": "2"}, resizePolicy=RESTART), one(LOW, LOW, name="b"))
    assert names(steps(before, after)) == ["", "a"]


def test_a_pod_shrinks_when_the_last_container_that_had_more_is_gone() -> None:
    before = pod(one(HIGH, HIGH, resizePolicy=RESTART), one(HIGH, HIGH, name="b"))
    after = pod(one(LOW, LOW, resizePolicy=RESTART), one(LOW, LOW, name="b"))
    plan = steps(before, after, usage=PodUsage(memory_in_use=4 * GI))
    assert isinstance(plan, ResizePlan)
    assert (names(plan), plan.restart) == (["b"], ("a",))
    assert plan.rest is not None
    assert plan.rest.plan == CgroupPlanner(SETTINGS).plan(after).pod


def test_a_pod_level_limit_applies_to_its_containers() -> None:
    before = pod(one({}, resizePolicy=RESTART), resources={"limits": {"memory": "1Gi"}})
    after = pod(one({}, resizePolicy=RESTART), resources={"limits": {"memory": "2Gi"}})
    plan = steps(before, after)
    assert isinstance(plan, ResizePlan)
    assert plan.restart == ("a",)


def test_containers_that_do_not_run_are_left_alone() -> None:
    assert names(steps(pod(one(LOW, LOW)), pod(one(HIGH, HIGH)), set())) == [""]


def test_a_limit_below_usage_is_not_set() -> None:
    high, low = pod(one(HIGH, HIGH)), pod(one(LOW, LOW))
    used = PodUsage(memory=5, memory_in_use=GI)
    assert steps(high, low, usage=used, usages={"a": PodUsage(memory_in_use=GI + 7)}) == (
        "cannot decrease memory limits: "
        f"[attempting to set pod memory limit ({GI}) below current usage ({GI}), "
        f'attempting to set container "a" memory limit ({GI}) below current usage ({GI + 7})]'
    )
    assert steps(high, low, usage=PodUsage()) == "cannot decrease memory limits: missing pod memory usage"
    assert steps(high, low, usages={"a": PodUsage()}) == (
        'cannot decrease memory limits: missing container "a" memory usage'
    )
    fine = PodUsage(memory_in_use=GI - 1)
    assert names(steps(high, low, usage=fine, usages={"a": fine})) == ["a", ""]
    assert names(steps(low, high, usage=used)) == ["", "a"]


_AMOUNT = st.integers(1, 30).map(lambda n: {"cpu": f"{n * 100}m", "memory": f"{n * 64}Mi"})


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(_AMOUNT, _AMOUNT), min_size=1, max_size=3))
def test_the_kernel_accepts_every_step(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[dict[str, str], dict[str, str]]]
) -> None:
    """Steps between any two plans, on a fake kernel with the rules of cgroup v1."""
    before = pod(*(one(was, was, name=f"c{i}") for i, (was, _) in enumerate(sizes)))
    after = pod(*(one(now, now, name=f"c{i}") for i, (_, now) in enumerate(sizes)))
    kernel = V1StandIn(tmp_path_factory.mktemp("v1") / "cgroup", ["cpu", "memory"])
    cgroups = open_cgroups("r", mount=kernel.mount, kernel=kernel)
    enforcement = CgroupPlanner(SETTINGS)
    cgroups.set_up()
    start, goal = enforcement.plan(before), enforcement.plan(after)
    assert cgroups.make_pod("u", start.qos, start.pod) == ()
    for name, container in start.containers.items():
        assert cgroups.make_container("u", name, resources_from_plan(container)) == ()
    plan = steps(before, after)
    assert isinstance(plan, ResizePlan)
    for step in plan.steps:
        if isinstance(step.plan, PodPlan):
            assert cgroups.make_pod("u", goal.qos, step.plan) == ()
        else:
            assert isinstance(step.plan, ContainerPlan)
            assert cgroups.make_container("u", step.container, resources_from_plan(step.plan)) == ()
    fresh = open_cgroups("r", mount=kernel.mount, kernel=kernel)
    fresh.make_pod("u", goal.qos, goal.pod)
    for name, container in goal.containers.items():
        fresh.make_container("u", name, resources_from_plan(container))
    assert {k: v for k, v in cgroups.plan().items() if k in fresh.plan()} == fresh.plan()


# -- allocations


def test_an_allocation_survives_a_round_trip_through_its_file() -> None:
    whole = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    before = pod(one(LOW, LOW), initContainers=[one({"cpu": "3"}, name="i")], resources=whole)
    kept = PodAllocation.from_spec(before)
    again = PodAllocation.from_json(json.loads(json.dumps(kept.to_json())))
    after = pod(
        one(HIGH, HIGH), initContainers=[one({"cpu": "5"}, name="i")], resources={"requests": {"cpu": "9"}}
    )
    assert again.apply_to(after).spec.containers == before.spec.containers
    assert again.apply_to(after).spec.init_containers == before.spec.init_containers
    assert again.apply_to(after).spec.resources == before.spec.resources
    assert PodAllocation.from_json(PodAllocation().to_json()) == PodAllocation()


@pytest.mark.parametrize("value", [None, 5, [], {"containers": []}, {"containers": {"a": 5}}, {"pod": "x"}])
def test_malformed_allocations_are_refused(value: object) -> None:
    with pytest.raises(InputError):
        PodAllocation.from_json(value)


def test_other_resources_and_claims_are_those_of_the_spec() -> None:
    before = pod(one({"cpu": "1", "example.com/x": "1"}))
    after = pod(one({"cpu": "2", "example.com/x": "2"}), one({"cpu": "7"}, name="new"))
    kept = PodAllocation.from_spec(before).apply_to(after)
    amounts = {name: str(amount) for name, amount in kept.spec.containers[0].resources.requests.items()}
    assert amounts == {"cpu": "1", "example.com/x": "2"}
    assert kept.spec.containers[1] == after.spec.containers[1]
