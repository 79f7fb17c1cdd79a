"""Control socket of a CPU driver, for commands that change something.

A Unix socket in the plugin directory, which only root can enter: the health pages are plain HTTP for
everyone, so they only read. `control_client` is its client.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from plimsoll.common.http_pages import PageRequest, PageResponse, PageServer
from plimsoll.drivers.cpu.forget_claim import ForgottenClaim
from plimsoll.drivers.plugin import ClaimError
from plimsoll.errors import ConfigError

#: As long as the name of the DRA socket in the same directory, whose path length is checked.
SOCKET = "ctl.sock"
MAX_BYTES = 1 << 20
Forget = Callable[[str, bool], Awaitable[ForgottenClaim | ClaimError]]


class ControlServer:
    """Server of the control socket in a plugin directory."""

    def __init__(self, directory: Path, forget: Forget) -> None:
        self._path = directory / SOCKET
        self._forget = forget
        self._server: PageServer | None = None

    async def start(self) -> None:
        """Listen; raises ConfigError if the socket cannot be created."""
        server = PageServer({("POST", "/forget"): self._on_forget}, max_body=MAX_BYTES)
        try:
            with contextlib.suppress(FileNotFoundError):  # of a driver that was killed
                self._path.unlink()
            await server.listen_unix(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror or error}") from None
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()
            self._path.unlink(missing_ok=True)

    async def _on_forget(self, request: PageRequest) -> PageResponse:
        try:
            given = json.loads(request.body)
            claim, force = given["claim"], given["force"]
        except (ValueError, LookupError, TypeError):
            claim, force = None, None
        if not isinstance(claim, str) or not isinstance(force, bool):
            return _reply(400, {"error": "claim and force are required"})
        answer = await self._forget(claim, force)
        if isinstance(answer, ClaimError):
            return _reply(404 if answer.code == "NotFound" else 409, {"error": answer.message})
        ref = answer.ref
        tree = {"uid": ref.uid, "namespace": ref.namespace, "name": ref.name, "cpus": str(answer.cpus)}
        return _reply(200, tree)


def _reply(status: int, tree: dict[str, Any]) -> PageResponse:
    return PageResponse(json.dumps(tree), status, "application/json; charset=utf-8")
