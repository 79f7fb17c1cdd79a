"""Explanations of placeholder pods, and of pods that lack them."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.placeholders import CLAIMS_KEY, OwnerKind, PlaceholderOwner
from plimsoll.ledger.requests import pod_requests
from plimsoll.ledger.units import to_units
from plimsoll.scheduler.binding.placeholders import find_refusal
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.verdict import ExplainVerdict, PodExplanation
from plimsoll.tools.placeholders import find_faulty, find_missing, format_units


def explain_placeholder(cluster_state: ClusterState, pod: Pod, owner: PlaceholderOwner) -> PodExplanation:
    """Explain a placeholder pod by what it stands for."""
    name, node, snapshot = pod.metadata.full_name, pod.spec.node_name, cluster_state.snapshot
    units = to_units(pod_requests(pod))
    summary = f"placeholder of {owner} on node {node}: requests {format_units(units)} that its claims take"
    claims = pod.metadata.annotations.get(CLAIMS_KEY, "")
    notes = [f"claims: {claims.replace(',', ', ')}"] if claims and owner.kind is OwnerKind.POD else []
    if pod.has_terminated:
        return PodExplanation(name, ExplainVerdict.ENDED, f"{summary}; {find_refusal(pod)}", node)
    row = snapshot.row_of(node)
    for each, _, text in find_faulty(cluster_state, row) if row is not None else ():
        if each.metadata.name == pod.metadata.name:
            notes.append(f"it is the placeholder of {text}")
    return PodExplanation(name, ExplainVerdict.PLACED, summary, node, notes=tuple(notes))


def note_missing_placeholders(cluster_state: ClusterState, pod: Pod) -> list[str]:
    """Return notes about the placeholders that a bound pod lacks."""
    row = cluster_state.snapshot.row_of(pod.spec.node_name)
    missing = [] if row is None else find_missing(cluster_state, row)
    names = set(resolve_claim_names(pod).values())
    return [
        each.text
        for each in missing
        if each.owner.namespace == pod.metadata.namespace
        and each.owner.name in (names if each.owner.kind is OwnerKind.CLAIM else {pod.metadata.name})
    ]
