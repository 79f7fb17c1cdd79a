"""`explain_scheduled`: devices, charges by rule, and node choice of a scheduled pod.

Decisions are read from the objects and the ledger. The comparison with other nodes is computed from the
current state, as if the pod were scheduled again, and is labeled as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace as replace_fields
from typing import Any

import numpy as np
from msgspec.structs import replace

from plimsoll.allocator import Allocation, DeviceId, Refusal, allocate_claims
from plimsoll.api.core import Pod
from plimsoll.api.resource import DeviceRequest, DeviceRequestAllocationResult, ResourceClaim
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.placeholders import NAMESPACE
from plimsoll.scheduler.cycle import run_filters
from plimsoll.scheduler.devices import simulated_ids
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.scores import score_nodes
from plimsoll.tools.amounts import format_quantity, format_short
from plimsoll.tools.claim_users import claims_of
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.attempt import AttemptRecorder
from plimsoll.tools.explain.devices import describe_refusal
from plimsoll.tools.explain.extended_resources import name_request, serving_claim
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.text import StatementKind, pluralize
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.explain.verdict import ExplainVerdict, ExplanationSection, PodExplanation
from plimsoll.tools.facts import AmountFact, join_names
from plimsoll.tools.pod_status import pod_status
from plimsoll.tools.top.nodes import ResourceHolder, holders, node_rows


def explain_scheduled(cluster_state: ClusterState, pod: Pod, settings: SchedulerProfile) -> PodExplanation:
    """Explain a pod that is bound to a node."""
    snapshot, node = cluster_state.snapshot, pod.spec.node_name
    name, row = pod.metadata.full_name, snapshot.row_of(node)
    if row is None:
        summary = f"bound to node {node}, which does not exist"
        return PodExplanation(name, ExplainVerdict.PLACED, summary, node)
    ledger = snapshot.ledger(row)
    claims = claims_of(cluster_state.objects, pod)
    sections = []
    devices = tuple(branch for claim in claims for branch in _devices(cluster_state, pod, claim, row))
    if devices:
        sections.append(ExplanationSection("devices", devices))
    text = "nothing: it has no requests, and none of its claims charges the node"
    nothing = Statement(StatementKind.TEXT, {"text": text})
    charges = tuple(_charges(cluster_state, ledger, pod)) or (nothing,)
    sections.append(ExplanationSection(f"charged on node {node}", charges))
    sections.append(ExplanationSection(f"free on node {node}", tuple(_headroom(cluster_state, ledger, pod))))
    comparison = _compare_nodes(cluster_state, pod, claims, row, settings)
    if comparison is not None:
        sections.append(comparison)
    summary = f"bound to node {node} ({pod_status(pod)})"
    without = [claim.metadata.full_name for claim in claims if claim.status.allocation is None]
    if without:
        summary += f"; it cannot start: not allocated: {', '.join(without)}"
    return PodExplanation(name, ExplainVerdict.PLACED, summary, node, sections=tuple(sections))


# -- devices


def _devices(cluster_state: ClusterState, pod: Pod, claim: ResourceClaim, row: int) -> Iterator[Statement]:
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        branch = describe_device(claim, result, pod)
        children = tuple(_describe_alternatives(cluster_state, pod, claim, result, row))
        yield Statement(branch.kind, branch.facts, (*branch.children, *children))


def describe_device(
    claim: ResourceClaim, result: DeviceRequestAllocationResult, pod: Pod | None = None
) -> Statement:
    """Describe one device of a claim and the share of it; for a pod, with the extended resource it serves."""
    share = ""
    if result.consumed_capacity:
        consumed = sorted(result.consumed_capacity.items())
        amounts = ", ".join(f"{format_quantity(amount)} {name}" for name, amount in consumed)
        share = f", a share with {amounts}"
    elif result.share_id is not None:
        share = ", a share"
    if result.admin_access:
        share += ", admin access"
    name = result.request if pod is None else name_request(pod, claim.metadata.name, result.request)
    request = f"{claim.metadata.name}/{name}"
    return Statement(
        StatementKind.DEVICE, {"request": request, "device": DeviceId.of(result), "share": share}
    )


def _describe_alternatives(
    cluster_state: ClusterState,
    pod: Pod,
    claim: ResourceClaim,
    result: DeviceRequestAllocationResult,
    row: int,
) -> Iterator[Statement]:
    """Describe why earlier subrequests of a prioritized list are not used, in the current state."""
    head, _, chosen = result.request.partition("/")
    request = next((each for each in claim.spec.devices.requests if each.name == head), None)
    if not chosen or request is None:
        return
    names = [each.name for each in request.first_available]
    index = names.index(chosen) if chosen in names else 0
    facts = {"number": index + 1, "count": len(names)}
    earlier = [_retry_alternative(cluster_state, pod, claim, request, each, row) for each in names[:index]]
    yield Statement(StatementKind.ALTERNATIVE, facts, tuple(earlier))


def _retry_alternative(
    cluster_state: ClusterState, pod: Pod, claim: ResourceClaim, request: DeviceRequest, name: str, row: int
) -> Statement:
    """Allocate one subrequest alone, without the pod, and describe the result."""
    snapshot = cluster_state.snapshot
    only = replace(request, first_available=tuple(e for e in request.first_available if e.name == name))
    devices = replace(claim.spec.devices, requests=(only,), constraints=(), config=())
    unallocated = replace(
        claim,
        spec=replace(claim.spec, devices=devices),
        status=replace(claim.status, allocation=None),
    )
    with NodeSimulation(snapshot, row) as simulation:
        if snapshot.find_pod(pod_key(pod)) is not None:
            simulation.remove_pods([snapshot.ledger(row).entries[pod_key(pod)].pod])
        outcome = allocate_claims(
            snapshot.inventory,
            snapshot.state,
            (unallocated,),
            snapshot.node(row),
            classes=snapshot.classes,
            new_id=simulated_ids(),
        )
        if isinstance(outcome, Allocation):
            return Statement(StatementKind.EARLIER_FREE, {"name": name})
        if not isinstance(outcome, Refusal):
            return Statement(StatementKind.EARLIER, {"name": name, "why": str(outcome)})
        view = PodView(cluster_state, PodInfo(pod, (unallocated,), snapshot.options))
        statements = tuple(describe_refusal(view, outcome, row))
    return Statement(
        StatementKind.EARLIER,
        {"name": name, "why": statements[0].text if statements else "refused"},
        statements[:1] and statements[0].children,
    )


# -- charges


def _charges(cluster_state: ClusterState, ledger: NodeLedger, pod: Pod) -> Iterator[Statement]:
    own = pod.metadata.key
    for holder in holders(cluster_state, ledger.name):
        if (holder.namespace, holder.pod) == own:
            claim = "" if ledger.allocatable.get(holder.resource) else serving_claim(pod, holder.resource)
            yield describe_charge(replace_fields(holder, rule=SERVED, claim=claim) if claim else holder)
    entry = ledger.entries.get(pod_key(pod))
    for line in entry.lines if entry is not None else ():
        if not line.counted:
            facts = {"resource": line.resource, "amount": line.amount, "claim": line.claim}
            yield Statement(StatementKind.COVERED, facts)


def describe_charge(holder: ResourceHolder) -> Statement:
    source = f", claim {holder.claim}" if holder.claim else ""
    if holder.devices:
        source += f": {join_names(list(map(str, holder.devices)), 3)}"
    if holder.placeholder:
        source += f", requested by placeholder {NAMESPACE}/{holder.placeholder}"
    facts: Mapping[str, Any] = {
        "resource": holder.resource,
        "amount": AmountFact(holder.resource, holder.amount),
        "rule": holder.rule,
        "source": source,
    }
    return Statement(StatementKind.CHARGE, facts)


#: Rule of an extended resource that devices of a claim serve; the node is not charged for it.
SERVED = "served by devices"


def _headroom(cluster_state: ClusterState, ledger: NodeLedger, pod: Pod) -> Iterator[Statement]:
    entry = ledger.entries.get(pod_key(pod))
    for usage in node_rows(cluster_state, names=[ledger.name])[0].rows:
        name = usage.resource
        uncounted = f", {format_short(name, usage.uncounted)} not counted" if usage.uncounted else ""
        if (entry is not None and name in entry.units) or name in ("cpu", "memory") or usage.uncounted:
            facts = {
                "resource": name,
                "free": AmountFact(name, usage.free),
                "line": AmountFact(name, usage.line),
                "uncounted": uncounted,
            }
            yield Statement(StatementKind.HEADROOM, facts)


# -- comparison with other nodes


def _compare_nodes(
    cluster_state: ClusterState, pod: Pod, claims: list[ResourceClaim], row: int, settings: SchedulerProfile
) -> ExplanationSection | None:
    """Compare the node with others, as if the pod were scheduled now."""
    snapshot = cluster_state.snapshot
    if snapshot.find_pod(pod_key(pod)) is None:
        return None
    unbound = replace(pod, spec=replace(pod.spec, node_name=""))
    released = tuple(
        claim
        if len(claim.status.reserved_for) > 1
        else replace(claim, status=replace(claim.status, allocation=None))
        for claim in claims
    )
    with NodeSimulation(snapshot, row) as simulation:
        simulation.remove_pods([snapshot.ledger(row).entries[pod_key(pod)].pod])
        pod_info = PodInfo(unbound, released, snapshot.options)
        recorder = AttemptRecorder()
        # Devices are not searched: results must not be cached during a simulation.
        filter_result = run_filters(pod_info, snapshot, settings, simulated_ids(), recorder)
        if isinstance(filter_result, NodeReason):
            return None
        mask = filter_result.feasible
        if not mask[row]:
            rejecting = next(rule for rule, removed in recorder.removed if removed[row])
            why = ", ".join(map(render, rejecting.filter_node(row)))
            return _comparison(f"it would not be scheduled here again: {why}")
        scores = score_nodes(pod_info, snapshot, settings, mask, recorder)
        branches = tuple(_scores(recorder, mask, row))
        feasible = int(np.count_nonzero(mask))
        better = int(np.count_nonzero(mask & (scores > scores[row])))
        equal = int(np.count_nonzero(mask & (scores == scores[row]))) - 1
    if feasible == 1:
        return _comparison("it is the only feasible node")
    devices = " (without devices)" if claims else ""
    rank = f"{pluralize(better, 'node')} would score higher" if better else "none scores higher"
    return _comparison(f"{feasible} feasible nodes{devices}; {rank}, {equal} the same", branches)


def _comparison(text: str, branches: tuple[Statement, ...] = ()) -> ExplanationSection:
    statement = Statement(StatementKind.TEXT, {"text": text}, branches)
    return ExplanationSection("comparison with other nodes, as of now", (statement,))


def _scores(recorder: AttemptRecorder, feasible: Mask, row: int) -> Iterator[Statement]:
    """Yield the scorers whose scores differ between nodes."""
    for scorer, weight, scores in recorder.scores:
        best, worst = int(scores[feasible].max()), int(scores[feasible].min())
        if best != worst:
            facts = {"scorer": scorer, "score": int(scores[row]), "weight": weight, "best": best}
            yield Statement(StatementKind.SCORE, facts)
