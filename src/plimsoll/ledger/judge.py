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
from plimsoll.api.forms import Policy
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.budget import budget_breaches
from plimsoll.ledger.claims import (
    Bill,
    Pricing,
    claim_names,
    has_node_device,
    price_claim,
    referring_containers,
)
from plimsoll.ledger.compatibility import policy_conflicts
from plimsoll.ledger.fit import Admission, admission, claim_shortages, request_shortages
from plimsoll.ledger.lines import node_amounts
from plimsoll.ledger.node import NodeLedger, pod_key
from plimsoll.ledger.policy import delegated, is_held, is_plain
from plimsoll.ledger.pools import Pool, draw, pools_of, settled
from plimsoll.ledger.profile import Profile, Sharing
from plimsoll.ledger.requests import Options, before_running, pod_requests
from plimsoll.ledger.units import add_units, is_counted, unit_of, units_of
from plimsoll.ledger.verdict import SUCCESS, Cause, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a pod, and what its claims charge; `bills` is None if that cannot be known.

    `demand` is what the node would be charged in all, whether there is room for it or not.
    """

    verdict: Verdict
    bills: tuple[Bill, ...] | None = ()
    demand: Mapping[str, int] | None = None


def judge_placement(
    ledger: NodeLedger,
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    pricing: Pricing,
) -> Judgement:
    """Judge a pod whose claims are allocated, in their status or just now (`allocations`, by name)."""
    if not ledger.options.count_claims:
        return Judgement(SUCCESS)
    priced = [*price_claims(pod, claims, allocations, pricing)]
    bills = tuple(sorted((b for b in priced if isinstance(b, Bill)), key=lambda bill: bill.claim))
    wrong = next((reason for reason in priced if isinstance(reason, Reason)), None)
    shared = Verdict.of(islice(_shared(ledger, pod, claims, allocations, bills), 1))
    if wrong is not None:
        return Judgement(shared if shared.reasons else Verdict.of([wrong]), None)
    concerned = bool(bills) or _concerns_node(pod, claims, allocations, pricing)
    rest = judge_bills(ledger, pod, bills, concerned)
    return replace(rest, verdict=shared) if shared.reasons else rest


def price_claims(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    pricing: Pricing,
) -> Iterator[Bill | Reason]:
    """The bills of a pod's allocated claims; those that charge nothing are left out."""
    names = claim_names(pod)
    for claim, allocation in _charged(pod, claims, allocations, pricing.profile):
        containers = referring_containers(pod, names, claim.metadata.name, pricing.profile)
        priced = price_claim(claim, allocation, containers, pricing)
        if priced is not None:
            yield priced


def _charged(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    profile: Profile,
) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
    """The claims of a pod that are to be charged, each once, with their allocations."""
    for name in dict.fromkeys(claim_names(pod).values()):
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
    pricing: Pricing,
) -> bool:
    """Whether the pod is judged at all: it is if a device of it could charge the node, even if none does."""
    charged = _charged(pod, claims, allocations, pricing.profile)
    return any(has_node_device(claim, allocation, pricing) for claim, allocation in charged)


def judge_bills(
    ledger: NodeLedger, pod: Pod, bills: Sequence[Bill], concerns_node: bool = False
) -> Judgement:
    """Judge a pod whose bills are known; other pods' use of its claims is not looked at.

    A pod without bills is only judged if it `concerns_node`; otherwise its requests are all there is.
    """
    ledger = ledger.without(pod)
    profile = ledger.profile
    options = before_running(ledger.options)
    if not options.count_claims or not (bills or concerns_node):
        return Judgement(SUCCESS, demand=demand_of(ledger, pod, (), options))
    charges = tuple(bill.charge for bill in bills)
    reasons: list[Reason] = []
    if not all(is_plain(amount) for charge in charges for amount in charge.resources.values()):
        reasons += islice(policy_conflicts(pod, bills, not options.skip_pod_level), 1)
        drawn = draw(pod, charges, options, ledger.pools_for(pod, bills))
        if isinstance(drawn, Reason):
            reasons.append(drawn)
        else:
            bills = [settled(bill, drawn) for bill in bills]
    demand = demand_of(ledger, pod, bills, options)
    if not profile.charge_unreferenced:
        reasons += [
            Reason(cause=Cause.UNREFERENCED, claim=bill.claim) for bill in bills if not bill.charge.containers
        ]
    if not reasons:
        reasons = [*islice(budget_breaches(pod, charges, options, profile.budget_limits), 1)]
    verdict = (
        Verdict.of(reasons[:1])
        if reasons
        else Verdict.of(claim_shortages(demand, ledger.allocatable, ledger.requested))
    )
    return Judgement(verdict, tuple(bills), demand)


def demand_of(ledger: NodeLedger, pod: Pod, bills: Sequence[Bill], options: Options) -> dict[str, int]:
    """What a node would be charged for a pod: its own amounts, and whole claims that are new here."""
    demand = units_of(node_amounts(pod, bills, options, ledger.profile))
    for bill in bills:
        state = ledger.claim_state(pod.metadata.namespace, bill.claim, bill.uid)
        for resource, charge in bill.charge.resources.items():
            new = is_counted(resource) and (state is None or resource not in state.holdings)
            if new and charge.quantity is not None and is_held(charge, ledger.profile):
                add_units(demand, {resource: unit_of(resource, charge.quantity)})
    return demand


# -- sharing


def judge_sharing(
    ledger: NodeLedger, pod: Pod, claims: Mapping[str, ResourceClaim], pricing: Pricing
) -> Verdict:
    """Whether other pods use claims of a pod that have their devices already, and nothing else."""
    if not ledger.options.count_claims:
        return SUCCESS
    bills = [b for b in price_claims(pod, claims, {}, pricing) if isinstance(b, Bill)]
    return Verdict.of(islice(_shared(ledger, pod, claims, {}, bills), 1))


def _shared(
    ledger: NodeLedger,
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocations: Mapping[str, AllocationResult],
    bills: Sequence[Bill],
) -> Iterator[Reason]:
    """The claims of a pod, allocated before, that another pod uses and that may not be shared."""
    by_name = {bill.claim: bill for bill in bills}
    for name in claim_names(pod).values():
        claim = claims.get(name)
        if claim is None or claim.status.allocation is None or name in allocations:
            continue
        bill = by_name.get(name)
        if bill is None or not may_be_shared(bill, ledger.profile):
            yield from sharing_conflicts(ledger, pod, claim, bill)


def may_be_shared(bill: Bill, profile: Profile) -> bool:
    """Whether the policies of a claim say what its use by several pods means.

    A pool is there to be shared, and what is added per reference every pod pays for itself, as it does for
    overhead. What is added per claim is shared only where the profile allows it (P6).
    """
    meaningful = {Policy.CONSUME_FROM, Policy.ADD_PER_REFERENCE}
    if profile.share_per_claim:
        meaningful.add(Policy.ADD_PER_CLAIM)
    return all(
        bill.policy(name) in meaningful
        for name, charge in bill.charge.resources.items()
        if charge.quantity is not None
    )


def sharing_conflicts(
    ledger: NodeLedger, pod: Pod, claim: ResourceClaim, bill: Bill | None = None
) -> Iterator[Reason]:
    """Whether another pod has a claim, as the profile finds out about it."""
    meta = claim.metadata
    by, reserved = ledger.profile.sharing, claim.status.reserved_for
    mapped = bill is not None and any(c.quantity is not None for c in bill.charge.resources.values())
    taken = mapped and bool(reserved) and all(user.uid != pod.metadata.uid for user in reserved)
    if by is Sharing.BY_RESERVATION:
        if taken:
            yield Reason(cause=Cause.MAPPED_DEVICE_SHARED, namespace=meta.namespace, claim=meta.name)
        return
    state = ledger.claim_state(pod.metadata.namespace, meta.name, meta.uid)
    consumers = state.consumers if state is not None else frozenset()
    if len(consumers) > 1:
        yield Reason(cause=Cause.SHARED_BY_SEVERAL, namespace=meta.namespace, claim=meta.name)
    elif (consumers and pod_key(pod) not in consumers) or (taken and by is Sharing.BY_EITHER):
        yield Reason(cause=Cause.USED_BY_ANOTHER, namespace=meta.namespace, claim=meta.name)


# -- requests, and the kubelet


def judge_requests(ledger: NodeLedger, pod: Pod, bills: Sequence[Bill] = ()) -> Verdict:
    """Whether there is room for what a pod requests in its spec, claims apart.

    Resources under Max and ConsumeFrom cannot be judged from the spec (P24); `judge_placement` does.
    """
    ledger = ledger.without(pod)
    options = Options(skip_pod_level=ledger.options.skip_pod_level, form=ledger.options.form)
    skip = delegated(bill.charge for bill in bills) if ledger.profile.policies else frozenset()
    demand = units_of(pod_requests(pod, options))
    return Verdict.of(request_shortages(demand, ledger.allocatable, ledger.requested, len(ledger), skip))


def judge_pod(ledger: NodeLedger, pod: Pod, bills: Sequence[Bill] = ()) -> Judgement:
    """Both judgements in one: of the requests, and of what the bills add."""
    requests = judge_requests(ledger, pod, bills)
    return Judgement(requests, tuple(bills)) if not requests.fits else judge_bills(ledger, pod, bills)


def judge_admission(ledger: NodeLedger, pod: Pod, bills: Sequence[Bill]) -> Admission:
    """Whether a kubelet with this ledger of its other pods takes a pod that was sent to it (P25).

    A pod that would draw more from a pool than other pods have left is refused, too: its node has the room,
    but the pool has not.
    """
    ledger = ledger.without(pod)
    options = before_running(ledger.options)
    demand = demand_of(ledger, pod, bills, options)
    pools = overdrawn_pools(ledger, pod, bills, options)
    return admission(demand, ledger.allocatable, ledger.requested, len(ledger), pools)


def overdrawn_pools(
    ledger: NodeLedger, pod: Pod, bills: Sequence[Bill], options: Options
) -> tuple[Reason, ...]:
    """The pools that have too little left for a pod; what its bills say it draws counts as said."""
    charges = tuple(bill.charge for bill in bills)
    wholes = pools_of(charges) if options.count_claims else {}
    if not wholes:
        return ()
    pools = ledger.pools_for(pod, bills)
    told = {
        (bill.claim, resource): bill.charge.resources[resource].drawn
        for bill in bills
        for resource in wholes
        if bill.claim in wholes[resource]
    }
    if any(drawn is None for drawn in told.values()):
        drawn = draw(pod, charges, options, pools)
        return (drawn,) if isinstance(drawn, Reason) else ()
    found = []
    for (claim, resource), amount in told.items():
        pool = pools.get((claim, resource)) or Pool(wholes[resource][claim], ZERO)
        if amount is not None and amount > pool.rest:
            found.append(
                Reason(
                    cause=Cause.POOL_EXHAUSTED,
                    resource=resource,
                    claim=claim,
                    wanted=unit_of(resource, amount),
                    had=unit_of(resource, pool.rest),
                    capacity=unit_of(resource, pool.allocated),
                    resolvable=amount <= pool.allocated,
                )
            )
    return tuple(found)
