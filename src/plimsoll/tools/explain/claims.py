"""`explain_claim`: why a claim has its devices, why it keeps them, or where it could be allocated.

A claim is allocated when a pod that uses it is scheduled. Where it could be allocated is evaluated with a pod
that has only this claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import Pod, PodResourceClaim, PodSpec
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import Placement
from plimsoll.tools.claim_users import users_of
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.attempt import record_attempt
from plimsoll.tools.explain.groups import STATES, group_nodes
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.scheduled import describe_charge, describe_device
from plimsoll.tools.explain.text import StatementKind, pluralize
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.explain.verdict import ClaimExplanation, ExplainVerdict, ExplanationSection
from plimsoll.tools.fixes import find_fixes
from plimsoll.tools.top.nodes import holders
from plimsoll.tools.top.uncounted_notes import note_uncounted


def explain_claim(
    cluster_state: ClusterState,
    claim: ResourceClaim,
    *,
    settings: SchedulerProfile | None = None,
    unfolded: bool = False,
) -> ClaimExplanation:
    """Explain why a claim has devices, or why it has none and where it could be allocated."""
    settings = settings or SchedulerProfile.default()
    if claim.status.allocation is not None:
        return _explain_allocated(cluster_state, claim)
    return _explain_pending(cluster_state, claim, settings, unfolded)


# -- allocated


def _explain_allocated(cluster_state: ClusterState, claim: ResourceClaim) -> ClaimExplanation:
    allocation = claim.status.allocation
    assert allocation is not None, "called for allocated claims only"
    users = list(_users(cluster_state, claim))
    existing = [branch for branch in users if branch.kind is not StatementKind.USER_GONE]
    results = allocation.devices.results
    sections = [ExplanationSection("devices", tuple(describe_device(claim, result) for result in results))]
    if users:
        sections.append(ExplanationSection("reserved for", tuple(users)))
    charges = tuple(_charges(cluster_state, claim))
    if charges:
        sections.append(ExplanationSection("charged", charges))
    notes = []
    if claim.metadata.deletion_timestamp is not None:
        notes.append("the claim is being deleted; its devices are released when no pod uses it")
    notes += note_uncounted(cluster_state, claims={claim.metadata.key}).notes()
    held = pluralize(len(results), "device")
    if existing:
        summary = f"holds {held}; reserved for {pluralize(len(existing), 'pod')}"
    elif users:
        summary = f"holds {held}, but every pod it is reserved for was deleted or has terminated"
        notes.append(
            "the reservations are stale: kube-controller-manager's resourceclaim controller removes them"
        )
    else:
        summary = f"holds {held}, but is not reserved for any pod"
    if not existing:
        namespace, name = claim.metadata.key
        waiting = [pod.metadata.full_name for pod in users_of(cluster_state, namespace, name)]
        notes.append(
            f"{', '.join(waiting[:5])} will use it: plimsoll explain {waiting[0]}"
            if waiting
            else f"no pod uses it: kubectl delete resourceclaim -n {namespace} {name} frees its devices"
        )
    return ClaimExplanation(
        claim.metadata.full_name,
        ExplainVerdict.ALLOCATED,
        summary,
        sections=tuple(sections),
        notes=tuple(notes),
    )


def _users(cluster_state: ClusterState, claim: ResourceClaim) -> Iterator[Statement]:
    namespace = claim.metadata.namespace
    alive = {pod.metadata.uid: pod for pod in cluster_state.pods if pod.metadata.namespace == namespace}
    for user in claim.status.reserved_for:
        pod, name = alive.get(user.uid), f"{namespace}/{user.name}"
        if pod is None:
            yield Statement(StatementKind.USER_GONE, {"pod": name})
        elif not pod.spec.node_name:
            yield Statement(StatementKind.USER_WAITS, {"pod": name})
        else:
            yield Statement(StatementKind.USER, {"pod": name, "node": pod.spec.node_name})


def _charges(cluster_state: ClusterState, claim: ResourceClaim) -> Iterator[Statement]:
    nodes = {
        pod.spec.node_name for pod in users_of(cluster_state, claim.metadata.namespace, claim.metadata.name)
    }
    for node in sorted(name for name in nodes if name):
        if cluster_state.snapshot.row_of(node) is None:
            continue
        for holder in holders(cluster_state, node):
            if (holder.namespace, holder.claim) == claim.metadata.key:
                yield describe_charge(holder)


# -- pending


def _explain_pending(
    cluster_state: ClusterState, claim: ResourceClaim, settings: SchedulerProfile, unfolded: bool
) -> ClaimExplanation:
    users = users_of(cluster_state, claim.metadata.namespace, claim.metadata.name)
    waiting = [pod.metadata.full_name for pod in users if not pod.spec.node_name]
    name, verdict = claim.metadata.full_name, ExplainVerdict.PENDING if users else ExplainVerdict.UNUSED
    notes: list[str] = []
    if waiting:
        summary = f"pending with {pluralize(len(waiting), 'pod')}: {', '.join(waiting[:5])}"
        notes.append(f"other rules of the pod apply as well: plimsoll explain {waiting[0]}")
    elif users:
        summary = f"not allocated, although pod {users[0].metadata.full_name} is bound to a node"
    else:
        summary = "no pod uses the claim; it is allocated when a pod that uses it is scheduled"
    pod = _pod_with_claim(claim)
    pod_info = read_pod_info(pod, cluster_state.snapshot)
    found = find_fixes(cluster_state, pod, settings)
    if isinstance(pod_info, NodeReason):
        why = f"on its own: {render(pod_info)}"
        return ClaimExplanation(name, verdict, summary, found=found, notes=(why, *notes), unfolded=unfolded)
    view = PodView(cluster_state, pod_info, settings)
    outcome, attempt = record_attempt(pod_info, cluster_state.snapshot, settings)
    if isinstance(outcome, Placement):
        results = outcome.allocations[claim.metadata.name].devices.results
        branches = tuple(describe_device(claim, result) for result in results)
        where = f"on its own it could be allocated now, on node {outcome.node}"
        return ClaimExplanation(
            name, verdict, summary, sections=(ExplanationSection(where, branches),), notes=tuple(notes)
        )
    groups = group_nodes(view, attempt, 10**9 if unfolded else STATES)
    return ClaimExplanation(
        name,
        ExplainVerdict.PENDING,
        summary,
        found=found,
        groups=groups,
        notes=(f"on its own: {render_fit_error(outcome)}", *notes),
        unfolded=unfolded,
    )


def _pod_with_claim(claim: ResourceClaim) -> Pod:
    """Return a pod that has only the claim."""
    reference = PodResourceClaim(name="claim", resource_claim_name=claim.metadata.name)
    meta = ObjectMeta(name=f"<{claim.metadata.name}>", namespace=claim.metadata.namespace)
    return Pod(metadata=meta, spec=PodSpec(resource_claims=(reference,)))
