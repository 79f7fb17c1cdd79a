"""Conflicts between accounting policies in one container.

KEP-5517, "Accounting Policy Compatibility and Validation", with its three invalid scenarios
(docs/spec/accounting.md, "Accounting policies"): claims under Max, and claims under ConsumeFrom, must come
from one driver per container and resource; the two policies must not meet in a container for one resource;
and a pool cannot be combined with a pod-level request for its resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.requests import is_pod_level_resource
from plimsoll.ledger.verdict import Cause, Reason


def find_policy_conflicts(
    pod: Pod, charged_claims: Sequence[ChargedClaim], pod_level: bool = True
) -> Iterator[Reason]:
    """Yield every conflict of policies; `pod_level` enables pod-level requests."""
    odd = [
        (charged_claim, resource, charged_claim.policy(resource))
        for charged_claim in charged_claims
        for resource, charge in charged_claim.charge.resources.items()
        if charge.quantity is not None
        and charged_claim.policy(resource) in (AccountingPolicy.MAX, AccountingPolicy.CONSUME_FROM)
    ]
    if not odd:
        return
    if pod_level and pod.spec.resources is not None:
        for charged_claim, resource, policy in odd:
            asked = resource in pod.spec.resources.requests and is_pod_level_resource(resource)
            if asked and policy is AccountingPolicy.CONSUME_FROM:
                yield Reason(cause=Cause.POOL_UNDER_POD_LEVEL, resource=resource, claim=charged_claim.claim)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        here = [entry for entry in odd if container.name in entry[0].charge.containers]
        for resource in sorted({resource for _, resource, _ in here}):
            yield from _conflicts_in(container.name, resource, [e for e in here if e[1] == resource])


def _conflicts_in(
    container: str, resource: str, entries: Sequence[tuple[ChargedClaim, str, AccountingPolicy]]
) -> Iterator[Reason]:
    if len({policy for _, _, policy in entries}) > 1:
        claims = ", ".join(charged_claim.claim for charged_claim, _, _ in entries)
        yield Reason(cause=Cause.MAX_WITH_POOL, container=container, resource=resource, detail=claims)
        return
    policy = entries[0][2]
    drivers = {device.driver for charged_claim, _, _ in entries for device in charged_claim.devices(resource)}
    if len(drivers) > 1:
        yield Reason(
            cause=Cause.MIXED_DRIVERS,
            container=container,
            resource=resource,
            policy=policy.value,
            detail=", ".join(sorted(drivers)),
        )
