"""kube-scheduler releases that a what-if can compare with (`--as`).

Each release has its feature gates, ledger rules and order of evaluation: devices are chosen first, the node's
resources are checked afterwards. Intended differences are listed in docs/compat.md. Among nodes of equal
score kube-scheduler chooses randomly; the prediction takes turns, so it may name another node of the same
score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plimsoll.api.gates import Gates
from plimsoll.errors import InputError
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.profile import (
    SAMPLED_FROM,
    DeviceOrder,
    MixedAdvertisers,
    ProfileSet,
    SchedulerProfile,
    Scoring,
)
from plimsoll.tools.cluster_state import ClusterState

#: Name of our own scheduler in `--as`.
OURS = "default"


@dataclass(frozen=True, slots=True)
class KubeScheduler:
    """Release of kube-scheduler with its feature gates."""

    name: str
    about: str
    gates: Gates
    profile: AccountingProfile

    def cluster_state(self, cluster_state: ClusterState) -> ClusterState:
        """Return the same objects accounted by this release's rules."""
        return ClusterState(cluster_state.objects, self.gates, self.profile, origin=cluster_state.origin)

    def settings(self, settings: SchedulerProfile | ProfileSet) -> SchedulerProfile | ProfileSet:
        """Return these settings with kube-scheduler's device order and scores."""
        if isinstance(settings, ProfileSet):
            return ProfileSet(tuple(map(self._profile, settings.profiles)))
        return self._profile(settings)

    def _profile(self, settings: SchedulerProfile) -> SchedulerProfile:
        return replace(
            settings,
            device_order=DeviceOrder.FIRST,
            mixed_advertisers=MixedAdvertisers.ALLOW,
            scoring=Scoring.STOCK,
            explore=SAMPLED_FROM,
        )


KUBE_SCHEDULERS: Mapping[str, KubeScheduler] = {
    each.name: each
    for each in (
        KubeScheduler(
            "kube-1.36",
            "1.36 with DRANodeAllocatableResources enabled: claims are charged to nodes",
            Gates.default().without_newer(),
            AccountingProfile.upstream_1_36(),
        ),
        KubeScheduler(
            "kube-1.36-default",
            "1.36 with default feature gates: claims are not charged to nodes",
            Gates.upstream(),
            AccountingProfile.upstream_1_36(),
        ),
        KubeScheduler(
            "kube-1.37",
            "1.37.0-rc.1 with DRANodeAllocatableResources enabled",
            Gates.default(),
            AccountingProfile.upstream_1_37(),
        ),
    )
}


def find_kube_scheduler(name: str) -> KubeScheduler:
    """Return the scheduler called `name`. Raise InputError with the valid names."""
    found = KUBE_SCHEDULERS.get(name)
    if found is None:
        raise InputError(f"--as {name}: unknown scheduler; valid values: {', '.join(KUBE_SCHEDULERS)}")
    return found
