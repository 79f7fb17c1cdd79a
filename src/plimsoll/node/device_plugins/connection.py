"""Connection to one device plugin: follows its devices and makes its calls.

Nothing raises for responses of a plugin: a failed call returns its message as a PluginFault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from plimsoll.node.device_plugins.devices import HEALTHY, PluginDevice, PluginDeviceAllocation
from plimsoll.node.plugins.calls import FailedCall, try_call
from plimsoll.protocols import rpc
from plimsoll.protocols.cdi import Edits
from plimsoll.protocols.cdi.spec import DeviceNode, Mount
from plimsoll.protocols.messages import deviceplugin_v1beta1 as v1beta1

_log = logging.getLogger("plimsoll.plugins")
#: The kubelet's timeouts for connections to plugins and for their calls (seconds).
_CONNECT_SECONDS = 10.0
_CALL_SECONDS = 60.0
_PRE_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PluginFault:
    """Failure of a call of a device plugin."""

    message: str


class DevicePluginConnection:
    """Connection to a plugin, from its registration until its stream of devices ends."""

    def __init__(self, resource: str, socket: Path, *, pre_start: bool, prefers: bool) -> None:
        self.resource = resource
        self.pre_start = pre_start  #: whether containers are announced before they start
        self.prefers = prefers  #: whether the plugin has preferences among free devices
        self._socket = socket
        self._channel = rpc.dial(socket)

    async def connect(self, timeout: float = _CONNECT_SECONDS) -> PluginFault | None:
        """Wait until the plugin serves its socket."""
        try:
            async with asyncio.timeout(timeout):
                await self._channel.channel_ready()
        except TimeoutError:
            return PluginFault(f"failed to dial device plugin with socketPath {self._socket}")
        return None

    async def watch(self, update: Callable[[tuple[PluginDevice, ...]], None]) -> None:
        """Pass every list of devices to `update`, until the stream ends."""
        method = rpc.find_method(v1beta1.DESCRIPTOR, "DevicePlugin", "ListAndWatch")
        stream = rpc.watch(self._channel, method, v1beta1.Empty())
        try:
            async for message in stream:
                if message is None:  # the message cannot be decoded
                    return
                update(read_devices(message))
        except grpc.aio.AioRpcError as error:
            _log.info("device plugin of %s: %s", self.resource, error.details() or error.code())
        finally:
            stream.cancel()  # type: ignore[attr-defined]

    async def preferred(
        self, free: Sequence[str], included: Sequence[str], size: int
    ) -> tuple[str, ...] | PluginFault:
        """Ask which of the free devices the plugin prefers."""
        request = v1beta1.PreferredAllocationRequest(
            container_requests=[
                v1beta1.ContainerPreferredAllocationRequest(
                    available_deviceIDs=free, must_include_deviceIDs=included, allocation_size=size
                )
            ]
        )
        response = await self._call("GetPreferredAllocation", request, _CALL_SECONDS)
        if isinstance(response, PluginFault):
            return response
        return tuple(id for each in response.container_responses[:1] for id in each.deviceIDs)

    async def allocate(self, devices: Sequence[PluginDevice]) -> PluginDeviceAllocation | PluginFault:
        """Allocate devices; return what to inject into their container."""
        ids = [device.id for device in devices]
        request = v1beta1.AllocateRequest(
            container_requests=[v1beta1.ContainerAllocateRequest(devices_ids=ids)]
        )
        response = await self._call("Allocate", request, _CALL_SECONDS)
        if isinstance(response, PluginFault):
            return response
        if not response.container_responses:
            return PluginFault("containers return 0 response")
        return read_allocation(self.resource, devices, response.container_responses[0])

    async def announce_start(self, ids: Sequence[str]) -> PluginFault | None:
        """Announce the start of a container with these devices, if the plugin requires it."""
        if not self.pre_start:
            return None
        request = v1beta1.PreStartContainerRequest(devices_ids=ids)
        response = await self._call("PreStartContainer", request, _PRE_START_SECONDS)
        return response if isinstance(response, PluginFault) else None

    async def close(self) -> None:
        await rpc.close(self._channel)

    async def _call(self, name: str, request: Any, timeout: float) -> Any:
        method = rpc.find_method(v1beta1.DESCRIPTOR, "DevicePlugin", name)
        response = await try_call(rpc.call(self._channel, method, request, timeout=timeout))
        return PluginFault(str(response)) if isinstance(response, FailedCall) else response


def read_devices(message: v1beta1.ListAndWatchResponse) -> tuple[PluginDevice, ...]:
    """Read a list of devices; of devices with the same ID the last one counts."""
    found = {
        device.ID: PluginDevice(
            device.ID, device.health == HEALTHY, tuple(node.ID for node in device.topology.nodes)
        )
        for device in message.devices
        if device.ID
    }
    return tuple(found.values())


def read_allocation(
    resource: str, devices: Sequence[PluginDevice], response: v1beta1.ContainerAllocateResponse
) -> PluginDeviceAllocation:
    """Read what a plugin injects into a container."""
    mounts = tuple(
        Mount(
            host_path=mount.host_path,
            container_path=mount.container_path,
            options=("ro",) if mount.read_only else (),
        )
        for mount in response.mounts
    )
    nodes = tuple(
        DeviceNode(path=device.container_path, host_path=device.host_path, permissions=device.permissions)
        for device in response.devices
    )
    return PluginDeviceAllocation(
        resource=resource,
        devices=tuple(devices),
        env=dict(response.envs),
        annotations=dict(response.annotations),
        cdi=tuple(device.name for device in response.cdi_devices),
        edits=Edits(mounts=mounts, device_nodes=nodes),
    )
