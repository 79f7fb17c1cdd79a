"""gRPC on Unix sockets: serving and calling the services of `messages`.

Guarantees: sockets are reachable by their owner alone from their creation on, a socket left behind by a
process that is gone is replaced while one that answers is not, messages are bounded in both directions, and a
path that is too long for the kernel is refused with its length.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from plimsoll.errors import ConfigError

#: What the kernel has room for in a socket's address, less the closing zero.
LONGEST_PATH = 107
#: No honest answer of a driver or list of pods is longer.
LARGEST_MESSAGE = 16 * 1024 * 1024

#: A method: takes the request and the call's context; answers with a message or with its bytes.
Unary: TypeAlias = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Message | bytes]]
#: A method that answers with many messages.
Streaming: TypeAlias = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], AsyncIterator[Message | bytes]]
Interceptor: TypeAlias = "grpc.aio.ServerInterceptor"


def check_path(path: Path) -> Path:
    """Return the path of a socket; raises ConfigError if it is too long."""
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise ConfigError(
            f"{path}: a socket's path has at most {LONGEST_PATH} bytes, this one has {length};"
            " choose a shorter root directory"
        )
    return path


def target(path: Path) -> str:
    """Return the gRPC target of a socket path with any characters."""
    return f"unix:{quote(os.fsencode(path))}"


def handle(
    file: FileDescriptor, service: str, methods: Mapping[str, Unary | Streaming]
) -> grpc.GenericRpcHandler:
    """Build a service handler of a `.proto` service; missing methods are unimplemented."""
    descriptor = file.services_by_name[service]
    handlers = {}
    for name, function in methods.items():
        method = descriptor.methods_by_name[name]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = make(
            function,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=_serialize,
        )
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


def _serialize(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


async def serve(
    path: Path,
    handlers: Iterable[grpc.GenericRpcHandler],
    *,
    mode: int = 0o600,
    interceptors: Iterable[Interceptor] = (),
    largest: int = LARGEST_MESSAGE,
    aside: bool = False,
) -> grpc.aio.Server:
    """Serve on a Unix socket in an existing directory; ConfigError if the socket cannot be opened.

    gRPC removes the file at the path when the server ends, even if another process has created it. With
    `aside` the socket is created under another name and renamed; then the caller has to remove it.
    """
    check_path(path)
    _clear(path)
    if aside:
        return await _serve_aside(path, handlers, mode, interceptors, largest)
    server = grpc.aio.server(
        interceptors=list(interceptors),
        options=[
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_send_message_length", largest),
        ],
    )
    server.add_generic_rpc_handlers(tuple(handlers))
    before = os.umask(0o777 & ~mode)
    try:
        server.add_insecure_port(target(path))
    except RuntimeError as error:
        raise ConfigError(f"{path}: no socket can be opened here: {error}") from None
    finally:
        os.umask(before)
    await server.start()
    return server


async def _serve_aside(
    path: Path,
    handlers: Iterable[grpc.GenericRpcHandler],
    mode: int,
    interceptors: Iterable[Interceptor],
    largest: int,
) -> grpc.aio.Server:
    hidden = path.with_name(f".{path.name}")
    if len(os.fsencode(hidden)) > LONGEST_PATH:
        hidden = path.with_name(f".{path.name[1:]}")
    server = await serve(hidden, handlers, mode=mode, interceptors=interceptors, largest=largest)
    try:
        os.rename(hidden, path)
    except OSError as error:
        await server.stop(None)
        raise ConfigError(f"{path}: {error.strerror}") from None
    return server


def _clear(path: Path) -> None:
    """Remove a stale socket at this path."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path}: path exists and is not a socket")
    if answers(path):
        raise ConfigError(f"{path}: another process serves on this socket")
    path.unlink(missing_ok=True)


def answers(path: Path) -> bool:
    """Return whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def dial(path: Path, *, largest: int = LARGEST_MESSAGE) -> grpc.aio.Channel:
    """Open a channel to a Unix socket; nothing is sent before the first call."""
    return grpc.aio.insecure_channel(
        target(check_path(path)),
        options=[
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_send_message_length", largest),
            ("grpc.enable_http_proxy", 0),
            ("grpc.default_authority", "localhost"),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # Else a channel begins with the back-off of another one that was for a process now gone.
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )


def method_of(file: FileDescriptor, service: str, method: str) -> MethodDescriptor:
    return file.services_by_name[service].methods_by_name[method]


def path_of(method: MethodDescriptor) -> str:
    """Return the full name of a method: /package.Service/Method."""
    return f"/{method.containing_service.full_name}/{method.name}"


async def call(
    channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, *, timeout: float
) -> Any:
    """Call a unary method; raises grpc.aio.AioRpcError on failure or after `timeout` seconds."""
    multicallable = channel.unary_unary(
        path_of(method),
        request_serializer=_serialize,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return await multicallable(request, timeout=timeout)


def watch(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> AsyncIterator[Any]:
    """Call a streaming method; closing the channel or the iterator's task cancels it."""
    multicallable = channel.unary_stream(
        path_of(method),
        request_serializer=_serialize,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return multicallable(request)  # type: ignore[return-value]


async def close(channel: grpc.aio.Channel) -> None:
    with suppress(grpc.aio.AioRpcError):
        await channel.close()
