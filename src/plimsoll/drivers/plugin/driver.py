"""What a driver is, to its author: devices to offer, claims to make ready and to release.

Owns `Driver`, which authors subclass, and the values it takes and gives. `PluginServer` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from plimsoll.api.resource import AllocationConfiguration, AllocationDevice, Device, ResourceClaim
from plimsoll.protocols.dra import ClaimRef, PreparedDevice


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices that are published together: all of a pool are known to the scheduler, or none.

    A device is a tree as it stands in a ResourceSlice, or a view of one. `counters` are the counter sets that
    devices of the pool draw from. At most `per_slice` devices stand in one slice, fewer where the API demands
    it. A pool without devices is published too: its driver is there, and has none. `annotations` stand on the
    first slice, for whoever shows the devices to people.
    """

    name: str
    devices: Sequence[Mapping[str, Any] | Device] = ()
    counters: Sequence[Mapping[str, Any]] = ()
    per_slice: int = 128
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim that has devices of this driver. `results` and `config` are this driver's alone.

    `tree` is the claim as the API server sent it.
    """

    ref: ClaimRef
    claim: ResourceClaim
    results: tuple[AllocationDevice, ...]
    config: tuple[AllocationConfiguration, ...] = ()
    tree: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def parameters(self, request: str = "") -> tuple[Any, ...]:
        """The opaque parameters for a request (or for any): of the class first, the claim's own last."""
        found = []
        for config in self.config:
            if request and config.requests and not _is_for(config.requests, request):
                continue
            if config.opaque is not None:
                found.append(config.opaque.parameters)
        return tuple(found)


def _is_for(names: Sequence[str], request: str) -> bool:
    """Whether a configuration is for a request: it names it, or the request it is a subrequest of."""
    return request in names or request.partition("/")[0] in names


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a claim is not made ready, or not released; whoever called is told, and calls again later."""

    message: str
    code: str = "Refused"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class InjectedDevice:
    """A device handed to the containers of a claim, and what they get of it.

    The kit writes the CDI file, keeps it on record, and takes it away again. `mounts` are mappings with the
    keys of CDI (`hostPath`, `containerPath`, `options`, `type`), or pairs (host path, container path);
    `device_nodes` are mappings with CDI's keys, or paths. `metadata`: see `PreparedDevice`. `data` is what
    the claim's status tells about the device until it is released: see `DeviceReport`.
    """

    requests: Sequence[str]
    pool: str
    device: str
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mapping[str, Any] | tuple[str, str]] = ()
    device_nodes: Sequence[Mapping[str, Any] | str] = ()
    share_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None


class Health(StrEnum):
    """How a device is."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How a device is, and why. After `timeout` seconds without news the node takes it for Unknown; 0: after
    the time that the node thinks right."""

    pool: str
    device: str
    health: Health = Health.HEALTHY
    message: str = ""
    timeout: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """A condition of a device of a claim. None: that is not known. `reason` is one word, in CamelCase."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What the status of a claim tells about one of its devices (KEP-4817).

    Pool, device and share must be those of the allocation. `data` is the driver's own, `network` what the API
    calls networkData.
    """

    claim: ClaimRef
    pool: str
    device: str
    share_id: str | None = None
    data: Mapping[str, Any] | None = None
    conditions: Sequence[DeviceCondition] = ()
    network: Mapping[str, Any] | None = None


Prepared: TypeAlias = "Sequence[PreparedDevice | InjectedDevice] | Refusal"


class PluginNotifier(Protocol):
    """The part of `PluginServer` that a driver calls when something of its own has changed."""

    def publish(self) -> None:
        """Publish the driver's pools again."""

    def tell_health(self) -> None:
        """Send the health of the driver's devices to the node."""

    def report(self) -> None:
        """Write the driver's reports into the status of claims."""


class Driver:
    """A driver. Give it a name and override what it does; none of its methods may take more than seconds.

    Calls for claims come one at a time, and again for claims already made ready: the answer must be the same.
    """

    name: str = ""

    def pools(self) -> Sequence[Pool] | None:
        """What to publish now; when this changes, call `PluginServer.publish`.

        None: that is not known yet, and what is published stays as it is.
        """
        return ()

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        """Make the devices of a claim ready."""
        raise NotImplementedError(f"{type(self).__name__} prepares no claims")

    async def unprepare(self, claim: ClaimRef) -> Refusal | None:
        """Undo it. A claim that was never made ready is none the worse for it."""
        return None

    def health(self) -> Iterable[DeviceHealth]:
        """All devices whose health is known; when this changes, call `PluginServer.tell_health`."""
        return ()

    def reports(self) -> Iterable[DeviceReport] | None:
        """All that claims should tell about their devices now; when this changes, call `PluginServer.report`.

        It is asked again by itself after every claim that is made ready or released. None: the driver has
        nothing to tell of claims.
        """
        return None

    async def watch(self, server: PluginNotifier) -> None:
        """Runs beside everything else, from start to stop: look after the devices here.

        When it raises, that is logged, and it is called again after a while.
        """
