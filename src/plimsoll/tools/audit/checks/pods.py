"""Checks of what pods are charged for claims: claims of several pods, and pod-level requests.

KEP-5517, "Inter-Pod Sharing" and "Integration with Pod Level Resources" (docs/spec/keps.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placement import is_shareable
from plimsoll.ledger.pod_level_budget import find_budget_violations
from plimsoll.ledger.units import is_accounted, to_unit
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.tools.amounts import format_distinct, format_resource, format_short
from plimsoll.tools.audit.charges import AuditedClaim, charged_claims
from plimsoll.tools.audit.facts import AuditFacts, subject_of
from plimsoll.tools.audit.findings import CheckProblem, list_first
from plimsoll.tools.columns import format_count

# -- claims of several pods


def find_claims_of_several_pods(facts: AuditFacts) -> Iterator[CheckProblem]:
    users: dict[tuple[str, str], list[AuditedClaim]] = {}
    for each in charged_claims(facts):
        key = each.claim.metadata.key
        if len(facts.users[key]) > 1:
            users.setdefault(key, []).append(each)
    profile = facts.cluster_state.profile
    for found in users.values():
        charges = [charge for each in found for charge in (each.recorded, each.priced)]
        charged = next((charge for charge in charges if isinstance(charge, ChargedClaim)), None)
        if len(found) < 2 or charged is None or is_shareable(charged, profile):
            continue
        amounts = {
            name: to_unit(name, charge.quantity)
            for name, charge in charged.charge.resources.items()
            if charge.quantity is not None and is_accounted(name)
        }
        text = ", ".join(f"{name} {format_short(name, amount)}" for name, amount in sorted(amounts.items()))
        repeated = ", ".join(
            f"{name} {format_short(name, amount * (len(found) - 1))} over"
            for name, amount in sorted(amounts.items())
        )
        nodes = sorted({each.pod.spec.node_name for each in found})
        pods = (f"used by Pod/{each.pod.metadata.full_name} on {each.pod.spec.node_name}" for each in found)
        rule = f"if every pod is charged for it: {repeated}; Plimsoll counts it once per node"
        first, *others = found
        last = (others or [first])[-1].pod.metadata
        yield CheckProblem(
            subject_of(first.claim),
            f"charges {text} to {' and '.join(nodes)} and is used by {format_count(len(found), 'pod')}, "
            f"{len(found) - 1} over: a claim that charges its node can be used by 1",
            (*list_first(pods), rule),
            f"delete all but one of the pods: kubectl delete pod -n {last.namespace} {last.name}",
        )


# -- pod-level requests


def find_pod_level_exceeded(facts: AuditFacts) -> Iterator[CheckProblem]:
    snapshot = facts.cluster_state.snapshot
    for pod in facts.bound:
        place = None if pod.spec.resources is None else snapshot.row_of(pod.spec.node_name)
        if place is None:
            continue
        ledger = snapshot.ledger(place)
        entry = ledger.entries.get(pod_key(pod))
        if entry is None:
            continue
        charges = tuple(charged.charge for charged in entry.charged_claims)
        for reason in find_budget_violations(pod, charges, ledger.options, ledger.profile.budget_limits):
            evidence = []
            for charge in charges:
                amount = charge.resources.get(reason.resource)
                if amount is not None and amount.quantity is not None:
                    text = format_resource(reason.resource, amount.quantity)
                    evidence.append(f"claim {charge.claim} charges {reason.resource} {text}")
            evidence.append(f"on node {pod.spec.node_name}, which is charged the pod-level request")
            yield CheckProblem(
                subject_of(pod), _describe_budget(reason), tuple(evidence), key=_budget_key(reason)
            )


def _describe_budget(reason: Reason) -> str:
    name = reason.resource
    wanted, capacity = reason.wanted or 0, reason.capacity or 0
    needed, had = format_distinct(name, wanted, capacity)
    over = format_short(name, wanted - capacity)
    what = "request" if reason.cause is Cause.POD_LEVEL_REQUEST else "limit"
    who = f"container {reason.container}" if reason.container else "its containers"
    return f"{name}: {who} and claims need {needed}, the pod-level {what} is {had}: {over} over"


def _budget_key(reason: Reason) -> str:
    return "/".join(part for part in (reason.resource, reason.container) if part)


CHECKS = {
    "PLM009": find_pod_level_exceeded,
    "PLM046": find_claims_of_several_pods,
}
