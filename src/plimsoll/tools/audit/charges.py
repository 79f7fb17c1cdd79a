"""Charges of claims: as recorded with the pod, and as they would be computed today.

Computed once for all checks: recorded and current price of every claim of every bound pod, and what claims
take from their nodes without being charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.forms import ResourceCharge
from plimsoll.api.identity import DeviceId
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.claims import ChargedClaim, read_charged_claims
from plimsoll.ledger.placement import charge_claims
from plimsoll.ledger.requests import is_pod_level_resource
from plimsoll.ledger.units import to_unit
from plimsoll.ledger.verdict import Reason
from plimsoll.tools.audit.facts import AuditFacts
from plimsoll.tools.audit.node_resources import taken_by


@dataclass(frozen=True, slots=True)
class AuditedClaim:
    """One claim of one bound pod, with its recorded and current charges."""

    pod: Pod
    claim: ResourceClaim
    recorded: ChargedClaim | None
    priced: ChargedClaim | Reason | None
    any_recorded: bool  #: True if any charge is recorded with the pod


@dataclass(frozen=True, slots=True)
class UncountedClaim:
    """Node resources that a claim takes and that neither requests nor charges account for, in ledger
    units.
    """

    node: str
    claim: ResourceClaim
    pods: tuple[Pod, ...]
    resource: str
    taken: int
    mirrored: int  #: requests of the containers that use it
    sure: bool
    why: str
    priced: bool = False  #: there is a mapping, but no recorded charge

    @property
    def missing(self) -> int:
        return self.taken - self.mirrored


def charged_claims(facts: AuditFacts) -> tuple[AuditedClaim, ...]:
    """Return every allocated claim of every bound pod."""
    return facts.compute_once("charged_claims", lambda: tuple(_price(facts)))


def uncounted_claims(facts: AuditFacts) -> tuple[UncountedClaim, ...]:
    """Return all node resources that claims take without being charged, by claim."""
    return facts.compute_once("uncounted_claims", lambda: tuple(_find_uncounted(facts)))


def _price(facts: AuditFacts) -> Iterator[AuditedClaim]:
    snapshot = facts.cluster_state.snapshot
    profile = facts.cluster_state.profile
    for pod in facts.bound:
        place = snapshot.row_of(pod.spec.node_name)
        names = resolve_claim_names(pod)
        if not names or place is None:
            continue
        found = {claim.metadata.name: claim for claim in facts.claims_of(pod)}
        recorded = {charged_claim.claim: charged_claim for charged_claim in read_charged_claims(pod, profile)}
        charge_context = snapshot.charge_context(place)
        for name in dict.fromkeys(names.values()):
            claim = found.get(name)
            if claim is None or claim.status.allocation is None:
                continue
            priced = next(iter(charge_claims(pod, {name: claim}, {}, charge_context)), None)
            yield AuditedClaim(pod, claim, recorded.get(name), priced, bool(recorded))


def _find_uncounted(facts: AuditFacts) -> Iterator[UncountedClaim]:
    pods: dict[tuple[str, str], list[AuditedClaim]] = {}
    for each in charged_claims(facts):
        meta = each.claim.metadata
        pods.setdefault((meta.namespace, meta.name), []).append(each)
    for users in pods.values():
        yield from _uncounted(facts, users)


def _uncounted(facts: AuditFacts, users: list[AuditedClaim]) -> Iterator[UncountedClaim]:
    """Yield what one claim takes without being charged; `users` are the pods that use it."""
    claim, pods = users[0].claim, tuple(user.pod for user in users)
    taken: dict[str, tuple[Quantity, bool, str]] = {}
    for result in claim.allocation_results:
        device = facts.device(DeviceId.of(result))
        for guess in taken_by(result, device) if device is not None else ():
            before = taken.get(guess.resource, (ZERO, True, ""))[0]
            taken[guess.resource] = (before + guess.amount, guess.sure, guess.why)
    counted = {resource for user in users for resource in _resources(user)}
    for resource, (amount, sure, why) in taken.items():
        whole = to_unit(resource, amount)
        requested = sum(requested_with_claim(user.pod, claim.metadata.name, resource) for user in users)
        if resource not in counted and whole > requested:
            priced = any(
                isinstance(u.priced, ChargedClaim) and resource in u.priced.charge.resources for u in users
            )
            yield UncountedClaim(
                pods[0].spec.node_name, claim, pods, resource, whole, requested, sure, why, priced
            )


def _resources(user: AuditedClaim) -> set[str]:
    """Return the resources a claim is charged for."""
    charged_claim = user.recorded if user.any_recorded else user.priced
    return set(charged_claim.charge.resources) if isinstance(charged_claim, ChargedClaim) else set()


def requested_with_claim(pod: Pod, claim: str, resource: str) -> int:
    """Return what the containers that use a claim request of a resource; all containers if none references
    it.

    A pod-level request counts in full: it covers everything its containers use.
    """
    if pod.spec.resources is not None and is_pod_level_resource(resource):
        whole = pod.spec.resources.requests.get(resource)
        if whole is not None:
            return to_unit(resource, whole)
    return sum(to_unit(resource, amount) for _, amount in requests_with_claim(pod, claim, resource))


def requests_with_claim(pod: Pod, claim: str, resource: str) -> list[tuple[str, Quantity]]:
    """Return the containers that use a claim, or all if none references it, with their requests of a
    resource.
    """
    names = resolve_claim_names(pod)
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    using = {
        container.name
        for container in containers
        for reference in container.resources.claims
        if names.get(reference.name) == claim
    }
    found = []
    for container in containers:
        amount = container.resources.requests.get(resource)
        if amount is not None and (not using or container.name in using):
            found.append((container.name, amount))
    return found


def amounts_of(
    charged_claim: ChargedClaim,
) -> dict[str, tuple[Quantity | None, Quantity | None, Quantity | None]]:
    """Return the amounts of a bill, without drawn amounts and policies."""
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
            parts.append(f"{name} {quantity}")
        if per_pod is not None:
            parts.append(f"{name} {per_pod} per pod")
        if per_container is not None:
            parts.append(f"{name} {per_container} per container")
    return ", ".join(parts) or "nothing"
