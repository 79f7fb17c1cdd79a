"""Pools: claims whose amount containers draw their requests from (ConsumeFrom).

Each container that refers to a pool draws its request for the resource from it; one that refers to several
fills them in the order of the pod's claims. Containers that do not run concurrently may draw the same amount.
A container without a request draws nothing. docs/spec/accounting.md, "Accounting policies"; KEP-5517, "Pod
Consuming from a Shared CPU Pool".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy, ClaimCharge
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.claims import ChargedClaim, effective_policy
from plimsoll.ledger.policy import Phase, list_spec_requests, split_phases
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.ledger.units import to_unit
from plimsoll.ledger.verdict import Cause, Reason


@dataclass(frozen=True, slots=True)
class ClaimPool:
    """Allocated and consumed amount of one resource of a claim."""

    allocated: Quantity
    consumed: Quantity

    @property
    def rest(self) -> Quantity:
        return self.allocated - self.consumed


def collect_pools(charges: Sequence[ClaimCharge]) -> dict[str, dict[str, Quantity]]:
    """Return the pool sizes by resource and claim."""
    found: dict[str, dict[str, Quantity]] = {}
    for charge in charges:
        for resource, amount in charge.resources.items():
            if (
                amount.quantity is not None
                and effective_policy(amount.policy) is AccountingPolicy.CONSUME_FROM
            ):
                found.setdefault(resource, {})[charge.claim] = amount.quantity
    return found


def draw_from_pools(
    pod: Pod,
    charges: Sequence[ClaimCharge],
    options: PodResourcesOptions,
    pools: Mapping[tuple[str, str], ClaimPool],
    *,
    overdraw: bool = False,
) -> dict[tuple[str, str], Quantity] | Reason:
    """Return the amounts a pod draws by (claim, resource), or a reason if a pool is too small.

    `pools` has the pools other pods draw from already; others are new. With `overdraw` the excess is drawn
    from the last pool nevertheless, because a running pod has its resources regardless of the ledger.
    """
    drawn: dict[tuple[str, str], Quantity] = {}
    for resource, wholes in sorted(collect_pools(charges).items()):
        phases = split_phases(list_spec_requests(pod, options), resource)
        order = _order(pod, charges, wholes)
        rests = {claim: _rest(pools, claim, resource, whole) for claim, whole in wholes.items()}
        result = _fill(phases, order, rests, overdraw)
        if isinstance(result, str):
            return _exhausted(resource, phases, order, wholes, rests, result)
        for claim, nano in result.items():
            drawn[claim, resource] = Quantity(nano, wholes[claim].format)
    return drawn


def record_draws(charged_claim: ChargedClaim, drawn: Mapping[tuple[str, str], Quantity]) -> ChargedClaim:
    """Return the charge with its draws from pools recorded, unless already present."""
    if not drawn:
        return charged_claim
    resources = {
        name: replace(charge, drawn=drawn[charged_claim.claim, name])
        if charge.drawn is None and (charged_claim.claim, name) in drawn
        else charge
        for name, charge in charged_claim.charge.resources.items()
    }
    return replace(charged_claim, charge=replace(charged_claim.charge, resources=resources))


def _order(pod: Pod, charges: Sequence[ClaimCharge], wholes: Mapping[str, Quantity]) -> dict[str, list[str]]:
    """Return the pools of each container, in the order of the pod's claims."""
    places = {claim: place for place, claim in enumerate(resolve_claim_names(pod).values())}
    ordered = sorted(
        (charge for charge in charges if charge.claim in wholes),
        key=lambda charge: places.get(charge.claim, len(places)),
    )
    order: dict[str, list[str]] = {}
    for charge in ordered:
        for container in charge.containers:
            if charge.claim not in order.setdefault(container, []):
                order[container].append(charge.claim)
    return order


def _rest(pools: Mapping[tuple[str, str], ClaimPool], claim: str, resource: str, whole: Quantity) -> int:
    pool = pools.get((claim, resource))
    return whole.nano if pool is None else pool.rest.nano


def _fill(
    phases: Sequence[Phase], order: Mapping[str, Sequence[str]], rests: Mapping[str, int], overdraw: bool
) -> dict[str, int] | str:
    """Return the draw from each claim, or the container whose request does not fit.

    Containers with a single pool come first, because the others have a choice.
    """
    used = {claim: [0] * len(phases) for claim in rests}
    for container in sorted(order, key=lambda name: len(order[name])):
        living = [place for place, phase in enumerate(phases) if container in phase]
        if not living:
            continue
        wanted = phases[living[0]][container]
        for claim in order[container]:
            room = max(0, rests[claim] - max(used[claim][place] for place in living))
            part = min(wanted, room)
            wanted -= part
            for place in living:
                used[claim][place] += part
        if wanted and not overdraw:
            return container
        for place in living:
            used[order[container][-1]][place] += wanted
    return {claim: max(amounts) for claim, amounts in used.items()}


def _exhausted(
    resource: str,
    phases: Sequence[Phase],
    order: Mapping[str, Sequence[str]],
    wholes: Mapping[str, Quantity],
    rests: Mapping[str, int],
    container: str,
) -> Reason:
    """Build the reason; it is unresolvable if even unused pools would not suffice."""
    claims = order[container]
    demand = _fill(phases, order, rests, True)
    untouched = _fill(phases, order, {claim: whole.nano for claim, whole in wholes.items()}, False)
    assert not isinstance(demand, str)
    return Reason(
        cause=Cause.POOL_EXHAUSTED,
        resource=resource,
        container=container,
        claim=", ".join(claims),
        wanted=to_unit(resource, Quantity(sum(demand[claim] for claim in claims))),
        had=to_unit(resource, Quantity(sum(rests[claim] for claim in claims))),
        capacity=to_unit(resource, Quantity(sum(wholes[claim].nano for claim in claims))),
        resolvable=not isinstance(untouched, str),
    )
