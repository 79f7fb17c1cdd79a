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
from plimsoll.ledger.amounts import Amounts, add_to, raise_to, sum_of

#: A container and what it needs.
Need: TypeAlias = "tuple[Container, Amounts]"


class Role(Enum):
    """The part a container plays in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "container"


@dataclass(frozen=True, slots=True)
class Use:
    """What is in use at one point of a pod's life.

    For a regular container its own amounts. While an init container runs: its own and those of the sidecars
    before it. When a sidecar starts: its own and those of the sidecars before it.
    """

    container: Container
    role: Role
    amounts: Amounts


def is_sidecar(container: Container) -> bool:
    """Whether an init container keeps running beside the regular ones."""
    return container.restart_policy == "Always"


def needs(pod: Pod, amounts: Callable[[Container], Amounts]) -> tuple[list[Need], list[Need]]:
    """The pairs of a pod's regular and init containers, as `with_init` takes them."""
    return (
        [(container, amounts(container)) for container in pod.spec.containers],
        [(container, amounts(container)) for container in pod.spec.init_containers],
    )


def with_init(containers: Iterable[Need], init_containers: Iterable[Need]) -> dict[str, Quantity]:
    """What regular and init containers (in spec order, sidecars among them) need together."""
    total = sum_of(amounts for _, amounts in containers)
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container, amounts in init_containers:
        if is_sidecar(container):
            add_to(total, amounts)
            add_to(sidecars, amounts)
            raise_to(peak, sidecars)
        else:
            use = dict(amounts)
            add_to(use, sidecars)
            raise_to(peak, use)
    raise_to(total, peak)
    return total


def uses(containers: Iterable[Need], init_containers: Iterable[Need]) -> tuple[Use, ...]:
    """Each use in the order Kubernetes looks at them: regular containers, then init containers."""
    found = [Use(container, Role.REGULAR, amounts) for container, amounts in containers]
    sidecars: dict[str, Quantity] = {}
    for container, amounts in init_containers:
        use = dict(amounts)
        add_to(use, sidecars)
        if is_sidecar(container):
            sidecars = use
        found.append(Use(container, Role.SIDECAR if is_sidecar(container) else Role.INIT, use))
    return tuple(found)
