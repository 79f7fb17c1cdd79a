"""What the stock scheduler would do with the same objects.

Owns the names people ask for (`--as`) and what each stands for: the gates that are on, the ledger's rules of
that release, and that devices are chosen first and the node's books are asked afterwards. What differs from
ours on purpose is listed in docs/compat.md. Among nodes of equal score kube-scheduler takes one by chance;
the prediction takes turns, so its node may be another one of the same score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plimsoll.api.gates import Gates
from plimsoll.errors import InputError
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.profile import SAMPLED_FROM, DeviceOrder, SchedulerProfile, Scoring
from plimsoll.tools.cluster_state import ClusterState

#: What `--as` calls our own scheduler.
OURS = "default"


@dataclass(frozen=True, slots=True)
class KubeScheduler:
    """A release of kube-scheduler, with its gates."""

    name: str
    about: str
    gates: Gates
    profile: AccountingProfile

    def cluster_state(self, cluster_state: ClusterState) -> ClusterState:
        """The same objects on that scheduler's books."""
        return ClusterState(cluster_state.objects, self.gates, self.profile, origin=cluster_state.origin)

    def settings(self, settings: SchedulerProfile) -> SchedulerProfile:
        return replace(settings, device_order=DeviceOrder.FIRST, scoring=Scoring.STOCK, explore=SAMPLED_FROM)


KUBE_SCHEDULERS: Mapping[str, KubeScheduler] = {
    each.name: each
    for each in (
        KubeScheduler(
            "kube-1.36",
            "1.36 with DRANodeAllocatableResources on: one set of books, by upstream's rules",
            Gates.all_on(),
            AccountingProfile.upstream_1_36(),
        ),
        KubeScheduler(
            "kube-1.36-default",
            "1.36 with its default gates: two books, claims are not counted on the node",
            Gates.upstream(),
            AccountingProfile.upstream_1_36(),
        ),
        KubeScheduler(
            "kube-1.37",
            "1.37.0-rc.1 with DRANodeAllocatableResources on",
            Gates.all_on(),
            AccountingProfile.upstream_1_37(),
        ),
    )
}


def find_kube_scheduler(name: str) -> KubeScheduler:
    """The scheduler of a name; InputError with the names there are."""
    found = KUBE_SCHEDULERS.get(name)
    if found is None:
        raise InputError(
            f"--as {name}: not a scheduler that is known; known are {', '.join(KUBE_SCHEDULERS)}"
        )
    return found
