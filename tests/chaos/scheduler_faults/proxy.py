"""Fault-injecting HTTP proxy between schedulers and an API server.

Each client has a port of its own, so that faults can be aimed at it. A request that was accepted is a task of
the proxy: it lives on when its sender cancels, disconnects or is killed, and reaches the server when its
delay is over, as a request in the queues of a network would.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import yarl
from aiohttp import web

from tests.chaos.scheduler_faults.faults import (
    Call,
    CallKind,
    Chooser,
    Fault,
    classify_call,
)
from tests.chaos.scheduler_faults.watches import Watches, error_status
from tests.simulation.faults import FaultKind

T = TypeVar("T")
#: Headers that concern one connection only.
_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"}
_FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
#: How long a request without an answer keeps its connection.
_NO_ANSWER_SECONDS = 8.0
#: How long after the first a duplicate of a request arrives, if the fault does not say.
_DUPLICATE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def response(self) -> web.Response:
        return web.Response(status=self.status, headers=self.headers, body=self.body)


class FaultProxy:
    """Proxy to one server; `choose` returns the fault of each request."""

    def __init__(self, upstream: str, context: ssl.SSLContext | bool = True, token: str = "") -> None:
        """`token`: sent to the server with every request; clients send none over plain HTTP."""
        self.upstream = upstream.rstrip("/")
        self.counts: Counter[FaultKind] = Counter()
        self.choose: Chooser = lambda call: None
        #: Called with every request as it arrives, before any fault.
        self.seen: Callable[[Call], None] = lambda call: None
        self.watches = Watches(self.counts)
        #: Which client a lease's holder identity belongs to.
        self.identities: dict[str, str] = {}
        #: Client whose write of a lease was the last to succeed.
        self.leader = ""
        self._context = context
        self._credentials = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._runners: list[web.ServerRunner] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls = 0

    async def __aenter__(self) -> FaultProxy:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._context)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        self._session._retry_connection = False  # a request is sent as often as a fault says, not more
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.watches.cut_all()
        for runner in self._runners:
            await runner.cleanup()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._session is not None
        await self._session.close()

    async def listen(self, client: str) -> str:
        """Open a port for a client; return the server address to give to it."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(client, request)

        runner = web.ServerRunner(
            web.Server(handle, access_log=None, handler_cancellation=True), shutdown_timeout=0.1
        )
        self._runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    @property
    def pending(self) -> int:
        """Return the number of requests that have not reached the server or its response yet."""
        return len(self._tasks)

    async def drained(self, seconds: float) -> None:
        """Wait until no request is held or in progress."""
        async with asyncio.timeout(seconds):
            while self._tasks:
                await asyncio.wait(set(self._tasks), timeout=0.2)

    # -- one request

    async def _handle(self, client: str, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self._calls += 1
        watch = request.query.get("watch") == "true"
        kind = classify_call(request.method, request.path, watch)
        call = Call(self._calls, client, request.method, request.path, kind, body)
        self._note_identity(call)
        self.seen(call)
        headers = {**_headers(request), **self._credentials}
        fault = self.choose(call)
        if fault is not None:
            self.counts[fault.kind] += 1
        if kind is CallKind.WATCH:
            assert self._session is not None
            url = yarl.URL(self.upstream + request.raw_path, encoded=True)
            return await self.watches.serve(client, request, self._session, url, headers, fault)
        task = self._spawn(self._deliver(call, request.raw_path, headers, fault))
        try:
            answer = await asyncio.shield(task)
        except _FAILURES:
            answer = None
        if answer is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        return answer.response()

    async def _deliver(
        self, call: Call, target: str, headers: dict[str, str], fault: Fault | None
    ) -> Answer | None:
        """Forward a request with its fault; None closes the connection without a response."""

        async def send() -> Answer:
            return await self._forward(call, target, headers)

        if fault is None:
            return await send()
        match fault.kind:
            case FaultKind.LOSE_REQUEST:
                return None
            case FaultKind.LATE_REQUEST:
                self._spawn(self._late(fault, send))
                return None
            case FaultKind.REFUSE:
                return _refusal(429, {"Retry-After": "1"})
            case FaultKind.CONFLICT:
                return _refusal(409)
            case FaultKind.ERROR_BEFORE:
                return _refusal(fault.status)
            case FaultKind.DELAY_REQUEST:
                await _hold(fault)
        answer = await send()
        match fault.kind:
            case FaultKind.LOSE_ANSWER:
                return None
            case FaultKind.NO_ANSWER:
                await asyncio.sleep(_NO_ANSWER_SECONDS)
                return None
            case FaultKind.ERROR_AFTER:
                return _refusal(fault.status)
            case FaultKind.DELAY_ANSWER:
                await _hold(fault)
            case FaultKind.DUPLICATE:
                self._spawn(self._late(fault, send))
        return answer

    async def _late(self, fault: Fault, send: Callable[[], Awaitable[Answer]]) -> None:
        await _hold(fault, _DUPLICATE_SECONDS)
        with suppress(*_FAILURES):
            await send()

    async def _forward(self, call: Call, target: str, headers: dict[str, str]) -> Answer:
        assert self._session is not None
        url = yarl.URL(self.upstream + target, encoded=True)
        async with self._session.request(
            call.method, url, data=call.body or None, headers=headers, allow_redirects=False
        ) as reply:
            body = await reply.read()
        if call.kind is CallKind.LEASE and call.method != "GET" and reply.status < 300:
            self.leader = call.client
        kept = {name: value for name, value in reply.headers.items() if name.lower() not in _HOP}
        return Answer(reply.status, kept, body)

    def _note_identity(self, call: Call) -> None:
        if call.kind is CallKind.LEASE and call.body:
            with suppress(ValueError, KeyError, TypeError):
                self.identities[json.loads(call.body)["spec"]["holderIdentity"]] = call.client

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its waiter has it, or has gone


async def _hold(fault: Fault, seconds: float = 0.0) -> None:
    if fault.until is not None:
        await fault.until.wait()
    else:
        await asyncio.sleep(fault.seconds or seconds)


def _headers(request: web.BaseRequest) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.lower() not in _HOP}


def _refusal(status: int, headers: dict[str, str] | None = None) -> Answer:
    reason = {409: "Conflict", 429: "TooManyRequests"}.get(status, "InternalError")
    body = json.dumps(error_status(status, reason)).encode()
    return Answer(status, {"Content-Type": "application/json", **(headers or {})}, body)
