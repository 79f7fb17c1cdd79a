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
from plimsoll.ledger.node import pod_key
from plimsoll.scheduler.devices import NO_CLAIMS, DevicesFilter, Fit, NewId, try_place
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_claims import read_task
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.preemption.importance import priority_of
from plimsoll.scheduler.preemption.simulated_node import Hypothesis
from plimsoll.scheduler.profile import DeviceOrder, Settings
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: The rules whose answer depends on which pods a node has; a test looks for others.
HEED_PODS = frozenset(
    {
        Rule.PORTS,
        Rule.RESOURCES,
        Rule.VOLUME_RESTRICTIONS,
        Rule.VOLUME_LIMITS,
        Rule.SPREAD,
        Rule.INTER_POD,
        Rule.DEVICES,
    }
)


class Examination:
    """One pod, asked about again and again. What it finds is not remembered for a place."""

    def __init__(
        self,
        task: Task,
        snapshot: Snapshot,
        settings: Settings,
        new_id: NewId | None = None,
        *,
        standing: bool = True,
    ) -> None:
        """Without `standing`, only the rules that look at other pods are asked about."""
        self.task = task
        self.snapshot = snapshot
        self.settings = settings
        #: The rules in their order: read once, or to be read again.
        self._rules: list[Filter | type[Filter]] = []
        self._always: tuple[NodeReason, ...] = ()
        self._standing: Mask = snapshot.alive.copy()
        self._new_id = new_id or _throwaway_ids()
        #: Asks about devices and books; None if the pod has no claims.
        self.devices = DevicesFilter(task, snapshot, self._new_id, settings) if task.claims else None
        for kind in FILTERS:
            if kind.rule in HEED_PODS:
                self._rules.append(kind)
                continue
            if not standing:
                continue
            rule = kind.read(task, snapshot)
            if isinstance(rule, NodeReason):
                self._always = self._always or (rule,)
            elif rule is not None:
                self._rules.append(rule)
                self._standing &= rule.feasible()

    def suppose(self, place: int, beside: Sequence[Pod] = ()) -> Hypothesis:
        """A hypothesis about a node, in which pods that were promised it keep their claims."""
        frees = self.settings.device_order is DeviceOrder.JOINT
        return Hypothesis(self.snapshot, place, self.claims_beside(beside), frees_devices=frees)

    def concerns(self, *rules: Rule) -> bool:
        """Whether one of these rules has anything to say about the pod as things stand."""
        kinds = (kind for kind in self._rules if isinstance(kind, type) and kind.rule in rules)
        return any(kind.read(self.task, self.snapshot) is not None for kind in kinds)

    def stands(self, place: int) -> bool:
        """Whether all rules that do not look at other pods let the pod go to a node."""
        return not self._always and bool(self._standing[place])

    def ask(self, place: int) -> Fit | tuple[NodeReason, ...]:
        """Whether the pod fits as things stand, and with which devices; or why not, by the first rule."""
        if self._always:
            return self._always
        for rule in self._rules:
            if isinstance(rule, Filter):
                reasons = () if self._standing[place] else rule.why_not(place)
            else:
                read = rule.read(self.task, self.snapshot)
                if isinstance(read, NodeReason):
                    return (read,)
                reasons = () if read is None else read.why_not(place)
            if reasons:
                return reasons
        return NO_CLAIMS if self.devices is None else self.devices.answer(place)

    def ask_beside(self, others: Sequence[Pod], hypothesis: Hypothesis) -> Fit | tuple[NodeReason, ...]:
        """The same with pods that were promised the node, and without them: the pod must fit both ways."""
        if others:
            answer = self.ask_among(others, hypothesis)
            if not isinstance(answer, Fit):
                return answer
        return self.ask(hypothesis.place)

    def ask_among(self, others: Sequence[Pod], hypothesis: Hypothesis) -> Fit | tuple[NodeReason, ...]:
        """The same as if pods that were promised the node were there."""
        added: list[Task] = []
        for pod in others:
            if self.snapshot.booked(pod_key(pod)) is None:
                task = self.read(pod)
                hypothesis.add(task, self._room_for(task, hypothesis))
                added.append(task)
        answer = self.ask(hypothesis.place)
        for task in reversed(added):
            hypothesis.take_out(task)
        return answer

    def claims_beside(self, others: Sequence[Pod] = ()) -> set[str]:
        """The claims of the pods that are about to come: they are in use, whoever goes."""
        tasks = [self.task, *map(self.read, others)]
        return {claim.metadata.uid for task in tasks for claim in task.claims}

    def read(self, pod: Pod) -> Task:
        """A promised pod as a task; what keeps it from being tried just now does not void its promise."""
        task = read_task(pod, self.snapshot)
        return task if isinstance(task, Task) else Task(pod, (), self.snapshot.options)

    def _room_for(self, task: Task, hypothesis: Hypothesis) -> Fit | None:
        """The devices that a promised pod will get: now, or once the pods that make room for it are gone.

        DIFF: upstream sees to it that nobody takes the requests of a pod that waits for its victims to end;
        here nobody takes the devices either. test_devices_are_kept_for_a_nominated_pod
        """
        if not task.claims:
            return None
        place = hypothesis.place
        fit = try_place(task, place, self.snapshot, self._new_id, self.settings)
        if not isinstance(fit, Fit):
            leaving = [
                pod
                for pod in self.snapshot.pods_at(place)
                if pod.metadata.deletion_timestamp is not None and priority_of(pod) < task.priority
            ]
            hypothesis.lift(leaving)
            fit = try_place(task, place, self.snapshot, self._new_id, self.settings)
            hypothesis.put_back(leaving)
        return fit if isinstance(fit, Fit) else None


def _throwaway_ids() -> NewId:
    """IDs for shares that exist for the length of a question."""
    numbers: Iterator[int] = count()
    return lambda: f"hypothetical-{next(numbers)}"
