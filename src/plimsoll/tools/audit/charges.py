"""Charges of claims: as recorded with the pod, and as they would be computed today.

Computed once for all checks: recorded and current price of every claim of every bound pod, and what claims
take from their nodes without being charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.claims import (
    ChargeContext,
    ChargedClaim,
    find_referring_containers,
    read_charged_claims,
)
from plimsoll.ledger.placement import charge_claims
from plimsoll.ledger.verdict import Reason
from plimsoll.tools import uncounted
from plimsoll.tools.amounts import format_resource
from plimsoll.tools.audit.facts import AuditFacts, shared
from plimsoll.tools.uncounted import UncountedClaim


class AuditedClaim(Struct, frozen=True):
    """One claim of one bound pod, with its recorded and current charges."""

    pod: Pod
    claim: ResourceClaim
    recorded: ChargedClaim | None
    priced: ChargedClaim | Reason | None
    any_recorded: bool  #: True if any charge is recorded with the pod


@shared
def charged_claims(facts: AuditFacts) -> tuple[AuditedClaim, ...]:
    """Return the allocated claims of all bound pods, apart from those of one pod that neither are charged nor
    could be: their devices have no mappings, as GPUs.
    """
    return tuple(_price(facts))


@shared
def uncounted_claims(facts: AuditFacts) -> tuple[UncountedClaim, ...]:
    """Return all node resources that claims take without being charged, by claim."""
    return tuple(uncounted.uncounted_claims(facts.cluster_state))


def _price(facts: AuditFacts) -> Iterator[AuditedClaim]:
    snapshot = facts.cluster_state.snapshot
    profile = facts.cluster_state.profile
    known: dict[tuple[object, ...], Mapping[str, ResourceCharge] | None] = {}
    contexts: dict[str, ChargeContext | None] = {}  #: of nodes; None for those that do not exist
    for user in facts.bound_with_claims:
        pod, names = user.pod, user.names
        node = pod.spec.node_name
        if node not in contexts:
            row = snapshot.row_of(node)
            contexts[node] = None if row is None else snapshot.charge_context(row)
        charge_context = contexts[node]
        if charge_context is None:
            continue
        charges = read_charged_claims(pod, profile)
        allocated = [
            claim
            for claim in user.claims
            if claim.status.allocation is not None
            and (charges or charge_context.can_charge(claim) or len(facts.users[claim.metadata.key]) > 1)
        ]
        if not allocated:
            continue
        recorded = {charged_claim.claim: charged_claim for charged_claim in charges}
        for claim in allocated:
            name = claim.metadata.name
            containers = find_referring_containers(pod, names, name, profile)
            content = _charged_content(claim, containers, charge_context)
            if content in known:  # its parts are not needed
                resources = known[content]
                priced: ChargedClaim | Reason | None = None
                if resources is not None:
                    priced = ChargedClaim(ClaimCharge(name, containers, resources), claim.metadata.uid)
            else:
                priced = next(charge_claims(pod, {name: claim}, {}, charge_context), None)
                if not isinstance(priced, Reason):
                    known[content] = None if priced is None else priced.charge.resources
            yield AuditedClaim(pod, claim, recorded.get(name), priced, bool(recorded))


def _charged_content(
    claim: ResourceClaim, containers: tuple[str, ...], charge_context: ChargeContext
) -> tuple[object, ...]:
    """Return everything that the charge of a claim depends on, apart from names. Parts are compared by
    identity: claims of one template share their spec, and machines of one type their devices.
    """
    content: list[object] = [id(claim.spec), containers]
    for result in claim.allocation_results:
        device = charge_context.devices.find(result, charge_context.node)
        consumed = result.consumed_capacity
        amounts = map(id, consumed.values())
        content.append((result.request, result.driver, id(device), result.admin_access, *consumed, *amounts))
    return tuple(content)


def list_charged_devices(facts: AuditFacts, pod: Pod, claim: ResourceClaim) -> list[str]:
    """Return the devices by which a claim would be charged to the node of its pod, by name."""
    snapshot = facts.cluster_state.snapshot
    charge_context = snapshot.charge_context(snapshot.row_of(pod.spec.node_name))
    priced = next(charge_claims(pod, {claim.metadata.name: claim}, {}, charge_context), None)
    return sorted({str(part.device) for part in priced.parts}) if isinstance(priced, ChargedClaim) else []


def amounts_of(
    charged_claim: ChargedClaim,
) -> dict[str, tuple[Quantity | None, Quantity | None, Quantity | None]]:
    """Return the amounts of a charge, without drawn amounts and policies."""
    return {name: _amounts(charge) for name, charge in charged_claim.charge.resources.items()}


def _amounts(charge: ResourceCharge) -> tuple[Quantity | None, Quantity | None, Quantity | None]:
    return charge.quantity, charge.per_pod, charge.per_container


def format_amounts(
    amounts: Mapping[str, tuple[Quantity | None, Quantity | None, Quantity | None]],
) -> str:
    """Format amounts as `cpu 6, memory 4Gi`, with overheads if there are any."""
    parts = []
    for name, (quantity, per_pod, per_container) in sorted(amounts.items()):
        if quantity is not None:
            parts.append(f"{name} {format_resource(name, quantity)}")
        if per_pod is not None:
            parts.append(f"{name} {format_resource(name, per_pod)} per pod")
        if per_container is not None:
            parts.append(f"{name} {format_resource(name, per_container)} per container")
    return ", ".join(parts) or "nothing"
