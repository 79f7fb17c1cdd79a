"""`explain_pod` and `explain_node`: reasons why a pod is pending, or why it is on its node. START HERE.

For a pending pod: scheduling gates, its claims, the nodes each rule excludes (`attempt`, `groups`), the
changes that would help (`tools.fixes`), a preview of preemption, and the message of the cluster's own
scheduler.
"""

from __future__ import annotations

from dataclasses import replace as amend

import numpy as np
from msgspec.structs import replace

from plimsoll.allocator import Refusal
from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.errors import InputError
from plimsoll.ledger.placeholders import placeholder_owner
from plimsoll.scheduler.binding.pod_conditions import POD_SCHEDULED
from plimsoll.scheduler.cycle import build_filters, reject_pod
from plimsoll.scheduler.devices import DynamicResourcesFilter, simulated_ids
from plimsoll.scheduler.devices.exact import DeviceMessage
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.preemption import NoPreemption, plan_preemption
from plimsoll.scheduler.preemption.candidates import LowestPriorities
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.attempt import AttemptRecorder, record_attempt
from plimsoll.tools.explain.cluster_devices import describe_cluster_devices
from plimsoll.tools.explain.devices import describe_reasons
from plimsoll.tools.explain.events import describe_events
from plimsoll.tools.explain.groups import EXPLAINERS, STATES, group_nodes
from plimsoll.tools.explain.pending import find_pods_ahead
from plimsoll.tools.explain.placeholders import explain_placeholder, note_missing_placeholders
from plimsoll.tools.explain.pod_group import explain_member
from plimsoll.tools.explain.pod_view import PodView, RuleExplainer
from plimsoll.tools.explain.scheduled import explain_scheduled
from plimsoll.tools.explain.text import pluralize
from plimsoll.tools.explain.tree import FEW, NodeGroup, Statement
from plimsoll.tools.explain.verdict import ExplainVerdict, ExplanationSection, NodeExplanation, PodExplanation
from plimsoll.tools.facts import join_names
from plimsoll.tools.fixes import NO_FIXES, find_fixes
from plimsoll.tools.fixes.hints import hint_scheduler
from plimsoll.tools.pod_schedulers import (
    KUBE,
    PLIMSOLL,
    UNKNOWN_PROFILE,
    find_unsafe_placement,
    format_refusal,
    recorded_message,
    rules_of,
    schedulers_of,
)
from plimsoll.tools.pod_status import pod_status
from plimsoll.tools.top.uncounted_notes import notes_about_nodes

#: Note if the cluster's scheduler refuses a pod that fits here.
_OTHER_RULES = (
    "either the cluster has changed since and the pod will be retried, or that scheduler has other rules: "
    "see --as kube-1.36"
)
#: Maximum number of nodes in a preview of preemption.
MAX_PREVIEW_NODES = 200


def explain_pod(
    cluster_state: ClusterState,
    pod: Pod,
    *,
    settings: SchedulerProfile | ProfileSet | None = None,
    unfolded: bool = False,
) -> PodExplanation:
    """Explain why a pod is pending or where it was scheduled; `unfolded` omits nothing."""
    explanation = _explain_pod(cluster_state, pod, settings or schedulers_of(cluster_state), unfolded)
    meta = pod.metadata
    events = describe_events(cluster_state, "Pod", meta.namespace, meta.name, meta.uid)
    return amend(explanation, sections=(*explanation.sections, *events))


def _explain_pod(
    cluster_state: ClusterState, pod: Pod, profiles: SchedulerProfile | ProfileSet, unfolded: bool
) -> PodExplanation:
    settings = profiles.for_pod(pod)
    owner = placeholder_owner(pod)
    if owner is not None:
        return explain_placeholder(cluster_state, pod, owner)
    if pod.has_terminated:
        return PodExplanation(
            pod.metadata.full_name, ExplainVerdict.ENDED, f"the pod has terminated: {pod_status(pod)}"
        )
    if pod.spec.node_name:
        explanation = explain_scheduled(cluster_state, pod, settings)
        notes = (
            *note_missing_placeholders(cluster_state, pod),
            *notes_about_nodes(cluster_state, (explanation.node,)),
        )
        return amend(explanation, notes=notes)
    explanation = _explain_pending(cluster_state, pod, settings, 10**9 if unfolded else STATES)
    explanation = explain_member(cluster_state, pod, profiles, explanation)
    fits = explanation.verdict is ExplainVerdict.FITS
    found = NO_FIXES if fits else find_fixes(cluster_state, pod, profiles)
    ahead = find_pods_ahead(cluster_state, pod, profiles) if fits else []
    if ahead:
        text = f"{explanation.summary}, but not with those that come first in the queue: "
        explanation = amend(explanation, summary=text + join_names(ahead, FEW))
    is_unknown = _has_unknown_scheduler(cluster_state, pod)
    notes = (
        *_scheduler_notes(pod, settings, is_unknown),
        *explanation.notes,
        *_scheduler_message(cluster_state, pod, explanation),
        *notes_about_nodes(cluster_state, (explanation.node, *(fix.node for fix in found.fixes))),
    )
    if is_unknown:
        found = amend(found, hints=(hint_scheduler(cluster_state, pod), *found.hints))
    return amend(explanation, notes=notes, found=found, unfolded=unfolded)


def _explain_pending(
    cluster_state: ClusterState, pod: Pod, settings: SchedulerProfile, states: int
) -> PodExplanation:
    name = pod.metadata.full_name
    if pod.spec.scheduling_gates:
        return _explain_gated(cluster_state, pod, settings, states)
    pod_info = read_pod_info(pod, cluster_state.snapshot, settings)
    if isinstance(pod_info, NodeReason):
        return _explain_rejected(reject_pod(pod, cluster_state.snapshot, pod_info))
    node = ""
    for rules in rules_of(settings):
        view = PodView(cluster_state, pod_info, rules)
        outcome, attempt = record_attempt(pod_info, cluster_state.snapshot, rules)
        if isinstance(outcome, FitError):
            break
        node = node or outcome.node
    else:
        return PodExplanation(name, ExplainVerdict.FITS, f"it fits on node {node} now", node)
    note = f"Plimsoll's scheduler would place it on node {node} now" if node else ""
    if outcome.nodes and outcome.reasons and not any(count for _, count in outcome.reasons):
        return amend(_explain_rejected(outcome), notes=(note,) if note else ())
    groups = group_nodes(view, attempt, states)
    if not node and len(rules_of(settings)) > 1:
        note = _note_unsafe_placement(cluster_state, pod, groups)
    return PodExplanation(
        name,
        ExplainVerdict.PENDING,
        format_refusal(outcome),
        groups=groups,
        notes=(note,) if note else (),
        sections=_cluster_section(view, attempt),
        preemption=preview_preemption(view, outcome, groups),
    )


def _explain_gated(
    cluster_state: ClusterState, pod: Pod, settings: SchedulerProfile, states: int
) -> PodExplanation:
    gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
    ungated = replace(pod, spec=replace(pod.spec, scheduling_gates=()))
    after = _explain_pending(cluster_state, ungated, settings, states)
    then = (
        after.summary
        if after.verdict is not ExplainVerdict.FITS
        else f"it would fit on node {after.node} now"
    )
    return amend(
        after,
        verdict=ExplainVerdict.GATED,
        node="",
        summary=f"{pluralize(len(pod.spec.scheduling_gates), 'scheduling gate')} set: {gates}",
        notes=(f"without the gates: {then}", *after.notes),
    )


def _explain_rejected(fit_error: FitError) -> PodExplanation:
    """Explain a problem of the pod itself, for which no node was evaluated."""
    name = fit_error.pod_info.pod.metadata.full_name
    return PodExplanation(name, ExplainVerdict.PENDING, format_refusal(fit_error))


# -- notes


def _has_unknown_scheduler(cluster_state: ClusterState, pod: Pod) -> bool:
    """Return whether there is no sign of a scheduler with the pod's schedulerName."""
    name = pod.spec.scheduler_name
    tried = any(each.type == POD_SCHEDULED for each in pod.status.conditions)
    if name in ("", PLIMSOLL, KUBE) or tried:
        return False
    return not any(other.spec.scheduler_name == name for other in cluster_state.pods if other.spec.node_name)


def _scheduler_notes(pod: Pod, settings: SchedulerProfile, is_unknown: bool) -> tuple[str, ...]:
    """Return notes about another scheduler and a nominated node."""
    notes, name = [], pod.spec.scheduler_name
    if settings is UNKNOWN_PROFILE:
        notes.append(f"the rules of scheduler {name} are not known; those of Plimsoll are applied")
    if is_unknown:
        notes.append(
            f"schedulerName {name} may not be running: it has scheduled no pod, and this pod has no "
            "PodScheduled condition"
        )
    if pod.status.nominated_node_name:
        notes.append(
            f"nominated to node {pod.status.nominated_node_name}: lower-priority pods are being preempted"
        )
    return tuple(notes)


def _note_unsafe_placement(cluster_state: ClusterState, pod: Pod, groups: tuple[NodeGroup, ...]) -> str:
    """Return a note if kube-scheduler would place a pod although it does not fit."""
    node = find_unsafe_placement(cluster_state, pod)
    messages = {group.message for group in groups if node in group.nodes}
    if not messages:
        return ""
    return (
        f"kube-scheduler would place it on node {node} now, which is not safe: it does not count all that "
        f"is in use there ({', '.join(messages)})"
    )


def _scheduler_message(cluster_state: ClusterState, pod: Pod, explanation: PodExplanation) -> tuple[str, ...]:
    """Return the last message of the pod's scheduler, if it differs from this explanation."""
    message = recorded_message(cluster_state, pod)
    if not message or explanation.summary.endswith(message):
        return ()
    text = f"message of scheduler {pod.spec.scheduler_name or PLIMSOLL}: {message}"
    return (text, _OTHER_RULES) if explanation.verdict is ExplainVerdict.FITS else (text,)


def preview_preemption(view: PodView, fit_error: FitError, groups: tuple[NodeGroup, ...]) -> str:
    """Describe the pods that preemption would evict, or why it would not help."""
    snapshot, resolvable, limited = view.snapshot, fit_error.resolvable, ""
    if not fit_error.nodes:
        return ""
    if not view.settings.preemption:
        return f"none is predicted for scheduler {view.pod.spec.scheduler_name}"
    if resolvable is None or not resolvable.any():
        lacks_devices = any(each.message is DeviceMessage.CANNOT_ALLOCATE for each, _ in fit_error.reasons)
        if lacks_devices and not view.settings.frees_devices:
            return "would not help: kube-scheduler does not evict pods for their devices"
        return "would not help: no node would be feasible without other pods"
    priority = view.pod_info.priority
    if not (snapshot.index(LowestPriorities).lowest[resolvable] < priority).any():
        return f"no victims: no pod on these nodes has a priority below {priority}"
    if int(np.count_nonzero(resolvable)) > MAX_PREVIEW_NODES:
        names = [name for group in groups if group.resolvable for name in group.nodes]
        mask = np.zeros_like(resolvable)
        rows = (snapshot.row_of(name) for name in names[:MAX_PREVIEW_NODES])
        mask[[row for row in rows if row is not None]] = True
        resolvable, limited = resolvable & mask, f" (tried on the {MAX_PREVIEW_NODES} nearest nodes)"
    budgets = snapshot.all(PodDisruptionBudget)
    tried = amend(fit_error, resolvable=resolvable)
    plan = plan_preemption(tried, snapshot, view.settings, budgets, simulated_ids())
    if isinstance(plan, NoPreemption):
        return plan.text.removeprefix("preemption: ").rstrip(".") + limited
    victims = ", ".join(victim.metadata.full_name for victim in plan.victims)
    broken = (
        f", breaking {pluralize(plan.pdb_violations, 'disruption budget')}" if plan.pdb_violations else ""
    )
    return f"would evict {victims} from node {plan.node}{broken}{limited}"


def _cluster_section(view: PodView, attempt: AttemptRecorder) -> tuple[ExplanationSection, ...]:
    """Count the matching devices of the cluster, to distinguish missing from allocated devices."""
    short = any(
        isinstance(reason.cause, Refusal) and reason.cause.allocated_elsewhere is None
        for reasons in attempt.refused.values()
        for reason in reasons
    )
    if not short:
        return ()
    branches = describe_cluster_devices(view, attempt.refused.keys())
    return (ExplanationSection("cluster-wide", branches),) if branches else ()


# -- one node


def explain_node(
    cluster_state: ClusterState, pod: Pod, node: str, *, settings: SchedulerProfile | ProfileSet | None = None
) -> NodeExplanation:
    """Explain one pod on one node with every rule. Raise InputError if the node does not exist."""
    settings = settings or schedulers_of(cluster_state)
    row = cluster_state.snapshot.row_of(node)
    if row is None:
        raise InputError(f"node {node} not found ({len(cluster_state.snapshot)} nodes)")
    unbound = replace(pod, spec=replace(pod.spec, node_name="", scheduling_gates=()))
    name, profile = pod.metadata.full_name, settings.for_pod(pod)
    pod_info = read_pod_info(unbound, cluster_state.snapshot, profile)
    if isinstance(pod_info, NodeReason):
        return NodeExplanation(name, node, False, ((pod_info.rule.value, render(pod_info), ()),))
    for rules in rules_of(profile):
        view = PodView(cluster_state, pod_info, rules)
        filters = build_filters(pod_info, cluster_state.snapshot, rules, simulated_ids())
        if isinstance(filters, NodeReason):
            return NodeExplanation(name, node, False, ((filters.rule.value, render(filters), ()),))
        results = tuple(_explain_filter(view, each, row) for each in filters)
        if any(message for _, message, _ in results):
            found = find_fixes(cluster_state, unbound, settings, node=node)
            notes = notes_about_nodes(cluster_state, (node,))
            by_kube = () if rules is profile else ("refused by kube-scheduler, not by Plimsoll's rules",)
            return NodeExplanation(name, node, False, results, found, (*by_kube, *notes))
    return NodeExplanation(name, node, True, results, notes=notes_about_nodes(cluster_state, (node,)))


def _explain_filter(view: PodView, rule: Filter, row: int) -> tuple[str, str, tuple[Statement, ...]]:
    """Return the name of a rule, and why it excludes a node, or ""."""
    reasons = rule.filter_node(row)
    if not reasons:
        return rule.rule.value, "", ()
    message = ", ".join(map(render, reasons))
    if isinstance(rule, DynamicResourcesFilter):
        return rule.rule.value, message, describe_reasons(view, reasons, row)
    explainer = EXPLAINERS.get(rule.rule, RuleExplainer)(view, rule, [row])
    return rule.rule.value, message, explainer.explain(row, [row])
