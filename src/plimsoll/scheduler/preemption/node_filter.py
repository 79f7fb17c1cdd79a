"""All filters for one pod on one node, repeated while the node's pods change.

Rules that do not depend on other pods are evaluated once; the others each time, because pods of the node may
be removed or restored in between (`simulated_node`). A pod must fit with and without the pods nominated to
the node, because these may still be scheduled elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import (
    NO_CLAIMS,
    DynamicResourcesFilter,
    NewId,
    NodeFit,
    simulated_ids,
    try_node,
)
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_resources import ignored_requests
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.simulated_cluster import ClusterSimulation
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queueing_hints import RULES
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Rules whose result depends on the pods of a node; they are evaluated each time.
POD_DEPENDENT_RULES = frozenset(kind.rule for kind in RULES if kind.depends_on_pods)


class NodeFilter:
    """Filters for one pod on one node, evaluated repeatedly; results are not cached."""

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        settings: SchedulerProfile,
        new_id: NewId | None = None,
        *,
        static: bool = True,
    ) -> None:
        """Create a filter; without `static`, only the rules that depend on other pods are evaluated."""
        pod_info = pod_info.with_profile(settings)
        self.pod_info = pod_info
        self.snapshot = snapshot
        self.settings = settings
        #: Rules in order: a filter is evaluated once, a type each time.
        self.rules: list[Filter | type[Filter]] = []
        self._rejection: tuple[NodeReason, ...] = ()
        self._static_mask: Mask = snapshot.alive.copy()
        self._new_id = new_id or simulated_ids()
        #: Requests of the pod that NodeResourcesFit does not ignore; None if the rule is disabled.
        self.checked_requests: Mapping[str, int] | None = None
        if Rule.RESOURCES.value not in settings.disabled_filters:
            ignored = ignored_requests(settings, pod_info.requests)
            self.checked_requests = {
                name: amount
                for name, amount in pod_info.requests.items()
                if amount > 0 and name not in ignored
            }
        #: Filter of devices and resources; None if the pod has no claims.
        self.devices = (
            DynamicResourcesFilter(pod_info, snapshot, self._new_id, settings) if pod_info.claims else None
        )
        for kind in FILTERS:
            if settings.disabled_filters and kind.rule.value in settings.disabled_filters:
                continue
            if kind.rule in POD_DEPENDENT_RULES:
                self.rules.append(kind)
                continue
            if not static:
                continue
            rule = kind.pre_filter(pod_info, snapshot)
            if isinstance(rule, NodeReason):
                self._rejection = self._rejection or (rule,)
            elif rule is not None:
                self.rules.append(rule)
                self._static_mask &= rule.filter()

    def simulate(self, row: int, nominated: Sequence[Pod] = ()) -> NodeSimulation:
        """Return a simulation of a node in which pods nominated to it keep their claims."""
        kept = self.nominated_claims(nominated)
        return NodeSimulation(self.snapshot, row, kept, frees_devices=self.settings.frees_devices)

    def simulate_cluster(self, nominated: Sequence[Pod] = ()) -> ClusterSimulation:
        """Return a simulation of the cluster, as `simulate`."""
        kept, frees = self.nominated_claims(nominated), self.settings.frees_devices
        return ClusterSimulation(self.snapshot, kept, frees_devices=frees, invalidates=False)

    def applies(self, *rules: Rule) -> bool:
        """Return whether one of these rules applies to the pod."""
        kinds = (kind for kind in self.rules if isinstance(kind, type) and kind.rule in rules)
        return any(kind.pre_filter(self.pod_info, self.snapshot) is not None for kind in kinds)

    def passes_static(self, row: int) -> bool:
        """Return whether all rules that do not depend on other pods accept a node."""
        return not self._rejection and bool(self._static_mask[row])

    def run(self, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Return whether the pod fits, with its devices; or the reason of the first failing rule."""
        if self._rejection:
            return self._rejection
        for rule in self.rules:
            if isinstance(rule, Filter):
                reasons = () if self._static_mask[row] else rule.filter_node(row)
            else:
                read = rule.pre_filter(self.pod_info, self.snapshot)
                if isinstance(read, NodeReason):
                    return (read,)
                reasons = () if read is None else read.filter_node(row)
            if reasons:
                return reasons
        return NO_CLAIMS if self.devices is None else self.devices.search_uncached(row)

    def run_with_nominated(
        self, others: Sequence[Pod], simulation: NodeSimulation
    ) -> NodeFit | tuple[NodeReason, ...]:
        """Run the filters with and without the pods nominated to the node; the pod must fit both ways."""
        if others:
            answer = self.run_among(others, simulation)
            if not isinstance(answer, NodeFit):
                return answer
        return self.run(simulation.row)

    def run_among(
        self, others: Sequence[Pod], simulation: NodeSimulation
    ) -> NodeFit | tuple[NodeReason, ...]:
        """Run the filters as if the pods nominated to the node were there."""
        added: list[PodInfo] = []
        for pod in others:
            if self.snapshot.find_pod(pod_key(pod)) is None:
                pod_info = self.read(pod)
                simulation.add_pod(pod_info, self._devices_for(pod_info, simulation))
                added.append(pod_info)
        answer = self.run(simulation.row)
        for pod_info in reversed(added):
            simulation.remove_added(pod_info)
        return answer

    def nominated_claims(self, others: Sequence[Pod] = ()) -> set[str]:
        """Return the UIDs of the claims of this pod and of nominated pods, which stay allocated."""
        pod_infos = [self.pod_info, *map(self.read, others)]
        return {claim.metadata.uid for pod_info in pod_infos for claim in pod_info.claims}

    def read(self, pod: Pod) -> PodInfo:
        """Read a nominated pod; temporary problems with its claims do not invalidate the nomination."""
        pod_info = read_pod_info(pod, self.snapshot)
        return pod_info if isinstance(pod_info, PodInfo) else PodInfo(pod, (), self.snapshot.options)

    def _devices_for(self, pod_info: PodInfo, simulation: NodeSimulation) -> NodeFit | None:
        """Return the devices of a nominated pod: available now, or once its victims are gone.

        DIFF: upstream reserves only the requests of a nominated pod, not its devices
        (test_devices_are_kept_for_a_nominated_pod).
        """
        if not pod_info.claims:
            return None
        row = simulation.row
        fit = try_node(pod_info, row, self.snapshot, self._new_id, self.settings)
        if not isinstance(fit, NodeFit):
            victims = [
                pod
                for pod in self.snapshot.pods_at(row)
                if pod.metadata.deletion_timestamp is not None and pod.priority < pod_info.priority
            ]
            simulation.remove_pods(victims)
            fit = try_node(pod_info, row, self.snapshot, self._new_id, self.settings)
            simulation.restore_pods(victims)
        return fit if isinstance(fit, NodeFit) else None
