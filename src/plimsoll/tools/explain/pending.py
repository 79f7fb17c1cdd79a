"""`explain_pending`: all pending pods, those of one cause together. `summarize_pending`: a line for each.

Those that fit are scheduled one after the other, in the order of the queue, in memory: only those that then
have a node fit together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import simulated_ids
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.group_members import GroupKey
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.colors import Paint
from plimsoll.tools.explain.text import pluralize
from plimsoll.tools.explain.tree import FEW
from plimsoll.tools.explain.verdict import fix_lines, fold
from plimsoll.tools.fixes import NO_FIXES, FixFinder, FixLimits, FixReport
from plimsoll.tools.pending_cause import PendingCauses, fix_key
from plimsoll.tools.pod_groups import attempt_group, summarize_group
from plimsoll.tools.pod_schedulers import (
    format_refusal,
    is_refused_by_kube,
    schedule_by_rules,
    schedulers_of,
)
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.scheduling import schedule_all

#: Hints shown for one group.
HINTS = 3
#: Searches for fixes in an overview, times nodes.
_SEARCHES = 20_000
#: Pods that are scheduled before another one, to see whether it still fits.
_AHEAD = 200


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Reason why one pod is pending: a result of scheduling, or another key; `fits` is about it alone."""

    pod: Pod
    why: str
    cause: FitError | NodeReason | Hashable = None
    fits: bool = False
    together: bool = False  #: whether it fits with the others that fit


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """Pods that are pending for one cause, and what all of them need; `why` names the first of them."""

    why: str
    pods: tuple[str, ...]
    fits: bool = False
    together: bool = False
    scheduler: str = ""
    found: FixReport = NO_FIXES

    def as_json(self) -> dict[str, Any]:
        return {
            "why": self.why,
            "count": len(self.pods),
            "fitsAlone": self.fits,
            "fitsTogether": self.together,
            "scheduler": self.scheduler,
            **self.found.as_json(),
            "pods": list(self.pods),
        }


@dataclass(frozen=True, slots=True)
class PendingList:
    """All pending pods: those that fit first, then the largest groups."""

    groups: tuple[PendingGroup, ...]

    @property
    def count(self) -> int:
        return sum(len(group.pods) for group in self.groups)

    @property
    def fitting(self) -> int:
        """Number of pods that fit now, all at once."""
        return sum(len(group.pods) for group in self.groups if group.together)

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        if not self.groups:
            yield "no pod is pending"
            return
        fit = f"{self.fitting} of them fit now together" if self.fitting > 1 else "one of them fits now"
        fit = "; " + ("it fits now" if self.count == 1 else fit) if self.fitting else ""
        yield paint.bold(f"{pluralize(self.count, 'pod')} pending{fit}")
        for group in self.groups:
            yield ""
            yield from fold(str, group.why, f"{pluralize(len(group.pods), 'pod')}: ", paint.width)
            hints = group.found.hints if wide else group.found.hints[:HINTS]
            for line in fix_lines(replace(group.found, hints=hints), replace(paint, width=paint.width - 2)):
                yield f"  {line}"
            if len(hints) < len(group.found.hints):
                more = pluralize(len(group.found.hints) - len(hints), "more hint")
                yield paint.dim(f"  and {more}; -o wide lists them")
            shown = group.pods if wide else group.pods[: 2 * FEW]
            for pod in shown:
                yield f"  {pod}"
            if len(shown) < len(group.pods):
                yield paint.dim(f"  and {len(group.pods) - len(shown)} more")

    def as_json(self) -> dict[str, Any]:
        groups = [group.as_json() for group in self.groups]
        return {"count": self.count, "fitTogether": self.fitting, "groups": groups}


def summarize_pending(
    cluster_state: ClusterState,
    *,
    namespace: str = "",
    settings: SchedulerProfile | ProfileSet | None = None,
    pods: Iterable[Pod] | None = None,
) -> list[tuple[Pod, str]]:
    """Return each pending pod (or each of `pods`) with its reason, by name."""
    return [(each.pod, each.why) for each in _find_reasons(cluster_state, namespace, settings, pods)]


def explain_pending(
    cluster_state: ClusterState, *, namespace: str = "", settings: SchedulerProfile | ProfileSet | None = None
) -> PendingList:
    """Return all pending pods, grouped by cause and by what they need."""
    finder = FixFinder(cluster_state, settings, FixLimits(fixes=1))
    causes = PendingCauses(cluster_state.snapshot)
    most = max(_SEARCHES // max(len(cluster_state.snapshot), 1), FEW)
    fix_keys: dict[int, Hashable] = {}  # by the report, which equal pods share
    by_key: dict[Hashable, list[tuple[PendingReason, FixReport]]] = {}
    for each in _find_reasons(cluster_state, namespace, settings):
        pod, cause = each.pod, each.cause
        found = NO_FIXES if each.fits or finder.searches >= most else finder.find(pod)
        if isinstance(cause, (FitError, NodeReason)):
            cause = is_refused_by_kube(cause), causes.key(pod, cause, found)
        if id(found) not in fix_keys:
            fix_keys[id(found)] = fix_key(pod, found)
        key = (each.fits and each.why, cause, fix_keys[id(found)])
        by_key.setdefault(key, []).append((each, found))
    groups = [_group(members) for members in by_key.values()]
    groups.sort(key=lambda group: (not group.together, not group.fits, -len(group.pods), group.why))
    return PendingList(tuple(groups))


def find_pods_ahead(
    cluster_state: ClusterState, pod: Pod, settings: SchedulerProfile | ProfileSet
) -> list[str]:
    """Return the pods of its scheduler that come first in the queue if one that fits alone does not fit
    with them.
    """
    cluster, name = MemoryCluster(cluster_state, settings), pod.spec.scheduler_name
    pending = [each for each in cluster_state.pending if each.spec.scheduler_name == name]
    ahead = [each for each in pending if cluster.order(each) < cluster.order(pod)]
    if not ahead:
        return []
    with cluster.trial():
        outcome = schedule_all(
            cluster, preempt=False, pending=[*nsmallest(_AHEAD, ahead, cluster.order), pod]
        )
    placed = [each.pod for each in outcome.placed]
    return [] if pod.metadata.key in placed else list(map("/".join, placed))


def _group(members: Sequence[tuple[PendingReason, FixReport]]) -> PendingGroup:
    first, found = members[0]
    hints = {hint.text: hint for _, report in members for hint in report.hints}
    return PendingGroup(
        first.why,
        tuple(each.pod.metadata.full_name for each, _ in members),
        first.fits,
        first.together,
        first.pod.spec.scheduler_name,
        replace(found, hints=tuple(hints.values()), note="" if hints else found.note),
    )


def _find_reasons(
    cluster_state: ClusterState,
    namespace: str,
    settings: SchedulerProfile | ProfileSet | None,
    pods: Iterable[Pod] | None = None,
) -> list[PendingReason]:
    """Return the reasons of pending pods (or of `pods`), by name."""
    reader = _ReasonReader(cluster_state, settings or schedulers_of(cluster_state))
    candidates = cluster_state.pending if pods is None else pods
    pending = [pod for pod in candidates if namespace in ("", pod.metadata.namespace)]
    pending.sort(key=lambda pod: pod.metadata.key)
    found = [reader.read(pod) for pod in pending]
    if not any(each.fits for each in found):
        return found
    together = reader.fit_together()
    return [_with_others(each, together) if each.fits else each for each in found]


def _with_others(reason: PendingReason, together: frozenset[tuple[str, str]]) -> PendingReason:
    """Return the reason of a pod that fits, given those that fit together."""
    scheduler = f"waiting for scheduler {reason.pod.spec.scheduler_name or 'default-scheduler'}"
    if reason.pod.metadata.key in together:
        return replace(reason, why=f"fits now; {scheduler}", together=True)
    return replace(reason, why=f"fits alone, but not with those that come first in the queue; {scheduler}")


class _ReasonReader:
    """Evaluation of pending pods against the cluster as it is."""

    def __init__(self, cluster_state: ClusterState, settings: SchedulerProfile | ProfileSet) -> None:
        self._cluster_state, self._settings = cluster_state, settings
        self._groups: dict[GroupKey, GroupResult | NodeReason] = {}

    def read(self, pod: Pod) -> PendingReason:
        if pod.spec.scheduling_gates:
            gates = ", ".join(sorted(gate.name for gate in pod.spec.scheduling_gates))
            return PendingReason(pod, f"scheduling gates: {gates}", gates)
        key = group_key(pod, self._cluster_state.gates)
        if key is not None:
            found = self._read_member(pod, key)
            if found is not None:
                return found
        settings, snapshot = self._settings.for_pod(pod), self._cluster_state.snapshot
        outcome = schedule_by_rules(pod, snapshot, settings, simulated_ids())
        if isinstance(outcome, Placement):
            return PendingReason(pod, "", fits=True)
        return PendingReason(pod, format_refusal(outcome), outcome)

    def _read_member(self, pod: Pod, key: GroupKey) -> PendingReason | None:
        """Return the reason for a pod of a group; None if it is about the pod alone."""
        if key not in self._groups:
            result = attempt_group(self._cluster_state, key, self._settings, simulated_ids())
            self._groups[key] = result
        result = self._groups[key]
        if isinstance(result, NodeReason):
            return PendingReason(pod, render(result), (key, result.message))
        if not result.is_scheduled:
            return PendingReason(pod, summarize_group(key, result), key)
        is_placed = any(each.pod_info.key == pod_key(pod) for each in result.placements)
        return PendingReason(pod, "", fits=True) if is_placed else None

    def fit_together(self) -> frozenset[tuple[str, str]]:
        """Return the names of the pods that fit at the same time, in the order of the queue."""
        cluster = MemoryCluster(self._cluster_state, self._settings)
        pods = [pod for pod in self._cluster_state.pending if self.read(pod).fits]
        mark = cluster.mark()
        try:
            outcome = schedule_all(cluster, preempt=False, pending=pods)
        finally:
            cluster.undo(mark)
        return frozenset(each.pod for each in outcome.placed)
