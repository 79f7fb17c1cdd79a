"""The claims in use on this node: prepared for the first pod that needs them, released after the last.

Owns `ClaimBook`, the order of the steps: a claim is on the disk before a driver is asked for it, and what the
driver answered is on the disk before anybody uses it; it is on the disk that a claim is being released before
a driver is asked to let go. So a crash at any point forgets nothing and trusts nothing that may not hold.
Section 2 of the node protocols, "Kubelet flow".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from plimsoll.api.core import Container, Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.common.checkpoint import Finding, RecordFile, Severity
from plimsoll.common.keyed_lock import KeyedLock
from plimsoll.node.claims import views
from plimsoll.node.claims.checkpoint import Restored, claims_file, read_boot, restore
from plimsoll.node.claims.checks import Wanted, read_claims, wanted_of
from plimsoll.node.claims.holders import device_in_use, find_conflicts, find_replaced, releases_devices
from plimsoll.node.claims.refusals import NOT_SAVED, PREPARE, UNPREPARE, ClaimFault, by_driver, not_saved
from plimsoll.node.claims.steps import answered, is_reallocated, joined, judged, left, released
from plimsoll.node.claims.store import ClaimStore
from plimsoll.node.layout import Layout
from plimsoll.node.prepared import ClaimRef, Devices, DriverFault, Drivers, PreparedClaim

__all__ = ["ClaimBook", "ClaimFault"]

#: The name under which claims of any driver are counted.
ANY_DRIVER = "<any>"

_NOTHING = Restored()


class ClaimBook:
    """Which pods use which claims, and what drivers have prepared for them."""

    def __init__(
        self,
        drivers: Drivers,
        restored: Restored = _NOTHING,
        file: RecordFile | None = None,
        boot: str = "",
    ) -> None:
        self._drivers = drivers
        self._store = ClaimStore(restored.claims, file, boot)
        self._store.on_release = self._released
        self._locks = KeyedLock()
        #: Claims that are being prepared: what they hold counts before it is on the disk.
        self._preparing: dict[str, PreparedClaim] = {}
        #: Called with the UIDs of claims that no longer hold what others may be waiting for.
        self.on_release: Callable[[frozenset[str]], None] = lambda _: None
        #: From loading the record.
        self.findings = restored.findings
        #: There was a record and it is lost: `rebuild` has not been called yet.
        self.lost = restored.lost

    @staticmethod
    def open(
        layout: Layout,
        drivers: Drivers,
        *,
        save: bool = True,
        now: Callable[[], float] = time.time,
        boot: str | None = None,
    ) -> ClaimBook:
        """The book as the last agent left it, or a kubelet. With `save` off it is kept in memory only.

        `boot` is the id of the machine's start: what was ready before it has to be prepared again.
        """
        if not save:
            return ClaimBook(drivers)
        file, boot = claims_file(layout, now), read_boot() if boot is None else boot
        # DIFF: a kubelet with a damaged record does not start:
        # test_a_damaged_record_is_set_aside_and_rebuilt.
        return ClaimBook(drivers, restore(layout, file, boot=boot), file, boot)

    # -- prepare

    async def prepare(self, pod: Pod, claims: Mapping[str, ResourceClaim]) -> tuple[ClaimFault, ...]:
        """Have a pod's claims prepared; `claims` by their names inside the pod (the one made for extended
        resources by the empty name). Nothing comes back once all are prepared, and that is on the disk.

        Can be called again at any time; only drivers that have not answered yet are asked.
        """
        wanted, faults = read_claims(pod, claims)
        if faults or not wanted:
            return faults
        uid = pod.metadata.uid
        async with self._locks.hold([_pod_key(uid), *(_claim_key(each.ref.uid) for each in wanted)]):
            return await self._prepare(uid, wanted)

    async def _prepare(self, pod: str, wanted: tuple[Wanted, ...]) -> tuple[ClaimFault, ...]:
        before = {each.ref.uid: self._store.claims.get(each.ref.uid) for each in wanted}
        claims: dict[str, PreparedClaim] = {}
        calls: dict[str, list[Wanted]] = {}
        faults: list[ClaimFault] = []
        for each in wanted:
            # DIFF: what was ready before a restart is not prepared again: test_a_restart_asks_no_driver,
            # unless the machine was started anew: test_a_machine_that_was_started_anew.
            claim, to_ask = joined(before[each.ref.uid], each, pod)
            faults += self._conflicts(each, to_ask, claims)
            claims[each.ref.uid] = claim
            for driver in sorted(to_ask):
                calls.setdefault(driver, []).append(each)
        if faults:
            return tuple(faults)
        # Nothing is awaited between the check and this, so that no other claim gets the devices.
        self._preparing |= claims
        try:
            return await self._prepare_checked(wanted, before, claims, calls)
        finally:
            self._end_preparing(claims)

    async def _prepare_checked(
        self,
        wanted: tuple[Wanted, ...],
        before: Mapping[str, PreparedClaim | None],
        claims: Mapping[str, PreparedClaim],
        calls: Mapping[str, Collection[Wanted]],
    ) -> tuple[ClaimFault, ...]:
        changed = {uid: claim for uid, claim in claims.items() if claim != before[uid]}
        if problem := await self._store.commit(changed):
            return tuple(not_saved(each.ref, problem) for each in wanted)
        if not calls:
            return ()
        answers = await self._ask(calls)
        after, told = {}, []
        for each in wanted:
            given = answers.get(each.ref.uid, {})
            after[each.ref.uid] = answered(before[each.ref.uid], claims[each.ref.uid], each, given)
            told += [by_driver(PREPARE, each.ref, a) for a in given.values() if isinstance(a, DriverFault)]
        changed = {uid: claim for uid, claim in after.items() if claim != claims[uid]}
        if problem := await self._store.commit(changed):
            told += [not_saved(each.ref, problem) for each in wanted if each.ref.uid in changed]
        return tuple(told)

    def _conflicts(
        self, wanted: Wanted, to_ask: Collection[str], same_pod: Mapping[str, PreparedClaim]
    ) -> Iterator[ClaimFault]:
        """Yield why a claim cannot be prepared beside what is on record or being prepared."""
        claims = {**self._store.claims, **self._preparing, **same_pod}
        if replaced := find_replaced(wanted, claims):
            yield replaced
        known = self._store.claims.get(wanted.ref.uid)
        # DIFF: a kubelet hands out the devices of the earlier allocation:
        # test_an_earlier_allocation_has_to_be_released_first.
        if known is not None and (moved := is_reallocated(known, wanted)):
            yield moved
        # DIFF: a kubelet compares names only, and prepares a device that a claim of another name still holds:
        # test_a_device_is_not_prepared_while_another_claim_holds_it.
        for conflict in find_conflicts(wanted, to_ask, known, claims.values()):
            yield device_in_use(conflict)

    def _end_preparing(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Stop counting claims as being prepared, and report those that hold less than it was assumed."""
        for uid in claims:
            self._preparing.pop(uid, None)
        less = {uid for uid, claim in claims.items() if releases_devices(claim, self._store.claims.get(uid))}
        if less:
            self._released(frozenset(less))

    def _released(self, uids: frozenset[str]) -> None:
        self.on_release(uids)

    async def _ask(
        self, calls: Mapping[str, Collection[Wanted]]
    ) -> dict[str, dict[str, Devices | DriverFault]]:
        """Ask every driver once, all at the same time; answers by claim and driver."""
        # DIFF: a kubelet asks one driver after the other, none at all if one is absent, and stops at the
        # first fault: test_the_rest_is_asked_for_after_a_partial_failure.

        async def ask(driver: str, wanted: Collection[Wanted]) -> Mapping[str, Devices | DriverFault]:
            return await self._drivers.prepare(driver, [each.ref for each in wanted])

        given = await asyncio.gather(*(ask(driver, wanted) for driver, wanted in calls.items()))
        answers: dict[str, dict[str, Devices | DriverFault]] = {}
        for (driver, wanted), answer in zip(calls.items(), given, strict=True):
            for each in wanted:
                found = answer.get(each.ref.uid, _skipped(driver, PREPARE))
                answers.setdefault(each.ref.uid, {})[driver] = judged(each, driver, found)
        return answers

    # -- release

    async def unprepare(self, pod_uid: str) -> tuple[ClaimFault, ...]:
        """Let go of a pod's claims; drivers release those that no other pod uses. Nothing comes back once
        nothing is left; otherwise the rest stays in the book and the call is to be repeated."""
        return await self._leave({pod_uid})

    async def reconcile(self, known_pods: Collection[str]) -> tuple[ClaimFault, ...]:
        """Let go of the claims of all pods but these."""
        orphans = [uid for uid, claim in self._store.claims.items() if not claim.pods]
        return await self._leave(self._store.pods - frozenset(known_pods), orphans)

    async def _leave(self, pods: Collection[str], orphans: Collection[str] = ()) -> tuple[ClaimFault, ...]:
        async with self._locks.hold(map(_pod_key, pods)):
            uids = {uid for pod in pods for uid in self._store.of_pod(pod)} | set(orphans)
            async with self._locks.hold(map(_claim_key, uids)):
                before = {uid: self._store.claims[uid] for uid in uids if uid in self._store.claims}
                return await self._release(before, pods)

    async def _release(
        self, before: Mapping[str, PreparedClaim], gone: Collection[str]
    ) -> tuple[ClaimFault, ...]:
        claims = {uid: left(claim, gone) for uid, claim in before.items()}
        last = {uid: claim for uid, claim in claims.items() if claim.pods <= frozenset(gone)}
        changed: dict[str, PreparedClaim | None] = {
            uid: claim for uid, claim in claims.items() if claim != before[uid]
        }
        if problem := await self._store.commit(changed):
            return tuple(not_saved(claim.ref, problem) for claim in claims.values())
        if not last:
            return ()
        answers = await self._ask_to_release(last.values())
        after = {uid: released(claim, answers.get(uid, {})) for uid, claim in last.items()}
        changed = {uid: claim for uid, claim in after.items() if claim != last[uid]}
        if problem := await self._store.commit(changed):
            return tuple(not_saved(claim.ref, problem) for claim in last.values())
        return tuple(
            by_driver(UNPREPARE, last[uid].ref, fault)
            for uid, given in answers.items()
            for fault in given.values()
            if fault is not None
        )

    async def _ask_to_release(
        self, claims: Iterable[PreparedClaim]
    ) -> dict[str, dict[str, DriverFault | None]]:
        """Ask every driver once, all at the same time; answers by claim and driver."""
        calls: dict[str, list[ClaimRef]] = {}
        for claim in sorted(claims, key=lambda each: each.ref.uid):
            for driver in sorted(claim.pending):
                calls.setdefault(driver, []).append(claim.ref)
        given = await asyncio.gather(
            *(self._drivers.unprepare(driver, refs) for driver, refs in calls.items())
        )
        answers: dict[str, dict[str, DriverFault | None]] = {}
        for (driver, refs), answer in zip(calls.items(), given, strict=True):
            for ref in refs:
                answers.setdefault(ref.uid, {})[driver] = answer.get(ref.uid, _skipped(driver, UNPREPARE))
        return answers

    async def rebuild(
        self,
        pods: Iterable[tuple[Pod, Mapping[str, ResourceClaim]]],
        *,
        leftovers: Iterable[ResourceClaim] = (),
    ) -> tuple[ClaimFault, ...]:
        """Make up for a lost record: prepare the claims of the pods on this node again, which drivers take
        for what it is, and let go of `leftovers`, allocated claims of this node that no pod here uses.

        The record is `lost` until every driver has answered; the call is to be repeated.
        """
        given = list(pods)
        faults = [f for each in await asyncio.gather(*(self.prepare(*pair) for pair in given)) for f in each]
        unused: dict[str, PreparedClaim | None] = {}
        for claim in leftovers:
            wanted = wanted_of(claim)
            if wanted.ref.uid not in self._store.claims:
                drivers = frozenset(wanted.drivers)
                claim_left = PreparedClaim(wanted.ref, pending=drivers, allocated=wanted.exclusive)
                unused[wanted.ref.uid] = claim_left
        if problem := await self._store.commit(unused):
            return (
                *faults,
                *(not_saved(claim.ref, problem) for claim in unused.values() if claim is not None),
            )
        faults += await self._leave((), unused)
        # What is wrong with a pod's claims will not get better by asking again; drivers come back.
        self.lost = any(fault.driver or fault.code == NOT_SAVED for fault in faults)
        return tuple(faults)

    # -- read

    def cdi_ids(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """The CDI devices of a container whose pod is prepared; StateError if it is not."""
        return views.cdi_ids(pod, container, self._find)

    def of_container(self, pod: Pod, container: Container) -> tuple[PreparedClaim, ...] | None:
        """The claims that a container names; None if one is not known for its pod."""
        return views.claims_of(pod, container, self._find)

    def _find(self, pod: Pod, name: str) -> PreparedClaim | None:
        return self._store.find(pod.metadata.uid, pod.metadata.namespace, name)

    def of_pod(self, uid: str) -> tuple[PreparedClaim, ...]:
        """The claims that a pod uses, prepared or not."""
        return tuple(self._store.of_pod(uid).values())

    def claims(self) -> tuple[PreparedClaim, ...]:
        return tuple(self._store.claims.values())

    @property
    def revision(self) -> int:
        """Changes with every change."""
        return self._store.revision

    def in_use(self) -> dict[str, int]:
        """How many claims are prepared, by driver and in all (`dra_resource_claims_in_use`)."""
        counts = {ANY_DRIVER: 0}
        for claim in self._store.claims.values():
            if claim.ready:
                counts[ANY_DRIVER] += 1
                for driver in claim.drivers:
                    counts[driver] = counts.get(driver, 0) + 1
        return counts

    def describe(self) -> tuple[Finding, ...]:
        """What the owner of the node should know."""
        return (*self.findings, *_describe(self._store))


def _describe(store: ClaimStore) -> Iterable[Finding]:
    if store.problem:
        yield Finding(
            Severity.ERROR,
            f"prepared claims cannot be saved: {store.problem}",
            "make room on the disk, or mend its permissions; no claim is prepared or released until then",
        )
    for claim in store.claims.values():
        waiting = ", ".join(sorted(claim.pending))
        if not claim.pods:
            what = f"claim {claim.ref} is used by no pod and not released by {waiting or 'anybody'}"
            yield Finding(Severity.WARNING, what, f"see that these drivers run: {waiting}" if waiting else "")
        elif not claim.ready:
            what = f"claim {claim.ref} of {len(claim.pods)} pods is not prepared"
            fix = f"see that these drivers run: {waiting}" if waiting else "see what its drivers answered"
            yield Finding(Severity.WARNING, what, fix)


def _skipped(driver: str, call: str) -> DriverFault:
    return DriverFault(driver, "skipped", f"{call} skipped 1 ResourceClaims")


def _pod_key(uid: str) -> str:
    return f"0/{uid}"


def _claim_key(uid: str) -> str:
    return f"1/{uid}"
