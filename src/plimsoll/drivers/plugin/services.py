"""What a driver serves on its sockets: registration, claims, health (sections 1 and 2 of the node protocols).

Owns the step between messages of any version and values. Promises: whatever a node sends is answered, for
each claim apart; a driver that raises, or answers with something else than it should, has refused that claim
and no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import ModuleType
from typing import Any, TypeAlias

import grpc

from plimsoll.drivers.plugin.driver import DeviceHealth, Health, Refusal
from plimsoll.protocols import rpc
from plimsoll.protocols.dra import ClaimRef, PreparedDevice
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1, health_v1alpha1, registration

DRA_VERSIONS: Mapping[str, ModuleType] = {"v1.DRAPlugin": dra_v1, "v1beta1.DRAPlugin": dra_v1beta1}
HEALTH_VERSIONS: Mapping[str, ModuleType] = {
    "v1.DRAResourceHealth": health_v1,
    "v1alpha1.DRAResourceHealth": health_v1alpha1,
}
#: What a node keeps of a message about health.
LONGEST_MESSAGE = 1024
#: Reports come at least this often, so that a node does not take them for stale.
HEALTH_SECONDS = 10.0

Devices: TypeAlias = tuple[PreparedDevice, ...]
Prepare: TypeAlias = Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, Devices | Refusal]]]
Unprepare: TypeAlias = Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, Refusal | None]]]


def read_refs(request: Any) -> tuple[ClaimRef, ...]:
    """The claims of a call, each once."""
    refs = {claim.uid: ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims}
    return tuple(refs.values())


def handle_claims(prepare: Prepare, unprepare: Unprepare) -> list[grpc.GenericRpcHandler]:
    """The service for claims, in all versions."""

    def of(messages: ModuleType) -> grpc.GenericRpcHandler:
        async def do_prepare(request: Any, context: Any) -> Any:
            return write_prepared(messages, await prepare(read_refs(request)))

        async def do_unprepare(request: Any, context: Any) -> Any:
            return write_released(messages, await unprepare(read_refs(request)))

        methods: Any = {"NodePrepareResources": do_prepare, "NodeUnprepareResources": do_unprepare}
        return rpc.handle(messages.DESCRIPTOR, "DRAPlugin", methods)

    return [of(messages) for messages in DRA_VERSIONS.values()]


def write_prepared(messages: ModuleType, answers: Mapping[str, Devices | Refusal]) -> Any:
    """An answer to NodePrepareResources."""
    message = messages.NodePrepareResourcesResponse()
    with_share = "share_id" in messages.Device.DESCRIPTOR.fields_by_name
    for uid, answer in answers.items():
        entry = message.claims[uid]
        entry.SetInParent()
        if isinstance(answer, Refusal):
            entry.error = clean(answer.message) or answer.code
            continue
        for device in answer:
            written = entry.devices.add(
                request_names=[request.partition("/")[0] for request in device.requests],
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=device.cdi,
            )
            if with_share and device.share_id is not None:
                written.share_id = device.share_id
    return message


def write_released(messages: ModuleType, answers: Mapping[str, Refusal | None]) -> Any:
    """An answer to NodeUnprepareResources."""
    message = messages.NodeUnprepareResourcesResponse()
    for uid, refusal in answers.items():
        message.claims[uid].SetInParent()
        if refusal is not None:
            message.claims[uid].error = clean(refusal.message) or refusal.code
    return message


def handle_registration(
    info: Callable[[], Mapping[str, Any]], notified: Callable[[bool, str], None]
) -> grpc.GenericRpcHandler:
    """The service by which a node finds the driver."""

    async def get_info(request: Any, context: Any) -> Any:
        return registration.PluginInfo(**info())

    async def notify(request: Any, context: Any) -> Any:
        notified(request.plugin_registered, request.error)
        if not request.plugin_registered:
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed registration process: {request.error}")
        return registration.RegistrationStatusResponse()

    methods: Any = {"GetInfo": get_info, "NotifyRegistrationStatus": notify}
    return rpc.handle(registration.DESCRIPTOR, "Registration", methods)


class HealthStreams:
    """Streams of health: each begins with all there is, and goes on when that changes and every so often."""

    def __init__(
        self,
        report: Callable[[], Sequence[DeviceHealth] | None],
        *,
        every: float = HEALTH_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`report` gives all devices; None if it cannot say now: then nothing is said."""
        self._report = report
        self._every = every
        self._clock = clock
        self._news = asyncio.Event()
        self._closed = False
        #: How many nodes are listening.
        self.open = 0

    def tell(self) -> None:
        """There is something new."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def reopen(self) -> None:
        self._closed = False

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self.tell()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        def of(messages: ModuleType) -> grpc.GenericRpcHandler:
            # gRPC knows a stream by its being a generator, not by what it returns.
            async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
                async with aclosing(self._watch(messages)) as reports:
                    async for report in reports:
                        yield report

            return rpc.handle(messages.DESCRIPTOR, "DRAResourceHealth", {"NodeWatchResources": watch})

        return [of(messages) for messages in HEALTH_VERSIONS.values()]

    async def _watch(self, messages: ModuleType) -> AsyncGenerator[Any, None]:
        self.open += 1
        try:
            while not self._closed:
                news = self._news
                if (devices := self._report()) is not None:
                    yield write_health(messages, devices, int(self._clock()))
                try:
                    async with asyncio.timeout(self._every):
                        await news.wait()
                except TimeoutError:
                    pass
        finally:
            self.open -= 1


_HEALTH = {Health.UNKNOWN: 0, Health.HEALTHY: 1, Health.UNHEALTHY: 2}


def write_health(messages: ModuleType, devices: Iterable[DeviceHealth], now: int) -> Any:
    """A report about devices."""
    message = messages.NodeWatchResourcesResponse()
    for device in devices:
        message.devices.add(
            device={"pool_name": device.pool, "device_name": device.device},
            health=_HEALTH.get(device.health, 0),
            last_updated_time=now,
            health_check_timeout_seconds=max(0, int(device.timeout)),
            message=clean(device.message)[:LONGEST_MESSAGE],
        )
    return message


def clean(text: str) -> str:
    """A text that can go over the wire: no halves of characters."""
    return str(text).encode(errors="replace").decode()
