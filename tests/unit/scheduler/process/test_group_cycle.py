"""Pod groups in the scheduler process: on the embedded server, from the queue to the bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.handlers import discovery
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from plimsoll.errors import ApiError
from plimsoll.scheduler.process import group_cycle
from plimsoll.scheduler.snapshot.verify import verify
from tests.coroutines import run_by
from tests.manifests import Tree
from tests.unit.scheduler.process.scheduler_cluster import NS, SchedulerCluster, scheduler_cluster
from tests.waiting import until

GANG: dict[str, Any] = {"schedulingGroup": {"podGroupName": "gang"}}


async def create_group(cluster: SchedulerCluster, min_count: int, **spec: Any) -> None:
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    await cluster.admin.create(
        POD_GROUPS, {"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": policy, **spec}}, NS
    )


async def group_condition(cluster: SchedulerCluster, status: str) -> Tree:
    tree = await until(
        lambda: cluster.admin.get(POD_GROUPS, "gang", NS),
        lambda one: any(each["status"] == status for each in one.get("status", {}).get("conditions", ())),
    )
    (condition,) = tree["status"]["conditions"]
    assert condition["type"] == "PodGroupScheduled"
    return dict(condition)


async def nodes_of(cluster: SchedulerCluster, *names: str) -> list[str]:
    return [(await cluster.admin.get(PODS, name, NS))["spec"].get("nodeName", "") for name in names]


def play(scenario: Callable[[SchedulerCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with scheduler_cluster() as cluster:
            await scenario(cluster)

    asyncio.run(run())


@run_by(play)
async def test_a_gang_is_bound_once_it_is_complete(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="2")
    await cluster.node("b", cpu="2")
    process = await cluster.start()
    await cluster.pod("p0", **GANG)
    condition = await cluster.condition_of("p0")
    assert 'waiting for pods\'s pod group "gang" to appear in scheduling queue' in condition["message"]
    await create_group(cluster, 3)
    await cluster.pod("p1", **GANG)
    assert await nodes_of(cluster, "p0", "p1") == ["", ""]
    await cluster.pod("p2", **GANG)
    assert sorted([await cluster.bound(f"p{i}") for i in range(3)]) in (["a", "a", "b"], ["a", "b", "b"])
    condition = await group_condition(cluster, "True")
    assert (condition["reason"], condition["message"]) == ("Scheduled", "")
    await cluster.pod("p3", **GANG)
    await cluster.bound("p3")
    assert verify(process.context.snapshot) == []
    page = process.context.metrics.registry.render().decode()
    labels = '{profile="default-scheduler",result="scheduled"}'
    assert f"scheduler_podgroup_schedule_attempts_total{labels} 2.0" in page
    assert f"scheduler_podgroup_scheduling_attempt_duration_seconds_count{labels} 2.0" in page
    assert "scheduler_podgroup_scheduling_algorithm_duration_seconds_count 2.0" in page


@run_by(play)
async def test_an_attempt_may_take_many_turns_of_the_event_loop(
    cluster: SchedulerCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_cycle, "TURN_SECONDS", 0.0)
    await cluster.node("a", cpu="2")
    await cluster.node("b", cpu="4")
    process = await cluster.start()
    await create_group(cluster, 2)
    await cluster.pod("p0", cpu="2", **GANG)
    await cluster.pod("p1", cpu="4", **GANG)
    await cluster.pod("other", cpu="5")
    assert [await cluster.bound(f"p{i}") for i in range(2)] == ["a", "b"]
    assert "Insufficient cpu" in (await cluster.condition_of("other"))["message"]
    assert verify(process.context.snapshot) == []


@run_by(play)
async def test_a_scheduler_that_stops_gives_up_an_attempt(
    cluster: SchedulerCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(*args: Any, **options: Any) -> Any:
        while True:
            yield

    monkeypatch.setattr(group_cycle, "group_turns", endless)
    await cluster.node("a")
    process = await cluster.start()
    await create_group(cluster, 1)
    await cluster.pod("p0", **GANG)
    await until(lambda: process.context.queue.lengths()["active"] == 0)
    await cluster.stop(process)
    assert await nodes_of(cluster, "p0") == [""]


@run_by(play)
async def test_messages_are_those_of_the_servers_release(
    cluster: SchedulerCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "MINOR", "37")
    await cluster.node("a", cpu="2")
    await cluster.start()
    await create_group(cluster, 3)
    for i in range(3):
        await cluster.pod(f"p{i}", **GANG)
    counts = "pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    assert (await group_condition(cluster, "False"))["message"].startswith(counts)
    messages = sorted([(await cluster.condition_of(f"p{i}"))["message"] for i in range(3)])
    assert messages[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert all(each.startswith(counts) for each in messages[1:])
    await cluster.pod("large", "9")
    message = (await cluster.condition_of("large"))["message"]
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes")


@run_by(play)
async def test_a_gang_that_does_not_fit_is_not_bound_in_part(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="2")
    await cluster.start()
    await create_group(cluster, 3)
    for i in range(3):
        await cluster.pod(f"p{i}", **GANG)
    condition = await group_condition(cluster, "False")
    assert condition["reason"] == "Unschedulable"
    assert condition["message"].startswith("pod group is unschedulable")
    messages = sorted([(await cluster.condition_of(f"p{i}"))["message"] for i in range(3)])
    assert messages[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    waiting = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"
    assert messages[1:] == [waiting, waiting]
    await cluster.pod("other")  # the capacity of the gang was not kept
    assert await cluster.bound("other") == "a"
    assert await nodes_of(cluster, "p0", "p1", "p2") == ["", "", ""]
    await cluster.node("b", cpu="2")
    for i in range(3):
        await cluster.bound(f"p{i}")
    await group_condition(cluster, "True")


@run_by(play)
async def test_members_of_a_basic_group_are_bound_as_they_fit(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="1")
    await cluster.start()
    await create_group(cluster, 0)
    await cluster.pod("p0", **GANG)
    assert await cluster.bound("p0") == "a"
    await cluster.pod("p1", **GANG)
    assert "Insufficient cpu" in (await cluster.condition_of("p1"))["message"]


@run_by(play)
async def test_a_gang_preempts_pods_of_lower_priority(cluster: SchedulerCluster) -> None:
    await cluster.admin.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    await cluster.node("a", cpu="2")
    await cluster.node("b", cpu="2")
    await cluster.start()
    for i in range(4):
        await cluster.pod(f"low{i}", terminationGracePeriodSeconds=0)
        await cluster.bound(f"low{i}")
    await create_group(cluster, 2, priorityClassName="high")
    for i in range(2):
        await cluster.pod(f"p{i}", cpu="2", priorityClassName="high", **GANG)
    for i in range(2):
        await cluster.bound(f"p{i}")
    left = [tree["metadata"]["name"] for tree in await list_pods(cluster)]
    assert sorted(left) == ["p0", "p1"]


@run_by(play)
async def test_a_group_that_is_preempted_as_a_whole_gets_a_condition(cluster: SchedulerCluster) -> None:
    await cluster.admin.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    await cluster.node("a", cpu="1")
    await cluster.node("b", cpu="1")
    await cluster.start()
    await create_group(cluster, 2, disruptionMode="PodGroup")
    for i in range(2):
        await cluster.pod(f"p{i}", terminationGracePeriodSeconds=0, **GANG)
    for i in range(2):
        await cluster.bound(f"p{i}")
    await cluster.pod("high", priorityClassName="high")
    await cluster.bound("high")
    target = await disruption(cluster, "True")
    assert target["reason"] == "PreemptionByScheduler"
    assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert [tree["metadata"]["name"] for tree in await list_pods(cluster)] == ["high"]
    await cluster.node("c", cpu="1")
    for i in range(2):
        await cluster.pod(f"again{i}", **GANG)
    for i in range(2):
        await cluster.bound(f"again{i}")
    await disruption(cluster, "False")


async def disruption(cluster: SchedulerCluster, status: str) -> Tree:
    """Wait for the condition DisruptionTarget of the group to have this status."""

    def find(tree: Tree) -> list[Tree]:
        known = tree.get("status", {}).get("conditions", ())
        return [each for each in known if (each["type"], each["status"]) == ("DisruptionTarget", status)]

    return find(await until(lambda: cluster.admin.get(POD_GROUPS, "gang", NS), find))[0]


@run_by(play)
async def test_pods_beyond_the_minimum_preempt_as_well(cluster: SchedulerCluster) -> None:
    await cluster.admin.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    await cluster.node("a", cpu="1")
    await cluster.start()
    await cluster.pod("low", terminationGracePeriodSeconds=0)
    await cluster.bound("low")
    await cluster.node("b", cpu="1")
    for i in range(2):
        await cluster.pod(f"p{i}", priorityClassName="high", **GANG)
    await create_group(cluster, 1, priorityClassName="high")
    assert sorted([await cluster.bound(f"p{i}") for i in range(2)]) == ["a", "b"]
    assert "low" not in [tree["metadata"]["name"] for tree in await list_pods(cluster)]


async def list_pods(cluster: SchedulerCluster) -> list[Tree]:
    return [decode_tree(raw) for raw in (await cluster.admin.list(PODS, NS)).items]


def claim_tree(name: str) -> Tree:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


async def with_devices(cluster: SchedulerCluster, *nodes: str, count: int) -> None:
    await cluster.admin.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}})
    for name in nodes:
        await cluster.node(name)
    await cluster.devices(*nodes, count=count)


def using(claim: str) -> Tree:
    return {"resourceClaims": [{"name": "c", "resourceClaimName": claim}], **GANG}


@run_by(play)
async def test_a_gang_with_a_failing_selector_is_retried_after_its_backoff(cluster: SchedulerCluster) -> None:
    await with_devices(cluster, "a", count=1)
    failing = claim_tree("c")
    selector = {"cel": {"expression": 'device.attributes["gpu.example.com"].absent > 5'}}
    failing["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [selector]
    await cluster.admin.create(RESOURCE_CLAIMS, failing, NS)
    process = await cluster.start()
    await create_group(cluster, 2)
    await cluster.pod("p0", **using("c"))
    await cluster.pod("p1", **GANG)
    condition = await group_condition(cluster, "False")
    assert condition["reason"] == "SchedulerError"
    assert condition["message"].startswith("failed to schedule other pod from a pod group: running")
    own, other = [await cluster.condition_of(f"p{i}") for i in range(2)]
    assert own["reason"] == other["reason"] == "SchedulerError"
    assert own["message"].startswith('running "DynamicResources" filter plugin: claim default/c')
    assert other["message"] == condition["message"]
    await until(process.context.queue.lengths, lambda lengths: lengths["backoff"] == 2)
    await cluster.admin.delete(RESOURCE_CLAIMS, "c", NS)
    await cluster.admin.create(RESOURCE_CLAIMS, claim_tree("c"), NS)
    for i in range(2):
        await cluster.bound(f"p{i}")


@run_by(play)
async def test_members_share_a_claim(cluster: SchedulerCluster) -> None:
    await with_devices(cluster, "a", "b", count=1)
    await cluster.admin.create(RESOURCE_CLAIMS, claim_tree("c"), NS)
    await cluster.start()
    await create_group(cluster, 3)
    for i in range(3):
        await cluster.pod(f"p{i}", **using("c"))
    assert len({await cluster.bound(f"p{i}") for i in range(3)}) == 1
    claim = await cluster.admin.get(RESOURCE_CLAIMS, "c", NS)
    assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == ["p0", "p1", "p2"]


@run_by(play)
async def test_no_member_is_bound_if_one_cannot_write_its_claim(
    cluster: SchedulerCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_devices(cluster, "a", count=2)
    for name in ("c0", "c1"):
        await cluster.admin.create(RESOURCE_CLAIMS, claim_tree(name), NS)
    process = await cluster.start()
    refused = asyncio.Event()
    inner = process.writer.write_allocation

    async def refuse(claim: Any, *rest: Any) -> Any:
        if claim.metadata.name == "c1" and not refused.is_set():
            refused.set()
            raise ApiError(422, "Invalid", "refused by the test")
        return await inner(claim, *rest)

    monkeypatch.setattr(process.writer, "write_allocation", refuse)
    await create_group(cluster, 2)
    for i in range(2):
        await cluster.pod(f"p{i}", **using(f"c{i}"))
    await refused.wait()
    condition = await cluster.condition_of("p0")
    assert "another pod of the pod group could not be bound" in condition["message"]
    for i in range(2):
        assert await cluster.bound(f"p{i}") == "a"


@run_by(play)
async def test_a_new_scheduler_completes_a_gang_that_is_bound_in_part(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="4")
    await create_group(cluster, 3)
    await cluster.pod("p0", nodeName="a", **GANG)
    await cluster.start()
    for i in (1, 2):
        await cluster.pod(f"p{i}", **GANG)
    for i in (1, 2):
        await cluster.bound(f"p{i}")


async def with_template(cluster: SchedulerCluster) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    tree = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    await cluster.admin.create(RESOURCE_CLAIM_TEMPLATES, tree, NS)


SHARED: dict[str, Any] = {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": "t"}]}


@run_by(play)
async def test_a_claim_of_the_group_is_generated_reserved_and_released(cluster: SchedulerCluster) -> None:
    await with_devices(cluster, "a", "b", count=1)
    await with_template(cluster)
    await cluster.start()
    await create_group(cluster, 2, **SHARED)
    for i in range(2):
        await cluster.pod(f"p{i}", **SHARED, **GANG)
    assert len({await cluster.bound(f"p{i}") for i in range(2)}) == 1
    group = await cluster.admin.get(POD_GROUPS, "gang", NS)
    (status,) = group["status"]["resourceClaimStatuses"]
    claim = await cluster.admin.get(RESOURCE_CLAIMS, status["resourceClaimName"], NS)
    assert claim["status"]["reservedFor"] == [
        {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "gang",
            "uid": group["metadata"]["uid"],
        }
    ]
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    for i in range(2):
        await cluster.admin.delete(PODS, f"p{i}", NS, grace=0)
    await cluster.admin.delete(POD_GROUPS, "gang", NS)
    await until(lambda: cluster.admin.list(RESOURCE_CLAIMS, NS), lambda listing: not listing.items)


@run_by(play)
async def test_a_claim_of_an_unschedulable_group_is_released(cluster: SchedulerCluster) -> None:
    await with_devices(cluster, "a", count=1)
    await cluster.admin.create(RESOURCE_CLAIMS, claim_tree("c"), NS)
    entry = {"resourceClaims": [{"name": "net", "resourceClaimName": "c"}]}
    await create_group(cluster, 2, **entry)
    group = await cluster.admin.get(POD_GROUPS, "gang", NS)
    consumer = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": "gang",
        "uid": group["metadata"]["uid"],
    }
    device = {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]}
    await cluster.admin.patch(RESOURCE_CLAIMS, "c", {"status": status}, NS, subresource="status")
    await cluster.start()
    for i in range(2):
        await cluster.pod(f"p{i}", cpu="3", **entry, **GANG)
    await until(
        lambda: cluster.admin.get(RESOURCE_CLAIMS, "c", NS),
        lambda one: not one["status"].get("allocation"),
    )
