"""Plugin registration: GetInfo and NotifyRegistrationStatus.

Uses the kubelet's deadlines and retry back-off (docs/spec/node-protocols.md, "Plugin registration").
Guarantees that every response of a plugin, or its absence, becomes a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from plimsoll.errors import ConfigError
from plimsoll.node.plugins.calls import FailedCall, try_call
from plimsoll.node.plugins.plugin_info import PluginInfo, RegistrationRefusal, validate_plugin_info
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import registration as messages

_GET_INFO = rpc.find_method(messages.DESCRIPTOR, "Registration", "GetInfo")
_NOTIFY = rpc.find_method(messages.DESCRIPTOR, "Registration", "NotifyRegistrationStatus")
#: GetInfo responses are short.
_MAX_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTiming:
    """Timeouts and intervals in seconds; the kubelet's, except for `scan`."""

    #: Between two scans of the registration directory.
    scan: float = 0.5
    dial: float = 10.0
    info: float = 1.0
    notify_plugin: float = 5.0
    #: First back-off of a failed registration; doubles up to `longest_retry`.
    retry: float = 0.5
    longest_retry: float = 122.0
    #: For NodePrepareResources and NodeUnprepareResources.
    call: float = 45.0
    health_retry: float = 5.0
    #: Time without a connection to any of its plugins until a driver counts as gone.
    gone: float = 30.0


def retry_delay(failures: int, times: PluginTiming) -> float:
    """Return the back-off after this number of consecutive failures."""
    doublings = min(max(failures, 1) - 1, 32)
    return min(times.retry * 2.0**doublings, times.longest_retry)


@asynccontextmanager
async def open_registration(
    socket: Path, times: PluginTiming
) -> AsyncIterator[grpc.aio.Channel | RegistrationRefusal]:
    """Connect to a registration socket, for the duration of the block."""
    try:
        channel = rpc.dial(socket, max_size=_MAX_BYTES)
    except ConfigError as error:
        yield RegistrationRefusal(f"RegisterPlugin error -- dial failed at socket {socket}, err: {error}")
        return
    try:
        try:
            async with asyncio.timeout(times.dial):
                await channel.channel_ready()
        except TimeoutError:
            text = f"failed to dial socket {socket}, err: context deadline exceeded"
            yield RegistrationRefusal(f"RegisterPlugin error -- dial failed at socket {socket}, err: {text}")
        else:
            yield channel
    finally:
        await rpc.close(channel)


async def get_plugin_info(
    channel: grpc.aio.Channel, socket: Path, times: PluginTiming
) -> PluginInfo | RegistrationRefusal:
    """Call GetInfo and validate the response."""
    response = await try_call(rpc.call(channel, _GET_INFO, messages.InfoRequest(), timeout=times.info))
    if isinstance(response, FailedCall):
        return RegistrationRefusal(
            "RegisterPlugin error -- failed to get plugin info using RPC GetInfo"
            f" at socket {socket}, err: {response}"
        )
    return validate_plugin_info(
        response.type, response.name, response.endpoint, response.supported_versions, str(socket)
    )


async def notify_plugin(
    channel: grpc.aio.Channel, socket: Path, error: str, times: PluginTiming
) -> RegistrationRefusal | None:
    """Notify a plugin of the registration status; return a refusal if that failed."""
    status = messages.RegistrationStatus(plugin_registered=not error, error=_utf8(error))
    response = await try_call(rpc.call(channel, _NOTIFY, status, timeout=times.notify_plugin))
    if isinstance(response, FailedCall):
        what = "error" if error else "registration status"
        return RegistrationRefusal(
            f"RegisterPlugin error -- failed to send {what} at socket {socket}, err: {error}: {response}"
        )
    return None


def _utf8(text: str) -> str:
    """Escape file names with bytes that a message cannot carry."""
    return text.encode(errors="backslashreplace").decode()
