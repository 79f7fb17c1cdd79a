"""Interface of a DRA driver: the devices it publishes, and how it prepares and unprepares claims.

Authors subclass `Driver`; the other classes are its arguments and results. `PluginServer` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from plimsoll.api.resource import (
    Device,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from plimsoll.protocols.dra import ClaimRef, PreparedDevice


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Pool of devices that is published as a unit: schedulers use all of it or none of it.

    A device is a mapping as in a ResourceSlice, or an `api.resource.Device`. `counters` are the counter sets
    that devices of the pool consume. `per_slice` limits the devices in one slice; slices have fewer where the
    API requires it. A pool without devices is published as an empty slice. `annotations` are set on the first
    slice, for tools that display the devices.
    """

    name: str
    devices: Sequence[Mapping[str, Any] | Device] = ()
    counters: Sequence[Mapping[str, Any]] = ()
    per_slice: int = 128
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """Allocated claim as a driver sees it: `results` and `config` contain this driver's entries only.

    `tree` is the claim as the API server sent it.
    """

    ref: ClaimRef
    claim: ResourceClaim
    results: tuple[DeviceRequestAllocationResult, ...]
    config: tuple[DeviceAllocationConfiguration, ...] = ()
    tree: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def parameters(self, request: str = "") -> tuple[Any, ...]:
        """Return the opaque parameters for a request (default: all requests), those of the class first."""
        found = []
        for config in self.config:
            if request and not applies_to(config.requests, request):
                continue
            if config.opaque is not None:
                found.append(config.opaque.parameters)
        return tuple(found)


def applies_to(names: Sequence[str], request: str) -> bool:
    """Report whether request names include this request, or the parent of this subrequest; () is all."""
    return not names or request in names or request.partition("/")[0] in names


@dataclass(frozen=True, slots=True)
class ClaimError:
    """Error for one claim that could not be prepared or unprepared. The kubelet logs it and retries."""

    message: str
    code: str = "Refused"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class InjectedDevice:
    """Prepared device together with the container edits that CDI injects for it.

    `PluginServer` writes the CDI file, stores it in the checkpoint, and removes it when the claim is
    unprepared. `mounts` are mappings with the keys of CDI (`hostPath`, `containerPath`, `options`, `type`),
    or pairs (host path, container path); `device_nodes` are mappings with CDI's keys, or paths. `metadata`:
    see `PreparedDevice`. `data` is published in the claim's status until the claim is unprepared: see
    `DeviceStatus`.
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
    """Health of a device, as in the DRAResourceHealth service."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """Health of a device, Unknown after `timeout` seconds without an update (0: the node's default)."""

    pool: str
    device: str
    health: Health = Health.HEALTHY
    message: str = ""
    timeout: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """Condition of an allocated device. `status` None means Unknown; `reason` is one CamelCase word."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Status of one allocated device, written to `status.devices` of its claim (KEP-4817).

    Pool, device and share ID must match the allocation. `data` is defined by the driver, `network` is the
    API's `networkData`.
    """

    claim: ClaimRef
    pool: str
    device: str
    share_id: str | None = None
    data: Mapping[str, Any] | None = None
    conditions: Sequence[DeviceCondition] = ()
    network: Mapping[str, Any] | None = None


Prepared: TypeAlias = "Sequence[PreparedDevice | InjectedDevice] | ClaimError"


class PluginNotifier(Protocol):
    """Part of `PluginServer` that a driver calls when its own state has changed."""

    def publish(self) -> None:
        """Publish the driver's pools again."""

    def publish_health(self) -> None:
        """Send the health of the driver's devices to the node."""

    def update_claim_status(self) -> None:
        """Write the driver's device statuses into its claims."""


class Driver:
    """Base class of drivers: set `name` and override methods. No method may block for more than a few
    seconds.

    Claims are prepared and unprepared one at a time. A claim may be prepared repeatedly and must get the same
    response every time.
    """

    name: str = ""

    def pools(self) -> Sequence[DevicePool] | None:
        """Return the pools to publish; call `PluginServer.publish` when they change.

        None means that they are not known yet: published slices stay as they are.
        """
        return ()

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        """Prepare the devices of a claim."""
        raise NotImplementedError(f"{type(self).__name__} does not implement prepare")

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        """Undo `prepare`. A claim that was never prepared is not an error."""
        return None

    def health(self) -> Iterable[DeviceHealth]:
        """Return the health of devices; call `PluginServer.publish_health` when it changes."""
        return ()

    def device_statuses(self) -> Iterable[DeviceStatus] | None:
        """Return the statuses of all allocated devices; call `PluginServer.update_claim_status` when they
        change.

        The framework also calls it after every claim that is prepared or unprepared. None means that the
        driver does not set device statuses.
        """
        return None

    async def watch(self, server: PluginNotifier) -> None:
        """Monitor the devices; runs as a task from `start` to `stop`.

        An exception is logged and the method is called again after a delay.
        """
