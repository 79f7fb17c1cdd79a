"""kube-scheduler releases that a what-if can compare with (`--as`).

Each release has its feature gates, ledger rules and order of evaluation: devices are chosen first, the node's
resources are checked afterwards. Intended differences are listed in docs/compat.md. Among nodes of equal
score kube-scheduler chooses randomly; the prediction takes turns, so it may name another node of the same
score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from plimsoll.api.gates import Gates
from plimsoll.errors import InputError
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.filters.mixed_advertisers import claimed_driver, held_by_plugins, plugin_requests
from plimsoll.scheduler.profile import (
    SAMPLED_FROM,
    DeviceOrder,
    MixedAdvertisers,
    ProfileSet,
    SchedulerProfile,
    Scoring,
)
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.whatif.outcome import Name, ScheduledPod

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


@dataclass(frozen=True, slots=True)
class HardwareConflict:
    """Hardware given to a pod that others on its node may have: a device plugin and a driver advertise it."""

    pod: Name
    node: str
    given: str  #: devices, or the resource of the device plugin
    held: str  #: resource, or driver, through which others have some

    @property
    def text(self) -> str:
        held = f"pods on {self.node} have {self.held}, and it is unknown which units these are"
        return f"{'/'.join(self.pod)} gets {self.given}, which may be in use: {held}"


def find_conflicts(placed: Iterable[ScheduledPod], snapshot: Snapshot) -> Iterator[HardwareConflict]:
    """Yield the scheduled pods with hardware that may be given out twice; `snapshot` is the result."""
    for each in placed:
        row = snapshot.row_of(each.node)
        if row is None or each.placement is None:
            continue
        held = held_by_plugins(snapshot, row)
        for (_, driver), resource in held.items():
            devices = ", ".join(name for name in each.devices if name.startswith(f"{driver}/"))
            if devices:
                yield HardwareConflict(each.pod, each.node, devices, resource)
        for resource in plugin_requests(each.placement.pod_info.requests):
            driver = claimed_driver(snapshot, row, resource)
            if driver:
                yield HardwareConflict(each.pod, each.node, resource, f"devices of {driver}")
