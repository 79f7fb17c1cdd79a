"""A worker in the test's own process: its questions cross the wire format, but no pipe."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.apiserver.request import Call
from plimsoll.apiserver.route import find_route
from plimsoll.apiserver.worker_process import Channel, Worker
from plimsoll.apiserver.workers.messages import (
    HEADER_BYTES,
    Finish,
    Job,
    Question,
    Ready,
    Reply,
    Setup,
    decode_from_worker,
    decode_to_worker,
    encode_frame,
)
from plimsoll.apiserver.workers.session import Session
from tests.unit.apiserver.build import Bench


class LocalChannel(Channel):
    """Asks a session directly; `before` is called with every question first."""

    def __init__(self, session: Session, before: Callable[[Question], object]) -> None:
        self._session = session
        self._before = before

    def ask(self, question: Question) -> Reply:
        self._before(question)
        carried = decode_from_worker(encode_frame(question)[HEADER_BYTES:])
        assert not isinstance(carried, Finish | Ready)
        reply = decode_to_worker(encode_frame(self._session.answer(carried))[HEADER_BYTES:])
        assert not isinstance(reply, Setup | Job)
        return reply


def handle_in_worker(
    bench: Bench, call: Call, before: Callable[[Question], object] = lambda question: None
) -> Finish:
    """Handle a request as a worker does, against the store of an API."""
    route = find_route(call.method, call.path)
    assert route is not None
    session = Session(bench.context, bench.api.admission, route, call.user)
    worker = Worker(LocalChannel(session, before), bench.context.gates)
    job = Job.of(call, bench.context.now(), bench.context.new_uid())
    carried = decode_to_worker(encode_frame(job)[HEADER_BYTES:])
    assert isinstance(carried, Job)
    return worker.handle(carried)
