"""Base of state machines that test the claim cache: concurrent calls, crashes, and drivers at fault."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.layout import Layout
from tests.unit.node.claims.conftest import memory_directory
from tests.unit.node.claims.crashes import Crash, Disk, Steps, at_once
from tests.unit.node.claims.fake_drivers import GPU, NIC, FakeDrivers

DRIVERS = (GPU, NIC)
KINDS = ("refused", "timeout", "broken", "skipped", "malformed")
CRASHES = st.just(0) | st.integers(1, 25)


class ClaimCacheMachine(RuleBasedStateMachine):
    """Claim cache in memory whose agent crashes at any write to its disk or call of a driver."""

    disk_type = Disk

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = memory_directory()
        self.layout = Layout(Path(self.directory))
        self.fake_drivers = FakeDrivers()
        self.steps = Steps(0)
        self.disk = self.disk_type(self.steps)
        self.patches: list[Any] = [
            patch("plimsoll.common.atomic_file.os", self.disk),
            patch("asyncio.to_thread", at_once),
        ]
        for each in self.patches:
            each.start()
        self.fake_drivers.hook = self.watch
        self.reopen()

    def watch(self, step: str) -> None:
        """Check a step of a driver; may raise Crash."""
        self.steps.step()

    def reopen(self) -> None:
        self.cache = ClaimInfoCache.open(self.layout, self.fake_drivers)

    def perform(self, calls: Callable[[], list[Any]], crash_at: int) -> list[Any] | None:
        """Run calls concurrently; None if the agent crashed before they ended."""

        async def all_calls() -> list[Any]:
            return list(await asyncio.gather(*calls()))

        self.steps.count, self.steps.last = 0, crash_at
        try:
            return self.loop.run_until_complete(all_calls())
        except Crash:
            self._end_tasks()
            self.reopen()
            return None
        finally:
            self.steps.last = 0

    def _end_tasks(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
            self.loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        self.fake_drivers.busy.clear()

    @rule()
    def restart(self) -> None:
        self.reopen()

    @rule(driver=st.sampled_from(DRIVERS))
    def driver_comes_or_goes(self, driver: str) -> None:
        self.fake_drivers.absent ^= {driver}

    def check_release(self) -> None:
        """Release all claims and check that nothing is left."""

    def teardown(self) -> None:
        try:
            self.fake_drivers.absent.clear()
            self.fake_drivers.faults.clear()
            self.check_release()
        finally:
            self._end_tasks()
            self.loop.close()
            for each in self.patches:
                each.stop()
            shutil.rmtree(self.directory)
