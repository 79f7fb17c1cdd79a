"""Pool status requests: answers each ResourcePoolStatusRequest once, and deletes it later (KEP-5677).

As in kube-controller-manager: the slices of a pool's newest generation are counted, with the devices that
claims have allocated in them. The request is deleted an hour after its answer, or after a day without one.

DIFF: while a pool is incomplete, the request waits for the missing slices; upstream gives up after five
retries within a second (test_a_request_waits_until_its_pools_are_complete).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import RESOURCE_CLAIMS, RESOURCE_POOL_STATUS_REQUESTS, RESOURCE_SLICES
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, DeleteAction, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.object_views import PoolStatusRequestView
from plimsoll.controllers.work_queue import WorkQueue

#: Seconds after which an answered request, and one that was never answered, are deleted.
ANSWERED_TTL = 3600.0
PENDING_TTL = 24 * 3600.0
DEFAULT_LIMIT = 100


@dataclass(slots=True)
class _Pool:
    """Slices of a pool in its newest generation."""

    generation: int
    expected_slices: int
    node_names: set[str]
    slices: int = 0
    devices: int = 0

    @property
    def is_complete(self) -> bool:
        return self.slices >= self.expected_slices


def plan_pool_status(
    request: PoolStatusRequestView,
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    now: float,
) -> ActionPlan:
    """Plan for a request: answer it, wait for the slices of its pools, or delete it."""
    metadata = request.metadata
    remaining = _expiry(request) - now
    if remaining < 0:
        return ActionPlan((DeleteAction(RESOURCE_POOL_STATUS_REQUESTS, metadata.name, uid=metadata.uid),))
    if request.status is not None:
        return ActionPlan(requeue_after=remaining)
    pools = _collect_pools(slices, request.spec.driver, request.spec.pool_name)
    for name, pool in pools.items():
        if not pool.is_complete:
            counted = f"{pool.slices} of {pool.expected_slices} slices at generation {pool.generation}"
            return ActionPlan(error=f"pool {request.spec.driver}/{name} is incomplete: {counted}")
    status = _build_status(request, pools, _count_allocated(claims, request.spec.driver), now)
    patch = {"metadata": {"resourceVersion": metadata.resource_version}, "status": status}
    action = PatchAction(RESOURCE_POOL_STATUS_REQUESTS, metadata.name, patch, subresource="status")
    return ActionPlan((action,))


def _expiry(request: PoolStatusRequestView) -> float:
    created = parse_time(request.metadata.creation_timestamp) or 0.0
    if request.status is None:
        return created + PENDING_TTL
    for condition in request.status.conditions:
        if condition.type in ("Complete", "Failed"):
            return (parse_time(condition.last_transition_time) or created) + ANSWERED_TTL
    return created + ANSWERED_TTL


def _collect_pools(slices: Iterable[ResourceSlice], driver: str, only: str) -> dict[str, _Pool]:
    pools: dict[str, _Pool] = {}
    for spec in (entry.spec for entry in slices):
        if spec.driver != driver or (only and spec.pool.name != only):
            continue
        pool = pools.get(spec.pool.name)
        if pool is None or pool.generation < spec.pool.generation:
            pool = _Pool(spec.pool.generation, spec.pool.resource_slice_count, set())
            pools[spec.pool.name] = pool
        if pool.generation == spec.pool.generation:
            pool.slices += 1
            pool.devices += len(spec.devices or ())
            pool.node_names.add(spec.node_name or "")
    return pools


def _count_allocated(claims: Iterable[ResourceClaim], driver: str) -> dict[str, int]:
    """Return the number of allocation results for devices of a driver, by pool."""
    counts: dict[str, int] = {}
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if result.driver == driver:
                counts[result.pool] = counts.get(result.pool, 0) + 1
    return counts


def _build_status(
    request: PoolStatusRequestView, pools: Mapping[str, _Pool], allocated: Mapping[str, int], now: float
) -> dict[str, Any]:
    limit = DEFAULT_LIMIT if request.spec.limit is None else request.spec.limit
    names = sorted(pools)[:limit]
    listed = [_describe(request.spec.driver, name, pools[name], allocated.get(name, 0)) for name in names]
    condition = {
        "type": "Complete",
        "status": "True",
        "reason": "CalculationComplete",
        "message": f"Calculated status for {len(listed)} pools",
        "lastTransitionTime": format_time(now),
    }
    status: dict[str, Any] = {"poolCount": len(pools), "conditions": [condition]}
    return {**status, "pools": listed} if listed else status


def _describe(driver: str, name: str, pool: _Pool, allocated: int) -> dict[str, Any]:
    described = {
        "driver": driver,
        "poolName": name,
        "generation": pool.generation,
        "resourceSliceCount": pool.slices,
        "totalDevices": pool.devices,
        "allocatedDevices": allocated,
        "availableDevices": max(0, pool.devices - allocated),
        "unavailableDevices": 0,  # always, as in Kubernetes 1.36
    }
    if len(pool.node_names) == 1 and "" not in pool.node_names:
        described["nodeName"] = next(iter(pool.node_names))
    return described


class ResourcePoolStatusController:
    """Controller around `plan_pool_status`."""

    name = "resourcepoolstatusrequest-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        informers = context.informers
        self._requests = informers.get(RESOURCE_POOL_STATUS_REQUESTS)
        self._slices = informers.get(RESOURCE_SLICES)
        self._claims = informers.get(RESOURCE_CLAIMS)
        self._requests.add_handler(CallbackHandler(self._on_request))
        self._slices.add_handler(CallbackHandler(self._on_slice))

    def _on_request(self, old: PoolStatusRequestView | None, new: PoolStatusRequestView | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.name)

    def _on_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if new is None:
            return
        for request in self._requests.items():
            if request.status is None and request.spec.driver == new.spec.driver:
                self.queue.add(request.metadata.name)

    async def reconcile(self, key: str) -> ActionPlan:
        request: PoolStatusRequestView | None = self._requests.get("", key)
        if request is None:
            return EMPTY_PLAN
        now = self._context.clock.now()
        plan = plan_pool_status(request, self._slices.items(), self._claims.items(), now)
        await self._context.executor.execute(plan.actions)
        return plan
