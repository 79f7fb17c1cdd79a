"""Binding conditions of simulated devices, which the scheduler waits for between allocation and binding.

`find_pending_conditions` computes the conditions to set in a claim; `BindingConditionWriter` watches claims
and sets them after the configured delay, where a real driver would attach the device.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from plimsoll.api.timestamps import format_time
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.common.tasks import cancel_tasks
from plimsoll.drivers.fake.plan import BindingPlan
from plimsoll.errors import ApiError

#: (driver, pool, device) -> binding plan; None: a foreign device, or one without conditions.
FindBinding = Callable[[str, str, str], BindingPlan | None]
_log = logging.getLogger("plimsoll.driver")
_ATTEMPTS = 6
_FIRST_DELAY = 0.1
_REASON = {"ready": "Ready", "fail": "Failed"}


@dataclass(frozen=True, slots=True)
class PendingCondition:
    """Allocated device whose conditions are still to be set."""

    driver: str
    pool: str
    device: str
    share_id: str | None
    types: tuple[str, ...]  #: condition types to set to True
    reason: str
    after: float

    def status(self, now: str) -> dict[str, Any]:
        """Return the device's entry in `status.devices` of the claim."""
        tree: dict[str, Any] = {"driver": self.driver, "pool": self.pool, "device": self.device}
        if self.share_id is not None:
            tree["shareID"] = self.share_id
        tree["conditions"] = [
            {
                "type": type_,
                "status": "True",
                "reason": self.reason,
                "message": f"after {self.after:g} s, as configured in the device file",
                "lastTransitionTime": now,
            }
            for type_ in self.types
        ]
        return tree


def find_pending_conditions(claim: ResourceClaim, find: FindBinding) -> tuple[PendingCondition, ...]:
    """Return the devices of a claim whose conditions are still to be set."""
    return tuple(_due(claim, find))


def _due(claim: ResourceClaim, find: FindBinding) -> Iterator[PendingCondition]:
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        binding = find(result.driver, result.pool, result.device)
        if binding is None or not result.binding_conditions or binding.outcome == "never":
            continue
        types = binding.conditions if binding.outcome == "ready" else binding.failures[:1]
        if set(types) <= _true_conditions(claim.status.devices, result):
            continue
        yield PendingCondition(
            result.driver,
            result.pool,
            result.device,
            result.share_id,
            types,
            _REASON[binding.outcome],
            binding.after,
        )


def _true_conditions(
    statuses: tuple[AllocatedDeviceStatus, ...], result: DeviceRequestAllocationResult
) -> set[str]:
    desired = (result.driver, result.pool, result.device, result.share_id)
    return {
        condition.type
        for status in statuses
        if (status.driver, status.pool, status.device, status.share_id) == desired
        for condition in status.conditions
        if condition.status == "True"
    }


class BindingConditionWriter(EventHandler[ResourceClaim]):
    """Watches all claims and sets the conditions of their devices when due."""

    def __init__(self, client: Client, find: FindBinding) -> None:
        self._client = client
        self._find = find
        self._tasks: dict[tuple[str, PendingCondition], asyncio.Task[None]] = {}
        self._claims: Informer[ResourceClaim] = Informer(
            client, RESOURCE_CLAIMS, partial(codec.decode, view=ResourceClaim)
        )
        self._claims.add_handler(self)

    async def run(self) -> None:
        """Run until cancelled; pending conditions are dropped."""
        try:
            await self._claims.run()
        finally:
            await cancel_tasks(self._tasks.values())

    async def synced(self) -> None:
        """Wait until all existing claims have been handled."""
        await self._claims.synced()

    def on_added(self, new: ResourceClaim) -> None:
        for due in find_pending_conditions(new, self._find):
            key = (new.metadata.uid, due)
            if key not in self._tasks:
                task = self._tasks[key] = asyncio.create_task(self._set(new, due))
                task.add_done_callback(partial(self._forget, key))

    def on_changed(self, old: ResourceClaim, new: ResourceClaim) -> None:
        self.on_added(new)

    def _forget(self, key: tuple[str, PendingCondition], task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)

    async def _set(self, seen: ResourceClaim, due: PendingCondition) -> None:
        namespace, name = seen.metadata.namespace, seen.metadata.name
        await asyncio.sleep(due.after)
        for attempt in range(_ATTEMPTS):
            now = self._claims.get(namespace, name)
            if now is None or now.metadata.uid != seen.metadata.uid:
                return  # gone
            if due not in find_pending_conditions(now, self._find):
                return  # set already, or no longer allocated
            try:
                await self._write(namespace, name, now.metadata.uid, due)
            except ApiError as error:
                _log.info("conditions of %s in claim %s/%s: %s", due.device, namespace, name, error)
                await asyncio.sleep(_FIRST_DELAY * 2**attempt)
            else:
                return

    async def _write(self, namespace: str, name: str, uid: str, due: PendingCondition) -> None:
        timestamp = format_time(time.time())
        tree = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": {"devices": [due.status(timestamp)]},
        }
        await self._client.patch(
            RESOURCE_CLAIMS,
            name,
            tree,
            namespace,
            subresource="status",
            type="apply",
            # One field manager per device: an apply removes fields of its manager that it omits.
            field_manager=f"{due.pool}/{due.device}/{due.share_id or ''}"[-128:],
            force=True,
        )
