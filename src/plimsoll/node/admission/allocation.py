"""Resources a node has allocated to a pod: those of its spec at the time they were accepted.

The spec holds the desired resources; while a resize is pending or was rejected, the allocation applies. It is
stored in the checkpoint of admitted pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from plimsoll.api import codec
from plimsoll.api.core import Container, Pod, ResourceList, ResourceRequirements
from plimsoll.errors import InputError

#: Resources that can be resized in place.
RESIZABLE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """Allocated resources by container, and pod-level resources."""

    containers: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    pod_level: ResourceRequirements | None = None

    @staticmethod
    def from_spec(pod: Pod) -> PodAllocation:
        """Return the resources of a pod's spec."""
        every = (*pod.spec.init_containers, *pod.spec.containers)
        return PodAllocation({c.name: c.resources for c in every}, pod.spec.resources)

    def apply_to(self, pod: Pod) -> Pod:
        """Return the pod with the allocated resources in place of those of its spec."""
        spec = pod.spec
        pod_level = spec.resources
        if pod_level is not None and self.pod_level is not None:
            pod_level = _with_allocated(pod_level, self.pod_level)
        resized = msgspec.structs.replace(
            spec,
            containers=tuple(map(self._apply_to_container, spec.containers)),
            init_containers=tuple(map(self._apply_to_container, spec.init_containers)),
            resources=pod_level,
        )
        return msgspec.structs.replace(pod, spec=resized)

    def _apply_to_container(self, container: Container) -> Container:
        known = self.containers.get(container.name)
        if known is None:
            return container
        return msgspec.structs.replace(container, resources=_with_allocated(container.resources, known))

    def to_json(self) -> dict[str, Any]:
        """Return the allocation as JSON for the checkpoint."""
        containers = {name: _amounts(resources) for name, resources in self.containers.items()}
        return {"containers": containers} | (
            {"pod": _amounts(self.pod_level)} if self.pod_level is not None else {}
        )

    @staticmethod
    def from_json(value: object) -> PodAllocation:
        """Read an allocation from JSON; raise InputError if it is malformed."""
        if not isinstance(value, dict) or not isinstance(value.get("containers", {}), dict):
            raise InputError("an allocation is an object with containers")
        containers = value.get("containers", {})
        return PodAllocation(
            {str(name): codec.convert(one, ResourceRequirements) for name, one in containers.items()},
            codec.convert(value["pod"], ResourceRequirements) if "pod" in value else None,
        )


def _with_allocated(now: ResourceRequirements, allocated: ResourceRequirements) -> ResourceRequirements:
    """Return resources with cpu and memory replaced by the allocated amounts."""
    return msgspec.structs.replace(
        now,
        requests=_replace_resizable(now.requests, allocated.requests),
        limits=_replace_resizable(now.limits, allocated.limits),
    )


def _replace_resizable(now: ResourceList, allocated: ResourceList) -> ResourceList:
    rest = {name: amount for name, amount in now.items() if name not in RESIZABLE}
    return rest | {name: amount for name, amount in allocated.items() if name in RESIZABLE}


def _amounts(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    return {
        "requests": {name: str(amount) for name, amount in resources.requests.items()},
        "limits": {name: str(amount) for name, amount in resources.limits.items()},
    }
