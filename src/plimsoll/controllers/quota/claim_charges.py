"""Amounts that a pod counts for in quotas together with the charges of its claims.

Computed by a ledger, so that quotas and nodes agree: accounting policies, pod-level requests and overhead
count alike. What is charged once for all pods of a claim (a pool, a shared claim) counts for the first of
them; pods that draw from a pool do not count what they draw again. KEP-5517, "Kube-Scheduler Scoring and
Resource Quota".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.amounts import Amounts
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import LedgerEntry, sum_lines
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.policy import is_claim_level
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import pod_limits


@dataclass(frozen=True, slots=True)
class PodAmounts:
    """Requests and limits of a pod, with what its claims charge."""

    requests: Amounts
    limits: Amounts


def sum_with_claims(
    pod: Pod, charged_claims: Sequence[ChargedClaim], others: Iterable[Pod], gates: Gates
) -> PodAmounts:
    """Sum a pod and its charges; `others` are the pods that already count for its claims."""
    ledger = NodeLedger(gates=gates)
    for other in others:
        if other not in ledger:
            ledger.add(other)
    before = sum_lines(tuple(ledger.lines()))
    entry = ledger.add(pod, charged_claims)
    after = sum_lines(tuple(ledger.lines()))
    return PodAmounts(
        {name: amount - before.get(name, ZERO) for name, amount in after.items()}, limits_with_claims(entry)
    )


def limits_with_claims(entry: LedgerEntry) -> Amounts:
    """Return the limits of a pod; claims add to those that exist, as in its cgroups."""
    charges = (charged_claim.charge for charged_claim in entry.charged_claims)
    options = replace(entry.options, form=Form.V1_37)
    return pod_limits(entry.pod, options, compute_claim_shares(entry.pod, charges).charges())


def list_shared_claims(charged_claims: Iterable[ChargedClaim], gates: Gates) -> tuple[str, ...]:
    """Return the names of the claims that are charged once for all their pods."""
    profile = AccountingProfile.for_gates(gates)
    return tuple(
        charged_claim.claim
        for charged_claim in charged_claims
        if any(is_claim_level(charge, profile) for charge in charged_claim.charge.resources.values())
    )
