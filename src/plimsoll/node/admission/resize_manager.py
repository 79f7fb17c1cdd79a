"""Resize manager: checks resizes against the node's ledger and records the accepted ones.

The check is `resize.check_resize`; the admission handler keeps the allocations.
"""

from __future__ import annotations

import logging

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.node.admission.admission_handler import AdmissionHandler
from plimsoll.node.admission.allocation import PodAllocation
from plimsoll.node.admission.resize import ResizeDecision, ResizeOutcome, check_resize

_log = logging.getLogger("plimsoll.node")


class ResizeManager:
    """Allocated resources of the node's pods, and their resizes."""

    def __init__(self, admission_handler: AdmissionHandler) -> None:
        self._admitter = admission_handler

    def allocated(self, pod: Pod) -> Pod:
        """Return the pod with its allocated resources in place of those of its spec."""
        return self._admitter.allocated(pod)

    async def check(self, pod: Pod) -> ResizeDecision | None:
        """Check whether a pod can be allocated what its spec asks for; None if it already is. An accepted
        resize is allocated and on disk when this returns.
        """
        before = self._admitter.allocation(pod_key(pod))
        if before is None:
            return None
        decision = check_resize(pod, before, self._admitter.ledger)
        if decision is None or not decision.accepted:
            return decision
        self._admitter.allocate(pod, PodAllocation.from_spec(pod))
        finding = await self._admitter.flush()
        if finding is not None:
            _log.warning("%s", finding)
            self._admitter.allocate(pod, before)
            return ResizeDecision(ResizeOutcome.DEFERRED, f"the resize cannot be recorded: {finding}")
        return decision
