"""Streams of a remote command (exec, attach) and its status, independent of the protocol that carries them.

`websocket_streams.py` and `spdy_streams.py` implement `RemoteStreams`; `exec.py` and `attach.py` use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

Tree = dict[str, Any]
#: Bytes of input that are held while the process does not read.
MAX_INPUT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Streams that a request asks for; with a terminal there is no separate error output."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    @property
    def problem(self) -> str:
        """Return why no session can have these streams, or ""."""
        if not (self.stdin or self.stdout or self.stderr):
            return "you must specify at least 1 of stdin, stdout, stderr"
        return "tty and stderr cannot both be true" if self.tty and self.stderr else ""


def parse_stream_options(query: Mapping[str, str]) -> StreamOptions:
    """Parse the kubelet's parameters; stderr is dropped for a terminal, as a kubelet does."""
    tty = query.get("tty") in ("1", "true")
    return StreamOptions(
        stdin=query.get("input") in ("1", "true"),
        stdout=query.get("output") in ("1", "true"),
        stderr=query.get("error") in ("1", "true") and not tty,
        tty=tty,
    )


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """Size of a terminal, in characters."""

    width: int
    height: int


class RemoteStreams(Protocol):
    """Streams to the client. Writing to a client that is gone raises ConnectionError."""

    async def read_input(self) -> bytes:
        """Return some input; b"" at its end, or when the client is gone."""
        ...

    async def write(self, data: bytes, *, error: bool = False) -> None:
        """Write output, or error output."""
        ...

    async def read_size(self) -> TerminalSize | None:
        """Return the next size of the terminal; None when the client is gone."""
        ...

    async def wait_closed(self) -> None:
        """Wait until the client is gone."""
        ...

    async def finish(self, status: Tree) -> None:
        """Send the status of the command and close the streams."""
        ...


def success_status() -> Tree:
    return {"metadata": {}, "status": "Success"}


def exit_status(code: int) -> Tree:
    """Return the status of a command that has exited."""
    if code == 0:
        return success_status()
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure_status(message: str) -> Tree:
    """Return the status of a command that could not be run."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }


def parse_size(data: bytes) -> TerminalSize | None:
    """Parse a message of the resize channel; None if it is not one."""
    try:
        tree = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict):
        return None
    width, height = tree.get("Width"), tree.get("Height")
    for size in (width, height):
        if not isinstance(size, int) or not 0 <= size < 1 << 16:
            return None
    return TerminalSize(int(width or 0), int(height or 0))
