"""Binding conditions: what the scheduler waits for between allocating a device and binding the pod.

Owns `due_statuses`, which says what is to be written into a claim, and `Binder`, which follows claims and
writes it in time. Devices of real drivers are attached in that time; those of a file are said to be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.api.resource import AllocatedDeviceStatus, AllocationDevice, ResourceClaim
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.client.informer import Handler, Informer
from plimsoll.drivers.fake.plan import Binding
from plimsoll.errors import ApiError

#: (driver, pool, device) -> what becomes of its conditions; None: not one of ours, or without conditions.
Find = Callable[[str, str, str], Binding | None]
_log = logging.getLogger("plimsoll.driver")
_ATTEMPTS = 6
_FIRST_WAIT = 0.1
_REASON = {"ready": "Ready", "fail": "Failed"}


@dataclass(frozen=True, slots=True)
class Due:
    """A device of a claim whose conditions are to be set, and how."""

    driver: str
    pool: str
    device: str
    share_id: str | None
    types: tuple[str, ...]  #: the conditions that become True
    reason: str
    after: float

    def status(self, now: str) -> dict[str, Any]:
        """The device's entry in the claim's status."""
        tree: dict[str, Any] = {"driver": self.driver, "pool": self.pool, "device": self.device}
        if self.share_id is not None:
            tree["shareID"] = self.share_id
        tree["conditions"] = [
            {
                "type": type_,
                "status": "True",
                "reason": self.reason,
                "message": f"after {self.after:g} s, as the file of devices says",
                "lastTransitionTime": now,
            }
            for type_ in self.types
        ]
        return tree


def due_statuses(claim: ResourceClaim, find: Find) -> tuple[Due, ...]:
    """The devices of a claim whose conditions are still to be set."""
    return tuple(_due(claim, find))


def _due(claim: ResourceClaim, find: Find) -> Iterator[Due]:
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        binding = find(result.driver, result.pool, result.device)
        if binding is None or not result.binding_conditions or binding.outcome == "never":
            continue
        types = binding.conditions if binding.outcome == "ready" else binding.failures[:1]
        if set(types) <= _true_conditions(claim.status.devices, result):
            continue
        yield Due(
            result.driver,
            result.pool,
            result.device,
            result.share_id,
            types,
            _REASON[binding.outcome],
            binding.after,
        )


def _true_conditions(statuses: tuple[AllocatedDeviceStatus, ...], result: AllocationDevice) -> set[str]:
    wanted = (result.driver, result.pool, result.device, result.share_id)
    return {
        condition.type
        for status in statuses
        if (status.driver, status.pool, status.device, status.share_id) == wanted
        for condition in status.conditions
        if condition.status == "True"
    }


class Binder(Handler[ResourceClaim]):
    """Follows all claims and sets the conditions of devices, each when it is due."""

    def __init__(self, client: Client, find: Find) -> None:
        self._client = client
        self._find = find
        self._tasks: dict[tuple[str, Due], asyncio.Task[None]] = {}
        self._claims: Informer[ResourceClaim] = Informer(
            client, RESOURCE_CLAIMS, partial(codec.decode, view=ResourceClaim)
        )
        self._claims.add_handler(self)

    async def run(self) -> None:
        """Until cancelled; what waits then is left."""
        try:
            await self._claims.run()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def synced(self) -> None:
        """Wait until all claims there are have been looked at."""
        await self._claims.synced()

    def on_added(self, new: ResourceClaim) -> None:
        for due in due_statuses(new, self._find):
            key = (new.metadata.uid, due)
            if key not in self._tasks:
                task = self._tasks[key] = asyncio.create_task(self._set(new, due))
                task.add_done_callback(partial(self._forget, key))

    def on_changed(self, old: ResourceClaim, new: ResourceClaim) -> None:
        self.on_added(new)

    def _forget(self, key: tuple[str, Due], task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)

    async def _set(self, seen: ResourceClaim, due: Due) -> None:
        namespace, name = seen.metadata.namespace, seen.metadata.name
        await asyncio.sleep(due.after)
        for attempt in range(_ATTEMPTS):
            now = self._claims.get(namespace, name)
            if now is None or now.metadata.uid != seen.metadata.uid:
                return  # gone
            if due not in due_statuses(now, self._find):
                return  # set already, or no longer allocated
            try:
                await self._write(namespace, name, now.metadata.uid, due)
            except ApiError as error:
                _log.info("conditions of %s in claim %s/%s: %s", due.device, namespace, name, error)
                await asyncio.sleep(_FIRST_WAIT * 2**attempt)
            else:
                return

    async def _write(self, namespace: str, name: str, uid: str, due: Due) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        tree = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": {"devices": [due.status(moment)]},
        }
        await self._client.patch(
            RESOURCE_CLAIMS,
            name,
            tree,
            namespace,
            subresource="status",
            type="apply",
            # One for each device: what one apply leaves out of its own fields, it takes away.
            field_manager=f"{due.pool}/{due.device}/{due.share_id or ''}"[-128:],
            force=True,
        )
