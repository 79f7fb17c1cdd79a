"""Which policies may meet in one container.

Owns the validation rules of document 000, "Accounting Policy Compatibility and Validation", and its three
invalid scenarios, as resolved in points P13, P14 and P19 of the accounting semantics: claims under Max, and
claims under ConsumeFrom, must come from one driver per container and resource; the two never meet in a
container for one resource; and a pool does not go together with a pod-level request for its resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.forms import Policy
from plimsoll.ledger.claims import Bill
from plimsoll.ledger.requests import is_pod_level_resource
from plimsoll.ledger.verdict import Cause, Reason


def policy_conflicts(pod: Pod, bills: Sequence[Bill], pod_level: bool = True) -> Iterator[Reason]:
    """Every place where policies contradict each other; `pod_level`: whether pod-level requests count."""
    odd = [
        (bill, resource, bill.policy(resource))
        for bill in bills
        for resource, charge in bill.charge.resources.items()
        if charge.quantity is not None and bill.policy(resource) in (Policy.MAX, Policy.CONSUME_FROM)
    ]
    if not odd:
        return
    if pod_level and pod.spec.resources is not None:
        for bill, resource, policy in odd:
            asked = resource in pod.spec.resources.requests and is_pod_level_resource(resource)
            if asked and policy is Policy.CONSUME_FROM:
                yield Reason(cause=Cause.POOL_UNDER_POD_LEVEL, resource=resource, claim=bill.claim)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        here = [entry for entry in odd if container.name in entry[0].charge.containers]
        for resource in sorted({resource for _, resource, _ in here}):
            yield from _conflicts_in(container.name, resource, [e for e in here if e[1] == resource])


def _conflicts_in(
    container: str, resource: str, entries: Sequence[tuple[Bill, str, Policy]]
) -> Iterator[Reason]:
    if len({policy for _, _, policy in entries}) > 1:
        claims = ", ".join(bill.claim for bill, _, _ in entries)
        yield Reason(cause=Cause.MAX_WITH_POOL, container=container, resource=resource, detail=claims)
        return
    policy = entries[0][2]
    drivers = {device.driver for bill, _, _ in entries for device in bill.devices(resource)}
    if len(drivers) > 1:
        yield Reason(
            cause=Cause.MIXED_DRIVERS,
            container=container,
            resource=resource,
            policy=policy.value,
            detail=", ".join(sorted(drivers)),
        )
