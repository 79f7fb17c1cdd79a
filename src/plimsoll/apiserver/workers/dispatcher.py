"""Delegation of expensive requests from the event loop to worker processes.

The job of such a request is sent to a worker, a `JobSession` answers the worker's queries and commits its
write, and the response waits until the write is durable, as any other. Requests whose bodies have no reason
to be large (bindings, evictions, reviews, options of deletions) are not delegated but limited in size.
"""

from __future__ import annotations

from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.negotiation import JSON, negotiate
from plimsoll.apiserver.handlers.pod_streams import STREAMS
from plimsoll.apiserver.handlers.read import storage_key
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import PROXY, RequestInfo
from plimsoll.apiserver.status import forbidden, request_entity_too_large
from plimsoll.apiserver.workers.cost import SMALL_BYTES, is_expensive_rendering, is_expensive_write
from plimsoll.apiserver.workers.job_session import JobSession
from plimsoll.apiserver.workers.messages import WorkerJob
from plimsoll.apiserver.workers.pool import WorkerPool

_WRITES = frozenset({"create", "update", "patch"})
_WITH_POLICIES = _WRITES | {"delete"}
#: Accept headers of clients that get the stored bytes.
_PLAIN_ACCEPT = frozenset({"", JSON})
#: Cost of admission policies that the event loop may spend on a request: some 20 ms. Beyond it, a worker
#: evaluates them from the start, up to their own limits.
MAX_INLINE_POLICY_COST = 50_000
#: Subresources handled in the event loop: their changes are atomic with other objects, need the server's
#: keys, or are streams.
_INLINE_SUBRESOURCES = frozenset({"binding", "eviction", "token", "scale"}) | STREAMS
#: DIFF: bodies of requests that are handled in the event loop whatever they hold; upstream takes 3 MiB
#: (test_bodies_that_are_never_large_are_limited).
MAX_INLINE_BODY_BYTES = 64 << 10


class WorkerDispatcher:
    """Dispatcher of expensive requests to workers."""

    def __init__(self, context: ApiContext, admission: AdmissionChain, pool: WorkerPool) -> None:
        self._context = context
        self._admission = admission
        self._pool = pool
        admission.policies.inline_cost = MAX_INLINE_POLICY_COST

    def should_delegate(self, info: RequestInfo, request: ApiRequest) -> bool:
        """Return whether a request belongs in a worker; ApiError 413 for a body that is too large."""
        verb = info.verb
        if verb in ("list", "watch") or info.subresource == PROXY:
            return False
        if verb in _WRITES and info.resource.is_stored and info.subresource not in _INLINE_SUBRESOURCES:
            return is_expensive_write(
                info.resource.key, request.body, request.header("content-type"), self._stored(info)
            )
        if len(request.body) > MAX_INLINE_BODY_BYTES:
            raise request_entity_too_large(
                f"Request entity too large: limit for this request is {MAX_INLINE_BODY_BYTES}"
            )
        if verb == "get" and request.header("accept") in _PLAIN_ACCEPT:
            return False
        stored = self._stored(info)
        if (
            len(stored) <= SMALL_BYTES
            or verb not in ("get", "delete")
            or info.subresource in _INLINE_SUBRESOURCES
        ):
            return False
        if verb == "delete" and is_expensive_write(info.resource.key, b"", "", stored):
            return True
        return is_expensive_rendering(stored, negotiate(request.header("accept")))

    def check_delegable(self, info: RequestInfo) -> None:
        """Check that a worker can handle a request whose policies are expensive; ApiError 403.

        DIFF: upstream evaluates the policies of any request up to their own limits
        (test_expensive_policies_on_requests_of_the_event_loop_are_refused).
        """
        if info.verb not in _WITH_POLICIES or info.subresource in _INLINE_SUBRESOURCES:
            raise forbidden(
                info.group,
                info.plural,
                info.name,
                "the admission policies that apply cost more than "
                f"{MAX_INLINE_POLICY_COST}, the limit for this kind of request",
            )

    async def handle(self, info: RequestInfo, request: ApiRequest) -> ApiResponse:
        """Have a worker handle a request; ApiError 429, 503 or 504 if none can."""
        context = self._context
        session = JobSession(context, self._admission, info, request.user)
        job = WorkerJob.of(request, context.now(), context.new_uid())
        result = await self._pool.run(request.user.name, job, session.handle_query)
        # An error may depend on any write up to now.
        revision = result.revision if result.status < 400 else context.store.revision
        await context.store.wait_durable(revision)
        return ApiResponse(result.status, result.body, result.content_type, result.headers)

    def _stored(self, info: RequestInfo) -> bytes:
        if not info.name:
            return b""
        stored = self._context.store.get(storage_key(info))
        return b"" if stored is None else stored.raw
