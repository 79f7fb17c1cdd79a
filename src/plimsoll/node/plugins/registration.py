"""The conversation with a plugin that wants to be known: who are you, and how it went.

Owns GetInfo and NotifyRegistrationStatus with the kubelet's deadlines, and how long to wait before the next
try (section 1 of the node protocols). Promises: whatever the plugin does or does not answer is a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from plimsoll.errors import ConfigError
from plimsoll.node.plugins.calls import Failed, attempt
from plimsoll.node.plugins.plugin_info import Offer, Refusal, judge_offer
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import registration as messages

_GET_INFO = rpc.method_of(messages.DESCRIPTOR, "Registration", "GetInfo")
_NOTIFY = rpc.method_of(messages.DESCRIPTOR, "Registration", "NotifyRegistrationStatus")
#: What a plugin says of itself is short.
_LARGEST = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds; the kubelet's, but for `scan`."""

    #: Between two looks into the registration folder.
    scan: float = 0.5
    dial: float = 10.0
    info: float = 1.0
    notify: float = 5.0
    #: The first wait before a registration is tried again; doubles up to `longest_retry`.
    retry: float = 0.5
    longest_retry: float = 122.0
    #: For NodePrepareResources and NodeUnprepareResources.
    call: float = 45.0
    health_retry: float = 5.0
    #: Without a connection to any of its plugins, until a driver counts as gone.
    gone: float = 30.0


def wait_before(failures: int, times: Times) -> float:
    """How long to wait after so many failures in a row, before the next try."""
    doublings = min(max(failures, 1) - 1, 32)
    return min(times.retry * 2.0**doublings, times.longest_retry)


@asynccontextmanager
async def conversation(socket: Path, times: Times) -> AsyncIterator[grpc.aio.Channel | Refusal]:
    """A connection to a registration socket, for as long as the block lasts."""
    try:
        channel = rpc.dial(socket, largest=_LARGEST)
    except ConfigError as error:
        yield Refusal(f"RegisterPlugin error -- dial failed at socket {socket}, err: {error}")
        return
    try:
        try:
            async with asyncio.timeout(times.dial):
                await channel.channel_ready()
        except TimeoutError:
            text = f"failed to dial socket {socket}, err: context deadline exceeded"
            yield Refusal(f"RegisterPlugin error -- dial failed at socket {socket}, err: {text}")
        else:
            yield channel
    finally:
        await rpc.close(channel)


async def ask_info(channel: grpc.aio.Channel, socket: Path, times: Times) -> Offer | Refusal:
    """What a plugin says of itself, judged."""
    answer = await attempt(rpc.call(channel, _GET_INFO, messages.InfoRequest(), timeout=times.info))
    if isinstance(answer, Failed):
        return Refusal(
            "RegisterPlugin error -- failed to get plugin info using RPC GetInfo"
            f" at socket {socket}, err: {answer}"
        )
    return judge_offer(answer.type, answer.name, answer.endpoint, answer.supported_versions, str(socket))


async def notify(channel: grpc.aio.Channel, socket: Path, error: str, times: Times) -> Refusal | None:
    """Tell a plugin how it went; that it could not be told."""
    status = messages.RegistrationStatus(plugin_registered=not error, error=_utf8(error))
    answer = await attempt(rpc.call(channel, _NOTIFY, status, timeout=times.notify))
    if isinstance(answer, Failed):
        what = "error" if error else "registration status"
        return Refusal(
            f"RegisterPlugin error -- failed to send {what} at socket {socket}, err: {error}: {answer}"
        )
    return None


def _utf8(text: str) -> str:
    """Names of files may hold bytes that no message can carry."""
    return text.encode(errors="backslashreplace").decode()
