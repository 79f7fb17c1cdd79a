"""Pool status requests: plan and controller."""

from __future__ import annotations

from typing import Any

from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import RESOURCE_POOL_STATUS_REQUESTS, RESOURCE_SLICES
from plimsoll.controllers.actions import DeleteAction, PatchAction
from plimsoll.controllers.object_views import PoolStatusRequestView
from plimsoll.controllers.resource_pool_status import ANSWERED_TTL, PENDING_TTL, plan_pool_status
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.makers import metadata, view

ONLY = ["resourcepoolstatusrequest-controller"]
DRIVER, NOW = "gpu.example.com", 1_000_000.0


def request(status: dict[str, Any] | None = None, created: float = NOW, **spec: Any) -> PoolStatusRequestView:
    tree: dict[str, Any] = {
        "metadata": metadata("r", "", creationTimestamp=format_time(created)),
        "spec": {"driver": DRIVER, **spec},
    }
    return view(tree if status is None else {**tree, "status": status}, PoolStatusRequestView)


def slice_tree(
    name: str,
    pool: str,
    devices: int,
    *,
    driver: str = DRIVER,
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    described = {"name": pool, "generation": generation, "resourceSliceCount": count}
    listed = [{"name": f"d{number}"} for number in range(devices)]
    return {
        "metadata": metadata(name, ""),
        "spec": {"driver": driver, "pool": described, "devices": listed, **spec},
    }


def slices(*trees: dict[str, Any]) -> list[ResourceSlice]:
    return [view(tree, ResourceSlice) for tree in trees]


def claim(*devices: tuple[str, str]) -> ResourceClaim:
    results = [{"request": "r", "driver": d, "pool": p, "device": "d0"} for d, p in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return view({"metadata": metadata("c"), "status": status}, ResourceClaim)


def answer(plan_of: PoolStatusRequestView, known: list[ResourceSlice], *claims: ResourceClaim) -> Any:
    (action,) = plan_pool_status(plan_of, known, claims, NOW).actions
    assert isinstance(action, PatchAction)
    assert action.subresource == "status"
    return action.patch["status"]


def test_pools_of_the_driver_are_counted_with_their_allocations() -> None:
    known = slices(
        slice_tree("a", "p1", 3, nodeName="n1"),
        slice_tree("b", "p2", 1, count=2, nodeName="n1"),
        slice_tree("c", "p2", 4, count=2, nodeName="n2"),
        slice_tree("d", "p1", 9, driver="other.example.com"),
    )
    claims = (claim((DRIVER, "p1"), (DRIVER, "p1")), claim(("other.example.com", "p1")), claim())
    status = answer(request(), known, *claims)
    assert status["poolCount"] == 2
    first, second = status["pools"]
    assert first == {
        "driver": DRIVER,
        "poolName": "p1",
        "nodeName": "n1",
        "generation": 1,
        "resourceSliceCount": 1,
        "totalDevices": 3,
        "allocatedDevices": 2,
        "availableDevices": 1,
        "unavailableDevices": 0,
    }
    assert "nodeName" not in second
    assert (second["resourceSliceCount"], second["totalDevices"], second["availableDevices"]) == (2, 5, 5)
    assert [(each["type"], each["status"], each["reason"]) for each in status["conditions"]] == [
        ("Complete", "True", "CalculationComplete")
    ]


def test_only_the_newest_generation_counts() -> None:
    old, new = slice_tree("a", "p", 5, generation=1), slice_tree("b", "p", 2, generation=2)
    for order in ((old, new), (new, old)):
        (pool,) = answer(request(), slices(*order))["pools"]
        assert (pool["generation"], pool["totalDevices"], pool["resourceSliceCount"]) == (2, 2, 1)


def test_the_list_is_limited_and_the_count_is_not() -> None:
    known = slices(*(slice_tree(f"s{number}", f"p{number}", 1) for number in (3, 1, 2)))
    status = answer(request(limit=2), known)
    assert (status["poolCount"], [pool["poolName"] for pool in status["pools"]]) == (3, ["p1", "p2"])
    assert [pool["poolName"] for pool in answer(request(poolName="p3"), known)["pools"]] == ["p3"]
    assert answer(request(poolName="p9"), known)["poolCount"] == 0


def test_a_request_waits_until_its_pools_are_complete() -> None:
    plan = plan_pool_status(request(), slices(slice_tree("a", "p", 1, count=2)), (), NOW)
    assert not plan
    assert plan.error == "pool gpu.example.com/p is incomplete: 1 of 2 slices at generation 1"


def test_requests_are_deleted_after_a_time() -> None:
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": format_time(NOW)}
    answered, pending = request({"poolCount": 0, "conditions": [condition]}, NOW - 99), request()
    for each, lifetime in ((answered, ANSWERED_TTL), (pending, PENDING_TTL)):
        (action,) = plan_pool_status(each, (), (), NOW + lifetime + 1).actions
        assert isinstance(action, DeleteAction)
        assert (action.name, action.uid) == ("r", "uid-r")
    kept = plan_pool_status(answered, (), (), NOW + 60)
    assert (kept.actions, kept.requeue_after) == ((), ANSWERED_TTL - 60)


@run_by(run_scenario, only=ONLY)
async def test_a_request_is_answered_once_its_last_slice_is_published(cluster: Cluster) -> None:
    client = cluster.client
    first = slice_tree("a", "p", 2, count=2, nodeName="w")
    second = slice_tree("b", "p", 1, count=2, nodeName="w")
    second["spec"]["devices"][0]["name"] = "other"
    for tree in (first, second):
        tree["metadata"] = {"name": tree["metadata"]["name"]}
    await client.create(RESOURCE_SLICES, first)
    spec = {"metadata": {"name": "r"}, "spec": {"driver": DRIVER}}
    made = await client.create(RESOURCE_POOL_STATUS_REQUESTS, spec)
    assert "status" not in made
    await cluster.settle()
    assert "status" not in await client.get(RESOURCE_POOL_STATUS_REQUESTS, "r")
    await client.create(RESOURCE_SLICES, second)
    await cluster.settle()
    found = await client.get(RESOURCE_POOL_STATUS_REQUESTS, "r")
    assert [pool["totalDevices"] for pool in found["status"]["pools"]] == [3]
    cluster.clock.advance(ANSWERED_TTL + 1)
    await cluster.settle()
    assert await cluster.names(RESOURCE_POOL_STATUS_REQUESTS) == []
