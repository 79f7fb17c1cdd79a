"""START HERE: `find_fixes`, the changes with the least harm that make a pod schedulable.

The search tries changes in the order of their harm. On each of the nearest nodes it applies the steps found
so far to the objects in memory, evaluates all rules, and proposes further steps from the refusal, until the
pod fits. A fix is returned only if the scheduling cycle then schedules the pod, and does not with any of its
steps left out. All changes are undone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import attrgetter

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.cycle import run_filters, schedule_one
from plimsoll.scheduler.devices import NodeFit, simulated_ids
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile, SelectorErrors
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.changes import ChangeLog
from plimsoll.tools.cluster_state.objects import Key
from plimsoll.tools.columns import format_count
from plimsoll.tools.fixes.additions import propose_devices, propose_nodes
from plimsoll.tools.fixes.device_steps import propose_for_devices
from plimsoll.tools.fixes.edits import apply_edit
from plimsoll.tools.fixes.fix import Fix, FixKind, FixReport, FixStep, Hint, HintKind
from plimsoll.tools.fixes.hints import hint_unprovided, hints_for_pod, hints_on_node, unprovided_resources
from plimsoll.tools.fixes.nearest_nodes import nearest_nodes
from plimsoll.tools.fixes.node_steps import propose_for_node
from plimsoll.tools.fixes.pod_steps import gate_step, propose_for_pod, propose_resources
from plimsoll.tools.fixes.removal_steps import propose_removals
from plimsoll.tools.fixes.trial import FixTrial
from plimsoll.tools.pod_groups import attempt_group
from plimsoll.tools.pod_schedulers import rules_of


@dataclass(frozen=True, slots=True)
class FixLimits:
    """Bounds of a search."""

    nodes: int = 8
    steps: int = 3  #: of one fix, without the removal of scheduling gates
    trials: int = 120
    fixes: int = 3
    trials_after: int = 20  #: for further fixes, once one was found
    scope: int = 200  #: nodes among which those that fit after a fix are counted
    kept: frozenset[Key] = frozenset()  #: names of pods that are not removed


_LIMITS = FixLimits()
#: Steps that set an amount, so that one replaces another.
_ABSOLUTE = (
    FixKind.LOWER_COUNT,
    FixKind.LOWER_CAPACITY,
    FixKind.STEP_CAPACITY,
    FixKind.DROP_CAPACITY,
    FixKind.SHRINK,
)
#: How much more than the best fix another may harm to be worth reading.
_FAR = 75
#: Steps that stand alone: a node that is added is not changed as well.
_ADDED = (FixKind.ADD_NODE, FixKind.ADD_SIZED_NODE)
_cost = attrgetter("cost")


def find_fixes(
    cluster_state: ClusterState,
    pod: Pod,
    settings: SchedulerProfile | ProfileSet | None = None,
    *,
    node: str = "",
    limits: FixLimits = _LIMITS,
) -> FixReport:
    """Return the fixes for a pod, for one node if it is given; the cluster state is as before afterwards."""
    search = FixSearch(cluster_state, pod, settings or SchedulerProfile.default(), node, limits)
    mark = search.changes.mark()
    try:
        search.changes.set(pod)
        return search.run()
    finally:
        search.changes.undo(mark)


def apply_fix(cluster_state: ClusterState, pod: Pod, fix: Fix) -> tuple[ClusterState, Pod]:
    """Return a copy of the cluster state with the fix applied, and the changed pod."""
    copy = cluster_state.copy()
    changes = ChangeLog(copy)
    changes.set(pod)
    _apply_steps(fix.steps, changes)
    return copy, _find_pod(copy, pod)


def _apply_steps(steps: Sequence[FixStep], changes: ChangeLog) -> None:
    for step in steps:
        for edit in step.edits:
            apply_edit(edit, changes)


def _find_pod(cluster_state: ClusterState, pod: Pod) -> Pod:
    found = cluster_state.objects.find(Pod, *pod.metadata.key)
    assert found is not None, "a fix is about an existing pod"
    return found


@dataclass(order=True, slots=True)
class _State:
    """Steps to try on a node; ordered by harm, then by the rank of the node."""

    cost: int
    rank: int
    number: int
    node: str = field(compare=False)
    steps: tuple[FixStep, ...] = field(compare=False)


def _replaced(steps: Sequence[FixStep], new: FixStep) -> tuple[FixStep, ...]:
    """Return the steps with a lower amount instead of the one that was not low enough."""
    old = next(step for step in steps if step.targets == new.targets)
    facts = {**new.facts, "wanted": old.facts["wanted"]}
    lower = replace(new, facts=facts, more_harm=old.more_harm + new.more_harm)
    return tuple(lower if step is old else step for step in steps)


class FixSearch:
    """Search for the fixes of one pod on a cluster state that it changes and restores."""

    def __init__(
        self,
        cluster_state: ClusterState,
        pod: Pod,
        settings: SchedulerProfile | ProfileSet,
        node: str,
        limits: FixLimits,
    ) -> None:
        self._cluster_state, self._pod, self._node, self._limits = cluster_state, pod, node, limits
        self._profiles, self._rules = settings, rules_of(settings.for_pod(pod))
        self._settings = self._rules[0]
        self._group = group_key(pod, cluster_state.gates)
        self.changes = ChangeLog(cluster_state)
        self._heap: list[_State] = []
        self._seen: set[Hashable] = set()
        self._found: dict[tuple[FixKind, ...], Fix] = {}
        self._hints: dict[HintKind, Hint] = {}
        self._nodes_tried: set[str] = set()
        self._trials, self._fits = 0, False
        self._most_trials = limits.trials

    def run(self) -> FixReport:
        self._push("", (gate_step(self._pod),) if self._pod.spec.scheduling_gates else ())
        while self._heap and self._trials < self._most_trials and len(self._found) < self._limits.fixes:
            state = heappop(self._heap)
            if self._found and state.cost > min(self._found.values(), key=_cost).cost + _FAR:
                break
            with self._applied(state.steps):
                if not state.node:
                    self._choose_nodes(state)
                    continue
                self._trials += 1
                self._nodes_tried.add(state.node)
                result = self._attempt(state.node, detail=self._may_grow(state))
                if isinstance(result, tuple):
                    self._expand(state, *result)
                    continue
            if result:
                self._record(state)
        return self._report()

    def _report(self) -> FixReport:
        fixes = tuple(sorted(self._found.values(), key=_cost))
        if fixes or self._fits:
            return FixReport(fixes, tuple(self._hints.values()))
        nodes, limits = len(self._nodes_tried), self._limits
        note = "no fix found"
        if nodes:
            tried = format_count(self._trials, "combination")
            note += f" among {tried} of up to {limits.steps} changes on {format_count(nodes, 'node')}"
        if self._heap:
            note += "; the search ended at its limit"
        return FixReport((), tuple(self._hints.values()), note)

    @property
    def _changed_pod(self) -> Pod:
        return _find_pod(self._cluster_state, self._pod)

    # -- states

    def _choose_nodes(self, state: _State) -> None:
        """Continue on the nearest nodes, and with one more node of each shape; or with the pod's claims."""
        snapshot = self._cluster_state.snapshot
        pod_info = read_pod_info(self._changed_pod, snapshot, self._settings)
        if isinstance(pod_info, NodeReason):
            if self._may_grow(state):
                self._expand(state, None, (pod_info,))
            return
        for name in unprovided_resources(pod_info, snapshot):
            hint = hint_unprovided(snapshot, name)
            self._hints[hint.kind] = hint
        if self._node:
            self._push(self._node, state.steps)
            return
        for row in nearest_nodes(pod_info, snapshot, self._settings, self._limits.nodes):
            self._push(snapshot.node(row).metadata.name, state.steps)
        for step in propose_nodes(self._cluster_state, pod_info):
            self._push(step.node, (*state.steps, step))

    def _push(self, node: str, steps: tuple[FixStep, ...]) -> None:
        key = node, frozenset((step.text, step.targets) for step in steps)
        kinds = tuple(step.kind for step in steps)
        if key in self._seen or kinds in self._found:
            return
        self._seen.add(key)
        cost = sum(step.cost for step in steps)
        heappush(self._heap, _State(cost, len(self._nodes_tried), len(self._seen), node, steps))

    @contextmanager
    def _applied(self, steps: Sequence[FixStep]) -> Iterator[None]:
        mark = self.changes.mark()
        try:
            _apply_steps(steps, self.changes)
            yield
        finally:
            self.changes.undo(mark)

    def _may_grow(self, state: _State) -> bool:
        """Return whether further steps may follow."""
        steps = [step for step in state.steps if step.kind is not FixKind.REMOVE_GATES]
        return len(steps) < self._limits.steps and not any(step.kind in _ADDED for step in steps)

    def _attempt(self, node: str, *, detail: bool) -> bool | tuple[FixTrial | None, tuple[NodeReason, ...]]:
        """Return whether the pod fits on the node, or why not if further steps may follow."""
        snapshot = self._cluster_state.snapshot
        found = read_pod_info(self._changed_pod, snapshot, self._settings)
        if isinstance(found, NodeReason):
            return (None, (found,)) if detail else False
        row = snapshot.row_of(node)
        if row is None:
            return False
        for settings in self._rules:
            pod_info = found.with_profile(settings)
            node_filter = NodeFilter(pod_info, snapshot, settings)
            answer = node_filter.run(row)
            if isinstance(answer, NodeFit):
                answer = self._selector_error(pod_info)
            if answer:
                break
        else:
            return True
        if not detail:
            return False
        if answer[0].rule is Rule.DEVICES and node_filter.devices is not None:
            answer = node_filter.devices.filter_node(row) or answer
        return FixTrial(self._cluster_state, settings, pod_info, node_filter, row), answer

    def _selector_error(self, pod_info: PodInfo) -> tuple[NodeReason, ...]:
        """Return the error on another node, if it keeps the pod pending although it fits on one."""
        settings = self._settings
        if settings.selector_errors is not SelectorErrors.PENDING or not pod_info.unallocated_claims:
            return ()
        outcome = schedule_one(pod_info, self._cluster_state.snapshot, settings, simulated_ids())
        if not isinstance(outcome, FitError) or not outcome.is_error:
            return ()
        return tuple(reason for reason, _ in outcome.reasons)

    def _expand(self, state: _State, trial: FixTrial | None, reasons: tuple[NodeReason, ...]) -> None:
        """Continue with each step that may resolve the first rule that the node fails."""
        if not any(step.kind is not FixKind.REMOVE_GATES for step in state.steps):
            self._note_hints(trial, reasons)
        for step in self._propose(trial, reasons):
            same = [each for each in state.steps if not each.targets.isdisjoint(step.targets)]
            if not same:
                self._push(state.node, (*state.steps, step))
            elif step.kind in _ABSOLUTE and [each.targets for each in same] == [step.targets]:
                self._push(state.node, _replaced(state.steps, step))

    def _propose(self, trial: FixTrial | None, reasons: tuple[NodeReason, ...]) -> Iterator[FixStep]:
        if trial is None:
            yield from propose_for_pod(self._cluster_state, self._changed_pod, reasons[0])
            return
        if reasons[0].rule is Rule.DEVICES:
            yield from propose_for_devices(trial, reasons)
            yield from propose_devices(trial, reasons)
        yield from propose_for_node(trial, reasons)
        for reason in reasons:
            yield from propose_resources(self._cluster_state, trial.pod, reason)
        yield from propose_removals(trial, reasons, self._limits.kept)

    def _note_hints(self, trial: FixTrial | None, reasons: tuple[NodeReason, ...]) -> None:
        pod = self._changed_pod
        found = (
            hints_on_node(trial, reasons) if trial else hints_for_pod(self._cluster_state, pod, reasons[0])
        )
        for hint in found:
            self._hints.setdefault(hint.kind, hint)

    # -- results

    def _record(self, state: _State) -> None:
        """Keep a fix if the cycle confirms it, without the steps that are not needed."""
        steps = state.steps
        if not self._is_scheduled(steps, state.node):
            return
        if all(step.kind is FixKind.REMOVE_GATES for step in steps):
            self._heap.clear()  # no other change is needed
            self._fits = not steps
        for step in state.steps if len(steps) > 1 else ():
            rest = tuple(each for each in steps if each is not step)
            if self._is_scheduled(rest, state.node):
                steps = rest
        kinds = tuple(step.kind for step in steps)
        if not steps or kinds in self._found:
            return
        self._found[kinds] = Fix(steps, self._nodes_after(steps, state.node))
        self._most_trials = min(self._most_trials, self._trials + self._limits.trials_after)

    def _is_scheduled(self, steps: Sequence[FixStep], node: str) -> bool:
        """Return whether the scheduling cycle schedules the pod after the steps; on one node, if asked."""
        snapshot = self._cluster_state.snapshot
        with self._applied(steps):
            pod = self._changed_pod
            pod_info = read_pod_info(pod, snapshot, self._settings)
            if isinstance(pod_info, NodeReason) or pod.spec.scheduling_gates:
                return False
            if self._group is not None and not self._node:
                result = attempt_group(self._cluster_state, self._group, self._profiles, simulated_ids())
                placed = result.placements if isinstance(result, GroupResult) and result.is_scheduled else ()
                return any(each.pod_info.key == pod_key(pod) for each in placed)
            allowed = None
            if self._node:
                allowed = np.zeros_like(snapshot.alive)
                allowed[snapshot.row_of(self._node)] = True
            outcomes = (
                schedule_one(pod_info, snapshot, rules, simulated_ids(), allowed=allowed)
                for rules in self._rules
            )
            return all(isinstance(outcome, Placement) for outcome in outcomes)

    def _nodes_after(self, steps: Sequence[FixStep], node: str) -> tuple[str, ...]:
        """Return the nodes on which the pod fits after the steps, the one they were tried on first."""
        snapshot = self._cluster_state.snapshot
        if self._node or any(step.node for step in steps):
            return (node,)
        with self._applied(steps):
            pod_info = read_pod_info(self._changed_pod, snapshot, self._settings)
            if isinstance(pod_info, NodeReason):
                return (node,)
            rows: Iterable[int] = snapshot.rows()
            for rules in self._rules:
                result = run_filters(pod_info, snapshot, rules, simulated_ids())
                if isinstance(result, NodeReason):
                    return (node,)
                devices = result.devices
                feasible = [row for row in rows if result.feasible[row]][: self._limits.scope]
                rows = [
                    row
                    for row in feasible
                    if devices is None or isinstance(devices.search_uncached(row), NodeFit)
                ]
            names = [snapshot.node(row).metadata.name for row in rows]
        return (node, *(each for each in names if each != node))
