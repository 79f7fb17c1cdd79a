"""Exclusive use of devices: no device is prepared for two claims at once, in any order of events."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.node.claims.faults import HELD, REPLACED
from tests.sizes import examples
from tests.unit.node.claims.cache_machine import CRASHES, DRIVERS, KINDS, ClaimCacheMachine
from tests.unit.node.claims.fake_drivers import make_claim, make_pod

NAMES = ("a", "b", "c")
PODS = ("p", "q", "r", "s")
RESULTS = st.lists(
    st.builds(
        DeviceRequestAllocationResult,
        request=st.just("r"),
        driver=st.sampled_from(DRIVERS),
        pool=st.just("node"),
        device=st.sampled_from(["d", "e"]),
        share_id=st.sampled_from([None, None, "s", "t"]),
        admin_access=st.sampled_from([None, None, None, True]),
    ),
    max_size=3,
)


def exclude_each_other(one: DeviceRequestAllocationResult, other: DeviceRequestAllocationResult) -> bool:
    """Return whether two results of different claims must not be prepared at the same time."""
    if one.admin_access or other.admin_access:
        return False
    if (one.driver, one.pool, one.device) != (other.driver, other.pool, other.device):
        return False
    return one.share_id is None or other.share_id is None or one.share_id == other.share_id


class Exclusive(ClaimCacheMachine):
    """Claims are created, replaced under the same name and allocated at random; pods use and release them."""

    def __init__(self) -> None:
        super().__init__()
        self.current: dict[str, ResourceClaim] = {}
        self.serial = 0

    def reopen(self) -> None:
        super().reopen()
        self.cache.on_release = self._on_release
        self.released: set[str] = set()

    def _on_release(self, uids: frozenset[str]) -> None:
        self.released |= uids

    def watch(self, step: str) -> None:
        super().watch(step)
        if step == "prepared":
            self.no_device_is_held_twice()

    @rule(name=st.sampled_from(NAMES), results=RESULTS)
    def replace_claim(self, name: str, results: list[DeviceRequestAllocationResult]) -> None:
        self.serial += 1
        claim = make_claim(name, uid=f"{name}{self.serial}", users=PODS, results=results)
        self.fake_drivers.add(claim)
        self.current[name] = claim

    @rule(
        pods=st.dictionaries(
            st.sampled_from(PODS), st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=3
        ),
        crash_at=CRASHES,
    )
    def prepare(self, pods: dict[str, set[str]], crash_at: int) -> None:
        # Pods that come use the claims there are. A pod never uses another claim than before.
        calls = []
        for pod, names in pods.items():
            if self.cache.claims_of_pod(pod) or not names <= set(self.current):
                continue
            order = sorted(names)
            calls.append(self.cache.prepare(make_pod(pod, *order), {n: self.current[n] for n in order}))
        self.released.clear()
        for faults in self.perform(lambda: calls, crash_at) or ():
            for fault in faults:
                if fault.code in (HELD, REPLACED):
                    known = {claim.ref.uid for claim in self.cache.claims()}
                    waited = fault.holder in known | self.released
                    # The other claim of the same pod is not on record: the pod has to be deleted.
                    assert waited or fault.holder in {c.metadata.uid for c in self.current.values()}

    @rule(pods=st.sets(st.sampled_from(PODS), min_size=1), crash_at=CRASHES)
    def unprepare(self, pods: set[str], crash_at: int) -> None:
        self.perform(lambda: [self.cache.unprepare(pod) for pod in sorted(pods)], crash_at)

    @rule(left=st.sets(st.sampled_from(PODS)), crash_at=CRASHES)
    def reconcile(self, left: set[str], crash_at: int) -> None:
        self.perform(lambda: [self.cache.reconcile(left)], crash_at)

    @rule(
        pod=st.sampled_from(PODS),
        name=st.sampled_from(NAMES),
        leaving=st.sampled_from(PODS),
    )
    def prepare_while_another_leaves(self, pod: str, name: str, leaving: str) -> None:
        if name in self.current and not self.cache.claims_of_pod(pod):
            prepare = self.cache.prepare(make_pod(pod, name), {name: self.current[name]})
            self.perform(lambda: [self.cache.unprepare(leaving), prepare], 0)

    @rule(
        method=st.sampled_from(["prepare", "unprepare"]),
        driver=st.sampled_from(DRIVERS),
        kind=st.sampled_from(KINDS),
    )
    def driver_fails(self, method: str, driver: str, kind: str) -> None:
        self.fake_drivers.faults[method, driver] = kind

    @rule()
    def drivers_work(self) -> None:
        self.fake_drivers.faults.clear()

    @invariant()
    def no_device_is_held_twice(self) -> None:
        for driver, uids in self.fake_drivers.held.items():
            for one, other in combinations(sorted(uids), 2):
                for mine in self._results(one, driver):
                    for theirs in self._results(other, driver):
                        assert not exclude_each_other(mine, theirs), (one, other, mine, theirs)

    @invariant()
    def names_are_unique_on_record(self) -> None:
        names = [claim.ref.name for claim in self.cache.claims()]
        assert len(names) == len(set(names))

    def _results(self, uid: str, driver: str) -> list[DeviceRequestAllocationResult]:
        allocation = self.fake_drivers.claims[uid].status.allocation
        assert allocation is not None
        return [each for each in allocation.devices.results if each.driver == driver]

    def check_release(self) -> None:
        assert self.perform(lambda: [self.cache.reconcile([])], 0) == [()]
        assert self.cache.claims() == ()
        assert not any(self.fake_drivers.held.values())
        # Nothing is in the way any more: every claim can be prepared alone.
        for name, claim in self.current.items():
            assert self._prepare_alone(name, claim) == [()]
            assert self.perform(lambda: [self.cache.unprepare("p")], 0) == [()]

    def _prepare_alone(self, name: str, claim: ResourceClaim) -> list[Any] | None:
        return self.perform(lambda: [self.cache.prepare(make_pod("p", name), {name: claim})], 0)


Exclusive.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestExclusive = Exclusive.TestCase
