"""Unix sockets of the nodes, in memory: gRPC servers of plugins, and channels to them.

`Sockets.install` replaces the functions of the product that open, list and call sockets. A call takes the
bytes of messages to the handlers that the plugin framework registered, which run in the process of the
plugin. A killed process leaves its socket behind, and calls to it fail at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from plimsoll.errors import ConfigError
from plimsoll.node.claim_info import PREPARE, UNPREPARE
from plimsoll.node.plugins import plugin_manager
from plimsoll.node.plugins.sockets import Socket
from plimsoll.protocols import rpc
from tests.simulation.history import History
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.node.call_faults import CallFault, NodeFaults
from tests.simulation.node.socket_calls import SocketCall, call_error


class SocketServer:
    """Server of one socket: the part of `RpcServer` that the plugin framework uses."""

    def __init__(
        self,
        sockets: Sockets,
        path: Path,
        process: Process,
        handlers: Iterable[rpc.MethodHandler],
    ) -> None:
        self.path = path
        self.process = process
        self.handlers: Mapping[str, rpc.MethodHandler] = {each.path: each for each in handlers}
        self.calls: list[SocketCall] = []
        self._sockets = sockets
        process.on_death.append(self._on_death)

    async def stop(self, grace: float | None = None) -> None:
        """Remove the socket and end the calls in progress."""
        self._sockets.remove(self)
        for call in list(self.calls):
            call.fail(grpc.StatusCode.UNAVAILABLE, "the server stops")

    def _on_death(self) -> None:
        for call in list(self.calls):
            call.fail(grpc.StatusCode.UNAVAILABLE, "connection reset by peer")
        self._sockets.notify(self.path)


class Sockets:
    """All sockets of a case, by path."""

    def __init__(self, loop: SimulationLoop, faults: NodeFaults, history: History) -> None:
        self.loop = loop
        self.faults = faults
        self.history = history
        #: Servers by path; texts compare faster than paths.
        self.servers: dict[str, SocketServer] = {}
        self.channels: dict[str, list[SocketChannel]] = {}
        self._by_directory: dict[str, dict[Path, Socket]] = {}
        self._numbers = count(1)
        #: Numbers of calls that prepare and unprepare, and of those that timed out.
        self.counts: Counter[str] = Counter()
        #: Calls so far, by process.
        self._calls: Counter[str] = Counter()

    def install(self) -> None:
        """Replace the functions that use sockets, until the next case replaces them again."""
        replaced: Any = rpc
        replaced.serve = self.serve
        replaced.is_listening = self.is_listening
        replaced.dial = self.dial
        replaced.call = self.call
        manager: Any = plugin_manager
        manager.scan = self.scan

    # -- plugins

    async def serve(
        self,
        path: Path,
        handlers: Iterable[Sequence[rpc.MethodHandler]],
        *,
        max_size: int = rpc.MAX_MESSAGE_SIZE,
        rename: bool = False,
    ) -> SocketServer:
        if self.is_listening(path):
            raise ConfigError(f"{path}: another process serves on this socket")
        flat = [each for service in handlers for each in service]
        number = next(self._numbers)
        server = SocketServer(self, path, self.loop.current, flat)
        self.servers[str(path)] = server
        self._by_directory.setdefault(str(path.parent), {})[path] = Socket(number, path, 0, number)
        self.notify(path)
        return server

    def is_listening(self, path: Path) -> bool:
        server = self.servers.get(str(path))
        return server is not None and server.process.alive

    def remove(self, server: SocketServer) -> None:
        if self.servers.get(str(server.path)) is server:
            del self.servers[str(server.path)]
            del self._by_directory[str(server.path.parent)][server.path]
            self.notify(server.path)

    def notify(self, path: Path) -> None:
        """Wake those that wait for a socket."""
        for channel in self.channels.get(str(path), ()):
            channel.changed.set()

    # -- kubelets

    def scan(self, directory: Path) -> Mapping[Path, Socket]:
        return dict(self._by_directory.get(str(directory), {}))

    def dial(self, path: Path, *, max_size: int = 0) -> SocketChannel:
        channel = SocketChannel(self, path)
        self.channels.setdefault(str(path), []).append(channel)
        return channel

    async def call(
        self, channel: SocketChannel, method: MethodDescriptor, request: Message, *, timeout: float
    ) -> Any:
        """Call a unary method; raises grpc.aio.AioRpcError on failure or after `timeout` seconds."""
        fault = self._choose_fault(method, request)
        if fault is CallFault.LOSE_CALL:
            await asyncio.sleep(self.loop.dice.random() * 0.1)
            raise call_error(grpc.StatusCode.UNAVAILABLE, "connection reset by peer")
        path, data = rpc.method_path(method), request.SerializeToString(deterministic=True)
        calls = [SocketCall(self.loop, self.servers.get(str(channel.path)), path, data)]
        if fault is CallFault.DUPLICATE:
            calls.append(SocketCall(self.loop, self.servers.get(str(channel.path)), path, data))
        channel.calls += calls
        try:
            async with asyncio.timeout(timeout):
                for call in calls[::-1]:
                    answer = await call.result
        except TimeoutError:
            self.counts["driver timeout"] += 1
            raise call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded") from None
        finally:
            for call in calls:
                call.abandon()
                channel.calls.remove(call)
        if fault is CallFault.LOSE_ANSWER:
            raise call_error(grpc.StatusCode.UNAVAILABLE, "connection reset by peer")
        response = GetMessageClass(method.output_type).FromString(answer)
        if fault is CallFault.SKIP:
            claims = response.claims  # type: ignore[attr-defined]
            del claims[min(claims)]
        return response

    def _choose_fault(self, method: MethodDescriptor, request: Any) -> CallFault | None:
        if method.name not in (PREPARE, UNPREPARE):
            return None
        process = self.loop.current.name
        self._calls[process] += 1
        self.counts["prepare" if method.name == PREPARE else "unprepare"] += 1
        fault = self.faults.choose_for_call(f"{process}/{method.name}/{self._calls[process]}")
        if fault is not None:
            uids = ", ".join(claim.uid for claim in request.claims)
            self.history.note(process, f"! {fault.value}:", f"{method.name} {uids}")
        return fault


class SocketChannel:
    """Channel to a socket: the part of `grpc.aio.Channel` that the plugin manager uses."""

    def __init__(self, sockets: Sockets, path: Path) -> None:
        self.path = path
        self.changed = asyncio.Event()
        self.calls: list[SocketCall] = []
        self._sockets = sockets
        sockets.loop.current.on_death.append(self._on_death)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if self._sockets.is_listening(self.path):
            return grpc.ChannelConnectivity.READY
        return grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, state: grpc.ChannelConnectivity) -> None:
        while self.get_state() is state:
            self.changed.clear()
            await self.changed.wait()

    async def channel_ready(self) -> None:
        await self.wait_for_state_change(grpc.ChannelConnectivity.TRANSIENT_FAILURE)

    async def close(self, grace: float | None = None) -> None:
        channels = self._sockets.channels[str(self.path)]
        if self in channels:
            channels.remove(self)
        for call in self.calls:
            call.fail(grpc.StatusCode.CANCELLED, "the channel is closed")

    def _on_death(self) -> None:
        for call in self.calls:
            call.abandon()
