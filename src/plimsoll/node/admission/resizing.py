"""Resizes of pods on the node's books: judged, granted, and on record.

Owns `Resizing`, what the life of a pod asks about resizes. Whether one may be is `resize.judge_resize`; what
was granted is kept by the books (`admit`).
"""

from __future__ import annotations

import logging

from plimsoll.api.core import Pod
from plimsoll.ledger.node import pod_key
from plimsoll.node.admission.admit import Admitter
from plimsoll.node.admission.allocation import Allocation
from plimsoll.node.admission.resize import Outcome, Resize, judge_resize

_log = logging.getLogger("plimsoll.node")


class Resizing:
    """What pods were given, and whether they may have what they ask for now."""

    def __init__(self, admitter: Admitter) -> None:
        self._admitter = admitter

    def given(self, pod: Pod) -> Pod:
        """The pod as if its spec asked for what it was given."""
        return self._admitter.allocated(pod)

    async def judge(self, pod: Pod) -> Resize | None:
        """Whether a pod may have what its spec asks for; None: it has it. What is accepted is given from
        then on, and that is on the disk."""
        before = self._admitter.allocation(pod_key(pod))
        if before is None:
            return None
        answer = judge_resize(pod, before, self._admitter.ledger)
        if answer is None or not answer.accepted:
            return answer
        self._admitter.allocate(pod, Allocation.of(pod))
        finding = await self._admitter.flush()
        if finding is not None:
            _log.warning("%s", finding)
            self._admitter.allocate(pod, before)
            return Resize(Outcome.DEFERRED, f"the resize cannot be recorded: {finding}")
        return answer
