"""Explanation of a pod as a member of a pod group: how many members fit together, and which do not."""

from __future__ import annotations

from dataclasses import replace as amend

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.devices import simulated_ids
from plimsoll.scheduler.gang.conditions import WAITING_MEMBER
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.verdict import ExplainVerdict, PodExplanation
from plimsoll.tools.pod_groups import attempt_group, pending_members, summarize_group

#: Members listed with their reasons.
MAX_LISTED = 3


def explain_member(
    cluster_state: ClusterState,
    pod: Pod,
    settings: SchedulerProfile | ProfileSet,
    explanation: PodExplanation,
) -> PodExplanation:
    """Return the explanation of a pending pod with what its group adds; pods without a group stay as is."""
    key = group_key(pod, cluster_state.gates)
    if key is None or explanation.verdict is ExplainVerdict.GATED:
        return explanation
    result = attempt_group(cluster_state, key, settings, simulated_ids())
    if isinstance(result, NodeReason):
        members = len(pending_members(cluster_state, key))
        note = f"pod group {'/'.join(key)} has {members} pods without a node"
        return amend(
            explanation,
            verdict=ExplainVerdict.PENDING,
            node="",
            summary=render(result),
            notes=(note, *explanation.notes),
        )
    placed = next((each for each in result.placements if each.pod_info.key == pod_key(pod)), None)
    if result.is_scheduled and placed is not None:
        summary = f"it fits on node {placed.node} now, together with its pod group"
        return PodExplanation(explanation.subject, ExplainVerdict.FITS, summary, placed.node)
    if result.is_scheduled:
        return explanation
    notes = (summarize_group(key, result), *_failures(result), *explanation.notes)
    if explanation.verdict is ExplainVerdict.FITS:
        return amend(
            explanation, verdict=ExplainVerdict.PENDING, node="", summary=WAITING_MEMBER, notes=notes
        )
    return amend(explanation, notes=notes)


def _failures(result: GroupResult) -> list[str]:
    """Return a line for each of the first members that do not fit."""
    lines = []
    for failure in list(result.failures.values())[:MAX_LISTED]:
        if isinstance(failure, NodeReason):
            lines.append(f"a pod of the group waits: {render(failure)}")
        else:
            lines.append(f"{failure.pod_info.pod.metadata.full_name}: {render_fit_error(failure)}")
    more = len(result.failures) - MAX_LISTED
    return [*lines, f"and {more} more pods of the group"] if more > 0 else lines
