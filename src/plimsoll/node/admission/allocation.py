"""What a node has set aside for a pod: the resources of its spec, as they were when they were accepted.

Owns `Allocation`. A pod's spec says what is wanted; while a resize waits or is refused, the allocation holds.
It can be kept in a file, and read back from a pod's status where no file has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from plimsoll.api import codec
from plimsoll.api.core import Container, ContainerStatus, Pod, ResourceList, ResourceRequirements
from plimsoll.errors import InputError

#: All that can be changed in place.
RESIZABLE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Allocation:
    """Resources by container, and those of the pod as a whole."""

    containers: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    whole: ResourceRequirements | None = None

    @staticmethod
    def of(pod: Pod) -> Allocation:
        """What a pod's spec asks for."""
        every = (*pod.spec.init_containers, *pod.spec.containers)
        return Allocation({c.name: c.resources for c in every}, pod.spec.resources)

    @staticmethod
    def in_status(pod: Pod) -> Allocation:
        """What a pod's status says is set aside; where it says nothing, what the spec asks for."""
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        known = {status.name: status for status in statuses}
        every = (*pod.spec.init_containers, *pod.spec.containers)
        whole = pod.spec.resources
        if whole is not None and pod.status.resources is not None and pod.status.allocated_resources:
            requests = _put(whole.requests, pod.status.allocated_resources)
            limits = _put(whole.limits, pod.status.resources.limits)
            whole = msgspec.structs.replace(whole, requests=requests, limits=limits)
        return Allocation({c.name: _reported(c, known.get(c.name)) for c in every}, whole)

    def onto(self, pod: Pod) -> Pod:
        """The pod with what is set aside in place of what it asks for."""
        spec = pod.spec
        whole = spec.resources
        if whole is not None and self.whole is not None:
            whole = _resized(whole, self.whole)
        resized = msgspec.structs.replace(
            spec,
            containers=tuple(map(self._onto, spec.containers)),
            init_containers=tuple(map(self._onto, spec.init_containers)),
            resources=whole,
        )
        return msgspec.structs.replace(pod, spec=resized)

    def _onto(self, container: Container) -> Container:
        known = self.containers.get(container.name)
        if known is None:
            return container
        return msgspec.structs.replace(container, resources=_resized(container.resources, known))

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        containers = {name: _amounts(resources) for name, resources in self.containers.items()}
        return {"containers": containers} | ({"pod": _amounts(self.whole)} if self.whole is not None else {})

    @staticmethod
    def from_json(value: object) -> Allocation:
        """Read what was kept; InputError if it is none."""
        if not isinstance(value, dict) or not isinstance(value.get("containers", {}), dict):
            raise InputError("an allocation is an object with containers")
        containers = value.get("containers", {})
        return Allocation(
            {str(name): codec.convert(one, ResourceRequirements) for name, one in containers.items()},
            codec.convert(value["pod"], ResourceRequirements) if "pod" in value else None,
        )


def _resized(now: ResourceRequirements, kept: ResourceRequirements) -> ResourceRequirements:
    """These, with the amounts of cpu and memory of those that were kept."""
    return msgspec.structs.replace(
        now, requests=_swap(now.requests, kept.requests), limits=_swap(now.limits, kept.limits)
    )


def _swap(now: ResourceList, kept: ResourceList) -> ResourceList:
    rest = {name: amount for name, amount in now.items() if name not in RESIZABLE}
    return rest | {name: amount for name, amount in kept.items() if name in RESIZABLE}


def _put(now: ResourceList, reported: ResourceList) -> ResourceList:
    """Amounts with those in their place that are reported for them."""
    return {name: reported.get(name, amount) if name in RESIZABLE else amount for name, amount in now.items()}


def _reported(container: Container, status: ContainerStatus | None) -> ResourceRequirements:
    own = container.resources
    if status is None or not status.allocated_resources:
        return own
    limits = own.limits if status.resources is None else _put(own.limits, status.resources.limits)
    return msgspec.structs.replace(
        own, requests=_put(own.requests, status.allocated_resources), limits=limits
    )


def _amounts(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    return {
        "requests": {name: str(amount) for name, amount in resources.requests.items()},
        "limits": {name: str(amount) for name, amount in resources.limits.items()},
    }
