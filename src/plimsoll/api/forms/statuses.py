"""Claim charges in a pod's status in the three wire forms (KEP-5517, "Pod API Changes")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import (
    MappedQuantity,
    NativeResourceAllocation,
    NativeResourceClaimStatus,
    NodeAllocatableClaimStatus,
    OverheadQuantity,
    PodStatus,
)
from plimsoll.api.forms.internal import (
    ClaimCharge,
    Form,
    FormWriteResult,
    ResourceCharge,
    add_optional,
    record_loss,
    record_overhead_loss,
)
from plimsoll.api.meta import ObjectReference
from plimsoll.api.quantity import Quantity


def status_form(status: PodStatus) -> Form | None:
    """Return the form of a pod's claim charges; None if there are none."""
    entries = status.node_allocatable_resource_claim_statuses
    if entries:
        newer = any(entry.mapping or entry.overhead for entry in entries)
        return Form.V1_37 if newer and not any(entry.resources for entry in entries) else Form.V1_36
    return Form.DRAFT if status.native_resource_claim_status else None


def read_status(status: PodStatus) -> tuple[ClaimCharge, ...]:
    """Read the claim charges of a pod, in any form."""
    if status.node_allocatable_resource_claim_statuses:
        return tuple(map(read_entry, status.node_allocatable_resource_claim_statuses))
    if not status.native_resource_claim_status:  # most pods
        return ()
    return tuple(map(_read_native, status.native_resource_claim_status))


def read_entry(entry: NodeAllocatableClaimStatus) -> ClaimCharge:
    """Read a 1.36 or 1.37 entry; one with both `resources` and `mapping` charges both."""
    resources: dict[str, ResourceCharge] = {}
    for name, quantity in entry.resources.items():
        resources[name] = ResourceCharge(
            quantity, policy=entry.accounting_policies.get(name, ""), drawn=entry.drawn.get(name)
        )
    for item in entry.mapping:
        before = resources.get(item.name, ResourceCharge())
        resources[item.name] = ResourceCharge(
            add_optional(before.quantity, item.quantity),
            policy=item.accounting_policy or before.policy,
            drawn=_first(item.drawn, before.drawn),
        )
    for cost in entry.overhead:
        before = resources.get(cost.name, ResourceCharge())
        resources[cost.name] = ResourceCharge(
            before.quantity,
            add_optional(before.per_pod, cost.per_pod),
            add_optional(before.per_container, cost.per_container),
            before.policy,
            before.drawn,
        )
    return ClaimCharge(entry.resource_claim_name, entry.containers, resources)


def _read_native(entry: NativeResourceClaimStatus) -> ClaimCharge:
    resources: dict[str, ResourceCharge] = {}
    for item in entry.resources:
        before = resources.get(item.resource_name, ResourceCharge())
        resources[item.resource_name] = ResourceCharge(
            add_optional(before.quantity, item.quantity),
            policy=item.accounting_policy or before.policy,
            drawn=_first(item.drawn, before.drawn),
        )
    info = entry.claim_info
    plain = info == ObjectReference(name=info.name)
    return ClaimCharge(info.name, entry.containers, resources, None if plain else info)


def write_status(status: PodStatus, charges: Iterable[ClaimCharge], form: Form) -> FormWriteResult[PodStatus]:
    """Return the pod status with its claim charges in this form only, in the given order."""
    losses: list[str] = []
    entries: list[Any] = [_STATUS_WRITERS[form](charge, losses) for charge in charges]
    draft = form is Form.DRAFT
    written = replace(
        status,
        node_allocatable_resource_claim_statuses=() if draft else tuple(entries),
        native_resource_claim_status=tuple(entries) if draft else (),
    )
    return FormWriteResult(written, tuple(losses))


def _write_status_1_36(charge: ClaimCharge, losses: list[str]) -> NodeAllocatableClaimStatus:
    _record_reference_loss(charge, losses)
    for name, amount in charge.resources.items():
        record_overhead_loss(amount.per_pod, amount.per_container, f"claim {charge.claim}: {name}", losses)
    kept = {n: r for n, r in charge.resources.items() if r.quantity is not None}
    for name, amount in charge.resources.items():
        if name not in kept:
            record_loss(
                amount.policy, f"claim {charge.claim}: {name}: accountingPolicy {amount.policy}", losses
            )
    return NodeAllocatableClaimStatus(
        resource_claim_name=charge.claim,
        containers=charge.containers,
        resources={n: r.quantity for n, r in kept.items() if r.quantity is not None},
        accounting_policies={n: r.policy for n, r in kept.items() if r.policy},
        drawn={n: r.drawn for n, r in kept.items() if r.drawn is not None},
    )


def _write_status_1_37(charge: ClaimCharge, losses: list[str]) -> NodeAllocatableClaimStatus:
    _record_reference_loss(charge, losses)
    mapping = tuple(
        MappedQuantity(name=n, quantity=r.quantity, accounting_policy=r.policy, drawn=r.drawn)
        for n, r in charge.resources.items()
        if r.quantity is not None or r.policy or r.drawn is not None
    )
    overhead = tuple(
        OverheadQuantity(name=n, per_pod=r.per_pod, per_container=r.per_container)
        for n, r in charge.resources.items()
        if r.per_pod is not None or r.per_container is not None
    )
    return NodeAllocatableClaimStatus(
        resource_claim_name=charge.claim, containers=charge.containers, mapping=mapping, overhead=overhead
    )


def _write_status_draft(charge: ClaimCharge, losses: list[str]) -> NativeResourceClaimStatus:
    for name, amount in charge.resources.items():
        record_overhead_loss(amount.per_pod, amount.per_container, f"claim {charge.claim}: {name}", losses)
    return NativeResourceClaimStatus(
        claim_info=charge.reference or ObjectReference(name=charge.claim),
        containers=charge.containers,
        resources=tuple(
            NativeResourceAllocation(
                resource_name=n, quantity=r.quantity, accounting_policy=r.policy, drawn=r.drawn
            )
            for n, r in charge.resources.items()
        ),
    )


_STATUS_WRITERS: dict[Form, Callable[[ClaimCharge, list[str]], Any]] = {
    Form.V1_36: _write_status_1_36,
    Form.V1_37: _write_status_1_37,
    Form.DRAFT: _write_status_draft,
}


def _record_reference_loss(charge: ClaimCharge, losses: list[str]) -> None:
    record_loss(charge.reference is not None, f"claim {charge.claim}: claimInfo beyond the name", losses)


def _first(a: Quantity | None, b: Quantity | None) -> Quantity | None:
    return b if a is None else a
