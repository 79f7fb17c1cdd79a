"""Claim charges in a pod's status.

Builds the entries of `nodeAllocatableResourceClaimStatuses` (or the draft's field) in upstream's order and in
any wire form; `scheduler/binding/bind.py` writes them. KEP-5517, "Pod API Changes".

Entries include the policy and the draws from pools (docs/spec/accounting.md, "Accounting policies"); without
an explicit policy none is written, so that the entry equals that of stock Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form, FormWriteResult, write_status
from plimsoll.ledger.claims import ChargedClaim


def build_status_entries(charged_claims: Iterable[ChargedClaim]) -> tuple[ClaimCharge, ...]:
    """Build the entries for these charges, sorted by claim name and resource name."""
    charges = sorted(
        (charged_claim.charge for charged_claim in charged_claims), key=lambda charge: charge.claim
    )
    return tuple(replace(charge, resources=dict(sorted(charge.resources.items()))) for charge in charges)


def write_charges(pod: Pod, charged_claims: Iterable[ChargedClaim], form: Form) -> FormWriteResult[Pod]:
    """Return the pod with these charges in its status, and the losses of the form."""
    written = write_status(pod.status, build_status_entries(charged_claims), form)
    return FormWriteResult(replace(pod, status=written.view), written.losses)
