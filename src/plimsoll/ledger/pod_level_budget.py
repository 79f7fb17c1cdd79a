"""Check of pod-level requests and limits against containers and claims.

KEP-5517, "Integration with Pod Level Resources". A violation holds on every node. 1.36 compares requests;
1.37 also compares limits (docs/spec/accounting.md, "Changes in 1.37"). A claim shared by several pods counts
in full in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.amounts import Amounts, is_huge_page
from plimsoll.ledger.claim_shares import ClaimShares, compute_claim_shares
from plimsoll.ledger.policy import resolve_policies
from plimsoll.ledger.requests import PodResourcesOptions, aggregate_container_limits, pod_requests
from plimsoll.ledger.units import to_unit
from plimsoll.ledger.verdict import Cause, Reason


def find_budget_violations(
    pod: Pod, charges: Sequence[ClaimCharge], options: PodResourcesOptions, limits: bool = False
) -> Iterator[Reason]:
    """Yield every resource for which the pod level does not cover containers and claims together."""
    if options.skip_pod_level or pod.spec.resources is None:
        return
    if pod.spec.resources.requests:
        plain = resolve_policies(pod, charges, options)
        yield from find_uncovered_requests(pod, pod_requests(pod, options, plain), options, plain)
    if limits and charges and pod.spec.resources.limits:
        yield from _uncovered_limits(pod, compute_claim_shares(pod, charges), options)


def find_uncovered_requests(
    pod: Pod, budget: Amounts, options: PodResourcesOptions, charges: Sequence[ClaimCharge]
) -> Iterator[Reason]:
    """Yield the resources whose budget is smaller than the sum of containers, claims and overhead."""
    taken = pod_requests(pod, replace(options, skip_pod_level=True), charges)
    for name in sorted(budget):
        if taken.get(name, ZERO) > budget[name] and name in taken:
            yield Reason(
                cause=Cause.POD_LEVEL_REQUEST,
                resource=name,
                wanted=to_unit(name, taken[name]),
                capacity=to_unit(name, budget[name]),
            )


def _uncovered_limits(pod: Pod, shares: ClaimShares, options: PodResourcesOptions) -> Iterator[Reason]:
    assert pod.spec.resources is not None
    budget = pod.spec.resources.limits
    for name, total in sorted(aggregate_container_limits(pod, options, shares.charges()).items()):
        if is_huge_page(name) and name in budget and total > budget[name]:
            yield _limit(Cause.POD_LEVEL_LIMIT, name, to_unit(name, total), to_unit(name, budget[name]))
    for container in pod.spec.containers:
        extra = shares.of(container.name)
        for name, limit in sorted(container.resources.limits.items()):
            if is_huge_page(name) or name not in budget:
                continue
            total = limit + extra.get(name, ZERO)
            if total > budget[name]:
                reason = _limit(
                    Cause.POD_LEVEL_CONTAINER_LIMIT, name, to_unit(name, total), to_unit(name, budget[name])
                )
                yield replace(reason, container=container.name)


def _limit(cause: Cause, name: str, wanted: int, capacity: int) -> Reason:
    return Reason(cause=cause, resource=name, wanted=wanted, capacity=capacity)
