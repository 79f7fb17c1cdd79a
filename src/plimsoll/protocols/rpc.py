"""gRPC on Unix sockets: serving and calling the services of `messages`.

Guarantees: only its owner can use a socket, from its creation on; a stale socket is replaced, one with a
listening process is not; the size of messages is limited in both directions; a path that is too long for the
kernel is rejected with its length.
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

#: Maximum length of the path of a Unix socket, in bytes (the kernel's limit, less the terminating zero byte).
MAX_PATH_LENGTH = 107
#: Default limit on the size of a message, in bytes.
MAX_MESSAGE_SIZE = 16 * 1024 * 1024

#: Unary method: receives the request and the call's context, returns a message or its serialized bytes.
Unary: TypeAlias = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Message | bytes]]
#: Server-streaming method.
Streaming: TypeAlias = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], AsyncIterator[Message | bytes]]


def check_path(path: Path) -> Path:
    """Return the path of a socket; raises ConfigError if it is too long."""
    length = len(os.fsencode(path))
    if length > MAX_PATH_LENGTH:
        raise ConfigError(
            f"{path}: a socket's path has at most {MAX_PATH_LENGTH} bytes, this one has {length};"
            " choose a shorter root directory"
        )
    return path


def _target(path: Path) -> str:
    """Return the gRPC target of a socket path with any characters."""
    return f"unix:{quote(os.fsencode(path))}"


def handle(
    file: FileDescriptor, service: str, methods: Mapping[str, Unary | Streaming]
) -> grpc.GenericRpcHandler:
    """Build the handler of a service of a `.proto` file; missing methods are unimplemented."""
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
    max_size: int = MAX_MESSAGE_SIZE,
    rename: bool = False,
) -> grpc.aio.Server:
    """Serve on a Unix socket in an existing directory; raises ConfigError if it cannot be opened.

    gRPC removes the file at the path when the server ends, even if another process has created it. With
    `rename` the socket is created under another name and renamed; then the caller has to remove it.
    """
    remove_stale_socket(check_path(path))
    if rename:
        return await _serve_renamed(path, handlers, max_size)
    server = grpc.aio.server(options=_size_limits(max_size))
    server.add_generic_rpc_handlers(tuple(handlers))
    before = os.umask(0o177)
    try:
        server.add_insecure_port(_target(path))
    except RuntimeError as error:
        raise ConfigError(f"{path}: the socket cannot be opened: {error}") from None
    finally:
        os.umask(before)
    await server.start()
    return server


def _size_limits(max_size: int) -> list[tuple[str, int]]:
    return [("grpc.max_receive_message_length", max_size), ("grpc.max_send_message_length", max_size)]


async def _serve_renamed(
    path: Path, handlers: Iterable[grpc.GenericRpcHandler], max_size: int
) -> grpc.aio.Server:
    hidden = path.with_name(f".{path.name}")
    if len(os.fsencode(hidden)) > MAX_PATH_LENGTH:
        hidden = path.with_name(f".{path.name[1:]}")
    server = await serve(hidden, handlers, max_size=max_size)
    try:
        os.rename(hidden, path)
    except OSError as error:
        await server.stop(None)
        raise ConfigError(f"{path}: {error.strerror}") from None
    return server


def remove_stale_socket(path: Path) -> None:
    """Remove the socket at a path; raises ConfigError if a process listens on it, or it is not a socket."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path}: path exists and is not a socket")
    if is_listening(path):
        raise ConfigError(f"{path}: another process serves on this socket")
    path.unlink(missing_ok=True)


def is_listening(path: Path) -> bool:
    """Return whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def dial(path: Path, *, max_size: int = MAX_MESSAGE_SIZE) -> grpc.aio.Channel:
    """Open a channel to a Unix socket; it connects with the first call."""
    return grpc.aio.insecure_channel(
        _target(check_path(path)),
        options=[
            *_size_limits(max_size),
            ("grpc.enable_http_proxy", 0),
            ("grpc.default_authority", "localhost"),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # Otherwise a channel starts with the back-off of an earlier channel to the same path.
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )


def find_method(file: FileDescriptor, service: str, method: str) -> MethodDescriptor:
    return file.services_by_name[service].methods_by_name[method]


def method_path(method: MethodDescriptor) -> str:
    """Return the full name of a method: /package.Service/Method."""
    return f"/{method.containing_service.full_name}/{method.name}"


async def call(
    channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, *, timeout: float
) -> Any:
    """Call a unary method; raises grpc.aio.AioRpcError on failure or after `timeout` seconds."""
    multicallable = channel.unary_unary(
        method_path(method),
        request_serializer=_serialize,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return await multicallable(request, timeout=timeout)


def watch(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> AsyncIterator[Any]:
    """Call a streaming method; closing the channel or the iterator's task cancels it."""
    multicallable = channel.unary_stream(
        method_path(method),
        request_serializer=_serialize,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return multicallable(request)  # type: ignore[return-value]


async def close(channel: grpc.aio.Channel) -> None:
    with suppress(grpc.aio.AioRpcError):
        await channel.close()
