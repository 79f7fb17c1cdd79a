"""Sums of claim charges, for a pod and for one of its containers.

docs/spec/accounting.md, "Changes in 1.37". The sums apply to every wire form: a 1.36 or draft entry has an
amount only, a 1.37 entry may have overhead as well.

    pod         amount + per pod + per container x number of containers
    container   amount + per pod + per container, in full for every container of the entry

Accounting policies are resolved before (`policy.resolve_policies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, read_pod
from plimsoll.api.quantity import ZERO, Quantity


def read_charges(pod: Pod) -> tuple[ClaimCharge, ...]:
    """Read the charges from a pod's status in any form, or else from its annotation."""
    return read_pod(pod)


def sum_pod_charges(charges: Iterable[ClaimCharge]) -> dict[str, Quantity]:
    """Sum the charges of all claims to their pod."""
    total: dict[str, Quantity] = {}
    for charge in charges:
        for name, resource in charge.resources.items():
            for part in (resource.quantity, resource.per_pod):
                if part is not None:
                    total[name] = total.get(name, ZERO) + part
            if resource.per_container is not None:
                part = resource.per_container.times(len(charge.containers))
                total[name] = total.get(name, ZERO) + part
    return total


def sum_container_charges(charges: Sequence[ClaimCharge], container: str) -> dict[str, Quantity]:
    """Sum the charges to one container: all charges of every claim it refers to, undivided."""
    total: dict[str, Quantity] = {}
    for charge in charges:
        if container not in charge.containers:
            continue
        for name, resource in charge.resources.items():
            for part in (resource.quantity, resource.per_pod, resource.per_container):
                if part is not None:
                    total[name] = total.get(name, ZERO) + part
    return total
