"""Choice of listen ports.

The requested port, else the port of the last run, else the default, else any free port. The ports of the last
run are kept in a file of the data directory.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from plimsoll.common.atomic_file import replace_file
from plimsoll.errors import ConfigError

API, DASHBOARD = "api", "dashboard"
DEFAULT_PORTS = {API: 6443, DASHBOARD: 6480}
_MOST = 65535


class Ports:
    """Ports of one data directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)

    def choose(self, what: str, host: str, wanted: int | None) -> int:
        """Return the port to listen on, 0 for any free one; `wanted` is None for the default port."""
        if wanted:
            return wanted
        before = self._known.get(what, 0)
        default = DEFAULT_PORTS[what] if wanted is None else 0
        return find_free_port(host, [port for port in (before, default) if port])

    def keep(self, what: str, port: int) -> None:
        """Keep a port for the next start."""
        if self._known.get(what) == port:
            return
        self._known[what] = port
        try:
            replace_file(self._path, f"{json.dumps(self._known)}\n".encode(), mode=0o644, durable=False)
        except OSError as error:
            raise ConfigError(f"{self._path}: not writable: {error.strerror or error}") from None


def _read(path: Path) -> dict[str, int]:
    """Read the ports of the last run; ignore a file that is not valid."""
    with suppress(OSError, ValueError):
        tree = json.loads(path.read_text())
        if isinstance(tree, dict):
            return {key: port for key, port in tree.items() if type(port) is int and 0 < port <= _MOST}
    return {}


def find_free_port(host: str, ports: Iterable[int]) -> int:
    """Return the first of these ports that is free, or 0."""
    return next((port for port in ports if find_obstacle(host, port) is None), 0)


def find_obstacle(host: str, port: int) -> OSError | None:
    """Return why the address cannot be bound (in use, permission denied), or None."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except socket.gaierror:
        return None
    except OSError as error:
        return error
    return None


def check_free(host: str, port: int, flag: str) -> None:
    """Raise ConfigError if an address cannot be bound; port 0 always can."""
    if port and (problem := find_obstacle(host, port)) is not None:
        raise listen_error(host, port, problem, flag)


def listen_error(host: str, port: int, error: OSError, flag: str) -> ConfigError:
    """Return the error for an address that cannot be bound; `flag` chooses another one."""
    return ConfigError(
        f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with {flag}"
    )
