"""Charges of bound pods that are not recorded in their status."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.claims import ChargeContext, ChargedClaim, has_node_allocatable_device
from plimsoll.ledger.placement import charge_claims
from plimsoll.scheduler.snapshot.claim_users import FindClaim


def charge_bound_pod(pod: Pod, find: FindClaim, context: ChargeContext) -> tuple[ChargedClaim, ...]:
    """Return the current charges of a bound pod's claims, ordered by claim name.

    DIFF: pods bound by a scheduler without the feature gate are charged for their claims; upstream does not
    charge them (test_a_pod_bound_without_charges_is_priced).
    """
    claims = {}
    for name in resolve_claim_names(pod).values():
        claim = find(pod.metadata.namespace, name)
        allocation = None if claim is None else claim.status.allocation
        if claim is None or allocation is None:
            continue
        if has_node_allocatable_device(claim, allocation, context):
            claims[name] = claim
    if not claims:  # all devices are GPUs, for example
        return ()
    charged = charge_claims(pod, claims, {}, context)
    return tuple(
        sorted((each for each in charged if isinstance(each, ChargedClaim)), key=lambda each: each.claim)
    )


def have_same_charges(charged_claims: Iterable[ChargedClaim], others: Iterable[ChargedClaim]) -> bool:
    """Return whether charges are equal; consumption of pools is not compared."""
    return [(each.uid, each.parts) for each in charged_claims] == [(each.uid, each.parts) for each in others]
