"""START HERE: memory driver of one node.

`MemoryDriver` publishes the memory of NUMA nodes and grants it to claims. Guarantees: a claim is prepared
only if its amounts fit into what its devices have left, also after a restart (prepared claims are in the
plugin framework's checkpoint); containers are bound to the NUMA nodes of their claims when they are created;
a change of huge pages is published within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from plimsoll.api.forms import Form
from plimsoll.api.quantity import Quantity, format_bytes
from plimsoll.client import Client
from plimsoll.drivers.memory.devices import CAPACITY, MemoryDevice, list_devices, make_devices
from plimsoll.drivers.memory.numa_memory import read_numa_memory
from plimsoll.drivers.memory.pinning import MemoryGrant, MemoryNodePlugin, variable_name
from plimsoll.drivers.memory.settings import DRIVER_NAME, MemoryEnforcement, MemorySettings
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimError,
    ClaimRef,
    DeviceHealth,
    DevicePool,
    Driver,
    Health,
    InjectedDevice,
    PluginNotifier,
    PluginServer,
    Prepared,
)
from plimsoll.drivers.plugin.wire_form import detect_kept_form
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger("plimsoll.memory")

#: Interval between reads of the machine.
READ_SECONDS = 10.0
#: Time without a link to the runtime before devices become unhealthy; longer than a runtime restart.
UNLINKED_SECONDS = 30.0
_RETRY_SECONDS = 2.0


class MemoryDriver(Driver):
    """Driver of one node; `start` it on the event loop that runs it."""

    name = DRIVER_NAME

    def __init__(
        self,
        client: Client,
        settings: MemorySettings,
        *,
        read_interval: float = READ_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the driver; raises ConfigError if the socket paths are too long."""
        self.settings = settings
        self.plugin_server = PluginServer(
            self, client, settings.node, root=settings.kubelet_root, cdi=settings.cdi
        )
        self.plugin: MemoryNodePlugin | None = None
        if settings.enforcement is MemoryEnforcement.NRI:
            self.plugin = MemoryNodePlugin(settings.nri, self._find_grants)
            self.plugin.on_change = self._on_link
        #: Devices by name, and the reason why the machine could not be read last time.
        self.devices: dict[str, MemoryDevice] = {}
        self.read_error = ""
        self._client = client
        self._form: Form | None = settings.form
        self._form_known = settings.form is not None
        self._read_interval = read_interval
        self._clock = clock
        self._unlinked_since: float | None = clock()

    # -- lifecycle

    async def start(self) -> None:
        """Read the machine, then serve, bind and publish; raises InputError on failure."""
        self.devices = await asyncio.to_thread(self._read)
        await self.plugin_server.start()
        if self.plugin is not None:
            await self.plugin.start()

    async def stop(self) -> None:
        """Shut down; containers, claims and published devices stay."""
        await self.plugin_server.stop()
        if self.plugin is not None:
            await self.plugin.stop()

    def problems(self) -> tuple[str, ...]:
        """Return the reasons why the driver is unhealthy."""
        found = []
        if self.plugin is not None and not self.plugin.linked:
            found.append(f"containers are not bound to memory nodes: {self.plugin.link_error}")
        if not self.plugin_server.registered:
            why = self.plugin_server.registration_error
            found.append(f"not registered with the kubelet{f': {why}' if why else ''}")
        if self.read_error:
            found.append(f"the machine cannot be read: {self.read_error}")
        found += self.plugin_server.publish_errors
        if not self.plugin_server.published and not self.plugin_server.publish_errors:
            found.append("the devices are not published yet")
        return tuple(found)

    @property
    def allocated(self) -> dict[str, int]:
        """Bytes of prepared claims, by device."""
        return self._count_allocated()

    # -- Driver interface

    def pools(self) -> Sequence[DevicePool] | None:
        if not self._form_known:
            return None
        return [DevicePool(self.settings.node, make_devices(self.devices.values(), self._form))]

    def health(self) -> Iterable[DeviceHealth]:
        allocated, problem = self._count_allocated(), self._find_link_problem()
        for device in self.devices.values():
            text = problem
            if allocated.get(device.name, 0) > device.size:
                taken = format_bytes(allocated[device.name])
                text = f"claims have {taken}, the device has {format_bytes(device.size)}"
            state = Health.UNHEALTHY if text else Health.HEALTHY
            yield DeviceHealth(self.settings.node, device.name, state, text)

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        if self.plugin is not None and not self.plugin.linked:
            return ClaimError(
                f"no memory is granted while containers are not bound to it: {self.plugin.link_error}"
            )
        taken = self._count_allocated(without=claim.ref.uid)
        left = {name: device.size - taken.get(name, 0) for name, device in self.devices.items()}
        found = []
        for result in claim.results:
            device = self.devices.get(result.device)
            if device is None or result.pool != self.settings.node:
                return ClaimError(f"device {result.pool}/{result.device} is not on node {self.settings.node}")
            consumed = result.consumed_capacity.get(CAPACITY)
            size = 0 if result.admin_access else device.size if consumed is None else consumed.value()
            if size > left[device.name]:
                return ClaimError(
                    f"device {device.name} has {format_bytes(max(0, left[device.name]))} left of"
                    f" {format_bytes(device.size)}, the claim needs {format_bytes(size)}"
                )
            left[device.name] -= size
            found.append(self._inject(claim.ref, result.request, device, size, result.share_id))
        return found

    async def watch(self, server: PluginNotifier) -> None:
        """Detect the API server's form, then follow changes of the machine."""
        while not self._form_known:
            try:
                self._form = await self._detect_form()
                self._form_known = True
            except ApiError as error:
                _log.warning("detecting API server capabilities failed: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
        server.publish()
        while True:
            await asyncio.sleep(self._read_interval)
            try:
                devices = await asyncio.to_thread(self._read)
            except InputError as error:
                self.read_error = str(error)
                continue
            self.read_error = ""
            if devices != self.devices:
                _log.warning("memory has changed: %s", ", ".join(sorted(devices)))
                self.devices = devices
                server.publish()
            server.publish_health()

    # -- internals

    async def _detect_form(self) -> Form | None:
        """Return the form in which the API server keeps the mappings of this node's devices."""

        def make(form: Form) -> list[dict[str, Any]]:
            return make_devices(self.devices.values(), form)

        form = await detect_kept_form(self._client, self.name, self.settings.node, make)
        if form is None:
            _log.warning("claims are not booked on the node: the API server keeps no node resource mappings")
        return form

    def _read(self) -> dict[str, MemoryDevice]:
        return list_devices(read_numa_memory(self.settings.host_root), self.settings.reserved)

    def _inject(
        self, ref: ClaimRef, request: str, device: MemoryDevice, size: int, share: str | None
    ) -> InjectedDevice:
        base = request.partition("/")[0]
        return InjectedDevice(
            (base,),
            self.settings.node,
            device.name,
            env={variable_name(ref.uid, base): f"{device.resource}@{device.node}"},
            share_id=share,
            data={"resource": device.resource, "numaNode": str(device.node), "size": format_bytes(size)},
        )

    def _list_grants(self, without: str = "") -> Iterable[tuple[str, str, str, MemoryGrant]]:
        """Yield claim UID, request, device and memory of all prepared claims."""
        for uid, claim in self.plugin_server.prepared_claims.items():
            for device in claim.devices:
                data: Any = device.data or {}
                with suppress(InputError, KeyError, ValueError):
                    grant = MemoryGrant(
                        int(data["numaNode"]), str(data["resource"]), Quantity.parse(data["size"]).value()
                    )
                    if uid != without:
                        yield uid, device.requests[0] if device.requests else "", device.device, grant

    def _count_allocated(self, without: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for _, _, device, grant in self._list_grants(without):
            found[device] = found.get(device, 0) + grant.size
        return found

    def _find_grants(self, variable: str) -> list[MemoryGrant]:
        return [
            grant for uid, request, _, grant in self._list_grants() if variable_name(uid, request) == variable
        ]

    def _on_link(self) -> None:
        assert self.plugin is not None
        self._unlinked_since = None if self.plugin.linked else (self._unlinked_since or self._clock())
        self.plugin_server.publish_health()

    def _find_link_problem(self) -> str:
        since = self._unlinked_since
        if self.plugin is None or since is None or self._clock() - since < UNLINKED_SECONDS:
            return ""
        return f"containers are not bound to memory nodes: {self.plugin.link_error}"
