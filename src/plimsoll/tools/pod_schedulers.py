"""Schedulers of pods: the rules by which tools predict what happens to pods, and what schedulers recorded.

Pods are placed by the rules of Plimsoll's scheduler: where they find no node, no scheduler does without
overcommitting one. A pod of kube-scheduler must fit by the rules of kube-scheduler as well. Nothing is
preempted that the scheduler in `spec.schedulerName` would not preempt: kube-scheduler does not evict pods for
their devices, and what an unknown scheduler does is not known.

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
from plimsoll.scheduler.binding.pod_conditions import POD_SCHEDULED, render_fit_error
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.devices import NewId, simulated_ids
from plimsoll.scheduler.node_selection import NominationCheck
from plimsoll.scheduler.profile import (
    SAMPLED_FROM,
    DeviceOrder,
    MixedAdvertisers,
    ProfileSet,
    SchedulerProfile,
    Scoring,
)
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state import ClusterState

#: Names of Plimsoll's scheduler and of kube-scheduler in `spec.schedulerName`.
PLIMSOLL, KUBE = "plimsoll", "default-scheduler"
_KUBE_PROFILE = replace(SchedulerProfile.default(), name=KUBE, device_preemption=False)
UNKNOWN_PROFILE = replace(SchedulerProfile.default(), name="unknown", preemption=False)


def _as_kube(settings: SchedulerProfile) -> SchedulerProfile:
    return replace(
        settings,
        device_order=DeviceOrder.FIRST,
        mixed_advertisers=MixedAdvertisers.ALLOW,
        scoring=Scoring.STOCK,
        explore=SAMPLED_FROM,
    )


_KUBE_RULES = _as_kube(_KUBE_PROFILE)


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


def rules_of(profile: SchedulerProfile) -> tuple[SchedulerProfile, ...]:
    """Return the rules by which a pod with this profile must fit: Plimsoll's, then those of its scheduler."""
    return (profile, _KUBE_RULES) if profile is _KUBE_PROFILE else (profile,)


def schedule_by_rules(
    pod: Pod,
    snapshot: Snapshot,
    profile: SchedulerProfile,
    new_id: NewId,
    nominations: NominationCheck | None = None,
) -> Placement | FitError | NodeReason:
    """Return the placement by Plimsoll's rules, or the refusal by these or by the pod's scheduler."""
    outcome = schedule_pod(pod, snapshot, profile, new_id, nominations)
    if isinstance(outcome, Placement) and len(rules := rules_of(profile)) > 1:
        other = schedule_pod(pod, snapshot, rules[1], simulated_ids(), nominations)
        return outcome if isinstance(other, Placement) else other
    return outcome


def is_refused_by_kube(outcome: object) -> bool:
    """Return whether only kube-scheduler refuses the pod."""
    return isinstance(outcome, FitError) and outcome.pod_info.profile is _KUBE_RULES


def format_refusal(outcome: FitError | NodeReason) -> str:
    """Format a refusal in kube-scheduler's words; prefixed if only kube-scheduler refuses the pod."""
    text = render_fit_error(outcome) if isinstance(outcome, FitError) else render(outcome)
    return f"refused by kube-scheduler: {text}" if is_refused_by_kube(outcome) else text


def find_unsafe_placement(cluster_state: ClusterState, pod: Pod) -> str:
    """Return the node on which kube-scheduler would place a pod that Plimsoll's rules refuse, or "".

    Its ledger has only the charges that it knows: no accounting policies, and no mappings that are assumed.
    """
    model = SCHEDULER_MODELS["kube-1.36" if cluster_state.assumed_mappings is None else "kube-1.36-default"]
    snapshot = model.cluster_state(cluster_state).snapshot
    outcome = schedule_pod(pod, snapshot, _KUBE_RULES, simulated_ids())
    return outcome.node if isinstance(outcome, Placement) else ""


def recorded_message(cluster_state: ClusterState, pod: Pod) -> str:
    """Return what its scheduler recorded about a pending pod, in its condition or else in an event."""
    failed = (each for each in pod.status.conditions if each.type == POD_SCHEDULED and each.status == "False")
    condition = next(failed, None)
    if condition is not None and condition.message:
        return condition.message
    event = cluster_state.objects.related.scheduling_failure(pod.metadata.key, pod.metadata.uid)
    return event or (condition.reason if condition is not None else "")


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
