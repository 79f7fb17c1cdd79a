"""Watch over the cgroups of a running agent.

Detects within seconds that the root or a cgroup below it was removed, creates everything again with its
values, and reports the loss with a log line, an event of the Node and a metric. While that fails the node is
not Ready: no pod can be started, and none would be limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from plimsoll.node.cgroups.ownership import RootMark
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.cgroups.values import CgroupFault

_log = logging.getLogger("plimsoll.node")
#: Number of lost cgroups named in messages.
_SHOWN = 3

LOST, RESTORED = "CgroupsLost", "CgroupsRestored"


class CgroupWatch:
    """Watch over the cgroups of one node; `run` it while the agent runs."""

    def __init__(
        self,
        node: str,
        cgroups: Cgroups,
        mark: RootMark,
        *,
        restore_root: Callable[[], Awaitable[Sequence[CgroupFault]]],
        restore: Callable[[], Awaitable[Sequence[str]]],
        set_ready: Callable[[str], None],
        emit: Callable[[str, str, str], None],
        interval: float = 5.0,
    ) -> None:
        """Create a watch. `restore_root` creates the root and the QoS cgroups with their values, `restore`
        the cgroups of pods and containers, and returns what was missing. `set_ready` takes the
        problem, or "". `emit` takes type, reason and message of an event.
        """
        self._node = node
        self._cgroups = cgroups
        self._mark = mark
        self._restore_root = restore_root
        self._restore = restore
        self._set_ready = set_ready
        self._emit = emit
        self._interval = interval
        #: Number of times cgroups were found missing, and created again.
        self.losses = self.restores = 0
        #: Reason why the cgroups cannot be created again; empty if they exist.
        self.problem = ""

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except Exception:
                _log.exception("%s: checking the cgroups failed", self._node)
            await asyncio.sleep(self._interval)

    async def check(self) -> None:
        """Check once, and create missing cgroups again."""
        lost = list(await asyncio.to_thread(self._cgroups.lost))
        problem = await self._repair_root() if lost else ""
        problem = problem or await asyncio.to_thread(self._mark.take, self._cgroups.root_directories())
        if not problem:
            lost += await self._restore()
        if lost and not self.problem:
            self.losses += 1
            shown = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if lost[_SHOWN:] else "")
            self._report("Warning", LOST, f"cgroups are missing: {shown}")
        if problem != self.problem:
            self._set_ready(f"cgroups cannot be created: {problem}" if problem else "")
            if problem:
                _log.error("%s: cgroups cannot be created: %s", self._node, problem)
        if not problem and (lost or self.problem):
            self.restores += 1
            self._report("Normal", RESTORED, "cgroups were created again")
        self.problem = problem

    async def _repair_root(self) -> str:
        faults = await self._restore_root()
        left = await asyncio.to_thread(self._cgroups.lost)
        if not left:
            return ""
        return next((str(fault) for fault in faults if not fault.absent), left[0])

    def _report(self, type: str, reason: str, message: str) -> None:
        log = _log.warning if type == "Warning" else _log.info
        log("%s: %s", self._node, message)
        self._emit(type, reason, message)
