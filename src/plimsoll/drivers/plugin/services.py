"""gRPC services of a DRA plugin: registration, claims and health.

Converts between messages of all supported versions and values (docs/spec/node-protocols.md, "Plugin
registration" and "DRA plugin"). Every claim of a request gets its own result: a failure affects one claim
only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import ModuleType
from typing import Any, TypeAlias

from plimsoll.drivers.plugin.driver import ClaimError, DeviceHealth, Health
from plimsoll.protocols import rpc
from plimsoll.protocols.dra import ClaimRef, PreparedDevice
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1, health_v1alpha1, registration

DRA_VERSIONS: Mapping[str, ModuleType] = {"v1.DRAPlugin": dra_v1, "v1beta1.DRAPlugin": dra_v1beta1}
HEALTH_VERSIONS: Mapping[str, ModuleType] = {
    "v1.DRAResourceHealth": health_v1,
    "v1alpha1.DRAResourceHealth": health_v1alpha1,
}
#: Length at which the kubelet truncates a health message.
MAX_MESSAGE_LENGTH = 1024
#: Interval between health messages, so that the node does not consider them stale.
HEALTH_INTERVAL_SECONDS = 10.0

Handlers: TypeAlias = Sequence[rpc.MethodHandler]
Devices: TypeAlias = tuple[PreparedDevice, ...]
Prepare: TypeAlias = Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, Devices | ClaimError]]]
Unprepare: TypeAlias = Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, ClaimError | None]]]


def decode_refs(request: Any) -> tuple[ClaimRef, ...]:
    """Return the claims of a request, without duplicates."""
    refs = {claim.uid: ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims}
    return tuple(refs.values())


def handle_claims(prepare: Prepare, unprepare: Unprepare) -> list[Handlers]:
    """Build the handlers of the DRAPlugin service, one per version."""

    def make_handler(messages: ModuleType) -> Handlers:
        async def do_prepare(request: Any, context: Any) -> Any:
            return encode_prepared(messages, await prepare(decode_refs(request)))

        async def do_unprepare(request: Any, context: Any) -> Any:
            return encode_unprepared(messages, await unprepare(decode_refs(request)))

        methods: Any = {"NodePrepareResources": do_prepare, "NodeUnprepareResources": do_unprepare}
        return rpc.handle(messages.DESCRIPTOR, "DRAPlugin", methods)

    return [make_handler(messages) for messages in DRA_VERSIONS.values()]


def encode_prepared(messages: ModuleType, answers: Mapping[str, Devices | ClaimError]) -> Any:
    """Encode a NodePrepareResourcesResponse."""
    message = messages.NodePrepareResourcesResponse()
    with_share = "share_id" in messages.Device.DESCRIPTOR.fields_by_name
    for uid, answer in answers.items():
        entry = message.claims[uid]
        entry.SetInParent()
        if isinstance(answer, ClaimError):
            entry.error = to_valid_utf8(answer.message) or answer.code
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


def encode_unprepared(messages: ModuleType, answers: Mapping[str, ClaimError | None]) -> Any:
    """Encode a NodeUnprepareResourcesResponse."""
    message = messages.NodeUnprepareResourcesResponse()
    for uid, refusal in answers.items():
        message.claims[uid].SetInParent()
        if refusal is not None:
            message.claims[uid].error = to_valid_utf8(refusal.message) or refusal.code
    return message


def handle_registration(
    info: Callable[[], Mapping[str, Any]], on_status: Callable[[bool, str], None]
) -> Handlers:
    """Build the handler of the plugin registration service."""

    async def get_info(request: Any, context: Any) -> Any:
        return registration.PluginInfo(**info())

    async def notify(request: Any, context: Any) -> Any:
        on_status(request.plugin_registered, request.error)
        if not request.plugin_registered:
            await context.abort(rpc.StatusCode.UNKNOWN, f"failed registration process: {request.error}")
        return registration.RegistrationStatusResponse()

    methods: Any = {"GetInfo": get_info, "NotifyRegistrationStatus": notify}
    return rpc.handle(registration.DESCRIPTOR, "Registration", methods)


class HealthStreams:
    """DRAResourceHealth streams: each sends the health of all devices at once, on change and periodically."""

    def __init__(
        self,
        report: Callable[[], Sequence[DeviceHealth] | None],
        *,
        interval: float = HEALTH_INTERVAL_SECONDS,
    ) -> None:
        """`report` returns the health of all devices; nothing is sent while it returns None."""
        self._report = report
        self._interval = interval
        self._changed = asyncio.Event()
        self._closed = False
        #: Number of open streams.
        self.open = 0

    def notify(self) -> None:
        """Send the current health on all streams."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def reopen(self) -> None:
        self._closed = False

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self.notify()

    def handlers(self) -> list[Handlers]:
        def make_handler(messages: ModuleType) -> Handlers:
            # gRPC recognizes streaming methods by their being generators, not by their return value.
            async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
                async with aclosing(self._watch(messages)) as reports:
                    async for report in reports:
                        yield report

            return rpc.handle(messages.DESCRIPTOR, "DRAResourceHealth", {"NodeWatchResources": watch})

        return [make_handler(messages) for messages in HEALTH_VERSIONS.values()]

    async def _watch(self, messages: ModuleType) -> AsyncGenerator[Any, None]:
        self.open += 1
        try:
            while not self._closed:
                changed = self._changed
                if (devices := self._report()) is not None:
                    yield encode_health(messages, devices, int(time.time()))
                try:
                    async with asyncio.timeout(self._interval):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            self.open -= 1


_HEALTH = {Health.UNKNOWN: 0, Health.HEALTHY: 1, Health.UNHEALTHY: 2}


def encode_health(messages: ModuleType, devices: Iterable[DeviceHealth], now: int) -> Any:
    """Encode a NodeWatchResourcesResponse."""
    message = messages.NodeWatchResourcesResponse()
    for device in devices:
        message.devices.add(
            device={"pool_name": device.pool, "device_name": device.device},
            health=_HEALTH.get(device.health, 0),
            last_updated_time=now,
            health_check_timeout_seconds=max(0, int(device.timeout)),
            message=to_valid_utf8(device.message)[:MAX_MESSAGE_LENGTH],
        )
    return message


def to_valid_utf8(text: str) -> str:
    """Replace lone surrogates, which protobuf cannot encode."""
    return str(text).encode(errors="replace").decode()
