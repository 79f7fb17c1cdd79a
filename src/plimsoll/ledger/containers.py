"""Aggregation of container amounts over a pod.

The rule for init containers and sidecars (docs/spec/accounting.md, "PodRequests and PodLimits", step 3):
regular containers and sidecars run concurrently, init containers run one after the other along with the
sidecars started before them, and the pod needs the maximum of the two, resource by resource. The functions
take (container, amounts) pairs, so that they serve requests, limits, amounts adjusted by a policy, and
subsets of containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.amounts import Amounts, add_amounts, raise_amounts, sum_amounts

#: A container and its amounts.
ContainerAmounts: TypeAlias = "tuple[Container, Amounts]"


class ContainerRole(Enum):
    """Role of a container in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "container"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """Amounts in use at one point of a pod's life.

    For a regular container, its own amounts. While an init container runs or a sidecar starts: its own
    amounts and those of the sidecars before it.
    """

    container: Container
    role: ContainerRole
    amounts: Amounts


def is_sidecar(container: Container) -> bool:
    """Return whether an init container is restartable, that is, a sidecar."""
    return container.restart_policy == "Always"


def pair_amounts(
    pod: Pod, amounts: Callable[[Container], Amounts]
) -> tuple[list[ContainerAmounts], list[ContainerAmounts]]:
    """Pair the regular and the init containers of a pod with amounts, for `sum_with_init_containers`."""
    return (
        [(container, amounts(container)) for container in pod.spec.containers],
        [(container, amounts(container)) for container in pod.spec.init_containers],
    )


def sum_with_init_containers(
    containers: Iterable[ContainerAmounts], init_containers: Iterable[ContainerAmounts]
) -> dict[str, Quantity]:
    """Sum the amounts of regular and init containers (in spec order, including sidecars)."""
    total = sum_amounts(amounts for _, amounts in containers)
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container, amounts in init_containers:
        if is_sidecar(container):
            add_amounts(total, amounts)
            add_amounts(sidecars, amounts)
            raise_amounts(peak, sidecars)
        else:
            use = dict(amounts)
            add_amounts(use, sidecars)
            raise_amounts(peak, use)
    raise_amounts(total, peak)
    return total


def list_uses(
    containers: Iterable[ContainerAmounts], init_containers: Iterable[ContainerAmounts]
) -> tuple[ContainerUse, ...]:
    """List the uses in the order of upstream: regular containers, then init containers."""
    found = [ContainerUse(container, ContainerRole.REGULAR, amounts) for container, amounts in containers]
    sidecars: dict[str, Quantity] = {}
    for container, amounts in init_containers:
        use = dict(amounts)
        add_amounts(use, sidecars)
        if is_sidecar(container):
            sidecars = use
        found.append(
            ContainerUse(
                container, ContainerRole.SIDECAR if is_sidecar(container) else ContainerRole.INIT, use
            )
        )
    return tuple(found)
