"""Pool of worker processes, started on demand and killed at the deadline.

A worker handles one request at a time. A worker that does not finish in time, whose client disconnects, or
that fails is killed and replaced, so that its work really ends and its memory is freed. Idle workers exit
after a while. Workers are separate interpreters, not forks: they share no socket, file or key with the
server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from plimsoll.api.gates import Gates
from plimsoll.apiserver.fair_queue import FairQueue
from plimsoll.apiserver.status import service_unavailable, timeout
from plimsoll.apiserver.workers.messages import (
    HEADER_BYTES,
    FromWorker,
    JobResult,
    ServerReply,
    ToWorker,
    WorkerJob,
    WorkerQuery,
    WorkerReady,
    WorkerSetup,
    decode_from_worker,
    encode_frame,
)
from plimsoll.common.tasks import start_task

_log = logging.getLogger("plimsoll.server")

_MODULE = "plimsoll.apiserver.worker_process"
_START_SECONDS = 60.0
_DRAIN_BYTES = 1 << 20
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits on expensive requests; counts, seconds and bytes.

    DIFF: the work of a request ends at the request timeout, as upstream, but is slower than there: a claim
    with megabytes of different CEL expressions may come near it (test_the_deadline_stops_the_work). It may
    use 1 GiB of memory, three times of what the most expensive request known takes
    (test_a_request_that_needs_too_much_memory_is_refused).
    """

    #: Worker processes, in total and per user.
    workers: int = 4
    workers_per_user: int = 2
    #: Requests waiting for a worker, in total and per user.
    waiting: int = 64
    waiting_per_user: int = 8
    #: kube-apiserver's default for a request (--request-timeout); applies to waiting and to the work.
    request_timeout: float = 60.0
    idle_timeout: float = 120.0
    memory_bytes: int = 1 << 30


class _WorkerProcess:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._sink, self._source = process.stdin, process.stdout
        self.idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def send(self, message: ToWorker) -> None:
        """Send a message; ConnectionError if the process has ended."""
        self._sink.write(encode_frame(message))
        await self._sink.drain()

    async def receive(self) -> FromWorker:
        """Return the next message; ConnectionError if the process has ended."""
        try:
            header = await self._source.readexactly(HEADER_BYTES)
            body = await self._source.readexactly(int.from_bytes(header, "big"))
        except asyncio.IncompleteReadError:
            raise ConnectionError("the worker process ended") from None
        return decode_from_worker(body)

    def kill(self) -> None:
        if self.idle is not None:
            self.idle.cancel()
        if self.alive:
            self._process.kill()

    async def wait_exited(self) -> None:
        """Wait until a killed process and its pipes are gone."""
        self._sink.close()
        with suppress(ConnectionError):
            while await self._source.read(_DRAIN_BYTES):
                pass
        await self._process.wait()


class WorkerPool:
    """Worker processes of one server."""

    def __init__(self, limits: WorkerLimits | None = None, gates: Gates | None = None) -> None:
        self.limits = limits or WorkerLimits()
        self._gates = gates or Gates.default()
        self._queue = FairQueue(
            self.limits.workers,
            per_user=self.limits.workers_per_user,
            waiting=self.limits.waiting,
            waiting_per_user=self.limits.waiting_per_user,
        )
        self._idle: list[_WorkerProcess] = []
        self._all: set[_WorkerProcess] = set()
        self._exit_tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        #: Number of jobs handled.
        self.jobs = 0

    @property
    def processes(self) -> list[int]:
        """Return the process IDs of the running workers."""
        return [worker.pid for worker in self._all if worker.alive]

    async def run(
        self, user: str, job: WorkerJob, reply_to: Callable[[WorkerQuery], ServerReply]
    ) -> JobResult:
        """Have a worker handle a job; `reply_to` replies to its queries.

        Raises ApiError 429 if too many jobs wait, 504 if it takes too long, 503 if the worker fails.
        """
        await self._queue.acquire(user, self.limits.request_timeout)
        try:
            self.jobs += 1
            return await self._run(job, reply_to)
        finally:
            self._queue.release(user)

    async def close(self) -> None:
        """Kill all workers and with them their jobs."""
        self._closed = True
        for worker in self._idle:
            self._discard(worker)
        self._idle = []
        for worker in self._all:
            worker.kill()
        while self._all:  # the requests of killed workers discard them
            await asyncio.sleep(_POLL_SECONDS)
        await asyncio.gather(*self._exit_tasks)

    async def _run(self, job: WorkerJob, reply_to: Callable[[WorkerQuery], ServerReply]) -> JobResult:
        try:
            worker = await self._obtain()
        except OSError as error:  # TimeoutError and ConnectionError among them
            _log.error("cannot start a worker process: %s", error or "no response in time")
            problem = "the server cannot start a worker process for this request"
            raise service_unavailable(problem, wait=1) from None
        try:
            async with asyncio.timeout(self.limits.request_timeout):
                result = await self._exchange(worker, job, reply_to)
        except TimeoutError:
            self._discard(worker)
            raise timeout(
                f"request did not complete within {self.limits.request_timeout:g} seconds; "
                "split the object or send fewer changes at once"
            ) from None
        except ConnectionError:
            self._discard(worker)
            problem = "the worker process that handled the request failed"
            raise service_unavailable(problem, wait=1) from None
        except BaseException:  # the client disconnected, or the server stops
            self._discard(worker)
            raise
        if result.retire or self._closed:
            self._discard(worker)
        else:
            self._put_back(worker)
        return result

    async def _exchange(
        self, worker: _WorkerProcess, job: WorkerJob, reply_to: Callable[[WorkerQuery], ServerReply]
    ) -> JobResult:
        await worker.send(job)
        while True:
            message = await worker.receive()
            if isinstance(message, JobResult):
                return message
            assert not isinstance(message, WorkerReady)
            await worker.send(reply_to(message))

    # -- processes

    async def _obtain(self) -> _WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.idle is not None:
                worker.idle.cancel()
            if worker.alive:
                return worker
            self._discard(worker)
        return await self._start()

    async def _start(self) -> _WorkerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing is imported from the working directory
            "-m",
            _MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl-C in the terminal must reach the server only
        )
        worker = _WorkerProcess(process)
        self._all.add(worker)
        if self._closed:
            self._discard(worker)
            raise ConnectionError("the server stops")
        limits = self.limits
        try:
            async with asyncio.timeout(_START_SECONDS):
                await worker.send(
                    WorkerSetup(self._gates.on, limits.memory_bytes, int(limits.request_timeout) + 5)
                )
                ready = await worker.receive()
            assert isinstance(ready, WorkerReady)
        except BaseException:
            self._discard(worker)
            raise
        return worker

    def _put_back(self, worker: _WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        worker.idle = loop.call_later(self.limits.idle_timeout, self._expire, worker)
        self._idle.append(worker)

    def _expire(self, worker: _WorkerProcess) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            self._discard(worker)

    def _discard(self, worker: _WorkerProcess) -> None:
        if worker not in self._all:
            return
        worker.kill()
        self._all.discard(worker)
        start_task(self._exit_tasks, worker.wait_exited())


def _environment() -> dict[str, str]:
    """Return the server's environment, with the directory of this package in PYTHONPATH."""
    directory = str(Path(__file__).parents[3])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{path}" if path else directory}
