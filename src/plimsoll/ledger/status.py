"""Claim charges in a pod's status.

Builds the entries of `nodeAllocatableResourceClaimStatuses` (or the draft's field) in upstream's order and in
any wire form, and plans the scheduler's two writes: before binding, and clearing after a failed binding.
KEP-5517, "Pod API Changes" and "PreBind Stage".

Entries include the policy and the draws from pools (docs/spec/accounting.md, "Accounting policies"); without
an explicit policy none is written, so that the entry equals that of stock Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from plimsoll.api.core import Pod, PodStatus
from plimsoll.api.forms import ClaimCharge, Form, FormWriteResult, read_status, write_status
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.verdict import SUCCESS, Cause, Reason, Verdict


def build_status_entries(charged_claims: Iterable[ChargedClaim]) -> tuple[ClaimCharge, ...]:
    """Build the entries for these charges, sorted by claim name and resource name."""
    charges = sorted(
        (charged_claim.charge for charged_claim in charged_claims), key=lambda charge: charge.claim
    )
    return tuple(replace(charge, resources=dict(sorted(charge.resources.items()))) for charge in charges)


def write_charges(pod: Pod, charged_claims: Iterable[ChargedClaim], form: Form) -> FormWriteResult[Pod]:
    """Return the pod with these charges in its status, and what the form cannot express."""
    written = write_status(pod.status, build_status_entries(charged_claims), form)
    return FormWriteResult(with_fields(pod, status=written.view), written.losses)


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """A write of claim charges to a pod: the entries (None: no write), or the reason against it."""

    verdict: Verdict = SUCCESS
    entries: tuple[ClaimCharge, ...] | None = None


def plan_status_patch(assumed: PodStatus, calculated: Sequence[ClaimCharge]) -> StatusPatch:
    """Plan the write before binding; the assumed status must equal the calculated one."""
    if not calculated:
        return StatusPatch()
    if read_status(assumed) != tuple(calculated):
        return StatusPatch(Verdict.of([Reason(cause=Cause.ASSUMED_DIFFERS)]))
    return StatusPatch(entries=tuple(calculated))


def plan_status_clear(status: PodStatus) -> StatusPatch:
    """Plan the write after a failed binding: an empty list, if there are entries."""
    return StatusPatch(entries=()) if read_status(status) else StatusPatch()


def patch_failure(pod: Pod, cause: str) -> Verdict:
    """Return the verdict for a write that the server rejected."""
    meta = pod.metadata
    reason = Reason(cause=Cause.PATCH_FAILED, namespace=meta.namespace, pod=meta.name, detail=cause)
    return Verdict.of([reason])
