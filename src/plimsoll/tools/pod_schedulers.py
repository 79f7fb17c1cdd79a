"""Schedulers of pods: the rules by which tools predict what happens to pods, and what schedulers recorded.

Pods are placed by the rules of Plimsoll's scheduler: where they find no node, no scheduler does without
overcommitting one. But nothing is preempted that the scheduler in `spec.schedulerName` would not preempt:
kube-scheduler does not evict pods for their devices, and what an unknown scheduler does is not known.

`--as` predicts by the rules of one scheduler alone. Each release of kube-scheduler has its feature gates,
ledger rules and order of evaluation: devices are chosen first, the node's resources are checked afterwards.
Intended differences are listed in docs/compat.md. Among nodes of equal score kube-scheduler chooses randomly;
the prediction takes turns, so it may name another node of the same score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import POD_KEY
from plimsoll.api.gates import Gates
from plimsoll.errors import InputError
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.binding.pod_conditions import POD_SCHEDULED
from plimsoll.scheduler.profile import (
    SAMPLED_FROM,
    DeviceOrder,
    MixedAdvertisers,
    ProfileSet,
    SchedulerProfile,
    Scoring,
)
from plimsoll.tools.cluster_state import ClusterState

#: Names of Plimsoll's scheduler and of kube-scheduler in `spec.schedulerName`.
PLIMSOLL, KUBE = "plimsoll", "default-scheduler"
_KUBE_PROFILE = replace(SchedulerProfile.default(), name=KUBE, device_preemption=False)
UNKNOWN_PROFILE = replace(SchedulerProfile.default(), name="unknown", preemption=False)


# -- by spec.schedulerName


@dataclass(frozen=True, slots=True)
class PodSchedulers(ProfileSet):
    """Profiles by the scheduler that a pod names."""

    def for_pod(self, pod: Pod) -> SchedulerProfile:
        name = pod.spec.scheduler_name
        known = next((each for each in self.profiles if each.name == name), None)
        return known or (UNKNOWN_PROFILE if name else self.profiles[0])


def schedulers_of(cluster_state: ClusterState) -> PodSchedulers:
    """Return the profiles for the pods of a cluster."""
    is_ours = _runs_plimsoll(cluster_state, KUBE)
    kube = replace(SchedulerProfile.default(), name=KUBE) if is_ours else _KUBE_PROFILE
    return PodSchedulers((SchedulerProfile.default(), kube))


def _runs_plimsoll(cluster_state: ClusterState, name: str) -> bool:
    """Return whether there is evidence that Plimsoll schedules the pods with a scheduler name.

    That is a node of its own agent, a pod that runs it with that name, or charges that only it writes.
    """
    nodes = (node.status.node_info for node in cluster_state.objects.all(Node))
    option = f"--scheduler-name={name}"
    return any(info is not None and "+plimsoll." in info.kubelet_version for info in nodes) or any(
        (pod.spec.scheduler_name == name and POD_KEY in pod.metadata.annotations)
        or any("scheduler" in each.args and option in each.args for each in pod.spec.containers)
        for pod in cluster_state.pods
    )


def recorded_message(pod: Pod) -> str:
    """Return what its scheduler recorded about a pending pod."""
    for condition in pod.status.conditions:
        if condition.type == POD_SCHEDULED and condition.status == "False":
            return condition.message or condition.reason
    return ""


# -- by --as


@dataclass(frozen=True, slots=True)
class SchedulerModel:
    """A scheduler with its feature gates and accounting; None for those of the cluster state."""

    name: str
    about: str
    gates: Gates | None = None
    profile: AccountingProfile | None = None

    def cluster_state(self, cluster_state: ClusterState) -> ClusterState:
        """Return the same objects accounted by this scheduler's rules."""
        gates, profile = self.gates or cluster_state.gates, self.profile or cluster_state.profile
        return ClusterState(cluster_state.objects, gates, profile, origin=cluster_state.origin)

    def settings(
        self, settings: SchedulerProfile | ProfileSet | None = None
    ) -> SchedulerProfile | ProfileSet:
        """Return these settings, or the default ones, with the scheduler's order of devices and scores."""
        settings = settings or SchedulerProfile.default()
        if self.name == PLIMSOLL:
            return settings
        if isinstance(settings, ProfileSet):
            return ProfileSet(tuple(map(_as_kube, settings.profiles)))
        return _as_kube(settings)


def _as_kube(settings: SchedulerProfile) -> SchedulerProfile:
    return replace(
        settings,
        device_order=DeviceOrder.FIRST,
        mixed_advertisers=MixedAdvertisers.ALLOW,
        scoring=Scoring.STOCK,
        explore=SAMPLED_FROM,
    )


SCHEDULER_MODELS: Mapping[str, SchedulerModel] = {
    each.name: each
    for each in (
        SchedulerModel(PLIMSOLL, "Plimsoll's scheduler for all pods"),
        SchedulerModel("kube", "kube-scheduler for all pods, with the feature gates given"),
        SchedulerModel(
            "kube-1.36",
            "1.36 with DRANodeAllocatableResources enabled: claims are charged to nodes",
            Gates.default().without_newer(),
            AccountingProfile.upstream_1_36(),
        ),
        SchedulerModel(
            "kube-1.36-default",
            "1.36 with default feature gates: claims are not charged to nodes",
            Gates.upstream(),
            AccountingProfile.upstream_1_36(),
        ),
        SchedulerModel(
            "kube-1.37",
            "1.37.0-rc.1 with DRANodeAllocatableResources enabled",
            Gates.default(),
            AccountingProfile.upstream_1_37(),
        ),
    )
}


def find_model(name: str) -> SchedulerModel:
    """Return the scheduler called `name` in `--as`. Raise InputError with the valid names."""
    found = SCHEDULER_MODELS.get(name)
    if found is None:
        raise InputError(f"--as {name}: unknown scheduler; valid values: {', '.join(SCHEDULER_MODELS)}")
    return found
