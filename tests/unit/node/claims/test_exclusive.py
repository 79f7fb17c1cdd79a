"""Exclusive use of devices: no device is prepared for two claims at once, in any order of events."""

from __future__ import annotations

import asyncio
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.claims.faults import HELD, REPLACED
from plimsoll.node.layout import Layout
from tests.sizes import examples
from tests.unit.node.claims.conftest import memory_directory
from tests.unit.node.claims.crashes import Crash, Disk, Steps, at_once
from tests.unit.node.claims.fake_drivers import GPU, NIC, FakeDrivers, make_claim, make_pod

DRIVERS = (GPU, NIC)
NAMES = ("a", "b", "c")
PODS = ("p", "q", "r", "s")
KINDS = ("refused", "timeout", "broken", "skipped", "malformed")
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


class Exclusive(RuleBasedStateMachine):
    """Claims are created, replaced under the same name and allocated at random; pods use and release them."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = memory_directory()
        self.layout = Layout(Path(self.directory))
        self.fake_drivers = FakeDrivers()
        self.steps = Steps(0)
        self.patches: list[Any] = [
            patch("plimsoll.common.atomic_file.os", Disk(self.steps)),
            patch("asyncio.to_thread", at_once),
        ]
        for each in self.patches:
            each.start()
        self.fake_drivers.hook = self._watch
        self.current: dict[str, ResourceClaim] = {}
        self.serial = 0
        self._reopen()

    def _reopen(self) -> None:
        self.cache = ClaimInfoCache.open(self.layout, self.fake_drivers)
        self.cache.on_release = self._on_release
        self.released: set[str] = set()

    def _on_release(self, uids: frozenset[str]) -> None:
        self.released |= uids

    def _watch(self, step: str) -> None:
        self.steps.step()
        if step == "prepared":
            self.no_device_is_held_twice()

    def _do(self, calls: list[Any], crash_at: int) -> list[Any]:
        """Run calls concurrently; None if the agent crashed before they ended."""

        async def all_calls() -> list[Any]:
            return list(await asyncio.gather(*calls))

        self.steps.count, self.steps.last = 0, crash_at
        try:
            return self.loop.run_until_complete(all_calls())
        except Crash:
            self._end_tasks()
            self._reopen()
            return []
        finally:
            self.steps.last = 0

    def _end_tasks(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
            self.loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        self.fake_drivers.busy.clear()

    CRASHES = st.just(0) | st.integers(1, 25)

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
        for faults in self._do(calls, crash_at):
            for fault in faults:
                if fault.code in (HELD, REPLACED):
                    known = {claim.ref.uid for claim in self.cache.claims()}
                    waited = fault.holder in known | self.released
                    # The other claim of the same pod is not on record: the pod has to be deleted.
                    assert waited or fault.holder in {c.metadata.uid for c in self.current.values()}

    @rule(pods=st.sets(st.sampled_from(PODS), min_size=1), crash_at=CRASHES)
    def unprepare(self, pods: set[str], crash_at: int) -> None:
        self._do([self.cache.unprepare(pod) for pod in sorted(pods)], crash_at)

    @rule(left=st.sets(st.sampled_from(PODS)), crash_at=CRASHES)
    def reconcile(self, left: set[str], crash_at: int) -> None:
        self._do([self.cache.reconcile(left)], crash_at)

    @rule(
        pod=st.sampled_from(PODS),
        name=st.sampled_from(NAMES),
        leaving=st.sampled_from(PODS),
    )
    def prepare_while_another_leaves(self, pod: str, name: str, leaving: str) -> None:
        if name in self.current and not self.cache.claims_of_pod(pod):
            prepare = self.cache.prepare(make_pod(pod, name), {name: self.current[name]})
            self._do([self.cache.unprepare(leaving), prepare], 0)

    @rule()
    def restart(self) -> None:
        self._reopen()

    @rule(driver=st.sampled_from(DRIVERS))
    def driver_comes_or_goes(self, driver: str) -> None:
        self.fake_drivers.absent ^= {driver}

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

    def teardown(self) -> None:
        try:
            self.fake_drivers.absent.clear()
            self.fake_drivers.faults.clear()
            assert self._do([self.cache.reconcile([])], 0) == [()]
            assert self.cache.claims() == ()
            assert not any(self.fake_drivers.held.values())
            # Nothing is in the way any more: every claim can be prepared alone.
            for name, claim in self.current.items():
                assert self._do([self.cache.prepare(make_pod("p", name), {name: claim})], 0) == [()]
                assert self._do([self.cache.unprepare("p")], 0) == [()]
        finally:
            self._end_tasks()
            self.loop.close()
            for each in self.patches:
                each.stop()
            shutil.rmtree(self.directory)


Exclusive.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestExclusive = Exclusive.TestCase
