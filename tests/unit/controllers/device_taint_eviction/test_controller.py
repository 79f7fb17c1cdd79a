"""Device taint eviction: eviction times, rule statuses, and the controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, DeleteAction, PatchAction
from plimsoll.controllers.device_taint_eviction.plan import (
    PlannedEviction,
    claim_eviction,
    plan_eviction,
    pod_eviction,
    published_taints,
    rule_taints,
)
from plimsoll.controllers.device_taint_eviction.rule_status import (
    RuleEffects,
    describe_progress,
    next_status_update,
    plan_rule,
)
from tests.coroutines import run_by
from tests.unit.controllers.cluster import START, Cluster, run_scenario
from tests.unit.controllers.makers import (
    BY_NAME,
    BY_TEMPLATE,
    claim,
    claim_tree,
    metadata,
    owner,
    pod,
    view,
)
from tests.unit.controllers.new_objects import claim as claim_to_make
from tests.unit.controllers.new_objects import pod as pod_to_make
from tests.unit.controllers.new_objects import published

ONLY = ["device-taint-eviction-controller"]
T0 = "2025-01-01T00:00:00Z"
AT = 1735689600.0  # T0


def taint(effect: str = "NoExecute", key: str = "k", value: str = "", added: float = 0.0) -> dict[str, Any]:
    return {"key": key, "value": value, "effect": effect, "timeAdded": format_time(AT + added)}


def slice_(
    *taints: dict[str, Any], device: str = "x", generation: int = 1, name: str = "s", pool: str = "p"
) -> ResourceSlice:
    return view(
        {
            "metadata": metadata(name, ""),
            "spec": {
                "driver": "d",
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "devices": [{"name": device, "taints": list(taints)}],
            },
        },
        ResourceSlice,
    )


def rule(
    effect: str = "NoExecute", name: str = "r", added: float = 0.0, selector: Any = None, **fields: Any
) -> DeviceTaintRule:
    chosen = {"device": "x"} if selector is None else selector
    return view(
        {
            "metadata": metadata(name, "", generation=1),
            "spec": {"deviceSelector": chosen or None, "taint": taint(effect, added=added)},
            **fields,
        },
        DeviceTaintRule,
    )


def tainting(slices: Iterable[ResourceSlice] = (), rules: Iterable[DeviceTaintRule] = ()) -> Any:
    published = published_taints(slices)

    def taints(result: DeviceRequestAllocationResult) -> Any:
        return [*published.get(result.device, ()), *rule_taints(rules, result)]

    return taints


def device(name: str = "x", *tolerations: dict[str, Any]) -> dict[str, Any]:
    return {"request": "r", "driver": "d", "pool": "p", "device": name, "tolerations": list(tolerations)}


def tolerate(seconds: int | None = None, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    return base | ({} if seconds is None else {"tolerationSeconds": seconds}) | fields


def when(*tolerations: dict[str, Any], slices: Any = None, rules: Any = ()) -> float | None:
    """Return the eviction time in seconds after T0."""
    taints = tainting([slice_(taint())] if slices is None else slices, rules)
    found = claim_eviction(claim(devices=[device("x", *tolerations)]), taints)
    return None if found is None else found.when - AT


# -- deadlines


def test_a_taint_evicts_from_the_time_it_was_added() -> None:
    assert when() == 0
    assert when(slices=[slice_(taint(added=30))]) == 30
    assert when(slices=[slice_(taint("NoSchedule"))]) is None
    assert when(slices=[slice_(taint("None"))]) is None
    assert when(slices=[slice_(taint(), device="other")]) is None
    assert when(slices=[]) is None


def test_of_several_taints_the_earliest_counts() -> None:
    assert when(slices=[slice_(taint(added=50), taint(key="l", added=20), taint("NoSchedule"))]) == 20


def test_tolerations() -> None:
    assert when(tolerate()) is None
    assert when(tolerate(60)) == 60
    assert when(tolerate(60), tolerate(20)) == 20, "the shortest counts"
    assert when(tolerate(60), tolerate()) is None, "for ever beats all"
    assert when(tolerate(-5)) == 0
    assert when(tolerate(effect="NoSchedule")) == 0
    assert when(tolerate(effect="")) == 0, "only what names NoExecute delays eviction"
    assert when(tolerate(key="other")) == 0
    assert when(tolerate(key="")) is None
    assert when(tolerate(operator="Equal", value="v")) == 0
    assert when(tolerate(operator="Equal", value="")) is None
    assert when(tolerate(operator="Odd")) == 0


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_(taint(), name="old", generation=1)
    assert when(slices=[old, slice_(name="new", generation=2)]) is None
    assert when(slices=[old, slice_(taint(added=9), name="new", generation=2)]) == 9


def test_rules_taint_the_selected_devices() -> None:
    assert when(slices=[], rules=[rule()]) == 0, "the device need not be published"
    assert when(slices=[], rules=[rule(selector={"driver": "d", "pool": "p", "device": "x"})]) == 0
    assert when(slices=[], rules=[rule(selector={"device": "y"})]) is None
    assert when(slices=[], rules=[rule(selector={"pool": "q"})]) is None
    assert when(slices=[], rules=[rule(selector={"driver": "e"})]) is None
    assert when(slices=[], rules=[rule(selector=False)]) is None, "no selector, no device"
    assert when(slices=[], rules=[rule("None")]) is None
    assert when(tolerate(10), slices=[], rules=[rule(added=5)]) == 15


def test_causes_are_reported_in_order() -> None:
    rules = [rule(name="b"), rule(name="a")]
    taints = tainting([slice_(taint(), taint(key="l"))], rules)
    found = claim_eviction(claim(devices=[device(), device()]), taints)
    assert found is not None
    assert [(cause.rule, cause.taint_index) for cause in found.causes] == [
        ("a", 0),
        ("b", 0),
        ("", 0),
        ("", 1),
    ]


def test_a_pod_is_evicted_at_the_earliest_time_of_its_claims() -> None:
    slices = [slice_(taint(added=40))]
    rules = [rule(selector={"device": "y"}, added=20)]
    claims = {
        "one": claim("one", devices=[device("x")], pods=["p"]),
        "two": claim("two", devices=[device("y")], pods=["p"]),
    }
    of = pod("p", claims={"a": (BY_NAME, "one"), "b": (BY_NAME, "two")}, node="w")
    found = pod_eviction(of, claims, tainting(slices, rules))
    assert found is not None
    assert found.when == AT + 20
    assert len(found.causes) == 2


def test_pods_that_are_not_evicted() -> None:
    taints = tainting([slice_(taint())])
    entries = {"a": (BY_NAME, "c")}
    mine = {"c": claim(devices=[device()], pods=["p"])}
    assert pod_eviction(pod("p", claims=entries, node="w"), mine, taints) == PlannedEviction(
        AT, taints_of(taints)
    )
    assert pod_eviction(pod("p", claims=entries), mine, taints) is None, "no node yet"
    assert pod_eviction(pod("q", claims=entries, node="w"), mine, taints) is None, "not reserved for it"
    assert pod_eviction(pod("p", claims=entries, node="w"), {}, taints) is None, "no such claim"
    assert pod_eviction(pod("p", claims=entries, node="w"), {"c": claim(pods=["p"])}, taints) is None
    generated = pod("p", claims={"a": (BY_TEMPLATE, "t")}, node="w", statuses={"a": "c"})
    assert pod_eviction(generated, mine, taints) is None, "made for another pod"
    own = {"c": claim(devices=[device()], pods=["p"], of="p")}
    assert pod_eviction(generated, own, taints) is not None


def test_pods_of_a_pod_group_are_evicted_with_its_claim() -> None:
    taints = tainting([slice_(taint())])
    tree = claim_tree(devices=[device()])
    tree["metadata"]["ownerReferences"] = [
        owner("g", "PodGroup", "scheduling.k8s.io/v1alpha2", controller=True)
    ]
    tree["status"]["reservedFor"] = [group_reference()]
    claims = {"c": view(tree, ResourceClaim)}

    def member(group: str) -> Pod:
        spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
        entries = {"a": (BY_TEMPLATE, "t")}
        return pod("p", claims=entries, node="w", statuses={"a": "c"}, spec=spec)

    assert pod_eviction(member("g"), claims, taints) is not None
    assert pod_eviction(member("h"), claims, taints) is None
    assert pod_eviction(member(""), claims, taints) is None


def group_reference(uid: str = "uid-g") -> dict[str, str]:
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}


def taints_of(taints: Any) -> Any:
    return tuple(cause for cause, _, _ in taints(view(device(), DeviceRequestAllocationResult)))


TAINTS = st.builds(
    taint,
    st.sampled_from(["NoExecute", "NoSchedule"]),
    st.sampled_from(["k", "l"]),
    st.just(""),
    st.sampled_from([0, 10, 20]),
)
TOLERATIONS = st.builds(tolerate, st.sampled_from([None, 0, 5, 15]), key=st.sampled_from(["", "k", "l"]))


@given(st.lists(TAINTS, max_size=3), st.lists(TOLERATIONS, max_size=3), st.lists(TAINTS, max_size=2))
def test_eviction_times_agree_with_the_rules(taints: Any, tolerations: Any, ruled: Any) -> None:
    """Reference: every evicting taint, every matching toleration."""
    rules = [
        view({"metadata": metadata(f"r{i}", ""), "spec": {"deviceSelector": {}, "taint": t}}, DeviceTaintRule)
        for i, t in enumerate(ruled)
    ]
    times = []
    for each in [*taints, *ruled]:
        if each["effect"] != "NoExecute":
            continue
        added = {format_time(AT + s): s for s in (0, 10, 20)}[each["timeAdded"]]
        fitting = [t for t in tolerations if t["key"] in ("", each["key"])]
        if any("tolerationSeconds" not in t for t in fitting):
            continue
        times.append(added + min((t["tolerationSeconds"] for t in fitting), default=0))
    found = when(*tolerations, slices=[slice_(*taints)], rules=rules)
    assert found == min(times, default=None)


# -- actions


def test_an_evicted_pod_gets_an_event_and_a_condition_and_is_deleted() -> None:
    report, mark, delete = plan_eviction(pod("p", node="w", generation=2), AT).actions
    assert isinstance(report, EventRecord)
    assert (report.type, report.reason, report.message) == (
        "Normal",
        "DeviceTaintManagerEviction",
        "Marking for deletion",
    )
    assert isinstance(mark, PatchAction)
    assert mark.patch["status"]["conditions"] == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": T0,
        }
    ]
    assert delete == DeleteAction(PODS, "p", "n", uid="uid-p")


@pytest.mark.parametrize(("status", "since"), [("True", "2024-01-01T00:00:00Z"), ("False", T0)])
def test_a_condition_with_another_reason_is_replaced(status: str, since: str) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": status,
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    }
    before = [{"type": "Ready", "status": "True"}, condition, {"type": "Other", "status": "True"}]
    _, mark, _ = plan_eviction(pod("p", node="w", status={"conditions": before}), AT).actions
    assert isinstance(mark, PatchAction)
    (changed,) = mark.patch["status"]["conditions"]
    assert (changed["reason"], changed["lastTransitionTime"]) == ("DeletionByDeviceTaintManager", since)
    order = [item["type"] for item in mark.patch["status"]["$setElementOrder/conditions"]]
    assert order == ["Ready", "DisruptionTarget", "Other"]


def test_a_pod_gets_its_condition_once() -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByDeviceTaintManager",
        "message": "Device Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": T0,
    }
    actions = plan_eviction(pod("p", node="w", status={"conditions": [condition]}), AT + 5).actions
    assert [type(action) for action in actions] == [EventRecord, DeleteAction]
    assert plan_eviction(pod("p", node="w", deletionTimestamp=T0), AT) == EMPTY_PLAN


# -- rules


@pytest.mark.parametrize(
    ("effect", "effects", "condition_of_rule"),
    [
        ("NoExecute", RuleEffects(), ("False", "NotStarted", "")),
        (
            "NoExecute",
            RuleEffects(pods=1, namespaces=1),
            ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
        ),
        (
            "NoExecute",
            RuleEffects(pods=3, namespaces=2, evicted=1),
            (
                "True",
                "PodsPendingEviction",
                "3 pods need to be evicted in 2 different namespaces. "
                "1 pod evicted since starting the controller.",
            ),
        ),
        (
            "NoExecute",
            RuleEffects(evicted=2),
            ("False", "Completed", "2 pods evicted since starting the controller."),
        ),
        (
            "NoSchedule",
            RuleEffects(),
            ("False", "OtherEffect", "Eviction only happens for the NoExecute effect."),
        ),
        (
            "None",
            RuleEffects(pods=1, namespaces=1, published=2, allocated=1),
            (
                "False",
                "NoEffect",
                "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in "
                "1 namespace if the effect was NoExecute. This information will not be updated again. "
                "Recreate the DeviceTaintRule to trigger an update.",
            ),
        ),
    ],
)
def test_rule_status(effect: str, effects: RuleEffects, condition_of_rule: tuple[str, str, str]) -> None:
    assert describe_progress(rule(effect), effects) == condition_of_rule


def test_a_rule_status_is_written_once_and_rate_limited() -> None:
    (patch,) = plan_rule(rule(), RuleEffects(), AT).actions
    assert isinstance(patch, PatchAction)
    assert (patch.type, patch.field_manager) == ("apply", "device-taint-eviction-controller")
    condition_of_rule = patch.patch["status"]
    known = rule(status=condition_of_rule)
    assert plan_rule(known, RuleEffects(), AT + 99) == EMPTY_PLAN
    assert plan_rule(known, RuleEffects(pods=1), AT + 99) != EMPTY_PLAN
    assert next_status_update(rule(), AT) == 0
    assert next_status_update(known, AT + 4) == 6
    assert next_status_update(known, AT + 11) == 0
    changed = view({**_tree(known), "metadata": metadata("r", "", generation=2)}, DeviceTaintRule)
    assert next_status_update(changed, AT + 4) == 0, "the rule has changed since"


def _tree(of: DeviceTaintRule) -> dict[str, Any]:
    tree: dict[str, Any] = codec.to_tree(of)
    return tree


# -- controller


async def use(cluster: Cluster, *tolerations: dict[str, Any]) -> None:
    """Create a running pod with a claim for device x."""
    await cluster.client.create(RESOURCE_CLAIMS, claim_to_make(), "n")
    await cluster.client.create(PODS, pod_to_make("p", {"a": {"resourceClaimName": "c"}}), "n")
    await cluster.allocate("c", "p", tolerations=list(tolerations))
    await cluster.bind("p")
    await cluster.settle(max_wait=0)


def rule_to_make(effect: str = "NoExecute", **selector: str) -> dict[str, Any]:
    chosen = {"driver": "d.example.com", **selector}
    return {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": chosen, "taint": {"key": "k", "value": "v", "effect": effect}},
    }


async def condition_of_rule(cluster: Cluster) -> tuple[str, str, str]:
    tree = await cluster.client.get(DEVICE_TAINT_RULES, "r")
    (condition,) = tree["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


@run_by(run_scenario, only=ONLY)
async def test_a_tainted_device_evicts_its_pod(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_SLICES, published())
    await use(cluster)
    assert await cluster.names(PODS) == ["p"]
    tree = await cluster.client.get(RESOURCE_SLICES, "s")
    tree["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "NoExecute"}]
    await cluster.client.update(RESOURCE_SLICES, tree)
    await cluster.settle(max_wait=0)
    left = await cluster.get(PODS, "p")
    assert left is not None
    assert left["metadata"]["deletionTimestamp"]
    (condition,) = [c for c in left["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    assert await cluster.events() == [("Normal", "DeviceTaintManagerEviction", "Marking for deletion")]


@run_by(run_scenario, only=ONLY)
async def test_a_toleration_delays_eviction_and_removing_the_taint_cancels_it(cluster: Cluster) -> None:
    await cluster.client.create(
        RESOURCE_SLICES, published({"key": "k", "effect": "NoExecute", "timeAdded": format_time(START)})
    )
    await use(cluster, tolerate(60))
    await cluster.advance(59)
    await cluster.client.update(
        RESOURCE_SLICES,
        {**published(), "metadata": (await cluster.client.get(RESOURCE_SLICES, "s"))["metadata"]},
    )
    await cluster.advance(100)
    left = await cluster.get(PODS, "p")
    assert left is not None
    assert "deletionTimestamp" not in left["metadata"]
    assert await cluster.events() == [("Normal", "DeviceTaintManagerEviction", "Cancelling deletion")]


@run_by(run_scenario, only=ONLY)
async def test_a_pod_is_evicted_when_its_toleration_ends(cluster: Cluster) -> None:
    await cluster.client.create(
        RESOURCE_SLICES, published({"key": "k", "effect": "NoExecute", "timeAdded": format_time(START)})
    )
    await use(cluster, tolerate(60))
    await cluster.advance(59)
    await cluster.restart()
    await cluster.settle(max_wait=0)
    left = await cluster.get(PODS, "p")
    assert left is not None
    assert "deletionTimestamp" not in left["metadata"]
    await cluster.advance(2)
    left = await cluster.get(PODS, "p")
    assert left is not None
    assert "deletionTimestamp" in left["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_a_rule_evicts_and_reports(cluster: Cluster) -> None:
    await use(cluster, tolerate(30))
    await cluster.client.create(DEVICE_TAINT_RULES, rule_to_make())
    await cluster.settle(max_wait=0)
    assert await condition_of_rule(cluster) == (
        "True",
        "PodsPendingEviction",
        "1 pod needs to be evicted in 1 namespace.",
    )
    await cluster.advance(60)
    text = "1 pod evicted since starting the controller."
    assert await condition_of_rule(cluster) == ("False", "Completed", text)
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" in tree["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_a_rule_evicts_the_pods_of_a_pod_group(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIMS, claim_to_make(), "n")
    for name, group in (("p", "g"), ("q", "g"), ("other", "h")):
        spec = {"schedulingGroup": {"podGroupName": group}}
        new = pod_to_make(name, {"a": {"resourceClaimName": "c"}}, **spec)
        await cluster.client.create(PODS, new, "n")
    await cluster.allocate("c")
    status = {"status": {"reservedFor": [group_reference("1")]}}
    await cluster.client.patch(RESOURCE_CLAIMS, "c", status, "n", subresource="status")
    for name in ("p", "q", "other"):
        await cluster.bind(name)
    await cluster.settle(max_wait=0)
    await cluster.client.create(DEVICE_TAINT_RULES, rule_to_make())
    await cluster.settle(max_wait=0)
    evicted = {
        tree["metadata"]["name"]
        for tree in await cluster.trees(PODS)
        if "deletionTimestamp" in tree["metadata"]
    }
    assert evicted == {"p", "q"}


@run_by(run_scenario, only=ONLY)
async def test_a_rule_without_effect_reports_affected_pods(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_SLICES, published())
    await use(cluster)
    await cluster.client.create(DEVICE_TAINT_RULES, rule_to_make("None"))
    await cluster.advance(30)
    status, reason, message = await condition_of_rule(cluster)
    assert (status, reason) == ("False", "NoEffect")
    assert message.startswith(
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace "
    )
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" not in tree["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_a_rule_deleted_in_time_evicts_no_pod(cluster: Cluster) -> None:
    await use(cluster, tolerate(30))
    await cluster.client.create(DEVICE_TAINT_RULES, rule_to_make())
    await cluster.advance(20)
    await cluster.client.delete(DEVICE_TAINT_RULES, "r")
    await cluster.advance(60)
    tree = await cluster.get(PODS, "p")
    assert tree is not None
    assert "deletionTimestamp" not in tree["metadata"]
