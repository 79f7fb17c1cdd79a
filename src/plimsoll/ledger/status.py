"""What a pod's status says about its claims.

Owns the entries between a scheduler and everybody else (`nodeAllocatableResourceClaimStatuses`, or the
draft's name): made from bills, sorted as upstream sorts them, in any wire form; and the two writes a
scheduler makes, putting them there before it binds and taking them away if binding fails. Document 000, "Pod
API Changes" and "PreBind Stage".

The policy that was used and what was drawn from pools are part of an entry (points P1, P25 and P30 of the
accounting semantics); where nobody named a policy none is written, so that such an entry is what stock
Kubernetes writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from plimsoll.api.core import Pod, PodStatus
from plimsoll.api.forms import ClaimCharge, Form, WriteResult, read_status, write_status
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.verdict import SUCCESS, Cause, Reason, Verdict


def build_status_entries(charged_claims: Iterable[ChargedClaim]) -> tuple[ClaimCharge, ...]:
    """The entries for these bills: by claim name, resources by name."""
    charges = sorted(
        (charged_claim.charge for charged_claim in charged_claims), key=lambda charge: charge.claim
    )
    return tuple(replace(charge, resources=dict(sorted(charge.resources.items()))) for charge in charges)


def write_charges(pod: Pod, charged_claims: Iterable[ChargedClaim], form: Form) -> WriteResult[Pod]:
    """The pod with these bills in its status, and what the form has no room for."""
    written = write_status(pod.status, build_status_entries(charged_claims), form)
    return WriteResult(with_fields(pod, status=written.view), written.losses)


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """A write of claim charges to a pod: what to write (None: nothing), or why not."""

    verdict: Verdict = SUCCESS
    entries: tuple[ClaimCharge, ...] | None = None


def plan_status_patch(assumed: PodStatus, calculated: Sequence[ClaimCharge]) -> StatusPatch:
    """The write before binding; what was assumed must be what is written."""
    if not calculated:
        return StatusPatch()
    if read_status(assumed) != tuple(calculated):
        return StatusPatch(Verdict.of([Reason(cause=Cause.ASSUMED_DIFFERS)]))
    return StatusPatch(entries=tuple(calculated))


def plan_status_clear(status: PodStatus) -> StatusPatch:
    """The write after a failed binding: an empty list, if there is anything to take away."""
    return StatusPatch(entries=()) if read_status(status) else StatusPatch()


def patch_failure(pod: Pod, cause: str) -> Verdict:
    """The verdict when the server refuses the write."""
    meta = pod.metadata
    reason = Reason(cause=Cause.PATCH_FAILED, namespace=meta.namespace, pod=meta.name, detail=cause)
    return Verdict.of([reason])
