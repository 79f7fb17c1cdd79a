"""Client of a CPU driver's control socket, for commands.

Apart from the server, so that the driver does not import an HTTP client.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.process.control import MAX_BYTES, SOCKET
from plimsoll.errors import InputError

_SECONDS = 30.0


class _UnixConnection(http.client.HTTPConnection):
    """Connection to a socket in a directory; the path may be longer than socket addresses can be."""

    def __init__(self, directory: Path) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._directory = directory

    def connect(self) -> None:
        directory = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(_SECONDS)
            self.sock.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.close(directory)


def call_driver(directory: Path, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a command to the driver of a plugin directory; raises InputError with its refusal."""
    connection = _UnixConnection(directory)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        tree = json.loads(reply.read(MAX_BYTES))
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"no driver responds at {directory / SOCKET}: {why}; set its directory with --kubelet-root-dir"
        ) from None
    finally:
        connection.close()
    if reply.status != 200 or not isinstance(tree, dict):
        raise InputError(
            str(tree.get("error", reply.status)) if isinstance(tree, dict) else str(reply.status)
        )
    return tree
