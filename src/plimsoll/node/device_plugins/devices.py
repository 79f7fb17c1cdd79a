"""Devices of device plugins and their allocation to containers, as values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.api.core import Container, Pod
from plimsoll.ledger.units import is_extended_resource
from plimsoll.protocols.cdi import Edits

HEALTHY = "Healthy"


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """Device that a plugin offers; `nodes` are the NUMA nodes it is close to, if the plugin names them."""

    id: str
    healthy: bool = True
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDeviceAllocation:
    """Devices of one resource that a container has, and what the plugin injects for them."""

    resource: str
    devices: tuple[PluginDevice, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()
    edits: Edits = field(default_factory=Edits)  #: mounts and device nodes

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(device.id for device in self.devices)


@dataclass(frozen=True, slots=True)
class DeviceShortage:
    """Reason why devices cannot be allocated."""

    resource: str
    requested: int
    available: int

    def __str__(self) -> str:
        return (
            f"requested number of devices unavailable for {self.resource}. "
            f"Requested: {self.requested}, Available: {self.available}"
        )


def requested_devices(pod: Pod, container: Container) -> Iterator[tuple[str, int]]:
    """Yield the extended resources that a container limits, with their numbers.

    Those that DRA serves by a claim of the pod are left out.
    """
    status = pod.status.extended_resource_claim_status
    served = {
        mapping.resource_name
        for mapping in (status.request_mappings if status is not None else ())
        if mapping.container_name == container.name
    }
    for name, amount in sorted({**container.resources.requests, **container.resources.limits}.items()):
        if is_extended_resource(name) and name not in served and amount.value() > 0:
            yield name, amount.value()


def choose_devices(
    needed: int, free: Sequence[str], reusable: Sequence[str] = (), preferred: Collection[str] = ()
) -> tuple[str, ...] | None:
    """Choose devices: first those of the pod's init containers, then preferred ones, then any that are free.

    Returns None if there are not enough.
    """
    chosen = list(dict.fromkeys(reusable))[:needed]
    rest = [id for id in dict.fromkeys(free) if id not in chosen]
    ordered = [*(id for id in rest if id in preferred), *(id for id in rest if id not in preferred)]
    chosen += ordered[: needed - len(chosen)]
    return tuple(chosen) if len(chosen) == needed else None
