"""Health endpoints over HTTP: `/healthz`, `/livez`, `/readyz`, `/metrics` and debug pages.

`livez` reports that the process responds and its components run; `readyz` that it can do its work (a standby
scheduler that has synced is ready, too); `healthz` equals `livez` unless configured otherwise; with
`?verbose` each check has its own line, as in Kubernetes. All endpoints are read-only.

With a directory of certificates they are served by HTTPS, and all but the health checks need a bearer token
whose user may `get` their path, as in kube-scheduler.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.common.http_pages import Page as HttpPage
from plimsoll.common.http_pages import PageRequest, PageResponse, PageServer
from plimsoll.common.metrics import CONTENT_TYPE
from plimsoll.common.serving_tls import open_cert_dir
from plimsoll.errors import ConfigError

#: A check returns "" or the problem.
Check = Callable[[], str]
Page = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class SecureServing:
    """HTTPS with the certificate of a directory, and a check of requests that returns a refusal or None."""

    cert_dir: Path
    check: Callable[[PageRequest], Awaitable[PageResponse | None]]


class HealthServer:
    """Server of the health endpoints; plain HTTP, meant for loopback, or HTTPS."""

    def __init__(
        self,
        *,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        metrics: Callable[[], AsyncIterator[bytes]],
        debug: Mapping[str, Page] | None = None,
        pages: Mapping[str, Page] | None = None,
        health: Mapping[str, Check] | None = None,
        unwell: int = 500,
        flag: str = "--listen",
        debug_local_only: bool = False,
        secure: SecureServing | None = None,
        ready_note: Callable[[], str] = lambda: "",
    ) -> None:
        """Create a server; `debug` are pages below `/debug/`, `pages` are keyed by their paths.

        `ready_note` returns a line for `/readyz` below its checks, or "".

        `unwell` is the status code of a failed check, `flag` the command-line flag of the address. With
        `debug_local_only` pages below `/debug/` are only served to callers on the same machine.
        """
        self._live, self._ready, self._metrics = live, ready, metrics
        self._health = live if health is None else health
        self._unwell, self._flag = unwell, flag
        self._debug = {f"/debug/{name}": page for name, page in (debug or {}).items()}
        self._pages = dict(pages or {})
        self._debug_local_only = debug_local_only
        self._secure = secure
        self._ready_note = ready_note
        self._server: PageServer | None = None
        self.port = 0

    async def start(self, host: str | None, port: int) -> None:
        """Listen; without a host on every address."""
        open_pages = {
            "/healthz": self._check(self._health),
            "/livez": self._check(self._live),
            "/readyz": self._check(self._ready, self._ready_note),
        }
        guarded = {"/metrics": self._scrape, **{path: _json(page) for path, page in self._pages.items()}}
        if self._debug_local_only:
            open_pages |= {path: _json(page, local_only=True) for path, page in self._debug.items()}
        else:
            guarded |= {path: _json(page) for path, page in self._debug.items()}
        pages = open_pages | {path: self._guard(page) for path, page in guarded.items()}
        server = PageServer({("GET", path): page for path, page in pages.items()})
        tls = None if self._secure is None else await open_cert_dir(self._secure.cert_dir)
        try:
            self.port = await server.listen(host, port, tls)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host or ''}:{port}: {error.strerror or error}; "
                f"choose another with {self._flag}, or disable it with {self._flag} ''"
            ) from None
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    def _guard(self, page: HttpPage) -> HttpPage:
        secure = self._secure
        if secure is None:
            return page

        async def answer(request: PageRequest) -> PageResponse:
            return await secure.check(request) or await page(request)

        return answer

    def _check(self, checks: Mapping[str, Check], note: Callable[[], str] = lambda: "") -> HttpPage:
        async def answer(request: PageRequest) -> PageResponse:
            problems = {name: check() for name, check in checks.items()}
            bad = any(problems.values())
            if not bad and "verbose" not in request.query:
                return PageResponse("ok")
            lines = [
                f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok"
                for name, problem in problems.items()
            ]
            lines += filter(None, [note()])
            lines.append(f"{request.path.strip('/')} check {'failed' if bad else 'passed'}")
            return PageResponse("\n".join(lines) + "\n", self._unwell if bad else 200)

        return answer

    async def _scrape(self, request: PageRequest) -> PageResponse:
        return PageResponse(content_type=CONTENT_TYPE, parts=self._metrics())


def _json(page: Page, *, local_only: bool = False) -> HttpPage:
    async def answer(request: PageRequest) -> PageResponse:
        if local_only and not is_local(request.remote):
            return PageResponse("this page is available on the local machine only", 403)
        text = json.dumps(page(), default=str, ensure_ascii=False, indent=1)
        return PageResponse(text, content_type="application/json; charset=utf-8")

    return answer


def is_local(remote: str | None) -> bool:
    try:
        address = ipaddress.ip_address(remote or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)
