"""What the containers of a pod need together, given what each of them needs.

Owns the rule for init containers and sidecars (section 2, step 3, of the accounting semantics): regular
containers and sidecars run side by side, init containers run one after the other beside the sidecars started
before them, and the pod needs the greater of the two, resource by resource. The rule is a function of
(container, amounts) pairs, so that it serves requests, limits, and amounts that a policy has changed or
containers it has selected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.amounts import Amounts, add_amounts, raise_amounts, sum_amounts

#: A container and what it needs.
ContainerAmounts: TypeAlias = "tuple[Container, Amounts]"


class ContainerRole(Enum):
    """The part a container plays in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "container"


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What is in use at one point of a pod's life.

    For a regular container its own amounts. While an init container runs: its own and those of the sidecars
    before it. When a sidecar starts: its own and those of the sidecars before it.
    """

    container: Container
    role: ContainerRole
    amounts: Amounts


def is_sidecar(container: Container) -> bool:
    """Whether an init container keeps running beside the regular ones."""
    return container.restart_policy == "Always"


def pair_amounts(
    pod: Pod, amounts: Callable[[Container], Amounts]
) -> tuple[list[ContainerAmounts], list[ContainerAmounts]]:
    """The pairs of a pod's regular and init containers, as `sum_with_init_containers` takes them."""
    return (
        [(container, amounts(container)) for container in pod.spec.containers],
        [(container, amounts(container)) for container in pod.spec.init_containers],
    )


def sum_with_init_containers(
    containers: Iterable[ContainerAmounts], init_containers: Iterable[ContainerAmounts]
) -> dict[str, Quantity]:
    """What regular and init containers (in spec order, sidecars among them) need together."""
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
    """Each use in the order Kubernetes looks at them: regular containers, then init containers."""
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
