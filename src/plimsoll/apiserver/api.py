"""START HERE: the Kubernetes API, from a request to its response.

The path of a request: resolve it (`request_info.py`), authorize it (`auth/`), read (`handlers/read.py`,
`handlers/watch.py`), write (`handlers/write.py`, `handlers/subresources.py`) or delete
(`handlers/delete_requests.py`), and encode the response in the form that the client accepts
(`handlers/response_body.py`). This module knows methods, paths and status codes, but
no HTTP: `http.py` serves it over the network, and clients in the same process call `Api.handle` directly.

Every error is a Status object, and a response to a write is sent only after the write is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from plimsoll.api import codec
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.attributes import Attributes, forbidden_error
from plimsoll.apiserver.auth.reviews import ReviewHandler
from plimsoll.apiserver.auth.users import MASTERS
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.delete import DeleteHandler
from plimsoll.apiserver.handlers.delete_requests import DeleteRequestHandler
from plimsoll.apiserver.handlers.negotiation import (
    JSON,
    PATCH_TYPES,
    AcceptedMediaType,
    decode_body,
    decode_json,
    decode_yaml,
    negotiate,
    parse_media_type,
)
from plimsoll.apiserver.handlers.nonresource import NonResourceHandler
from plimsoll.apiserver.handlers.options import (
    WriteOptions,
    first_values,
    parse_list_options,
    parse_timeout,
    parse_write_options,
)
from plimsoll.apiserver.handlers.pod_streams import CONNECT, STREAMS, PodStreamHandler
from plimsoll.apiserver.handlers.proxy import ProxyHandler
from plimsoll.apiserver.handlers.read import ReadHandler, parse_selection
from plimsoll.apiserver.handlers.response_body import (
    ResponseBuilder,
    add_warnings,
    build_tree_response,
    encode_error,
)
from plimsoll.apiserver.handlers.selectable_fields import SelectableFieldCache
from plimsoll.apiserver.handlers.subresources import SubresourceHandler
from plimsoll.apiserver.handlers.watch import WatchHandler
from plimsoll.apiserver.handlers.write import WriteHandler, WriteResult
from plimsoll.apiserver.metrics import RequestMetrics
from plimsoll.apiserver.registry.api_lifecycle import deprecation_warning
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import PROXY, RequestInfo, parse_request_info
from plimsoll.apiserver.resource_metrics.handler import ResourceMetricsHandler
from plimsoll.apiserver.status import (
    path_not_found,
    service_unavailable,
    to_status,
    unsupported_media_type,
)
from plimsoll.apiserver.time_slices import EventLoopShare
from plimsoll.apiserver.workers.dispatcher import WorkerDispatcher
from plimsoll.apiserver.workers.pool import WorkerPool
from plimsoll.errors import ApiError, PlimsollError, PolicyCostError, StoreError

_log = logging.getLogger("plimsoll.server")


class Api:
    """Kubernetes API over one store."""

    def __init__(
        self,
        context: ApiContext,
        *,
        workers: WorkerPool | None = None,
        admission: AdmissionChain | None = None,
    ) -> None:
        self.context = context
        self._store = context.store
        self._last_write_error = ""
        self.loop_share = EventLoopShare()
        field_cache = SelectableFieldCache()
        self.admission = admission or AdmissionChain(context)
        self._delegation = WorkerDispatcher(context, self.admission, workers) if workers is not None else None
        self._reader = ReadHandler(context.store, field_cache, context.now)
        self._watcher = WatchHandler(context.store, field_cache)
        self._writer = WriteHandler(context, self.admission)
        deleter = DeleteHandler(context)
        self._subresources = SubresourceHandler(context, self.admission, self._writer, deleter)
        self.pod_streams = PodStreamHandler(context.store)
        self._proxy = ProxyHandler(context.store, self.pod_streams)
        self._resource_metrics = ResourceMetricsHandler(context.store, context.now)
        self._responses = ResponseBuilder(context)
        self._deletions = DeleteRequestHandler(
            context.store, self.admission, self._reader, deleter, self._responses, self.loop_share
        )
        self.metrics = RequestMetrics(context.store)
        self._nonresource = NonResourceHandler(context, self.metrics)
        self._reviews = ReviewHandler(context.authorizer, context.authenticator)
        context.store.observe(lambda key, tree: field_cache.forget(key) if tree is None else None)
        context.store.observe(context.authorizer.observe)

    def resolve(self, request: ApiRequest) -> None:
        """Set what the path of a request names; nothing if it is invalid, which `handle` reports."""
        try:
            request.info = _route(request, first_values(request.query))
        except ApiError:
            request.info = None

    async def handle(self, request: ApiRequest) -> ApiResponse:
        """Handle a request; errors become Status responses."""
        start = self.metrics.start(request)
        response = ApiResponse(500, b"")
        try:
            response = await self._answer(request, self._handle)
            _warn_of_deprecation(request.info, response)
        finally:
            self.metrics.finish(request, request.info, response, start)
        return response

    async def handle_authorized(self, request: ApiRequest) -> ApiResponse:
        """Handle a request that has been authorized already, in this process and not in a worker."""
        return await self._answer(request, self._handle_authorized)

    async def _answer(
        self, request: ApiRequest, handle: Callable[[ApiRequest], Awaitable[ApiResponse]]
    ) -> ApiResponse:
        try:
            return await handle(request)
        except ApiError as error:
            response = await self._error_response(error)
        except StoreError as error:
            response = self._unavailable(error)
        except PlimsollError as error:
            response = _refusal(ApiError(400, "BadRequest", str(error)))
        except RecursionError:
            response = _refusal(ApiError(400, "BadRequest", "the body is nested too deeply"))
        return encode_error(response, request.header("accept"))

    def _unavailable(self, error: StoreError) -> ApiResponse:
        """Build a 503 response for a failed write; the same error is logged once, not for every request."""
        if str(error) != self._last_write_error:
            self._last_write_error = str(error)
            _log.error("%s", error)
        return _refusal(service_unavailable(str(error), wait=1))

    async def _error_response(self, error: ApiError) -> ApiResponse:
        """Build an error response. The error may depend on a write that is not durable yet (an object that
        was just created or deleted), so wait for that first.
        """
        if self._store.durable < self._store.revision:
            try:
                await self._store.wait_durable(self._store.revision)
            except StoreError as trouble:
                return self._unavailable(trouble)
        return _refusal(error)

    async def _handle(self, request: ApiRequest) -> ApiResponse:
        query = first_values(request.query)
        info = request.info = request.info or _route(request, query)
        is_long = info is not None and (info.verb == "watch" or info.subresource == PROXY)
        if "timeout" not in query or is_long:
            return await self._process(request, query, info)
        try:
            async with asyncio.timeout(parse_timeout(query["timeout"])):
                return await self._process(request, query, info)
        except TimeoutError:
            why = "Timeout: request did not complete within the requested timeout"
            raise ApiError(504, "Timeout", why) from None

    async def _process(
        self, request: ApiRequest, query: Mapping[str, str], info: RequestInfo | None
    ) -> ApiResponse:
        if info is None:
            attributes = Attributes(request.user, request.method.lower(), path=request.path)
            self._authorize(attributes)
            return await self._nonresource.handle(request, self.loop_share.start_slice(request.user.name))
        if MASTERS not in request.user.groups:
            self._authorize(self._attributes(info, request, query))
            if info.subresource in CONNECT and info.verb != "create":
                self._authorize(self._attributes(replace(info, verb="create"), request, query))
        if self._delegation is not None and self._delegation.should_delegate(info, request):
            return await self._delegation.handle(info, request)
        try:
            return await self._dispatch(info, request, query)
        except PolicyCostError:  # before anything was written
            assert self._delegation is not None
            self._delegation.check_delegable(info)
            return await self._delegation.handle(info, request)

    async def _handle_authorized(self, request: ApiRequest) -> ApiResponse:
        query = first_values(request.query)
        info = _route(request, query)
        if info is None:
            raise path_not_found()
        return await self._dispatch(info, request, query)

    async def _dispatch(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str]
    ) -> ApiResponse:
        if info.subresource:
            return await self._subresource(info, request, query)
        return await self._resource(info, request, query)

    # -- authorization

    def _authorize(self, attributes: Attributes) -> None:
        decision = self.context.authorizer.authorize(attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision.reason)

    def _attributes(self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str]) -> Attributes:
        name: str = info.name
        fields: tuple[tuple[str, str], ...] = ()
        if info.verb in ("list", "watch", "deletecollection") and query.get("fieldSelector"):
            selection = parse_selection(info, parse_list_options(query))
            fields = tuple((path, value) for path, equal, value in selection.fields.conditions if equal)
            name = selection.fields.exact("metadata.name") or ""
        verb = "watch" if info.verb == "watch" else info.verb
        namespace = info.namespace
        if info.plural == "namespaces" and not info.group:
            namespace = info.name  # a RoleBinding inside a namespace may grant access to it
        return Attributes(
            request.user,
            verb,
            info.group,
            info.version,
            info.plural,
            info.subresource,
            namespace,
            name,
            fields=fields,
        )

    # -- resources

    async def _resource(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str]
    ) -> ApiResponse:
        accepted = negotiate(
            request.header("accept"), streams=info.verb == "watch", tables=info.resource.is_stored
        )
        if info.resource.computed:
            metrics = await self._resource_metrics.read(info, query, self.pod_streams.kubelets)
            return build_tree_response(metrics, accepted)
        if info.verb == "get":
            stored = await self._reader.get(info, parse_list_options(query))
            return self._responses.build_response(info, stored.raw, accepted, query)
        if info.verb == "list":
            with self.loop_share.start_slice(request.user.name) as time_slice:
                listing = await self._reader.list(info, parse_list_options(query), time_slice)
                return await self._responses.build_list_response(info, listing, accepted, query, time_slice)
        if info.verb == "watch":
            format = self._responses.make_watch_format(info, accepted, query)
            time_slice = self.loop_share.start_slice(request.user.name)
            frames = await self._watcher.watch(
                info, parse_list_options({**query, "watch": "true"}), format, time_slice, request.initialized
            )
            return ApiResponse(200, frames, format.content_type)
        if info.verb == "create" and not info.resource.is_stored:
            return await self._create_transient(info, request, query, accepted)
        if info.verb == "create":
            body = decode_body(request.body, request.header("content-type"))
            options = self._write_options(request, query)
            result = self._writer.create(info, body, options, request.user, _raw_json(request, query))
            return await self._write_response(info, result, accepted, query)
        if info.verb == "update":
            body = decode_body(request.body, request.header("content-type"))
            options = self._write_options(request, query)
            result = self._writer.update(info, body, options, request.user, _raw_json(request, query))
            return await self._write_response(info, result, accepted, query)
        if info.verb == "patch":
            return await self._patch(info, request, query, accepted)
        if info.verb == "delete":
            return await self._deletions.delete(info, request, query, accepted)
        return await self._deletions.delete_collection(info, request, query, accepted)

    def _write_options(
        self, request: ApiRequest, query: Mapping[str, str], *, applies: bool = False
    ) -> WriteOptions:
        return parse_write_options(query, user_agent=request.header("user-agent"), applies=applies)

    async def _write_response(
        self, info: RequestInfo, result: WriteResult, accepted: AcceptedMediaType, query: Mapping[str, str]
    ) -> ApiResponse:
        await self._store.wait_durable(result.revision)
        status = 201 if result.created else 200
        response = self._responses.build_response(info, result.raw, accepted, query, status)
        add_warnings(response, result.warnings)
        return response

    async def _patch(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        kind = PATCH_TYPES.get(parse_media_type(request.header("content-type")))
        if kind is None:
            raise unsupported_media_type(PATCH_TYPES)
        body = decode_yaml(request.body) if kind == "apply" else decode_json(request.body)
        options = self._write_options(request, query, applies=kind == "apply")
        result = self._writer.patch(info, kind, body, options, request.user)
        return await self._write_response(info, result, accepted, query)

    # -- reviews and subresources

    async def _create_transient(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        body = decode_body(request.body, request.header("content-type"))
        if info.plural == "bindings":
            options = self._write_options(request, query)
            return await self._subresources.bind(info, request.user, body, options, accepted)
        now = format_datetime(self.context.now())
        review = self._reviews.review(info.plural, request.user, body, namespace=info.namespace, now=now)
        return self._responses.build_response(info, codec.encode(review), accepted, query, 201)

    async def _subresource(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str]
    ) -> ApiResponse:
        if info.subresource == PROXY:
            return await self._proxy.handle(info, request)
        if info.subresource in STREAMS:
            return await self.pod_streams.handle(info, request)
        accepted = negotiate(request.header("accept"))
        if info.subresource in SubresourceHandler.NAMES:
            return await self._subresources.handle(info, request, query, accepted)
        if info.verb == "get":
            stored = await self._reader.get(info, parse_list_options(query))
            return self._responses.build_response(info, stored.raw, accepted, query)
        if info.verb == "patch":
            return await self._patch(info, request, query, accepted)
        if info.verb != "update":
            raise path_not_found()
        body = decode_body(request.body, request.header("content-type"))
        options = self._write_options(request, query)
        return await self._write_response(
            info, self._writer.update(info, body, options, request.user), accepted, query
        )


def _warn_of_deprecation(info: RequestInfo | None, response: ApiResponse) -> None:
    """Add the warning about a deprecated version, which every authorized request for it gets."""
    if info is None or response.status in (401, 403) or info.version == info.resource.versions[0]:
        return
    text = deprecation_warning(info.api_version, info.resource.kind)
    if text:
        add_warnings(response, [text])


def _route(request: ApiRequest, query: Mapping[str, str]) -> RequestInfo | None:
    watches = query.get("watch", "false") not in ("false", "0", "False", "FALSE", "f", "F")
    return parse_request_info(request.method, request.path, watches=watches)


def _raw_json(request: ApiRequest, query: Mapping[str, str]) -> bytes:
    """Return the raw body if it is JSON and the client asked for field validation, which reports duplicate
    fields.
    """
    has_field_validation = "fieldValidation" in query and parse_media_type(
        request.header("content-type")
    ) in ("", JSON)
    return request.body if has_field_validation else b""


def _refusal(error: ApiError) -> ApiResponse:
    return ApiResponse(error.code, codec.encode(to_status(error)), "application/json", dict(error.headers))
