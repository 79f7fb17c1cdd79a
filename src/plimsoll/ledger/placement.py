"""Whether a pod with its claims may run on a node, and what it would be charged.

Owns the order of the questions, which is kube-scheduler's (section 3 of the accounting semantics): are its
claims used by other pods, what do they charge, do the policies go together, do the pools suffice, does the
pod-level request cover everything, is there room on the node. The first question that is answered with no
decides; only the last one lists everything that is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.claims import (
    ChargeContext,
    ChargedClaim,
    charge_claim,
    find_referring_containers,
    has_node_allocatable_device,
    resolve_claim_names,
)
from plimsoll.ledger.entries import compute_node_amounts
from plimsoll.ledger.fit import PodAdmitResult, admit_pod, find_claim_shortages, find_request_shortages
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.pod_level_budget import find_budget_violations
from plimsoll.ledger.policy import find_policy_dependent_resources, is_additive, is_claim_level
from plimsoll.ledger.policy_conflicts import find_policy_conflicts
from plimsoll.ledger.pools import ClaimPool, collect_pools, draw_from_pools, record_draws
from plimsoll.ledger.profile import AccountingProfile, SharingCheck
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests, without_status
from plimsoll.ledger.units import add_units, is_accounted, to_unit, to_units
from plimsoll.ledger.verdict import SUCCESS, Cause, Reason, Verdict


@dataclass(frozen=True, slots=True)
class PlacementCheck:
    """The verdict on a pod, and what its claims charge; `charged_claims` is None if that cannot be known.

    `demand` is what the node would be charged in all, whether there is room for it or not.
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
    """Judge a pod whose claims are allocated, in their status or just now (`allocations`, by name)."""
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
    """The bills of a pod's allocated claims; those that charge nothing are left out."""
    names = resolve_claim_names(pod)
    for claim, allocation in _charged(pod, claims, allocations, charge_context.profile):
        containers = find_referring_containers(pod, names, claim.metadata.name, charge_context.profile)
        priced = charge_claim(claim, allocation, containers, charge_context)
        if priced is not None:
            yield priced


def _charged(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    profile: AccountingProfile,
) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
    """The claims of a pod that are to be charged, each once, with their allocations."""
    for name in dict.fromkeys(resolve_claim_names(pod).values()):
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
    """Whether the pod is judged at all: it is if a device of it could charge the node, even if none does."""
    charged = _charged(pod, claims, allocations, charge_context.profile)
    return any(
        has_node_allocatable_device(claim, allocation, charge_context) for claim, allocation in charged
    )


def check_charged_claims(
    ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim], concerns_node: bool = False
) -> PlacementCheck:
    """Judge a pod whose bills are known; other pods' use of its claims is not looked at.

    A pod without bills is only judged if it `concerns_node`; otherwise its requests are all there is.
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
        else Verdict.of(find_claim_shortages(demand, ledger.allocatable, ledger.requested))
    )
    return PlacementCheck(verdict, tuple(charged_claims), demand)


def compute_demand(
    ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions
) -> dict[str, int]:
    """What a node would be charged for a pod: its own amounts, and whole claims that are new here."""
    demand = to_units(compute_node_amounts(pod, charged_claims, options, ledger.profile))
    for charged_claim in charged_claims:
        state = ledger.claim_state(pod.metadata.namespace, charged_claim.claim, charged_claim.uid)
        for resource, charge in charged_claim.charge.resources.items():
            new = is_accounted(resource) and (state is None or resource not in state.claim_level_charges)
            if new and charge.quantity is not None and is_claim_level(charge, ledger.profile):
                add_units(demand, {resource: to_unit(resource, charge.quantity)})
    return demand


# -- sharing


def check_sharing(
    ledger: NodeLedger, pod: Pod, claims: Mapping[str, ResourceClaim], charge_context: ChargeContext
) -> Verdict:
    """Whether other pods use claims of a pod that have their devices already, and nothing else."""
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
    """The claims of a pod, allocated before, that another pod uses and that may not be shared."""
    by_name = {charged_claim.claim: charged_claim for charged_claim in charged_claims}
    for name in resolve_claim_names(pod).values():
        claim = claims.get(name)
        if claim is None or claim.status.allocation is None or name in allocations:
            continue
        charged_claim = by_name.get(name)
        if charged_claim is None or not is_shareable(charged_claim, ledger.profile):
            yield from find_sharing_conflicts(ledger, pod, claim, charged_claim)


def is_shareable(charged_claim: ChargedClaim, profile: AccountingProfile) -> bool:
    """Whether the policies of a claim say what its use by several pods means.

    A pool is there to be shared, and what is added per reference every pod pays for itself, as it does for
    overhead. What is added per claim is shared only where the profile allows it (P6).
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
    """Whether another pod has a claim, as the profile finds out about it."""
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
    """Whether there is room for what a pod requests in its spec, claims apart.

    Resources under Max and ConsumeFrom cannot be judged from the spec (P24); `check_placement` does.
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


def check_pod(ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim] = ()) -> PlacementCheck:
    """Both judgements in one: of the requests, and of what the bills add."""
    requests = check_requests(ledger, pod, charged_claims)
    return (
        PlacementCheck(requests, tuple(charged_claims))
        if not requests.fits
        else check_charged_claims(ledger, pod, charged_claims)
    )


def check_admission(ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim]) -> PodAdmitResult:
    """Whether a kubelet with this ledger of its other pods takes a pod that was sent to it (P25).

    A pod that would draw more from a pool than other pods have left is refused, too: its node has the room,
    but the pool has not.
    """
    ledger = ledger.without(pod)
    options = without_status(ledger.options)
    demand = compute_demand(ledger, pod, charged_claims, options)
    pools = find_overdrawn_pools(ledger, pod, charged_claims, options)
    return admit_pod(demand, ledger.allocatable, ledger.requested, len(ledger), pools)


def find_overdrawn_pools(
    ledger: NodeLedger, pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions
) -> tuple[Reason, ...]:
    """The pools that have too little left for a pod; what its bills say it draws counts as said."""
    charges = tuple(charged_claim.charge for charged_claim in charged_claims)
    wholes = collect_pools(charges) if options.count_claims else {}
    if not wholes:
        return ()
    pools = ledger.pools_for(pod, charged_claims)
    told = {
        (charged_claim.claim, resource): charged_claim.charge.resources[resource].drawn
        for charged_claim in charged_claims
        for resource in wholes
        if charged_claim.claim in wholes[resource]
    }
    if any(drawn is None for drawn in told.values()):
        drawn = draw_from_pools(pod, charges, options, pools)
        return (drawn,) if isinstance(drawn, Reason) else ()
    found = []
    for (claim, resource), amount in told.items():
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
