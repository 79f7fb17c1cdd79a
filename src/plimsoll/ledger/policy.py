"""Accounting policies: how a claim's amount combines with the requests of the containers.

Implements the four policies of KEP-5517 and converts charges under them to additive ones, which `requests.py`
sums. A pod has phases: each init container with the sidecars started before it, then all sidecars with the
regular containers. In every phase a policy adds to the requests of the running containers, and the pod needs
the largest phase:

    AddPerClaim      the amount, once, in every phase
    AddPerReference  the amount for every running container that refers to the claim;
                     once if no container refers to it
    Max              the excess of the claims over the requests: for containers connected by such claims, the
                     sum of the claims minus the sum of the requests, if positive
    ConsumeFrom      subtracts the requests of the containers that refer to the claim: they are drawn from the
                     claim's pool, which is charged at claim level

An unreferenced claim under Max charges its amount; under ConsumeFrom nothing is drawn. Max compares with the
requests in the spec, and charges of other claims are added on top (docs/spec/accounting.md, "Accounting
policies").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy, ClaimCharge, Form, ResourceCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger import in_place
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.containers import ContainerAmounts, is_sidecar
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions

#: Containers that run concurrently -> their requests of one resource, in nano-units.
Phase: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClaimAmount:
    """Amount of one claim of one resource, in nano-units, and the containers that refer to it."""

    amount: int
    containers: frozenset[str]


# -- the four policies: the amount that claims add to the requests of a phase


def _add_per_claim(phase: Phase, shares: Sequence[ClaimAmount]) -> int:
    return sum(share.amount for share in shares)


def _add_per_reference(phase: Phase, shares: Sequence[ClaimAmount]) -> int:
    return sum(
        share.amount * (len(share.containers & phase.keys()) if share.containers else 1) for share in shares
    )


def _max(phase: Phase, shares: Sequence[ClaimAmount]) -> int:
    extra = sum(share.amount for share in shares if not share.containers)
    for containers, amount in _join(shares, phase):
        extra += max(0, amount - sum(phase[name] for name in containers))
    return extra


def _consume_from(phase: Phase, shares: Sequence[ClaimAmount]) -> int:
    drawing = {name for share in shares for name in share.containers & phase.keys()}
    return -sum(phase[name] for name in drawing)


POLICY_RULES: Mapping[AccountingPolicy, Callable[[Phase, Sequence[ClaimAmount]], int]] = {
    # In this order: draws from pools first, additions last.
    AccountingPolicy.CONSUME_FROM: _consume_from,
    AccountingPolicy.MAX: _max,
    AccountingPolicy.ADD_PER_REFERENCE: _add_per_reference,
    AccountingPolicy.ADD_PER_CLAIM: _add_per_claim,
}


def _join(shares: Iterable[ClaimAmount], phase: Phase) -> list[tuple[set[str], int]]:
    """Return the groups of running containers that are connected by claims, with the sums of those claims."""
    groups: list[tuple[set[str], int]] = []
    for share in shares:
        containers: set[str] = {*(share.containers & phase.keys())}
        if not containers:
            continue
        amount = share.amount
        apart = []
        for group in groups:
            if group[0] & containers:
                containers |= group[0]
                amount += group[1]
            else:
                apart.append(group)
        groups = [*apart, (containers, amount)]
    return groups


# -- phases


def list_spec_requests(
    pod: Pod, options: PodResourcesOptions
) -> tuple[list[ContainerAmounts], list[ContainerAmounts]]:
    """List the requests of each container, including status values if enabled in the options."""
    return in_place.list_container_requests(
        pod, options.use_status and options.form is Form.V1_36, options.non_missing
    )


def split_phases(needs: tuple[list[ContainerAmounts], list[ContainerAmounts]], resource: str) -> list[Phase]:
    """Return the phases of a pod's life for one resource, the last phase first."""
    regular, init = needs

    def requested(need: ContainerAmounts) -> int:
        return need[1].get(resource, ZERO).nano

    sidecars: dict[str, int] = {}
    phases: list[Phase] = []
    for need in init:
        name = need[0].name
        if is_sidecar(need[0]):
            sidecars[name] = requested(need)
        else:
            phases.append({**sidecars, name: requested(need)})
    return [{**sidecars, **{need[0].name: requested(need) for need in regular}}, *phases]


def compute_peak_demand(
    phases: Sequence[Phase], shares: Mapping[AccountingPolicy, Sequence[ClaimAmount]]
) -> int:
    """Compute a pod's demand of one resource from its requests and these claim amounts."""
    return max(
        sum(phase.values())
        + sum(rule(phase, shares.get(policy, ())) for policy, rule in POLICY_RULES.items())
        for phase in phases
    )


# -- additive charges


def is_additive(charge: ResourceCharge) -> bool:
    """Return whether a charge is added once, without regard to requests."""
    return charge.quantity is None or effective_policy(charge.policy) is AccountingPolicy.ADD_PER_CLAIM


def resolve_policies(
    pod: Pod, charges: Sequence[ClaimCharge], options: PodResourcesOptions
) -> tuple[ClaimCharge, ...]:
    """Convert charges to additive ones with the effect of their policies.

    A draw from a pool becomes negative. If one container refers to several claims, each charge is the
    increase over the claims before it.
    """
    odd = {
        name for charge in charges for name, resource in charge.resources.items() if not is_additive(resource)
    }
    if not odd:
        return tuple(charges)
    needs = list_spec_requests(pod, options)
    amounts = {name: _added(split_phases(needs, name), charges, name) for name in sorted(odd)}
    return tuple(
        replace(
            charge,
            resources={
                name: _plain(resource, amounts[name].get(place)) if name in odd else resource
                for name, resource in charge.resources.items()
            },
        )
        for place, charge in enumerate(charges)
    )


def _added(phases: Sequence[Phase], charges: Sequence[ClaimCharge], resource: str) -> dict[int, int]:
    """Return the increase of the demand by each charge (by index), in the order of the policies."""
    shares: dict[AccountingPolicy, list[ClaimAmount]] = {policy: [] for policy in POLICY_RULES}
    added = {}
    before = compute_peak_demand(phases, shares)
    for policy in POLICY_RULES:
        for place, charge in enumerate(charges):
            amount = charge.resources.get(resource)
            if amount is None or amount.quantity is None or effective_policy(amount.policy) is not policy:
                continue
            shares[policy].append(ClaimAmount(amount.quantity.nano, frozenset(charge.containers)))
            after = compute_peak_demand(phases, shares)
            added[place] = after - before
            before = after
    return added


def _plain(resource: ResourceCharge, nano: int | None) -> ResourceCharge:
    if nano is None or resource.quantity is None:
        return resource
    return replace(resource, quantity=Quantity(nano, resource.quantity.format), policy="", drawn=None)


# -- claim-level charges


def is_claim_level(charge: ResourceCharge, profile: AccountingProfile) -> bool:
    """Return whether an amount is charged to the node per claim rather than per pod.

    True for pools, and for AddPerClaim where pods may share such claims: the node is charged while any pod on
    it uses the claim.
    """
    if charge.quantity is None:
        return False
    policy = effective_policy(charge.policy)
    return policy is AccountingPolicy.CONSUME_FROM or (
        policy is AccountingPolicy.ADD_PER_CLAIM and profile.share_per_claim
    )


def find_policy_dependent_resources(charges: Iterable[ClaimCharge]) -> frozenset[str]:
    """Return the resources under Max and ConsumeFrom, whose fit cannot be checked from the spec."""
    return frozenset(
        name
        for charge in charges
        for name, resource in charge.resources.items()
        if resource.quantity is not None
        and effective_policy(resource.policy) in (AccountingPolicy.MAX, AccountingPolicy.CONSUME_FROM)
    )
