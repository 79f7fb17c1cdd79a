"""What claim charges add up to, for a pod and for one of its containers.

Owns the sums of section 6 of the accounting semantics. They hold for every wire form: a 1.36 or draft entry
has an amount only, a 1.37 entry may have overhead beside it.

    pod         amount + per pod + per container x number of containers
    container   amount + per pod + per container, in full for every container of the entry

Accounting policies are no matter of this module: whoever knows them hands over charges in which they are
already worked out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, read_pod
from plimsoll.api.quantity import ZERO, Quantity


def read_charges(pod: Pod) -> tuple[ClaimCharge, ...]:
    """The charges in a pod's status, whatever form they are written in, or else in its annotation."""
    return read_pod(pod)


def sum_pod_charges(charges: Iterable[ClaimCharge]) -> dict[str, Quantity]:
    """What the charges add to their pod, all claims side by side."""
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
    """What the charges add to one container: everything of every claim it refers to, not divided."""
    total: dict[str, Quantity] = {}
    for charge in charges:
        if container not in charge.containers:
            continue
        for name, resource in charge.resources.items():
            for part in (resource.quantity, resource.per_pod, resource.per_container):
                if part is not None:
                    total[name] = total.get(name, ZERO) + part
    return total
