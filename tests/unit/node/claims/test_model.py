"""Claim cache compared with a naive model: in any order of events, nothing leaks and no claim is used that
may not be prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from plimsoll.node.claims.faults import NOT_SAVED
from tests.sizes import examples
from tests.unit.node.claims.cache_machine import CRASHES, DRIVERS, KINDS, ClaimCacheMachine
from tests.unit.node.claims.crashes import Disk
from tests.unit.node.claims.fake_drivers import GPU, NIC, make_claim, make_pod, on_disk

CLAIMS = {"a": (GPU,), "b": (NIC,), "c": (GPU, NIC), "d": ()}
NAMES = tuple("pqrs")


class FullDisk(Disk):
    """Disk that can be full: then fsync fails."""

    full = False

    def fsync(self, file: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().fsync(file)


class ClaimCacheModel(ClaimCacheMachine):
    """`users` is the model: the pods of a claim whose calls came to an end, and those that may still have it
    because a call did not."""

    disk_type = FullDisk
    disk: FullDisk

    def __init__(self) -> None:
        super().__init__()
        for name, drivers in CLAIMS.items():
            results = None if drivers else ()
            self.fake_drivers.add(make_claim(name, *drivers, users=NAMES, results=results))
        self.specs: dict[str, tuple[str, ...]] = {}
        self.users: dict[str, set[str]] = {name: set() for name in CLAIMS}
        self.leaving: set[str] = set()

    @initialize(specs=st.tuples(*[st.sets(st.sampled_from(sorted(CLAIMS)), min_size=1)] * len(NAMES)))
    def choose(self, specs: tuple[set[str], ...]) -> None:
        self.specs = {pod: tuple(sorted(claims)) for pod, claims in zip(NAMES, specs, strict=True)}

    # -- driver calls

    def watch(self, step: str) -> None:
        super().watch(step)
        if step not in ("prepared", "unprepared"):
            return
        method, driver, uids = self.fake_drivers.calls[-1]
        for uid in uids:
            claim = next(claim for claim in self.cache.claims() if claim.ref.uid == uid)
            assert driver in claim.pending, "no driver is called before it is on disk"
            assert not claim.ready, "no driver is called without need"
            if method == "unprepare":
                assert claim.pods <= self.leaving, "no driver is asked to unprepare what others use"

    # -- rules

    def reopen(self) -> None:
        super().reopen()
        assert self.cache.findings == ()

    @rule(pods=st.sets(st.sampled_from(NAMES), min_size=1), crash_at=CRASHES)
    def prepare(self, pods: set[str], crash_at: int) -> None:
        order = sorted(pods)
        for pod in order:
            for name in self.specs[pod]:
                self.users[name].add(pod)
        answers = self.perform(
            lambda: [
                self.cache.prepare(make_pod(pod, *self.specs[pod]), self.fake_drivers.named(*self.specs[pod]))
                for pod in order
            ],
            crash_at,
        )
        for pod, faults in zip(order, answers or (), strict=False):
            known = {claim.ref.name: claim for claim in self.cache.claims_of_pod(pod)}
            if not faults:
                assert {name for name, claim in known.items() if claim.ready} >= set(self.specs[pod])
                pod_object = make_pod(pod, *self.specs[pod])
                devices = self.cache.cdi_ids(pod_object, pod_object.spec.containers[0])
                assert len(devices) == len({(n, d) for n in self.specs[pod] for d in CLAIMS[n]})
            else:
                assert self.fake_drivers.absent or self.fake_drivers.faults or self.disk.full
                assert all(fault.code != NOT_SAVED or self.disk.full for fault in faults)

    def _leave(self, pods: set[str], calls: Callable[[], list[Any]], crash_at: int) -> None:
        self.leaving = set(pods)
        answers = self.perform(calls, crash_at)
        if answers is None:
            return
        if any(answers):
            assert self.fake_drivers.absent or self.fake_drivers.faults or self.disk.full
            return
        for pod in pods:
            assert self.cache.claims_of_pod(pod) == ()
            for users in self.users.values():
                users.discard(pod)

    @rule(pods=st.sets(st.sampled_from(NAMES), min_size=1), crash_at=CRASHES)
    def unprepare(self, pods: set[str], crash_at: int) -> None:
        self._leave(pods, lambda: [self.cache.unprepare(pod) for pod in sorted(pods)], crash_at)

    @rule(left=st.sets(st.sampled_from(NAMES)), crash_at=CRASHES)
    def reconcile(self, left: set[str], crash_at: int) -> None:
        self._leave(set(NAMES) - left, lambda: [self.cache.reconcile(left)], crash_at)

    @rule(
        method=st.sampled_from(["prepare", "unprepare"]),
        driver=st.sampled_from(DRIVERS),
        name=st.sampled_from(sorted(CLAIMS)),
        kind=st.sampled_from(KINDS),
    )
    def driver_is_at_fault(self, method: str, driver: str, name: str, kind: str) -> None:
        self.fake_drivers.faults[method, driver, f"uid-{name}"] = kind

    @precondition(lambda self: self.fake_drivers.faults)
    @rule()
    def faults_end(self) -> None:
        self.fake_drivers.faults.clear()

    @rule()
    def disk_fills_or_empties(self) -> None:
        self.disk.full = not self.disk.full

    # -- invariants

    @invariant()
    def disk_is_memory(self) -> None:
        assert on_disk(self.layout) == {claim.ref.uid: claim for claim in self.cache.claims()}

    @invariant()
    def nothing_is_forgotten(self) -> None:
        known = {claim.ref.uid: {*claim.drivers, *claim.pending} for claim in self.cache.claims()}
        for driver, held in self.fake_drivers.held.items():
            assert all(driver in known[uid] for uid in held)

    @invariant()
    def what_is_ready_is_held(self) -> None:
        for claim in self.cache.claims():
            if claim.ready:
                assert claim.pending == frozenset()
                assert set(claim.drivers) == set(CLAIMS[claim.ref.name])
                assert all(claim.ref.uid in self.fake_drivers.held[driver] for driver in claim.drivers)

    @invariant()
    def users_are_those_of_the_model(self) -> None:
        for claim in self.cache.claims():
            assert claim.pods <= self.users[claim.ref.name]

    def check_release(self) -> None:
        self.disk.full = False
        self._leave(set(NAMES), lambda: [self.cache.reconcile([])], 0)
        assert self.cache.claims() == ()
        assert not any(self.fake_drivers.held.values())
        assert not any(self.users.values())


ClaimCacheModel.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=25, deadline=None
)
TestClaimInfoCache = ClaimCacheModel.TestCase
