"""Network between the processes and the API server: requests and watches, with their faults.

A request that was sent arrives, whatever becomes of its sender, unless a fault loses it; the server handles
it at one instant. Requests of one process overtake each other, as on many connections; events of one watch do
not. A restart of the server breaks all connections and loses nothing that was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import UnreachableError
from tests.simulation.api.server import ApiServer
from tests.simulation.api.watches import Watch
from tests.simulation.faults import Call, Fault, FaultKind, FaultPlan
from tests.simulation.history import History
from tests.simulation.loop import Process, SimulationLoop

#: Time that a request, an answer or an event needs: mostly short, sometimes longer (seconds).
_SHORT, _LONG, _LONG_SHARE = 0.004, 0.08, 0.05
_STATUS = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},'
    b'"status":"Failure","message":"%s","reason":"%s","code":%d}'
)
_REASONS = {
    403: b"Forbidden",
    422: b"Invalid",
    409: b"Conflict",
    410: b"Expired",
    429: b"TooManyRequests",
    500: b"InternalError",
}


def status_reply(code: int, message: bytes = b"injected", retry_after: str = "") -> Reply:
    """Return an error response."""
    body = _STATUS % (message, _REASONS.get(code, b"ServiceUnavailable"), code)
    headers = {"content-type": "application/json"}
    return Reply(code, headers | {"retry-after": retry_after} if retry_after else headers, body)


class Network:
    """Connections of all processes to one API server."""

    def __init__(self, loop: SimulationLoop, api: ApiServer, faults: FaultPlan, history: History) -> None:
        self.loop = loop
        self.api = api
        self.faults = faults
        self.history = history
        self.up = True
        self._starts = 0  # of the server: a connection ends with it
        self.streams: list[Stream] = []
        #: Requests that have not arrived yet.
        self.in_flight = 0
        self._held: dict[str, float] = {}  # until when requests of a process that are on their way wait

    def latency(self) -> float:
        dice = self.loop.dice
        return dice.random() * (_LONG if dice.random() < _LONG_SHARE else _SHORT)

    def restart(self, seconds: float) -> None:
        """Restart the server; it does not answer for some seconds."""
        self.up = False
        self._starts += 1
        for stream in list(self.streams):
            stream.cut("connection reset by peer")

        def start() -> None:
            self.up = True

        self.loop.call_at_global(self.loop.now + seconds, start)

    def hold_requests(self, process: str, seconds: float) -> None:
        """Let the requests of a process that are on their way, and that it still sends, arrive later."""
        self._held[process] = self.loop.now + seconds

    def transport(self, process: Process, user: str) -> NetworkTransport:
        return NetworkTransport(self, process, user)

    # -- requests

    def transmit(
        self, call: Call, fault: Fault | None, request: Request, user: str, connection: Connection
    ) -> None:
        """Send a request on its way."""
        kind = fault.kind if fault is not None else None
        delay = self.latency()
        if fault is not None:
            self.history.note_fault(call, fault)
            match kind:
                case FaultKind.DELAY_REQUEST | FaultKind.LATE_REQUEST:
                    delay += fault.seconds
                case FaultKind.REFUSE:
                    reply = status_reply(429, retry_after="1")
                    return self._later(self.latency(), connection.answer, reply)
                case FaultKind.CONFLICT:
                    return self._later(self.latency(), connection.answer, status_reply(409))
                case FaultKind.FORBID:
                    return self._later(self.latency(), connection.answer, status_reply(403))
                case FaultKind.INVALIDATE:
                    return self._later(self.latency(), connection.answer, status_reply(422))
                case FaultKind.ERROR_BEFORE:
                    return self._later(self.latency(), connection.answer, status_reply(fault.status))
            if kind in (FaultKind.LATE_REQUEST, FaultKind.LOSE_REQUEST):
                self._later(self.latency(), connection.fail, "connection reset by peer")
                if kind is FaultKind.LOSE_REQUEST:
                    return None
            if kind is FaultKind.DUPLICATE:
                self._send(delay + fault.seconds, request, user, Connection(self.loop, call), None)
        self._send(delay, request, user, connection, fault)
        return None

    def _send(
        self, delay: float, request: Request, user: str, connection: Connection, fault: Fault | None
    ) -> None:
        self.in_flight += 1
        self._later(delay, self._arrive, request, user, connection, fault, self._starts)

    def _arrive(
        self, request: Request, user: str, connection: Connection, fault: Fault | None, started: int
    ) -> None:
        until = self._held.get(connection.call.process, 0.0)
        if until > self.loop.now:
            later = until - self.loop.now + self.latency()
            self._later(later, self._arrive, request, user, connection, fault, started)
            return
        self.in_flight -= 1
        if not self.up or started != self._starts:
            connection.fail("connection reset by peer")
            return
        self.history.request = connection.call
        reply = self.api.handle(request, user)
        self.history.request = None
        if fault is not None:
            match fault.kind:
                case FaultKind.NO_ANSWER:
                    return
                case FaultKind.LOSE_ANSWER:
                    self._later(self.latency(), connection.fail, "connection reset by peer")
                    return
                case FaultKind.ERROR_AFTER:
                    reply = status_reply(fault.status)
        delay = self.latency()
        if fault is not None and fault.kind is FaultKind.DELAY_ANSWER:
            delay += fault.seconds
        self._later(delay, self._answer, connection, reply, started)

    def _answer(self, connection: Connection, reply: Reply, started: int) -> None:
        if started == self._starts:
            connection.answer(reply)
        else:
            connection.fail("connection reset by peer")

    def _later(self, delay: float, callback: Callable[..., None], *arguments: object) -> None:
        self.loop.call_at_global(self.loop.now + delay, callback, *arguments)

    # -- watches

    def open_stream(
        self, call: Call, fault: Fault | None, request: Request, user: str, stream: Stream
    ) -> None:
        kind = fault.kind if fault is not None else None
        if fault is not None:
            self.history.note_fault(call, fault)
        self._later(self.latency(), self._arrive_stream, request, user, stream, fault, kind, self._starts)

    def _arrive_stream(
        self,
        request: Request,
        user: str,
        stream: Stream,
        fault: Fault | None,
        kind: FaultKind | None,
        started: int,
    ) -> None:
        if not self.up or started != self._starts or not stream.process.alive:
            stream.begin(None)
            return
        if kind is FaultKind.WATCH_REFUSED:
            self._later(self.latency(), stream.begin, status_reply(410, b"too old resource version"))
            return
        found = self.api.open_watch(request, user)
        if isinstance(found, Reply):
            self._later(self.latency(), stream.begin, found)
            return
        stream.attach(found)
        self._later(self.latency(), stream.begin, Reply(200, {}, b""))
        if fault is not None and kind is FaultKind.WATCH_CUT:
            self._later(fault.seconds * 4, stream.cut, "connection reset by peer")
        elif fault is not None and kind is FaultKind.WATCH_HELD:
            stream.hold(fault.seconds * 2)


class Connection:
    """Sender's end of one request."""

    def __init__(self, loop: SimulationLoop, call: Call) -> None:
        self.call = call
        self.future: asyncio.Future[Reply] = loop.create_future()

    def answer(self, reply: Reply) -> None:
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(
                UnreachableError(f"{self.call.path}: the connection broke: {why}", sent=True)
            )
            self.future.exception()  # a sender that has gone does not read it


class Stream:
    """Watch of a process: what has arrived, and what is on its way."""

    def __init__(self, network: Network, process: Process, path: str) -> None:
        self.network = network
        self.process = process
        self.path = path
        self.begun: asyncio.Future[Reply | None] = network.loop.create_future()
        self._watch: Watch | None = None
        self._arrived = asyncio.Event()
        self._frames: list[bytes] = []
        self._error = ""
        self._ended = False
        self._due = 0.0  # when frames on their way arrive; 0: there are none
        #: Until when events are held back.
        self.held_until = 0.0

    def attach(self, watch: Watch) -> None:
        self._watch = watch
        watch.on_event = self._on_event
        self.network.streams.append(self)
        self._on_event()

    def begin(self, reply: Reply | None) -> None:
        if not self.begun.done():
            self.begun.set_result(reply)

    def hold(self, seconds: float) -> None:
        """Deliver no events for a while."""
        self.held_until = self.network.loop.now + seconds

    def cut(self, why: str) -> None:
        """Break the connection, or end it in good order if `why` is empty; what is on its way is lost."""
        self.close()
        self._error, self._ended = why, not why
        self._arrived.set()
        self.begin(None)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self in self.network.streams:
            self.network.streams.remove(self)

    def _on_event(self) -> None:
        if not self._due:
            loop = self.network.loop
            self._due = max(loop.now, self.held_until) + self.network.latency()
            loop.call_at_global(self._due, self._deliver)

    def _deliver(self) -> None:
        self._due = 0.0
        if self._watch is None:
            return
        if self.held_until > self.network.loop.now:
            self._on_event()
        elif frames := self._watch.take():
            self._frames += frames
            self._arrived.set()

    async def chunks(self, idle: float) -> AsyncIterator[bytes]:
        while True:
            if self._frames:
                frames, self._frames = self._frames, []
                yield b"".join(frames)
            elif self._ended:
                return
            elif self._error:
                raise UnreachableError(f"{self.path}: the connection broke: {self._error}", sent=True)
            else:
                self._arrived.clear()
                try:
                    async with asyncio.timeout(idle):
                        await self._arrived.wait()
                except TimeoutError:
                    raise UnreachableError(f"{self.path}: no response", sent=True, reason="Timeout") from None


class NetworkTransport:
    """Transport of one process (`plimsoll.client.transport.Transport`)."""

    def __init__(self, network: Network, process: Process, user: str) -> None:
        self._network = network
        self._process = process
        self._user = user
        self._sent = 0
        self._streams: list[Stream] = []
        process.on_death.append(self._on_death)

    def _call(self, request: Request, *, watch: bool) -> Call:
        self._sent += 1
        name = self._process.name
        return Call(f"{name}/{self._sent}", name, request.method, request.path, watch)

    async def send(self, request: Request) -> Reply:
        network = self._network
        call = self._call(request, watch=False)
        fault = network.faults.choose(call)
        if not network.up:
            await asyncio.sleep(network.latency())
            raise UnreachableError(f"{request.path}: connection refused", sent=False)
        if request.guard is not None:
            request.guard()
        connection = Connection(network.loop, call)
        network.transmit(call, fault, request, self._user, connection)
        try:
            async with asyncio.timeout(request.timeout):
                return await connection.future
        except TimeoutError:
            raise UnreachableError(
                f"{request.path}: no response within {request.timeout:g} s", sent=True, reason="Timeout"
            ) from None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        network = self._network
        call = self._call(request, watch=True)
        fault = network.faults.choose(call)
        if not network.up:
            await asyncio.sleep(network.latency())
            raise UnreachableError(f"{request.path}: connection refused", sent=False)
        stream = Stream(network, self._process, request.path)
        self._streams.append(stream)
        try:
            network.open_stream(call, fault, request, self._user, stream)
            reply = await stream.begun
            if reply is None:
                raise UnreachableError(f"{request.path}: the connection broke", sent=True)
            yield ResponseStream(
                reply.status,
                reply.headers,
                _once(reply.body) if reply.status >= 300 else stream.chunks(request.timeout),
            )
        finally:
            stream.close()
            self._streams.remove(stream)

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        return None

    def _on_death(self) -> None:
        for stream in self._streams:
            stream.close()


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
