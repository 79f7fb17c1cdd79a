"""Listen addresses (HOST:PORT) and the name of this host."""

from __future__ import annotations

import socket

from plimsoll.errors import ConfigError


def read_address(listen: str, where: str = "--listen", example: str = "127.0.0.1:8080") -> tuple[str, int]:
    """Parse HOST:PORT; raises ConfigError if it is invalid."""
    host, separator, port = listen.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{where}: {listen!r} is not an address: give HOST:PORT, such as {example}")
    return host.strip("[]") or "127.0.0.1", int(port)


def read_bind_address(listen: str, where: str = "--bind-address") -> tuple[str | None, int]:
    """Parse HOST:PORT; without a host the host is None (all addresses). Raises ConfigError if invalid."""
    host, port = read_address(listen, where)
    return (None if listen.startswith(":") else host), port


def host_name() -> str:
    """Return the host name in the form that node names have."""
    return socket.gethostname().strip().lower()
