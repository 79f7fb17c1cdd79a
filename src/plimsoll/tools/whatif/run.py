"""`run_whatif`: evaluate a plan.

The cluster is scheduled once without the changes and once with them, so that differences are caused by the
plan alone; on request also by kube-scheduler's rules, and by exhaustive search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from plimsoll.api.core import Node
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.fixes import NO_FIXES, FixFinder, FixLimits, FixReport
from plimsoll.tools.pod_schedulers import find_model, schedulers_of
from plimsoll.tools.top.uncounted_notes import note_uncounted
from plimsoll.tools.whatif.affected_nodes import keep_unaffected
from plimsoll.tools.whatif.fragmentation import find_fragments, read_node_fragments
from plimsoll.tools.whatif.hardware_conflicts import find_conflicts
from plimsoll.tools.whatif.outcome import (
    EvictionReason,
    Name,
    WhatifOutcome,
    stem_of,
)
from plimsoll.tools.whatif.plan import WhatifPlan
from plimsoll.tools.whatif.result import ExtraCapacity, Overcommit, Prediction
from plimsoll.tools.whatif.texts import WhatifReport
from plimsoll.tools.whatif.totals import changed_nodes, free_by_node, sum_totals
from plimsoll.tools.whatif.verdict import judge
from plimsoll.tools.whatif.whatif import Whatif, WhatifOperations

#: Kinds of added pods whose extra capacity is counted, and the maximum count.
KINDS_MAX, MORE_MAX = 3, 500
#: Pending pods with different needs for which fixes are searched.
FIXES_MAX = 20


def run_whatif(
    cluster_state: ClusterState,
    plan: WhatifPlan,
    *,
    settings: SchedulerProfile | ProfileSet | None = None,
    tick: ProgressCallback = no_progress,
    lent: bool = False,
    look: Callable[[ClusterState], None] = lambda cluster_state: None,
) -> WhatifReport:
    """Evaluate the plan; the cluster state is not modified.

    With `lent`, `cluster_state` is changed in place and restored instead of copied; nothing else may read it
    meanwhile. `look` receives the resulting cluster state.
    """
    models = [find_model(name) for name in dict.fromkeys(plan.versus)]
    given, settings = settings, settings or schedulers_of(cluster_state)
    whatif = Whatif(cluster_state, settings=settings, lent=lent)
    now = {name: placement.node for name, placement in whatif.state().items()}
    with whatif.branch() as before:
        before.schedule(preempt=plan.preempt, tick=tick)
        state_before = before.state()
        free_before = free_by_node(before.cluster_state.snapshot)
        totals_before = sum_totals(before.cluster_state, free_before)
        nodes_before = read_node_fragments(before.cluster_state.snapshot, free_before)
        fragments_before = find_fragments(before.cluster_state.snapshot, nodes_before)
        affected_before = before.affected_nodes()
        evicted_before = {each.pod for each in before.evicted}
    with whatif.branch() as after:
        added = plan.apply(after)
        displaced = {each.pod for each in after.evicted if each.because is not EvictionReason.PREEMPTED}
        proof = after.prove(steps=plan.steps, tick=tick) if plan.exhaustive else None
        outcome = after.schedule(preempt=plan.preempt, tick=tick)
        states = state_before, after.state()
        affected_after = after.affected_nodes()
        affected = (
            None if affected_before is None or affected_after is None else affected_before | affected_after
        )
        snapshot = after.cluster_state.snapshot
        free_after = free_by_node(snapshot, keep_unaffected(free_before, affected))
        nodes_after = read_node_fragments(snapshot, free_after, keep_unaffected(nodes_before, affected))
        verdict = judge(
            now,
            states,
            added=added,
            displaced=displaced,
            drains=bool(plan.drain),
            blocked=[pod for drain in after.drains for pod in drain.blocked],
            evicted=after.evicted,
            refused=[each.name for each in after.refused if each.kind == "Pod"],
            nodes={node.metadata.name for node in after.cluster_state.objects.all(Node)},
        )
        report = WhatifReport(
            plan=plan,
            origin=cluster_state.origin,
            before=totals_before,
            after=sum_totals(after.cluster_state, free_after),
            now=now,
            states=states,
            outcome=outcome,
            verdict=verdict,
            fixes=_fixes(after, outcome, verdict.pending, settings),
            fragments=(fragments_before, find_fragments(snapshot, nodes_after)),
            evicted=after.evicted,
            evicted_anyway=frozenset(evicted_before - displaced),
            refused=tuple(after.refused),
            drains=tuple(after.drains),
            nodes=changed_nodes(free_before, free_after),
            passed_by=tuple(after.passed_by),
            more=_more(after, added, {pending.pod for pending in outcome.pending}),
            proof=proof,
            uncounted=note_uncounted(after.cluster_state),
        )
        look(after.cluster_state)
    for model in models:
        other = Whatif(model.cluster_state(cluster_state), settings=model.settings(given))
        plan.apply(other)
        predicted = other.schedule(preempt=plan.preempt, tick=tick)
        conflicts = tuple(find_conflicts(predicted.placed, other.cluster_state.snapshot))
        overcommits = _overcommits(
            ClusterState(other.cluster_state.objects, cluster_state.gates, cluster_state.profile)
        )
        report.predictions.append(Prediction(model.name, model.about, other.state(), overcommits, conflicts))
    return report


def _fixes(
    operations: WhatifOperations,
    outcome: WhatifOutcome,
    names: Iterable[Name],
    settings: SchedulerProfile | ProfileSet,
) -> Mapping[Name, FixReport]:
    """Return the fixes of pending pods, until `FIXES_MAX` different ones were searched.

    A pod whose claims were refused has none: its quota is the reason. Pods that run only in the simulation
    are not removed for others.
    """
    simulated = frozenset(each.pod for each in outcome.placed)
    finder = FixFinder(operations.cluster_state, settings, FixLimits(kept=simulated))
    pending = {each.pod: each for each in outcome.pending}
    found: dict[Name, FixReport] = {}
    known: dict[Hashable, FixReport] = {}  # pods of one workload with the same reason
    for name in names:
        if name in operations.cluster.claim_refusals or name not in pending:
            found[name] = NO_FIXES
            continue
        key = stem_of(name), pending[name].key
        if key not in known:
            known[key] = finder.find(operations.cluster_state.pod(name[1], name[0]))
        found[name] = known[key]
        if len(set(map(id, known.values()))) == FIXES_MAX:
            break
    return found


def _overcommits(cluster_state: ClusterState) -> tuple[Overcommit, ...]:
    """Return the overcommitted resources of nodes, largest excess first for each resource."""
    found = [
        Overcommit(node, name, -units)
        for node, free in free_by_node(cluster_state.snapshot).items()
        for name, units in free.items()
        if units < 0
    ]
    return tuple(sorted(found, key=lambda over: (over.resource, -over.units, over.node)))


def _more(operations: WhatifOperations, added: list[Name], pending: set[Name]) -> tuple[ExtraCapacity, ...]:
    """Count further pods of each added kind that would fit, where all of that kind did."""
    kinds: dict[Name, Name] = {}
    for name in added:
        kinds.setdefault(stem_of(name), name)
    stuck = {stem_of(name) for name in pending}
    if len(kinds) > KINDS_MAX:
        return ()
    found = []
    for stem, name in kinds.items():
        count, refusal = (0, "") if stem in stuck else operations.count_more(name, MORE_MAX)
        found.append(ExtraCapacity(stem, count, count == MORE_MAX, stem in stuck, refusal))
    return tuple(found)
