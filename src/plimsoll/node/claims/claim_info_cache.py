"""Claim info cache: claims are prepared for the first pod that needs them and unprepared after the last.

A claim is checkpointed before a driver is called for it, and the driver's response before the claim is used;
an unprepare is checkpointed before the driver is called. A crash at any point therefore neither forgets a
claim nor trusts one that a driver may not hold. See docs/spec/node-protocols.md, "DRA plugin".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from plimsoll.api.core import Container, Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.common.checkpoint import RecordFile, read_boot_id
from plimsoll.common.keyed_lock import KeyedLock
from plimsoll.errors import StoreError
from plimsoll.node.claim_info import PREPARE, UNPREPARE, ClaimInfo, ClaimRef, Devices, DriverFault, Drivers
from plimsoll.node.claims import container_claims
from plimsoll.node.claims.checkpoint import (
    RestoredClaims,
    claims_file,
    encode_body,
    encode_claim,
    restore,
)
from plimsoll.node.claims.checks import ClaimToPrepare, read_claims
from plimsoll.node.claims.device_conflicts import (
    conflict_fault,
    find_conflicts,
    find_replaced,
    releases_devices,
)
from plimsoll.node.claims.faults import (
    NOT_SAVED,
    ClaimFault,
    from_driver_fault,
    not_saved,
)
from plimsoll.node.claims.store import ClaimStore
from plimsoll.node.claims.transitions import (
    add_pods,
    apply_prepare_responses,
    apply_unprepare_responses,
    find_reallocation,
    remove_pods,
    validate_response,
)
from plimsoll.node.layout import Layout
from plimsoll.node.plugins.metrics import DraMetrics

__all__ = ["ClaimFault", "ClaimInfoCache"]

_NO_CLAIMS = RestoredClaims()


class ClaimInfoCache:
    """Claims in use, their pods, and what drivers have prepared for them."""

    def __init__(
        self,
        drivers: Drivers,
        restored: RestoredClaims = _NO_CLAIMS,
        file: RecordFile | None = None,
        boot: str = "",
        optional_operations: bool = False,
        metrics: DraMetrics | None = None,
    ) -> None:
        self._drivers = drivers
        self._optional_operations = optional_operations
        self._metrics = metrics or DraMetrics()
        self.store = ClaimStore(restored.claims, file, boot, lost=restored.lost)
        self.store.on_release = lambda uids: self.on_release(uids)
        self.locks = KeyedLock()
        #: Claims being prepared: their devices count as held before they are checkpointed.
        self._preparing: dict[str, ClaimInfo] = {}
        #: Called with the UIDs of claims that released devices other claims may wait for.
        self.on_release: Callable[[frozenset[str]], None] = lambda _: None
        #: Problems found while loading the checkpoint.
        self.findings = restored.findings
        #: The checkpoint was lost and `rebuild` has not succeeded yet.
        self.needs_rebuild = restored.lost
        #: Pods whose release began while a rebuild was needed: the rebuild must not prepare their claims.
        self._released_pods: set[str] = set()
        #: Consumers of claims that count as pods here until the rebuild: see `_other_consumers`.
        self._assumed_consumers: set[str] = set()

    @staticmethod
    def open(
        layout: Layout,
        drivers: Drivers,
        *,
        save: bool = True,
        now: Callable[[], float] = time.time,
        boot: str | None = None,
        optional_operations: bool = False,
        metrics: DraMetrics | None = None,
    ) -> ClaimInfoCache:
        """Open the cache as the last agent, or a kubelet, left it. With `save` off it is kept in memory only.

        `boot` is the kernel boot ID: claims prepared before a reboot have to be prepared again.
        `optional_operations` is the feature gate DRAOptionalNodeOperations.
        """
        if not save:
            return ClaimInfoCache(drivers, optional_operations=optional_operations, metrics=metrics)
        file, boot = claims_file(layout, now), read_boot_id() if boot is None else boot
        # DIFF: a kubelet with a damaged checkpoint does not start:
        # test_a_damaged_checkpoint_is_quarantined_and_rebuilt.
        restored = restore(layout, file, boot=boot)
        if restored.lost:
            # The damaged file is out of the way: the next start must not take its absence for an empty node.
            with suppress(StoreError):
                file.save(encode_body(map(encode_claim, restored.claims), boot, lost=True))
        return ClaimInfoCache(drivers, restored, file, boot, optional_operations, metrics)

    # -- prepare

    async def prepare(self, pod: Pod, claims: Mapping[str, ResourceClaim]) -> tuple[ClaimFault, ...]:
        """Prepare a pod's claims; `claims` is keyed by pod-local name (the claim created for extended
        resources by the empty name). Returns no fault once all are prepared and checkpointed.

        Can be called again at any time; only drivers that have not responded yet are called.
        """
        return await self._prepare_pod(pod, claims, rebuilding=False)

    async def _prepare_pod(
        self, pod: Pod, claims: Mapping[str, ResourceClaim], *, rebuilding: bool
    ) -> tuple[ClaimFault, ...]:
        wanted, faults = read_claims(pod, claims, optional_operations=self._optional_operations)
        if faults or not wanted:
            return faults
        uid = pod.metadata.uid
        async with self.locks.hold([_pod_key(uid), *(_claim_key(each.ref.uid) for each in wanted)]):
            if rebuilding and uid in self._released_pods:
                return ()
            return await self._prepare(uid, wanted)

    async def _prepare(self, pod: str, wanted: tuple[ClaimToPrepare, ...]) -> tuple[ClaimFault, ...]:
        before = {each.ref.uid: self.store.claims.get(each.ref.uid) for each in wanted}
        claims: dict[str, ClaimInfo] = {}
        calls: dict[str, list[ClaimToPrepare]] = {}
        faults: list[ClaimFault] = []
        for each in wanted:
            # DIFF: claims that were ready before a restart are not prepared again:
            # test_prepared_claims_are_not_prepared_again_after_an_agent_restart, unless the machine was
            # rebooted: test_claims_are_prepared_again_after_a_reboot.
            claim, to_ask = add_pods(before[each.ref.uid], each, {pod, *self._other_consumers(each)})
            faults += self._conflicts(each, to_ask, claims)
            claims[each.ref.uid] = claim
            for driver in sorted(to_ask):
                calls.setdefault(driver, []).append(each)
        if faults:
            return tuple(faults)
        # No await between the check and this line, so that no other claim gets the devices.
        self._preparing |= claims
        try:
            return await self._prepare_checked(wanted, before, claims, calls)
        finally:
            self._end_preparing(claims)

    def _other_consumers(self, claim: ClaimToPrepare) -> frozenset[str]:
        """Return further consumers that may use a claim here and that the cache does not know yet.

        Until a lost checkpoint is rebuilt, a claim must not be unprepared with the last pod that is known:
        another may run. Those that do not are removed by `reconcile` after that.
        """
        if not self.needs_rebuild:
            return frozenset()
        others = claim.consumers - self._released_pods
        self._assumed_consumers |= others
        return others

    async def _prepare_checked(
        self,
        wanted: tuple[ClaimToPrepare, ...],
        before: Mapping[str, ClaimInfo | None],
        claims: Mapping[str, ClaimInfo],
        calls: Mapping[str, Collection[ClaimToPrepare]],
    ) -> tuple[ClaimFault, ...]:
        changed = {uid: claim for uid, claim in claims.items() if claim != before[uid]}
        if problem := await self.store.commit(changed):
            return tuple(not_saved(each.ref, problem) for each in wanted)
        if not calls:
            return ()
        responses = await self._call_prepare(calls)
        after, faults = {}, []
        for each in wanted:
            results = responses.get(each.ref.uid, {})
            after[each.ref.uid] = apply_prepare_responses(
                before[each.ref.uid], claims[each.ref.uid], each, results, rebuilding=self.needs_rebuild
            )
            faults += [
                from_driver_fault(PREPARE, each.ref, a)
                for a in results.values()
                if isinstance(a, DriverFault)
            ]
        changed = {uid: claim for uid, claim in after.items() if claim != claims[uid]}
        if problem := await self.store.commit(changed):
            faults += [not_saved(each.ref, problem) for each in wanted if each.ref.uid in changed]
        return tuple(faults)

    def _conflicts(
        self, wanted: ClaimToPrepare, to_ask: Collection[str], same_pod: Mapping[str, ClaimInfo]
    ) -> Iterator[ClaimFault]:
        """Yield why a claim cannot be prepared while other claims are prepared or being prepared."""
        claims = {**self.store.claims, **self._preparing, **same_pod}
        if replaced := find_replaced(wanted, claims):
            yield replaced
        known = self.store.claims.get(wanted.ref.uid)
        # DIFF: a kubelet reuses the devices of the earlier allocation:
        # test_an_earlier_allocation_has_to_be_released_first.
        if known is not None and (reallocated := find_reallocation(known, wanted)):
            yield reallocated
        # DIFF: a kubelet compares names only, and prepares a device that a claim of another name still holds:
        # test_a_device_is_not_prepared_while_another_claim_holds_it.
        for conflict in find_conflicts(wanted, to_ask, known, claims.values()):
            yield conflict_fault(conflict)

    def _end_preparing(self, claims: Mapping[str, ClaimInfo]) -> None:
        """Stop counting claims as being prepared, and report those that hold less than assumed."""
        for uid in claims:
            self._preparing.pop(uid, None)
        released_uids = {
            uid for uid, claim in claims.items() if releases_devices(claim, self.store.claims.get(uid))
        }
        if released_uids:
            self.on_release(frozenset(released_uids))

    async def _call_prepare(
        self, calls: Mapping[str, Collection[ClaimToPrepare]]
    ) -> dict[str, dict[str, Devices | DriverFault]]:
        """Call every driver that is needed once, concurrently; return results by claim and driver."""
        # DIFF: a kubelet calls one driver after the other, none at all if one is absent, and stops at the
        # first failure: test_after_a_partial_failure_only_failed_claims_are_prepared_again.

        async def ask(driver: str, wanted: Collection[ClaimToPrepare]) -> Mapping[str, Devices | DriverFault]:
            return await self._drivers.prepare(driver, [each.ref for each in wanted])

        responses: dict[str, dict[str, Devices | DriverFault]] = {}
        needed: dict[str, list[ClaimToPrepare]] = {}
        for driver, wanted in calls.items():
            for each in wanted:
                if driver in each.prepare_skipped:
                    self._metrics.skip(PREPARE, driver)
                    responses.setdefault(each.ref.uid, {})[driver] = ()
                else:
                    needed.setdefault(driver, []).append(each)
        results = await asyncio.gather(*(ask(driver, wanted) for driver, wanted in needed.items()))
        for (driver, wanted), response in zip(needed.items(), results, strict=True):
            for each in wanted:
                found = response.get(each.ref.uid, _skipped_fault(driver, PREPARE))
                responses.setdefault(each.ref.uid, {})[driver] = validate_response(each, driver, found)
        return responses

    # -- release

    async def unprepare(self, pod_uid: str) -> tuple[ClaimFault, ...]:
        """Release a pod's claims; drivers unprepare those that no other pod uses. Returns no fault once
        nothing is left; otherwise the rest stays in the cache and the call has to be repeated.
        """
        if self.needs_rebuild:
            self._released_pods.add(pod_uid)
        return await self._remove_pods_from_claims({pod_uid})

    async def reconcile(self, known_pods: Collection[str]) -> tuple[ClaimFault, ...]:
        """Release the claims of all pods but these."""
        orphans = [uid for uid, claim in self.store.claims.items() if not claim.pods]
        kept = {*known_pods, *self._assumed_consumers}
        return await self._remove_pods_from_claims(self.store.pods - kept, orphans)

    async def _remove_pods_from_claims(
        self, pods: Collection[str], orphans: Collection[str] = ()
    ) -> tuple[ClaimFault, ...]:
        async with self.locks.hold(map(_pod_key, pods)):
            uids = {uid for pod in pods for uid in self.store.claims_of_pod(pod)} | set(orphans)
            async with self.locks.hold(map(_claim_key, uids)):
                before = {uid: self.store.claims[uid] for uid in uids if uid in self.store.claims}
                return await self._release(before, pods)

    async def _release(
        self, before: Mapping[str, ClaimInfo], gone: Collection[str]
    ) -> tuple[ClaimFault, ...]:
        claims = {uid: remove_pods(claim, gone) for uid, claim in before.items()}
        last = {uid: claim for uid, claim in claims.items() if claim.pods <= frozenset(gone)}
        changed: dict[str, ClaimInfo | None] = {
            uid: claim for uid, claim in claims.items() if claim != before[uid]
        }
        if problem := await self.store.commit(changed):
            return tuple(not_saved(claim.ref, problem) for claim in claims.values())
        if not last:
            return ()
        responses = await self._call_unprepare(last.values())
        after = {uid: apply_unprepare_responses(claim, responses.get(uid, {})) for uid, claim in last.items()}
        changed = {uid: claim for uid, claim in after.items() if claim != last[uid]}
        if problem := await self.store.commit(changed):
            return tuple(not_saved(claim.ref, problem) for claim in last.values())
        return tuple(
            from_driver_fault(UNPREPARE, last[uid].ref, fault)
            for uid, results in responses.items()
            for fault in results.values()
            if fault is not None
        )

    async def _call_unprepare(self, claims: Iterable[ClaimInfo]) -> dict[str, dict[str, DriverFault | None]]:
        """Call every driver that is needed once, concurrently; return results by claim and driver."""
        calls: dict[str, list[ClaimRef]] = {}
        responses: dict[str, dict[str, DriverFault | None]] = {}
        for claim in sorted(claims, key=lambda each: each.ref.uid):
            for driver in sorted(claim.pending):
                if driver in claim.unprepare_skipped:
                    self._metrics.skip(UNPREPARE, driver)
                    responses.setdefault(claim.ref.uid, {})[driver] = None
                else:
                    calls.setdefault(driver, []).append(claim.ref)
        results = await asyncio.gather(
            *(self._drivers.unprepare(driver, refs) for driver, refs in calls.items())
        )
        for (driver, refs), response in zip(calls.items(), results, strict=True):
            for ref in refs:
                responses.setdefault(ref.uid, {})[driver] = response.get(
                    ref.uid, _skipped_fault(driver, UNPREPARE)
                )
        return responses

    async def rebuild(
        self, pods: Iterable[tuple[Pod, Mapping[str, ResourceClaim]]]
    ) -> tuple[ClaimFault, ...]:
        """Recover from a lost checkpoint: prepare the claims of the pods on this node again, which is
        idempotent for drivers.

        The cache needs a rebuild until every driver has responded; the call has to be repeated.
        """
        results = await asyncio.gather(
            *(self._prepare_pod(pod, claims, rebuilding=True) for pod, claims in pods)
        )
        faults = tuple(fault for result in results for fault in result)
        # Faults of a pod's claims do not resolve by calling again; drivers may come back.
        self.needs_rebuild = any(fault.driver or fault.code == NOT_SAVED for fault in faults)
        if not self.needs_rebuild:
            self._released_pods.clear()
            self._assumed_consumers.clear()
            await self.store.set_lost(False)  # if that fails, the next agent prepares the claims once more
        return faults

    # -- read

    def cdi_ids(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """Return the CDI device IDs of a container; raise StateError if a claim is not prepared."""
        return container_claims.cdi_ids(pod, container, self._find)

    def claims_of_container(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None:
        """Return the claims that a container references; None if one is not known for its pod."""
        return container_claims.claims_of(pod, container, self._find)

    def _find(self, pod: Pod, name: str) -> ClaimInfo | None:
        return self.store.find(pod.metadata.uid, pod.metadata.namespace, name)

    def claims_of_pod(self, uid: str) -> tuple[ClaimInfo, ...]:
        """Return the claims that a pod uses, prepared or not."""
        return tuple(self.store.claims_of_pod(uid).values())

    def claims(self) -> tuple[ClaimInfo, ...]:
        return tuple(self.store.claims.values())

    @property
    def revision(self) -> int:
        """Counter that changes with every change."""
        return self.store.revision


def _skipped_fault(driver: str, call: str) -> DriverFault:
    return DriverFault(driver, "skipped", f"{call} skipped 1 ResourceClaims")


def _pod_key(uid: str) -> str:
    return f"0/{uid}"


def _claim_key(uid: str) -> str:
    return f"1/{uid}"
