"""Planted faults: patches of the product, each of which the simulator must find.

Among them are the faults by which this project, and kube-scheduler before it, gave a device to two claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.client import cache as informer_cache
from plimsoll.client.leader_election import Election
from plimsoll.controllers.resource_claim import claim_plan
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.scheduler.binding import bind
from plimsoll.scheduler.binding.attempts import BindAttempts
from plimsoll.scheduler.binding.placeholders import PlaceholderBinder
from plimsoll.scheduler.binding.writer import retry_until_answered
from plimsoll.scheduler.process import api_writer, charge_writer, run
from plimsoll.scheduler.process.shared_claims import MERGE
from plimsoll.scheduler.queue.queue import SchedulingQueue
from plimsoll.scheduler.snapshot import snapshot
from plimsoll.scheduler.snapshot.published_devices import PublishedDevices
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def plant(name: str) -> None:
    """Apply a fault to this process, for good."""
    PLANTED[name]()


def _unanswered_write_is_not_fenced() -> None:
    """A write without a response is believed to have failed once the claim was read without it."""

    async def settle(self: Any, claim: Any) -> Any:
        fresh = await retry_until_answered(self.writer, self.writer.read_claim, claim)
        return None if fresh is None else self._observe(fresh)

    BindAttempts._settle_claim = settle  # type: ignore[method-assign]


def _new_leader_trusts_its_cache() -> None:
    _wrap_take_over(refresh=False)


def _new_leader_does_not_fence() -> None:
    _wrap_take_over(fence=False)


def _wrap_take_over(**fixed: bool) -> None:
    real: Any = vars(run)["take_over"]

    async def take_over(*arguments: Any, **options: Any) -> None:
        await real(*arguments, **{**options, **fixed})

    vars(run)["take_over"] = take_over


def _release_without_its_allocation() -> None:
    """A release is not bound to the version of the claim that it releases."""
    real = api_writer.ApiWriter.unreserve

    async def unreserve(self: Any, claim: Any, consumer: Any, *, deallocate: bool = False) -> Any:
        if not deallocate:
            return await real(self, claim, consumer)
        cleared = {"allocation": None, "reservedFor": None, "devices": None}
        body = {"metadata": {"uid": claim.metadata.uid}, "status": cleared}
        return await self._patch_claim(claim, body, MERGE, "/status")

    api_writer.ApiWriter.unreserve = unreserve  # type: ignore[method-assign]


def _assumption_forgotten_too_early() -> None:
    """A placement is forgotten when its pod is deleted, while its writes are in flight."""
    real = Snapshot.remove

    def remove(self: Snapshot, old: Any) -> None:
        real(self, old)
        if isinstance(old, Pod):
            self.forget(pod_key(old))

    Snapshot.remove = remove  # type: ignore[method-assign]


def _event_out_of_order() -> None:
    """A watch event that is older than a response replaces it."""
    vars(snapshot)["is_older"] = lambda new, old: False


def _event_lost() -> None:
    """A bookmark moves the cache past events that it has not seen."""
    real = informer_cache.Cache.apply

    def apply(self: Any, event: Any) -> Any:
        if event.type == "DELETED" and event.revision.endswith("7"):
            self.revision = event.revision
            return iter(())
        return real(self, event)

    informer_cache.Cache.apply = apply  # type: ignore[method-assign]


def _charge_not_written() -> None:
    async def write_charges(self: Any, entries: Any) -> None:
        return None

    bind.BindTransaction.write_charges = write_charges  # type: ignore[method-assign]
    charge_writer.ChargeWriter.annotate_binding = lambda *arguments: {}  # type: ignore[method-assign]


def _reservation_kept() -> None:
    """Claims keep the reservations of pods that are gone."""
    claim_plan._keeps_reservation = lambda *arguments: True


def _wake_up_lost() -> None:
    """Pods do not learn that a claim was released."""
    real = SchedulingQueue.on_event

    def on_event(self: Any, event: Any, now: int) -> int:
        return 0 if "Claim" in event.kind.value else real(self, event, now)

    SchedulingQueue.on_event = on_event  # type: ignore[method-assign]


def _leader_goes_on() -> None:
    """A leader whose lease has expired goes on."""
    Election.holds = lambda self: True  # type: ignore[method-assign]
    Election.check = lambda self: None  # type: ignore[method-assign]

    async def keep(self: Any, renewed: float) -> None:
        while True:
            await asyncio.sleep(self.timing.retry)
            await self.attempt(self.timing.renew)

    Election._keep = keep  # type: ignore[method-assign]


def _taint_not_seen() -> None:
    """The devices that are cached stay as they were when their slices change."""
    real = PublishedDevices.on_slice

    def on_slice(self: Any, slice: Any, added: bool) -> str:
        before = self._inventory_outdated
        node = real(self, slice, added)
        if any(device.taints for device in slice.spec.devices):
            self._inventory_outdated = before
        return node

    PublishedDevices.on_slice = on_slice  # type: ignore[method-assign]


def _placeholder_not_created() -> None:
    async def create(*arguments: Any) -> None:
        return None

    PlaceholderBinder.create = create  # type: ignore[assignment, method-assign]


def _device_prepared_twice() -> None:
    """A kubelet prepares a device for a claim while another one holds it."""
    ClaimInfoCache._conflicts = lambda *arguments: iter(())  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {
    "unanswered-write-not-fenced": _unanswered_write_is_not_fenced,
    "new-leader-trusts-its-cache": _new_leader_trusts_its_cache,
    "new-leader-does-not-fence": _new_leader_does_not_fence,
    "release-without-its-allocation": _release_without_its_allocation,
    "assumption-forgotten-too-early": _assumption_forgotten_too_early,
    "event-out-of-order": _event_out_of_order,
    "event-lost": _event_lost,
    "charge-not-written": _charge_not_written,
    "reservation-kept": _reservation_kept,
    "wake-up-lost": _wake_up_lost,
    "leader-goes-on": _leader_goes_on,
    "taint-not-seen": _taint_not_seen,
    "placeholder-not-created": _placeholder_not_created,
    "device-prepared-twice": _device_prepared_twice,
}
