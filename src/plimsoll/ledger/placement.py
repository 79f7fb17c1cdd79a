"""Placement check: whether a pod with its claims fits a node, and its charges.

The checks run in kube-scheduler's order (docs/spec/accounting.md, "Scheduler"): claims used by other pods,
charges of the claims, policy conflicts, pools, pod-level requests, free resources of the node. The first
failing check decides; only the last one lists every shortage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.claims import (
    ChargeContext,
    ChargedClaim,
    charge_claim,
    find_referring_containers,
    has_node_allocatable_device,
)
from plimsoll.ledger.entries import compute_node_amounts
from plimsoll.ledger.fit import (
    PodAdmitResult,
    admit_pod,
    find_claim_shortages,
    find_crowding,
    find_request_shortages,
)
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.placeholders import is_draining, is_placeholder, make_pod, plan_placeholders
from plimsoll.ledger.pod_level_budget import find_budget_violations
from plimsoll.ledger.policy import find_policy_dependent_resources, is_additive, is_claim_level
from plimsoll.ledger.policy_conflicts import find_policy_conflicts
from plimsoll.ledger.pools import ClaimPool, collect_pools, draw_from_pools, record_draws
from plimsoll.ledger.profile import AccountingProfile, SharingCheck
from plimsoll.ledger.requests import (
    PodResourcesOptions,
    pod_requests,
    without_served_resources,
    without_status,
)
from plimsoll.ledger.units import add_units, is_accounted, to_unit, to_units
from plimsoll.ledger.verdict import SUCCESS, Cause, Reason, Verdict


@dataclass(frozen=True, slots=True)
class PlacementCheck:
    """Verdict on a pod, and the charges of its claims; `charged_claims` is None if they cannot be computed.

    `demand` is the total charge to the node, whether it fits or not.
    """

    verdict: Verdict
    charged_claims: tuple[ChargedClaim, ...] | None = ()
    demand: Mapping[str, int] | None = None


def check_placement(
    ledger: NodeLedger,
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    charge_context: ChargeContext,
) -> PlacementCheck:
    """Check a pod whose claims are allocated, in their status or in `allocations` (by claim name)."""
    if not ledger.options.count_claims:
        return PlacementCheck(SUCCESS)
    priced = [*charge_claims(pod, claims, allocations, charge_context)]
    charged_claims = tuple(
        sorted(
            (b for b in priced if isinstance(b, ChargedClaim)), key=lambda charged_claim: charged_claim.claim
        )
    )
    wrong = next((reason for reason in priced if isinstance(reason, Reason)), None)
    shared = Verdict.of(islice(_shared(ledger, pod, claims, allocations, charged_claims), 1))
    if wrong is not None:
        return PlacementCheck(shared if shared.reasons else Verdict.of([wrong]), None)
    concerned = bool(charged_claims) or _concerns_node(pod, claims, allocations, charge_context)
    rest = check_charged_claims(ledger, pod, charged_claims, concerned)
    return replace(rest, verdict=shared) if shared.reasons else rest


def charge_claims(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    charge_context: ChargeContext,
) -> Iterator[ChargedClaim | Reason]:
    """Compute the charges of a pod's allocated claims; those without charges are omitted."""
    names = resolve_claim_names(pod)
    for claim, allocation in _charged(names.values(), claims, allocations, charge_context.profile):
        containers = find_referring_containers(pod, names, claim.metadata.name, charge_context.profile)
        priced = charge_claim(claim, allocation, containers, charge_context)
        if priced is not None:
            yield priced


def _charged(
    names: Iterable[str],
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    profile: AccountingProfile,
) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
    """Yield the claims of a pod that are charged, once each, with their allocations."""
    for name in dict.fromkeys(names):
        claim = claims.get(name)
        allocation = allocations.get(name)
        if allocation is None and claim is not None and profile.charge_preallocated:
            allocation = claim.status.allocation
        if claim is not None and allocation is not None:
            yield claim, allocation


def _concerns_node(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    charge_context: ChargeContext,
) -> bool:
    """Return whether the check applies: a device could charge the node, even if none does."""
    charged = _charged(resolve_claim_names(pod).values(), claims, allocations, charge_context.profile)
    return any(
        has_node_allocatable_device(claim, allocation, charge_context) for claim, allocation in charged
    )


def check_charged_claims(
    ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim], concerns_node: bool = False
) -> PlacementCheck:
    """Check a pod whose charges are known; use of its claims by other pods is not checked.

    A pod without charges is checked only if it `concerns_node`; otherwise its requests are all that counts.
    """
    ledger = ledger.without(pod)
    profile = ledger.profile
    options = without_status(ledger.options)
    if not options.count_claims or not (charged_claims or concerns_node):
        return PlacementCheck(SUCCESS, demand=compute_demand(ledger, pod, (), options))
    charges = tuple(charged_claim.charge for charged_claim in charged_claims)
    reasons: list[Reason] = []
    if not all(is_additive(amount) for charge in charges for amount in charge.resources.values()):
        reasons += islice(find_policy_conflicts(pod, charged_claims, not options.skip_pod_level), 1)
        drawn = draw_from_pools(pod, charges, options, ledger.pools_for(pod, charged_claims))
        if isinstance(drawn, Reason):
            reasons.append(drawn)
        else:
            charged_claims = [record_draws(charged_claim, drawn) for charged_claim in charged_claims]
    demand = compute_demand(ledger, pod, charged_claims, options)
    crowded: tuple[Reason, ...] = ()
    if profile.placeholders and not reasons:
        after = ledger.clone()
        after.assume(pod, charged_claims)
        assume_placeholders(after, pod, charged_claims)
        demand = _difference(ledger, after, demand)
        crowded = tuple(find_crowding(len(after) - len(ledger), ledger.allocatable, len(ledger)))
    if not profile.charge_unreferenced:
        reasons += [
            Reason(cause=Cause.UNREFERENCED, claim=charged_claim.claim)
            for charged_claim in charged_claims
            if not charged_claim.charge.containers
        ]
    if not reasons:
        reasons = [*islice(find_budget_violations(pod, charges, options, profile.budget_limits), 1)]
    verdict = (
        Verdict.of(reasons[:1])
        if reasons
        else Verdict.of((*crowded, *find_claim_shortages(demand, ledger.allocatable, ledger.requested)))
    )
    return PlacementCheck(verdict, tuple(charged_claims), demand)


def compute_demand(
    ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions
) -> dict[str, int]:
    """Compute a pod's charge to a node: its own amounts, and claim-level charges that are new there.

    What placeholders on the node request for the pod is charged already, as is what a placeholder requests
    for pods that are there.
    """
    demand = to_units(compute_node_amounts(pod, charged_claims, options, ledger.profile))
    for charged_claim in charged_claims:
        state = ledger.claim_state(pod.metadata.namespace, charged_claim.claim, charged_claim.uid)
        for resource, charge in charged_claim.charge.resources.items():
            new = is_accounted(resource) and (state is None or resource not in state.claim_level_charges)
            if new and charge.quantity is not None and is_claim_level(charge, ledger.profile):
                add_units(demand, {resource: to_unit(resource, charge.quantity)})
    if not ledger.has_placeholders and not is_placeholder(pod):
        return demand
    after = ledger.clone()
    after.assume(pod, charged_claims)
    return _difference(ledger, after, demand)


def _difference(before: NodeLedger, after: NodeLedger, names: Iterable[str]) -> dict[str, int]:
    """Return what is charged in one ledger more than in another, at least for these resources."""
    added = {name: after.requested.get(name, 0) - before.requested.get(name, 0) for name in after.requested}
    return {name: amount for name, amount in added.items() if amount or name in names}


def assume_placeholders(ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim]) -> list[Pod]:
    """Add the placeholders that a pod in a ledger still needs, as assumed pods; return them."""
    added = []
    for placeholder in plan_placeholders(pod, charged_claims, ledger.options, ledger.profile):
        if not ledger.has_placeholder_of(placeholder.owner):
            added.append(make_pod(placeholder, ledger.name))
            ledger.assume(added[-1])
    return added


def find_missing_placeholders(ledger: NodeLedger) -> Iterator[tuple[Pod, Pod]]:
    """Yield the bound pods of a node that lack a placeholder, and the placeholder; for a claim that several
    of them share, with each. A node that is being drained needs none, nor does a pod that is being deleted.
    """
    if is_draining(ledger.node):
        return
    for entry in ledger.entries.values():
        if entry.assumed or not entry.charged_claims or entry.pod.metadata.deletion_timestamp is not None:
            continue
        for each in plan_placeholders(entry.pod, entry.charged_claims, ledger.options, ledger.profile):
            if not ledger.has_placeholder_of(each.owner):
                yield entry.pod, make_pod(each, ledger.name)


# -- sharing


def check_sharing(
    ledger: NodeLedger, pod: Pod, claims: Mapping[str, ResourceClaim], charge_context: ChargeContext
) -> Verdict:
    """Check only whether other pods use already allocated claims of a pod."""
    if not ledger.options.count_claims:
        return SUCCESS
    charged_claims = [
        b for b in charge_claims(pod, claims, {}, charge_context) if isinstance(b, ChargedClaim)
    ]
    return Verdict.of(islice(_shared(ledger, pod, claims, {}, charged_claims), 1))


def _shared(
    ledger: NodeLedger,
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    charged_claims: Sequence[ChargedClaim],
) -> Iterator[Reason]:
    """Yield the already allocated claims of a pod that another pod uses and that cannot be shared."""
    by_name = {charged_claim.claim: charged_claim for charged_claim in charged_claims}
    for name in resolve_claim_names(pod).values():
        claim = claims.get(name)
        if claim is None or claim.status.allocation is None or name in allocations:
            continue
        charged_claim = by_name.get(name)
        if charged_claim is None or not is_shareable(charged_claim, ledger.profile):
            yield from find_sharing_conflicts(ledger, pod, claim, charged_claim)


def is_shareable(charged_claim: ChargedClaim, profile: AccountingProfile) -> bool:
    """Return whether the policies of a claim define its use by several pods.

    Pools are shareable, and AddPerReference is charged to every pod, as overhead is. AddPerClaim is shareable
    only if the profile allows it.
    """
    meaningful = {AccountingPolicy.CONSUME_FROM, AccountingPolicy.ADD_PER_REFERENCE}
    if profile.share_per_claim:
        meaningful.add(AccountingPolicy.ADD_PER_CLAIM)
    return all(
        charged_claim.policy(name) in meaningful
        for name, charge in charged_claim.charge.resources.items()
        if charge.quantity is not None
    )


def find_sharing_conflicts(
    ledger: NodeLedger, pod: Pod, claim: ResourceClaim, charged_claim: ChargedClaim | None = None
) -> Iterator[Reason]:
    """Yield a conflict if another pod uses a claim, as the profile detects it."""
    meta = claim.metadata
    by, reserved = ledger.profile.sharing, claim.status.reserved_for
    mapped = charged_claim is not None and any(
        c.quantity is not None for c in charged_claim.charge.resources.values()
    )
    taken = mapped and bool(reserved) and all(user.uid != pod.metadata.uid for user in reserved)
    if by is SharingCheck.BY_RESERVATION:
        if taken:
            yield Reason(cause=Cause.MAPPED_DEVICE_SHARED, namespace=meta.namespace, claim=meta.name)
        return
    state = ledger.claim_state(pod.metadata.namespace, meta.name, meta.uid)
    consumers = state.consumers if state is not None else frozenset()
    if len(consumers) > 1:
        yield Reason(cause=Cause.SHARED_BY_SEVERAL, namespace=meta.namespace, claim=meta.name)
    elif (consumers and pod_key(pod) not in consumers) or (taken and by is SharingCheck.BY_EITHER):
        yield Reason(cause=Cause.USED_BY_ANOTHER, namespace=meta.namespace, claim=meta.name)


# -- requests, and the kubelet


def check_requests(ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim] = ()) -> Verdict:
    """Check whether the requests in a pod's spec fit, excluding claims.

    Resources under Max and ConsumeFrom cannot be checked from the spec; `check_placement` checks them.
    """
    ledger = ledger.without(pod)
    options = PodResourcesOptions(skip_pod_level=ledger.options.skip_pod_level, form=ledger.options.form)
    skip = (
        find_policy_dependent_resources(charged_claim.charge for charged_claim in charged_claims)
        if ledger.profile.policies
        else frozenset()
    )
    demand = to_units(pod_requests(pod, options))
    return Verdict.of(find_request_shortages(demand, ledger.allocatable, ledger.requested, len(ledger), skip))


def check_admission(ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim]) -> PodAdmitResult:
    """Check whether a kubelet with this ledger of its other pods admits a bound pod.

    A pod that would draw more from a pool than is left is rejected as well. Extended resources that the pod's
    claim serves are not checked.
    """
    ledger = ledger.without(pod)
    options = without_status(ledger.options)
    demand = compute_demand(ledger, without_served_resources(pod), charged_claims, options)
    pools = find_overdrawn_pools(ledger, pod, charged_claims, options)
    return admit_pod(demand, ledger.allocatable, ledger.requested, len(ledger), pools)


def find_overdrawn_pools(
    ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions
) -> tuple[Reason, ...]:
    """Find the pools with too little left for a pod; recorded draws are used where present."""
    charges = tuple(charged_claim.charge for charged_claim in charged_claims)
    wholes = collect_pools(charges) if options.count_claims else {}
    if not wholes:
        return ()
    pools = ledger.pools_for(pod, charged_claims)
    recorded = {
        (charged_claim.claim, resource): charged_claim.charge.resources[resource].drawn
        for charged_claim in charged_claims
        for resource in wholes
        if charged_claim.claim in wholes[resource]
    }
    if any(drawn is None for drawn in recorded.values()):
        drawn = draw_from_pools(pod, charges, options, pools)
        return (drawn,) if isinstance(drawn, Reason) else ()
    found = []
    for (claim, resource), amount in recorded.items():
        pool = pools.get((claim, resource)) or ClaimPool(wholes[resource][claim], ZERO)
        if amount is not None and amount > pool.rest:
            found.append(
                Reason(
                    cause=Cause.POOL_EXHAUSTED,
                    resource=resource,
                    claim=claim,
                    wanted=to_unit(resource, amount),
                    had=to_unit(resource, pool.rest),
                    capacity=to_unit(resource, pool.allocated),
                    resolvable=amount <= pool.allocated,
                )
            )
    return tuple(found)
