"""`FixFinder`: fixes of many pending pods; those that need the same are searched once."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.unschedulable_cache import pod_signature
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.fixes.fix import FixReport
from plimsoll.tools.fixes.search import FixLimits, find_fixes


class FixFinder:
    """Finds the fixes of pending pods; pods with equal signatures share the search, not the names in it."""

    def __init__(
        self,
        cluster_state: ClusterState,
        settings: SchedulerProfile | ProfileSet | None = None,
        limits: FixLimits | None = None,
    ) -> None:
        self._cluster_state, self._limits = cluster_state, limits or FixLimits()
        self.searches = 0
        self._settings = settings or SchedulerProfile.default()
        self._known: dict[bytes, FixReport] = {}

    def find(self, pod: Pod) -> FixReport:
        """Return the fixes and hints of a pod; empty if it fits."""
        signature = self._signature(pod)
        found = None if signature is None else self._known.get(signature)
        if found is None:
            self.searches += 1
            found = find_fixes(self._cluster_state, pod, self._settings, limits=self._limits)
        if signature is not None:
            self._known[signature] = found
        return found

    def _signature(self, pod: Pod) -> bytes | None:
        """Return the key of pods that have the same fixes; None if they are about this pod alone."""
        if pod.spec.scheduling_gates or group_key(pod, self._cluster_state.gates) is not None:
            return None
        pod_info = read_pod_info(pod, self._cluster_state.snapshot, self._settings.for_pod(pod))
        return None if isinstance(pod_info, NodeReason) else pod_signature(pod_info)
