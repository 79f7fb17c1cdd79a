"""Worker process: handles expensive requests one after another, read from standard input.

    python -m plimsoll.apiserver.worker_process

Runs the same `Api` as the server, over a store that queries the server (`workers/remote.py`). It has no
credentials and opens no file but its own status in /proc. The server kills it at the request's deadline; the
limits on memory and CPU time that it sets for itself hold even if the server is gone.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, BinaryIO

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.request import ApiResponse
from plimsoll.apiserver.status import OPTIMISTIC_LOCK_MESSAGE, to_status
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
    decode_to_worker,
    encode_frame,
)
from plimsoll.apiserver.workers.remote import (
    ObjectChangedError,
    RemoteAdmission,
    RemoteAuthorizer,
    RemoteStore,
)
from plimsoll.errors import ApiError

#: Attempts to handle a request whose object was changed concurrently; kube-apiserver gives up on a patch
#: after as many conflicts.
MAX_ATTEMPTS = 6
#: A worker that has grown beyond this is replaced after the job.
_MAX_REUSE_KIB = 256 << 10
_MEMORY_LIMIT_MESSAGE = "the request needs more memory than a request may use; send a smaller object"
#: Lower priority than the server, which gets the CPU first.
_NICENESS = 5


class WorkerChannel:
    """Message frames to and from the server."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def send(self, message: FromWorker) -> None:
        self._sink.write(encode_frame(message))
        self._sink.flush()

    def receive(self) -> ToWorker:
        """Return the next message; SystemExit when the server has closed the pipe."""
        header = self._source.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            raise SystemExit(0)
        return decode_to_worker(self._source.read(int.from_bytes(header, "big")))

    def query(self, query: WorkerQuery) -> ServerReply:
        self.send(query)
        reply = self.receive()
        assert not isinstance(reply, WorkerSetup | WorkerJob)
        return reply


class Worker:
    """Handler of jobs over one channel."""

    def __init__(self, channel: WorkerChannel, gates: Gates) -> None:
        self._store = RemoteStore(channel.query)
        self._job: WorkerJob | None = None
        context = ApiContext.for_store(
            self._store, gates=gates, now=lambda: self._current.now, new_uid=self._new_uid
        )
        context = replace(context, authorizer=RemoteAuthorizer(channel.query))
        self._api = Api(context, admission=RemoteAdmission(context, self._store))

    def handle(self, job: WorkerJob) -> JobResult:
        """Return the response to a request; its write, if any, is committed."""
        self._job = job
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._attempt(job)
            except ObjectChangedError:
                continue
            except MemoryError:
                return _error_result(
                    ApiError(413, "RequestEntityTooLarge", _MEMORY_LIMIT_MESSAGE), retire=True
                )
        return _error_result(ApiError(409, "Conflict", OPTIMISTIC_LOCK_MESSAGE))

    def _attempt(self, job: WorkerJob) -> JobResult:
        store = self._store
        store.reset()
        response = _run_to_completion(self._api.handle_authorized(job.request()))
        assert isinstance(response.body, bytes)
        retire = peak_memory_kib() > _MAX_REUSE_KIB
        return JobResult(
            response.status, response.body, response.content_type, response.headers, store.awaited, retire
        )

    @property
    def _current(self) -> WorkerJob:
        assert self._job is not None
        return self._job

    def _new_uid(self) -> str:
        return self._current.uid


def _run_to_completion(work: Coroutine[Any, Any, ApiResponse]) -> ApiResponse:
    """Run a coroutine that never waits: the store of a worker replies synchronously."""
    try:
        work.send(None)
    except StopIteration as end:
        response: ApiResponse = end.value
        return response
    raise RuntimeError("a request in a worker waited for I/O")


def peak_memory_kib() -> int:
    """Return the peak resident size of this process.

    getrusage() does not serve: its maximum is inherited from the parent process, so that the workers of a
    large server would all be replaced after their first job.
    """
    try:
        with open("/proc/self/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def _error_result(error: ApiError, *, retire: bool = False) -> JobResult:
    return JobResult(error.code, codec.encode(to_status(error)), "application/json", {}, 0, retire)


def main() -> None:
    """Handle jobs until the server closes the pipe."""
    channel = WorkerChannel(sys.stdin.buffer, sys.stdout.buffer)
    setup = channel.receive()
    assert isinstance(setup, WorkerSetup)
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (setup.memory_bytes, setup.memory_bytes))
    gc.freeze()
    worker = Worker(channel, Gates(setup.gates))
    channel.send(WorkerReady())
    while True:
        job = channel.receive()
        assert isinstance(job, WorkerJob)
        _limit_cpu(setup.cpu_seconds)
        channel.send(worker.handle(job))


def _limit_cpu(seconds: int) -> None:
    """Have the kernel kill this process if one job takes more CPU time than this."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
