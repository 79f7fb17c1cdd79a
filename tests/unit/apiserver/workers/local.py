"""Worker in the test's process: its queries pass through the wire format, but no pipe."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.request_info import parse_request_info
from plimsoll.apiserver.worker_process import Worker, WorkerChannel
from plimsoll.apiserver.workers.job_session import JobSession
from plimsoll.apiserver.workers.messages import (
    HEADER_BYTES,
    JobResult,
    ServerReply,
    WorkerJob,
    WorkerQuery,
    WorkerReady,
    WorkerSetup,
    decode_from_worker,
    decode_to_worker,
    encode_frame,
)
from tests.unit.apiserver.build import ApiHarness


class LocalChannel(WorkerChannel):
    """Channel that queries a session directly, after calling `before` with each query."""

    def __init__(self, session: JobSession, before: Callable[[WorkerQuery], object]) -> None:
        self._session = session
        self._before = before

    def query(self, query: WorkerQuery) -> ServerReply:
        self._before(query)
        carried = decode_from_worker(encode_frame(query)[HEADER_BYTES:])
        assert not isinstance(carried, JobResult | WorkerReady)
        reply = decode_to_worker(encode_frame(self._session.handle_query(carried))[HEADER_BYTES:])
        assert not isinstance(reply, WorkerSetup | WorkerJob)
        return reply


def handle_in_worker(
    harness: ApiHarness, request: ApiRequest, before: Callable[[WorkerQuery], object] = lambda query: None
) -> JobResult:
    """Handle a request as a worker does, against the store of an API."""
    info = parse_request_info(request.method, request.path)
    assert info is not None
    session = JobSession(harness.context, harness.api.admission, info, request.user)
    worker = Worker(LocalChannel(session, before), harness.context.gates)
    job = WorkerJob.of(request, harness.context.now(), harness.context.new_uid())
    carried = decode_to_worker(encode_frame(job)[HEADER_BYTES:])
    assert isinstance(carried, WorkerJob)
    return worker.handle(carried)
