"""Charges of bound pods whose status has none."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.placement import charge_claims
from plimsoll.scheduler.snapshot.claim_users import FindClaim


def charge_bound_pod(pod: Pod, find: FindClaim, context: ChargeContext) -> tuple[ChargedClaim, ...]:
    """Return the charges of a bound pod's claims at present, in the order of the claims' names.

    DIFF: pods that a scheduler without the gate has bound are charged for their claims, too; upstream
    leaves them out (test_a_pod_bound_without_charges_is_priced).
    """
    found = {name: find(pod.metadata.namespace, name) for name in resolve_claim_names(pod).values()}
    claims = {name: claim for name, claim in found.items() if claim is not None}
    charged = charge_claims(pod, claims, {}, context)
    return tuple(
        sorted((each for each in charged if isinstance(each, ChargedClaim)), key=lambda each: each.claim)
    )


def have_same_charges(charged_claims: Iterable[ChargedClaim], others: Iterable[ChargedClaim]) -> bool:
    """Return whether charges come from the same devices; what they consume from pools is ignored."""
    return [(each.uid, each.parts) for each in charged_claims] == [(each.uid, each.parts) for each in others]
