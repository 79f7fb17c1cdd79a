"""Listening socket of the NRI server, and the configuration files of plugins.

Only its owner can reach the socket, in a directory that only its owner can enter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM
from socket import socket as Socket

from plimsoll.errors import ConfigError
from plimsoll.protocols.rpc import check_path, remove_stale_socket

logger = logging.getLogger(__name__)

#: Pause after an accept failure (too many open files), in seconds.
_PAUSE = 0.2


class Listener:
    """Listening Unix socket; raises ConfigError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = check_path(path)
        try:
            self._listener = _listen(path)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._later: asyncio.TimerHandle | None = None

    def open(self, arrived: Callable[[Socket], None]) -> None:
        """Start to accept connections and pass them to `arrived`."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listener, self._accept, arrived)

    def _accept(self, arrived: Callable[[Socket], None]) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            logger.warning("%s: %s", self.path, error.strerror)
            assert self._loop is not None
            self._loop.remove_reader(self._listener)
            self._later = self._loop.call_later(_PAUSE, self.open, arrived)
            return
        connection.setblocking(False)
        arrived(connection)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        if self._loop is not None:
            self._loop.remove_reader(self._listener)
            self._loop = None
            self.path.unlink(missing_ok=True)
        self._listener.close()


def _listen(path: Path) -> Socket:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    remove_stale_socket(path)
    listener = Socket(AF_UNIX, SOCK_STREAM)
    try:
        listener.setblocking(False)
        # No client can connect before `listen`: the mode is set by then, whatever the umask is.
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener


#: Maximum size of a plugin's configuration, in bytes.
MAX_CONFIG_BYTES = 1024 * 1024


def read_config(directory: Path | None, index: str, base: str) -> str:
    """Read the drop-in file of a plugin; return "" if there is none that can be read."""
    if directory is None:
        return ""
    for name in (f"{index}-{base}.conf", f"{base}.conf"):
        try:
            with (directory / name).open("rb") as file:
                data = file.read(MAX_CONFIG_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s: %s", directory / name, error.strerror)
            return ""
        if len(data) > MAX_CONFIG_BYTES:
            logger.warning("%s: longer than %d bytes", directory / name, MAX_CONFIG_BYTES)
            return ""
        return data.decode(errors="replace")
    return ""
