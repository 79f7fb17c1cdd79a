"""gRPC on Unix sockets: serving and calling the services of `messages`.

Serving needs no gRPC runtime (`rpc_server`); grpcio is imported by the first channel.

Guarantees: only its owner can use a socket, from its creation on; a stale socket is replaced, one with a
listening process is not; the size of messages is limited in both directions; a path that is too long for the
kernel is rejected with its length.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from plimsoll.errors import ConfigError
from plimsoll.protocols.rpc_server import (
    CallContext,
    MethodHandler,
    RpcServer,
    StatusCode,
    Streaming,
    Unary,
    serialize,
)

if TYPE_CHECKING:
    import grpc.aio

__all__ = [
    "MAX_MESSAGE_SIZE", "CallContext", "MethodHandler", "RpcServer", "StatusCode", "Streaming", "Unary",
    "call", "check_path", "close", "dial", "find_method", "handle", "is_listening", "method_path",
    "remove_stale_socket", "serve", "watch",
]  # fmt: skip

#: Maximum length of the path of a Unix socket, in bytes (the kernel's limit, less the terminating zero byte).
MAX_PATH_LENGTH = 107
#: Default limit on the size of a message, in bytes.
MAX_MESSAGE_SIZE = 16 * 1024 * 1024


def check_path(path: Path) -> Path:
    """Return the path of a socket; raises ConfigError if it is too long."""
    length = len(os.fsencode(path))
    if length > MAX_PATH_LENGTH:
        raise ConfigError(
            f"{path}: a socket's path has at most {MAX_PATH_LENGTH} bytes, this one has {length};"
            " choose a shorter root directory"
        )
    return path


def handle(
    file: FileDescriptor, service: str, methods: Mapping[str, Unary | Streaming]
) -> Sequence[MethodHandler]:
    """Build the handlers of a service of a `.proto` file; missing methods are unimplemented."""
    descriptor = file.services_by_name[service]
    found = []
    for name, function in methods.items():
        method = descriptor.methods_by_name[name]
        parse = GetMessageClass(method.input_type).FromString
        found.append(MethodHandler(method_path(method), function, parse, method.server_streaming))
    return found


async def serve(
    path: Path,
    handlers: Iterable[Sequence[MethodHandler]],
    *,
    max_size: int = MAX_MESSAGE_SIZE,
    rename: bool = False,
) -> RpcServer:
    """Serve on a Unix socket in an existing directory; raises ConfigError if it cannot be opened.

    The server removes its socket when it ends. With `rename` the socket is created under another name and
    renamed, so that it accepts connections from the first sight on; then the caller has to remove it.
    """
    remove_stale_socket(check_path(path))
    bound = _hidden(path) if rename else path
    if rename:
        remove_stale_socket(bound)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    server = RpcServer([handler for service in handlers for handler in service], max_size=max_size)
    before = os.umask(0o177)
    try:
        listening.bind(str(bound))
    except OSError as error:
        listening.close()
        raise ConfigError(f"{path}: the socket cannot be opened: {error.strerror}") from None
    finally:
        os.umask(before)
    await server.start(listening, (lambda: None) if rename else partial(_remove, path, _identity(path)))
    if rename:
        try:
            os.rename(bound, path)
        except OSError as error:
            await server.stop()
            bound.unlink(missing_ok=True)
            raise ConfigError(f"{path}: {error.strerror}") from None
    return server


def _hidden(path: Path) -> Path:
    """Return the path of a socket before it is renamed."""
    hidden = path.with_name(f".{path.name}")
    return hidden if len(os.fsencode(hidden)) <= MAX_PATH_LENGTH else path.with_name(f".{path.name[1:]}")


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.lstat()
        return found.st_dev, found.st_ino
    return None


def _remove(path: Path, identity: tuple[int, int] | None) -> None:
    """Remove a socket, unless the path belongs to another one by now."""
    if identity is not None and identity == _identity(path):
        path.unlink(missing_ok=True)


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
    import grpc.aio

    return grpc.aio.insecure_channel(
        f"unix:{quote(os.fsencode(check_path(path)))}",  # a path with any characters
        options=[
            ("grpc.max_receive_message_length", max_size),
            ("grpc.max_send_message_length", max_size),
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
        request_serializer=serialize,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return await multicallable(request, timeout=timeout)


def watch(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> AsyncIterator[Any]:
    """Call a streaming method; closing the channel or the iterator's task cancels it."""
    multicallable = channel.unary_stream(
        method_path(method),
        request_serializer=serialize,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return multicallable(request)  # type: ignore[return-value]


async def close(channel: grpc.aio.Channel) -> None:
    import grpc.aio

    with suppress(grpc.aio.AioRpcError):
        await channel.close()
