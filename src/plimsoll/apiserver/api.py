"""START HERE: the Kubernetes API, from a request to its answer.

Owns the story of a request: find what it is about (`route.py`), ask whether its sender may (`security/`),
read (`reading.py`, `watching.py`) or write (`writing.py`, `deleting.py`), and answer in the form the client
takes (`documents.py`). Knows nothing of HTTP but methods, paths and codes; `http.py` is the shell for the
network, and clients in the same process call `handle` directly. Promises: every refusal is a Status, and an
answer to a write means that the write is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.attributes import Attributes, forbidden_error
from plimsoll.apiserver.auth.reviews import ReviewHandler
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.delete import DeleteHandler
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
    DeletionOptions,
    WriteOptions,
    first_values,
    parse_delete_options,
    parse_list_options,
    parse_write_options,
)
from plimsoll.apiserver.handlers.pod_subresources import BindingHandler, EvictionHandler
from plimsoll.apiserver.handlers.read import ReadHandler, get_stored, parse_selection
from plimsoll.apiserver.handlers.response_body import ResponseBuilder, build_tree_response
from plimsoll.apiserver.handlers.scale import apply_scale, to_scale
from plimsoll.apiserver.handlers.selectable_fields import SelectableFieldCache
from plimsoll.apiserver.handlers.watch import WatchHandler
from plimsoll.apiserver.handlers.write import WriteHandler, WriteResult
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo, parse_request_info
from plimsoll.apiserver.status import (
    path_not_found,
    service_unavailable,
    success_status,
    to_status,
    unsupported_media_type,
)
from plimsoll.apiserver.storage import StoredObject
from plimsoll.apiserver.time_slices import EventLoopShare
from plimsoll.apiserver.validation.timestamps import format_datetime
from plimsoll.apiserver.workers.dispatcher import WorkerDispatcher
from plimsoll.apiserver.workers.pool import WorkerPool
from plimsoll.errors import ApiError, PlimsollError, StoreError

_log = logging.getLogger("plimsoll.server")


class Api:
    """The Kubernetes API over one store."""

    def __init__(
        self,
        context: ApiContext,
        *,
        workers: WorkerPool | None = None,
        admission: AdmissionChain | None = None,
    ) -> None:
        self.context = context
        self._store = context.store
        self._trouble = ""
        self.turns = EventLoopShare()
        sights = SelectableFieldCache()
        self.admission = admission or AdmissionChain(context)
        self._delegation = WorkerDispatcher(context, self.admission, workers) if workers is not None else None
        self._reading = ReadHandler(context.store, sights)
        self._watching = WatchHandler(context.store, sights)
        self._writing = WriteHandler(context, self.admission)
        self._deleting = DeleteHandler(context)
        self._eviction = EvictionHandler(context, self._deleting)
        self._binding = BindingHandler(context)
        self._documents = ResponseBuilder(context)
        self._public = NonResourceHandler(context)
        self._reviews = ReviewHandler(context.authorizer, context.authenticator)
        context.store.observe(lambda key, tree: sights.forget(key) if tree is None else None)
        context.store.observe(context.authorizer.observe)

    async def handle(self, call: ApiRequest) -> ApiResponse:
        """Answer a request, whatever it is."""
        return await self._answer(call, self._handle)

    async def handle_authorized(self, call: ApiRequest) -> ApiResponse:
        """Answer a request whose sender is known to be allowed to make it, here and not in a worker."""
        return await self._answer(call, self._handle_authorized)

    async def _answer(
        self, call: ApiRequest, handle: Callable[[ApiRequest], Awaitable[ApiResponse]]
    ) -> ApiResponse:
        try:
            return await handle(call)
        except ApiError as error:
            return await self._refuse(error)
        except StoreError as error:
            return self._unwritable(error)
        except PlimsollError as error:
            return _refusal(ApiError(400, "BadRequest", str(error)))
        except RecursionError:
            return _refusal(ApiError(400, "BadRequest", "the body is nested too deeply"))

    def _unwritable(self, error: StoreError) -> ApiResponse:
        """Nothing was stored and the client may try again; the log is told once, not for every request."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.error("%s", error)
        return _refusal(service_unavailable(str(error)))

    async def _refuse(self, error: ApiError) -> ApiResponse:
        """A refusal may rest upon a write that is not durable yet (an object that is gone, or there)."""
        if self._store.durable < self._store.revision:
            try:
                await self._store.settled(self._store.revision)
            except StoreError as trouble:
                return self._unwritable(trouble)
        return _refusal(error)

    async def _handle(self, call: ApiRequest) -> ApiResponse:
        query = first_values(call.query)
        route = _route(call, query)
        if route is None:
            attributes = Attributes(call.user, call.method.lower(), path=call.path)
            self._authorize(attributes)
            return self._public.answer(call, query)
        self._authorize(self._attributes(route, call, query))
        if self._delegation is not None and self._delegation.wants(route, call):
            return await self._delegation.handle(route, call)
        return await self._dispatch(route, call, query)

    async def _handle_authorized(self, call: ApiRequest) -> ApiResponse:
        query = first_values(call.query)
        route = _route(call, query)
        if route is None:
            raise path_not_found()
        return await self._dispatch(route, call, query)

    async def _dispatch(self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str]) -> ApiResponse:
        if route.subresource:
            return await self._subresource(route, call, query)
        return await self._resource(route, call, query)

    # -- rights

    def _authorize(self, attributes: Attributes) -> None:
        decision = self.context.authorizer.authorize(attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision.reason)

    def _attributes(self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str]) -> Attributes:
        name: str = route.name
        fields: tuple[tuple[str, str], ...] = ()
        if route.verb in ("list", "watch", "deletecollection") and query.get("fieldSelector"):
            selection = parse_selection(route, parse_list_options(query))
            fields = tuple((path, value) for path, equal, value in selection.fields.conditions if equal)
            name = selection.fields.exact("metadata.name") or ""
        verb = "watch" if route.verb == "watch" else route.verb
        namespace = route.namespace
        if route.plural == "namespaces" and not route.group:
            namespace = route.name  # rights on a namespace may come from inside it
        return Attributes(
            call.user,
            verb,
            route.group,
            route.version,
            route.plural,
            route.subresource,
            namespace,
            name,
            fields=fields,
        )

    # -- resources

    async def _resource(self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str]) -> ApiResponse:
        accepted = negotiate(call.header("accept"), streams=route.verb == "watch")
        if route.verb == "get":
            stored = await self._reading.get(route, parse_list_options(query))
            return self._documents.answer(route, stored.raw, accepted, query)
        if route.verb == "list":
            with self.turns.begin(call.user.name) as turn:
                listing = await self._reading.list(route, parse_list_options(query), turn)
                return await self._documents.answer_list(route, listing, accepted, query, turn)
        if route.verb == "watch":
            render = self._documents.render_for(route, accepted, query)
            turn = self.turns.begin(call.user.name)
            frames = await self._watching.watch(
                route, parse_list_options({**query, "watch": "true"}), render, turn
            )
            return ApiResponse(200, frames, "application/json")
        if route.verb == "create" and not route.resource.is_stored:
            return await self._ask(route, call, query, accepted)
        if route.verb == "create":
            body = decode_body(call.body, call.header("content-type"))
            options = self._write_options(call, query)
            outcome = self._writing.create(route, body, options, call.user, _text(call, query))
            return await self._done(route, outcome, accepted, query)
        if route.verb == "update":
            body = decode_body(call.body, call.header("content-type"))
            options = self._write_options(call, query)
            outcome = self._writing.update(route, body, options, call.user, _text(call, query))
            return await self._done(route, outcome, accepted, query)
        if route.verb == "patch":
            return await self._patch(route, call, query, accepted)
        if route.verb == "delete":
            return await self._delete(route, call, query, accepted)
        return await self._delete_collection(route, call, query, accepted)

    def _write_options(
        self, call: ApiRequest, query: Mapping[str, str], *, applies: bool = False
    ) -> WriteOptions:
        return parse_write_options(query, user_agent=call.header("user-agent"), applies=applies)

    async def _done(
        self, route: RequestInfo, outcome: WriteResult, accepted: AcceptedMediaType, query: Mapping[str, str]
    ) -> ApiResponse:
        await self._store.settled(outcome.revision)
        status = 201 if outcome.created else 200
        answer = self._documents.answer(route, outcome.raw, accepted, query, status)
        _warn(answer, outcome.warnings)
        return answer

    async def _patch(
        self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        kind = PATCH_TYPES.get(parse_media_type(call.header("content-type")))
        if kind is None:
            raise unsupported_media_type(PATCH_TYPES)
        body = decode_yaml(call.body) if kind == "apply" else decode_json(call.body)
        options = self._write_options(call, query, applies=kind == "apply")
        outcome = self._writing.patch(route, kind, body, options, call.user)
        return await self._done(route, outcome, accepted, query)

    async def _delete(
        self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        options = parse_delete_options(query, _delete_body(call))
        stored = get_stored(self._store, route)
        self.admission.admit_deletion(route, codec.decode_tree(stored.raw), call.user)
        deletion = self._deleting.delete(route, stored, options)
        await self._store.settled(deletion.revision)
        if deletion.tree.get("kind") == "Status":
            return build_tree_response(deletion.tree, accepted)
        return self._documents.answer(route, codec.encode(deletion.tree), accepted, query)

    async def _delete_collection(
        self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        options = parse_delete_options(query, _delete_body(call))
        with self.turns.begin(call.user.name) as turn:
            listing = await self._reading.list(route, parse_list_options(query), turn)
            for stored in listing.items:
                self.admission.admit_deletion(route, codec.decode_tree(stored.raw), call.user)
                await turn.pause()
            last = 0
            for stored in listing.items:
                last = max(last, self._delete_found(route, stored, options, call.user))
                await turn.pause()
            turn.release()
            await self._store.settled(last)
            return await self._documents.answer_list(route, listing, accepted, query, turn)

    def _delete_found(
        self, route: RequestInfo, found: StoredObject, options: DeletionOptions, user: User
    ) -> int:
        """Delete an object of a collection unless it has gone meanwhile; the revision to wait for."""
        current = self._store.get(found.key)
        if current is None or current.created != found.created:
            return 0
        if current.revision != found.revision:
            self.admission.admit_deletion(route, codec.decode_tree(current.raw), user)
        return self._deleting.delete(route, current, options).revision

    # -- what is asked and forgotten, and what stands beside an object

    async def _ask(
        self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        body = decode_body(call.body, call.header("content-type"))
        if route.plural == "bindings":
            return await self._bind(route, call, query, accepted, body)
        now = format_datetime(self.context.now())
        review = self._reviews.answer(route.plural, call.user, body, namespace=route.namespace, now=now)
        return build_tree_response(review, accepted, 201)

    async def _subresource(
        self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str]
    ) -> ApiResponse:
        accepted = negotiate(call.header("accept"))
        if route.subresource == "scale":
            return await self._scale(route, call, query, accepted)
        if route.verb == "get":
            stored = await self._reading.get(route, parse_list_options(query))
            return self._documents.answer(route, stored.raw, accepted, query)
        if route.verb == "patch":
            return await self._patch(route, call, query, accepted)
        body = decode_body(call.body, call.header("content-type"))
        if route.subresource == "binding":
            return await self._bind(route, call, query, accepted, body)
        if route.subresource == "eviction":
            self.admission.admit_eviction(route, body, call.user)
            revision = self._eviction.evict(route, body, self._write_options(call, query))
            await self._store.settled(revision)
            return build_tree_response(success_status(code=201), accepted, 201)
        if route.subresource == "token":
            self.admission.admit_token(route, body, call.user)
            token = self.context.accounts.request(route.namespace, route.name, body)
            return build_tree_response(token, accepted, 201)
        if route.verb != "update":
            raise path_not_found()
        options = self._write_options(call, query)
        return await self._done(route, self._writing.update(route, body, options, call.user), accepted, query)

    async def _bind(
        self,
        route: RequestInfo,
        call: ApiRequest,
        query: Mapping[str, str],
        accepted: AcceptedMediaType,
        body: Any,
    ) -> ApiResponse:
        options = self._write_options(call, query)
        self.admission.admit_namespace(route)
        revision = self._binding.bind(route, body, options)
        await self._store.settled(revision)
        return build_tree_response(success_status(code=201), accepted, 201)

    async def _scale(
        self, route: RequestInfo, call: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        if route.verb == "get":
            stored = get_stored(self._store, route)
            await self._store.settled(stored.revision)
            return build_tree_response(to_scale(codec.decode_tree(stored.raw)), accepted)
        options = self._write_options(call, query)
        patches, media = route.verb == "patch", call.header("content-type")
        sent = decode_json(call.body) if patches else decode_body(call.body, media)
        stored = get_stored(self._store, route)
        tree = codec.decode_tree(stored.raw)
        if patches:
            sent = self._writing.patch_document(
                PATCH_TYPES.get(parse_media_type(media), ""), to_scale(tree), sent
            )
        outcome = self._writing.replace(route, stored, apply_scale(tree, sent), options, call.user)
        await self._store.settled(outcome.revision)
        return build_tree_response(to_scale(codec.decode_tree(outcome.raw)), accepted)


def _route(call: ApiRequest, query: Mapping[str, str]) -> RequestInfo | None:
    watches = query.get("watch", "false") not in ("false", "0", "False", "FALSE", "f", "F")
    return parse_request_info(call.method, call.path, watches=watches)


def _delete_body(call: ApiRequest) -> Any:
    return decode_body(call.body, call.header("content-type")) if call.body.strip() else None


def _text(call: ApiRequest, query: Mapping[str, str]) -> bytes:
    """The body as text, if it is JSON and the client asks to be told of fields that come twice."""
    asked = "fieldValidation" in query and parse_media_type(call.header("content-type")) in ("", JSON)
    return call.body if asked else b""


def _refusal(error: ApiError) -> ApiResponse:
    return ApiResponse(error.code, codec.encode(to_status(error)), "application/json", dict(error.headers))


def _warn(answer: ApiResponse, warnings: list[str]) -> None:
    """Warnings travel in headers: a hundred is plenty, and none may break out of its line."""
    texts = []
    for text in dict.fromkeys(warnings[:100]):
        clean = "".join(c if c.isprintable() and c.isascii() else "?" for c in text[:256])
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        texts.append(f'299 - "{escaped}"')
    if texts:
        answer.headers["Warning"] = ", ".join(texts)
