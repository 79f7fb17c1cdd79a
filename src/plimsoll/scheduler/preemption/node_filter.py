"""All rules at once, for one pod on one node, however often the node's pods change in between.

Owns `Examination`. Rules that do not look at other pods are read once; those that do are read again for each
question, because the pods of the node may be lifted or put back between two questions (`hypothesis`). Pods
that were promised the node are counted as if they were there: a pod must fit with them and without them,
because they may yet go elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import NO_CLAIMS, DynamicResourcesFilter, NewId, NodeFit, try_node
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.importance import priority_of
from plimsoll.scheduler.preemption.simulated_node import Hypothesis
from plimsoll.scheduler.profile import DeviceOrder, SchedulerProfile
from plimsoll.scheduler.queueing_hints import RULES
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Rules whose result depends on the pods of a node; they are evaluated again whenever those change.
HEED_PODS = frozenset(kind.rule for kind in RULES if kind.depends_on_pods)


class Examination:
    """One pod, asked about again and again. What it finds is not remembered for a place."""

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        settings: SchedulerProfile,
        new_id: NewId | None = None,
        *,
        standing: bool = True,
    ) -> None:
        """Without `standing`, only the rules that look at other pods are asked about."""
        self.pod_info = pod_info
        self.snapshot = snapshot
        self.settings = settings
        #: The rules in their order: read once, or to be read again.
        self._rules: list[Filter | type[Filter]] = []
        self._always: tuple[NodeReason, ...] = ()
        self._standing: Mask = snapshot.alive.copy()
        self._new_id = new_id or _throwaway_ids()
        #: Asks about devices and books; None if the pod has no claims.
        self.devices = (
            DynamicResourcesFilter(pod_info, snapshot, self._new_id, settings) if pod_info.claims else None
        )
        for kind in FILTERS:
            if kind.rule in HEED_PODS:
                self._rules.append(kind)
                continue
            if not standing:
                continue
            rule = kind.pre_filter(pod_info, snapshot)
            if isinstance(rule, NodeReason):
                self._always = self._always or (rule,)
            elif rule is not None:
                self._rules.append(rule)
                self._standing &= rule.filter()

    def suppose(self, row: int, beside: Sequence[Pod] = ()) -> Hypothesis:
        """A hypothesis about a node, in which pods that were promised it keep their claims."""
        frees = self.settings.device_order is DeviceOrder.JOINT
        return Hypothesis(self.snapshot, row, self.claims_beside(beside), frees_devices=frees)

    def concerns(self, *rules: Rule) -> bool:
        """Whether one of these rules has anything to say about the pod as things stand."""
        kinds = (kind for kind in self._rules if isinstance(kind, type) and kind.rule in rules)
        return any(kind.pre_filter(self.pod_info, self.snapshot) is not None for kind in kinds)

    def stands(self, row: int) -> bool:
        """Whether all rules that do not look at other pods let the pod go to a node."""
        return not self._always and bool(self._standing[row])

    def ask(self, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Whether the pod fits as things stand, and with which devices; or why not, by the first rule."""
        if self._always:
            return self._always
        for rule in self._rules:
            if isinstance(rule, Filter):
                reasons = () if self._standing[row] else rule.filter_node(row)
            else:
                read = rule.pre_filter(self.pod_info, self.snapshot)
                if isinstance(read, NodeReason):
                    return (read,)
                reasons = () if read is None else read.filter_node(row)
            if reasons:
                return reasons
        return NO_CLAIMS if self.devices is None else self.devices.search_uncached(row)

    def ask_beside(self, others: Sequence[Pod], hypothesis: Hypothesis) -> NodeFit | tuple[NodeReason, ...]:
        """The same with pods that were promised the node, and without them: the pod must fit both ways."""
        if others:
            answer = self.ask_among(others, hypothesis)
            if not isinstance(answer, NodeFit):
                return answer
        return self.ask(hypothesis.row)

    def ask_among(self, others: Sequence[Pod], hypothesis: Hypothesis) -> NodeFit | tuple[NodeReason, ...]:
        """The same as if pods that were promised the node were there."""
        added: list[PodInfo] = []
        for pod in others:
            if self.snapshot.find_pod(pod_key(pod)) is None:
                pod_info = self.read(pod)
                hypothesis.add(pod_info, self._room_for(pod_info, hypothesis))
                added.append(pod_info)
        answer = self.ask(hypothesis.row)
        for pod_info in reversed(added):
            hypothesis.take_out(pod_info)
        return answer

    def claims_beside(self, others: Sequence[Pod] = ()) -> set[str]:
        """The claims of the pods that are about to come: they are in use, whoever goes."""
        pod_infos = [self.pod_info, *map(self.read, others)]
        return {claim.metadata.uid for pod_info in pod_infos for claim in pod_info.claims}

    def read(self, pod: Pod) -> PodInfo:
        """A promised pod as a task; what keeps it from being tried just now does not void its promise."""
        pod_info = read_pod_info(pod, self.snapshot)
        return pod_info if isinstance(pod_info, PodInfo) else PodInfo(pod, (), self.snapshot.options)

    def _room_for(self, pod_info: PodInfo, hypothesis: Hypothesis) -> NodeFit | None:
        """The devices that a promised pod will get: now, or once the pods that make room for it are gone.

        DIFF: upstream sees to it that nobody takes the requests of a pod that waits for its victims to end;
        here nobody takes the devices either. test_devices_are_kept_for_a_nominated_pod
        """
        if not pod_info.claims:
            return None
        row = hypothesis.row
        fit = try_node(pod_info, row, self.snapshot, self._new_id, self.settings)
        if not isinstance(fit, NodeFit):
            leaving = [
                pod
                for pod in self.snapshot.pods_at(row)
                if pod.metadata.deletion_timestamp is not None and priority_of(pod) < pod_info.priority
            ]
            hypothesis.lift(leaving)
            fit = try_node(pod_info, row, self.snapshot, self._new_id, self.settings)
            hypothesis.put_back(leaving)
        return fit if isinstance(fit, NodeFit) else None


def _throwaway_ids() -> NewId:
    """IDs for shares that exist for the length of a question."""
    numbers: Iterator[int] = count()
    return lambda: f"hypothetical-{next(numbers)}"
