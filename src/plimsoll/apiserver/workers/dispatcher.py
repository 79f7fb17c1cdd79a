"""Delegation of expensive requests from the event loop to worker processes.

Owns the decision for a route, and the way of such a request: its job goes to a worker, a `JobSession` answers
the worker's questions and commits its write, and the response waits for the disk as any other does. Requests
whose bodies no client has reason to make large (bindings, evictions, reviews, options of deletions) are not
delegated but limited in size.
"""

from __future__ import annotations

from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.negotiation import negotiate
from plimsoll.apiserver.handlers.read import storage_key
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import request_entity_too_large
from plimsoll.apiserver.workers.cost import SMALL_BYTES, is_expensive_rendering, is_expensive_write
from plimsoll.apiserver.workers.job_session import JobSession
from plimsoll.apiserver.workers.messages import WorkerJob
from plimsoll.apiserver.workers.pool import WorkerPool

_WRITES = frozenset({"create", "update", "patch"})
#: Subresources that are handled in the event loop: what they change must be atomic with other objects, or
#: needs the server's keys.
_LOCAL = frozenset({"binding", "eviction", "token", "scale"})
#: DIFF: bodies of requests that are handled in the event loop whatever they hold; upstream takes 3 MiB
#: (test_bodies_that_are_never_large_are_limited).
LOCAL_BODY_BYTES = 64 << 10


class WorkerDispatcher:
    """Chooses the requests that a worker handles, and sees them through."""

    def __init__(self, context: ApiContext, admission: AdmissionChain, pool: WorkerPool) -> None:
        self._context = context
        self._admission = admission
        self._pool = pool

    def wants(self, route: RequestInfo, call: ApiRequest) -> bool:
        """Return whether a request belongs into a worker; ApiError 413 for a body that is too large."""
        verb = route.verb
        if verb in ("list", "watch"):
            return False
        if verb in _WRITES and route.resource.is_stored and route.subresource not in _LOCAL:
            return is_expensive_write(
                route.resource.key, call.body, call.header("content-type"), self._stored(route)
            )
        if len(call.body) > LOCAL_BODY_BYTES:
            raise request_entity_too_large(
                f"Request entity too large: limit for this request is {LOCAL_BODY_BYTES}"
            )
        stored = self._stored(route)
        if len(stored) <= SMALL_BYTES or verb not in ("get", "delete") or route.subresource in _LOCAL:
            return False
        if verb == "delete" and is_expensive_write(route.resource.key, b"", "", stored):
            return True
        return is_expensive_rendering(stored, negotiate(call.header("accept")))

    async def handle(self, route: RequestInfo, call: ApiRequest) -> ApiResponse:
        """Have a worker handle a request; ApiError 429, 503 or 504 if none can."""
        context = self._context
        session = JobSession(context, self._admission, route, call.user)
        job = WorkerJob.of(call, context.now(), context.new_uid())
        finish = await self._pool.run(call.user.name, job, session.answer)
        # A refusal may rest upon any write up to now.
        revision = finish.revision if finish.status < 400 else context.store.revision
        await context.store.settled(revision)
        return ApiResponse(finish.status, finish.body, finish.content_type, finish.headers)

    def _stored(self, route: RequestInfo) -> bytes:
        if not route.name:
            return b""
        stored = self._context.store.get(storage_key(route))
        return b"" if stored is None else stored.raw
