"""Device plugin in the test's event loop, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from plimsoll.protocols import rpc
from plimsoll.protocols.messages import deviceplugin_v1beta1 as v1beta1
from tests.waiting import DEADLINE

RESOURCE = "example.com/fpga"


def device(id: str, *nodes: int, healthy: bool = True) -> v1beta1.Device:
    topology = v1beta1.TopologyInfo(nodes=[v1beta1.NUMANode(ID=node) for node in nodes]) if nodes else None
    return v1beta1.Device(ID=id, health="Healthy" if healthy else "Unhealthy", topology=topology)


class FakePlugin:
    """Plugin of one resource; `calls` has its calls in order."""

    def __init__(
        self,
        directory: Path,
        devices: Iterable[v1beta1.Device],
        *,
        resource: str = RESOURCE,
        prefers: tuple[str, ...] = (),
        pre_start: bool = False,
    ) -> None:
        self.directory = directory
        self.resource = resource
        self.devices = list(devices)
        self.prefers = prefers
        self.pre_start = pre_start
        self.refusal = ""
        self.holds = False  #: whether Allocate does not respond
        self.calls: list[str] = []
        self._changed = asyncio.Event()
        self._server: rpc.RpcServer | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.resource.replace('/', '-')}.sock"

    async def start(self) -> None:
        methods: dict[str, Any] = {
            "ListAndWatch": self._list_and_watch,
            "Allocate": self._allocate,
            "GetPreferredAllocation": self._prefer,
            "PreStartContainer": self._pre_start,
        }
        handler = rpc.handle(v1beta1.DESCRIPTOR, "DevicePlugin", methods)
        self._server = await rpc.serve(self.directory / self.endpoint, [handler])

    async def register(self, **changes: Any) -> None:
        fields = {
            "version": "v1beta1",
            "endpoint": self.endpoint,
            "resource_name": self.resource,
            "options": v1beta1.DevicePluginOptions(
                pre_start_required=self.pre_start, get_preferred_allocation_available=bool(self.prefers)
            ),
        }
        channel = rpc.dial(self.directory / "kubelet.sock")
        method = rpc.find_method(v1beta1.DESCRIPTOR, "Registration", "Register")
        try:
            await rpc.call(
                channel, method, v1beta1.RegisterRequest(**{**fields, **changes}), timeout=DEADLINE
            )
        finally:
            await channel.close()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def set_devices(self, *devices: v1beta1.Device) -> None:
        self.devices = list(devices)
        self._changed.set()

    async def _list_and_watch(
        self, request: Any, context: Any
    ) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        while True:
            self._changed.clear()
            yield v1beta1.ListAndWatchResponse(devices=self.devices)
            await self._changed.wait()

    async def _allocate(self, request: v1beta1.AllocateRequest, context: Any) -> v1beta1.AllocateResponse:
        (each,) = request.container_requests
        self.calls.append(f"allocate {','.join(sorted(each.devices_ids))}")
        if self.holds:
            await asyncio.Event().wait()
        if self.refusal:
            await context.abort(rpc.StatusCode.INTERNAL, self.refusal)
        response = v1beta1.ContainerAllocateResponse(
            envs={"FPGA": ",".join(sorted(each.devices_ids)), "SHARED": "plugin"},
            annotations={"example.com/fpga": "yes"},
            mounts=[v1beta1.Mount(container_path="/usr/lib", host_path="/usr/lib", read_only=True)],
            devices=[v1beta1.DeviceSpec(container_path="/dev/null", host_path="/dev/null", permissions="rw")],
        )
        return v1beta1.AllocateResponse(container_responses=[response])

    async def _prefer(self, request: Any, context: Any) -> v1beta1.PreferredAllocationResponse:
        (each,) = request.container_requests
        self.calls.append(f"prefer {each.allocation_size} of {','.join(sorted(each.available_deviceIDs))}")
        chosen = v1beta1.ContainerPreferredAllocationResponse(deviceIDs=self.prefers)
        return v1beta1.PreferredAllocationResponse(container_responses=[chosen])

    async def _pre_start(self, request: Any, context: Any) -> v1beta1.PreStartContainerResponse:
        self.calls.append(f"start {','.join(sorted(request.devices_ids))}")
        return v1beta1.PreStartContainerResponse()
