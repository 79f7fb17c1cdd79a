"""What a pod was given, which after a resize need not be what its spec asks for.

Owns `Allocation`: requests and limits of each container and of the pod as a whole, as they were when the pod
was let in or last resized. A node books pods by their allocations, not by their specs: a resize that is asked
for has no effect before it is granted. Promises: what it writes into a record it reads back; anything else in
a record is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from plimsoll.api.core import Container, Pod, ResourceList, ResourceRequirements
from plimsoll.api.quantity import Quantity
from plimsoll.errors import InputError


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests and limits."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the containers of a pod have, init containers included, and the pod as a whole."""

    containers: Mapping[str, Amounts]
    pod: Amounts | None = None


def allocation_of(pod: Pod) -> Allocation:
    """What the spec of a pod asks for."""
    spec = pod.spec
    found = {
        container.name: Amounts(container.resources.requests, container.resources.limits)
        for container in (*spec.init_containers, *spec.containers)
    }
    whole = spec.resources
    return Allocation(found, Amounts(whole.requests, whole.limits) if whole is not None else None)


def with_allocation(pod: Pod, allocation: Allocation | None) -> Pod:
    """The pod as if its spec asked for what it has; the same object if it does."""
    if allocation is None or allocation == allocation_of(pod):
        return pod
    spec = pod.spec
    changed = msgspec.structs.replace(
        spec,
        containers=tuple(_given(container, allocation) for container in spec.containers),
        init_containers=tuple(_given(container, allocation) for container in spec.init_containers),
        resources=_requirements(spec.resources, allocation.pod),
    )
    return msgspec.structs.replace(pod, spec=changed)


def _given(container: Container, allocation: Allocation) -> Container:
    amounts = allocation.containers.get(container.name)
    if amounts is None:
        return container
    return msgspec.structs.replace(container, resources=_requirements(container.resources, amounts))


def _requirements(have: ResourceRequirements | None, amounts: Amounts | None) -> Any:
    if amounts is None:
        return have
    return msgspec.structs.replace(
        have or ResourceRequirements(), requests=dict(amounts.requests), limits=dict(amounts.limits)
    )


# -- in a record


def write_allocation(allocation: Allocation) -> dict[str, Any]:
    """An allocation as JSON."""
    tree: dict[str, Any] = {
        "containers": {name: _write(amounts) for name, amounts in allocation.containers.items()}
    }
    if allocation.pod is not None:
        tree["pod"] = _write(allocation.pod)
    return tree


def read_allocation(tree: Any) -> Allocation | None:
    """The allocation in a record; None if there is none that can be read."""
    if not isinstance(tree, Mapping) or not isinstance(tree.get("containers"), Mapping):
        return None
    try:
        containers = {str(name): _read(amounts) for name, amounts in tree["containers"].items()}
        whole = tree.get("pod")
        return Allocation(containers, _read(whole) if whole is not None else None)
    except InputError:
        return None


def _write(amounts: Amounts) -> dict[str, dict[str, str]]:
    return {
        "requests": {name: str(amount) for name, amount in amounts.requests.items()},
        "limits": {name: str(amount) for name, amount in amounts.limits.items()},
    }


def _read(tree: Any) -> Amounts:
    return Amounts(_read_list(tree, "requests"), _read_list(tree, "limits"))


def _read_list(tree: Any, field: str) -> ResourceList:
    found = tree.get(field, {}) if isinstance(tree, Mapping) else None
    if not isinstance(found, Mapping):
        raise InputError(f"{field}: must be amounts by resource")
    return {str(name): Quantity.from_json(value) for name, value in found.items()}
