"""Requests for subresources that are objects of another kind: scale, binding, eviction and token.

Admission policies apply to the body that is sent, a Binding for instance, and not to the object it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.delete import DeleteHandler
from plimsoll.apiserver.handlers.negotiation import (
    PATCH_TYPES,
    AcceptedMediaType,
    decode_body,
    decode_json,
    parse_media_type,
)
from plimsoll.apiserver.handlers.options import WriteOptions, parse_write_options
from plimsoll.apiserver.handlers.pod_subresources import BindingHandler, EvictionHandler
from plimsoll.apiserver.handlers.policy_attributes import write_attributes
from plimsoll.apiserver.handlers.read import get_stored
from plimsoll.apiserver.handlers.response_body import build_tree_response
from plimsoll.apiserver.handlers.scale import apply_scale, to_scale
from plimsoll.apiserver.handlers.write import WriteHandler
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import success_status


class SubresourceHandler:
    """Handler of the subresources in `NAMES`."""

    NAMES = frozenset(("scale", "binding", "eviction", "token"))

    def __init__(
        self, context: ApiContext, admission: AdmissionChain, writer: WriteHandler, deleter: DeleteHandler
    ) -> None:
        self._context = context
        self._store = context.store
        self._admission = admission
        self._writer = writer
        self._eviction = EvictionHandler(context, deleter)
        self._binding = BindingHandler(context)

    async def handle(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        """Handle a request; ApiError."""
        if info.subresource == "scale" and info.verb == "get":
            return await self._get_scale(info, accepted)
        options = parse_write_options(query, user_agent=request.header("user-agent"))
        if info.subresource == "scale":
            return await self._write_scale(info, request, options, accepted)
        body = decode_body(request.body, request.header("content-type"))
        if info.subresource == "binding":
            return await self.bind(info, request.user, body, options, accepted)
        if info.subresource == "eviction":
            self._admission.admit_eviction(info, body, request.user)
            body = self._admit_body(info, body, request.user, options)
            await self._store.wait_durable(self._eviction.evict(info, body, options))
            return build_tree_response(success_status(code=201), accepted, 201)
        self._admission.admit_token(info, body, request.user)
        body = self._admit_body(info, body, request.user, options)
        token = self._context.service_accounts.create_token(info.namespace, info.name, body)
        return build_tree_response(token, accepted, 201)

    async def bind(
        self, info: RequestInfo, user: User, body: Any, options: WriteOptions, accepted: AcceptedMediaType
    ) -> ApiResponse:
        """Bind a pod; also for a Binding that is created as an object; ApiError."""
        self._admission.admit_namespace(info)
        body = self._admit_body(info, body, user, options)
        await self._store.wait_durable(self._binding.bind(info, body, options))
        return build_tree_response(success_status(code=201), accepted, 201)

    async def _get_scale(self, info: RequestInfo, accepted: AcceptedMediaType) -> ApiResponse:
        stored = get_stored(self._store, info)
        await self._store.wait_durable(stored.revision)
        return build_tree_response(to_scale(codec.decode_tree(stored.raw)), accepted)

    async def _write_scale(
        self, info: RequestInfo, request: ApiRequest, options: WriteOptions, accepted: AcceptedMediaType
    ) -> ApiResponse:
        patches, media = info.verb == "patch", request.header("content-type")
        sent = decode_json(request.body) if patches else decode_body(request.body, media)
        stored = get_stored(self._store, info)
        tree = codec.decode_tree(stored.raw)
        if patches:
            sent = self._writer.patch_document(
                PATCH_TYPES.get(parse_media_type(media), ""), to_scale(tree), sent
            )
        sent = self._admit_body(info, sent, request.user, options, to_scale(tree))
        result = self._writer.replace(info, stored, apply_scale(tree, sent), options, request.user)
        await self._store.wait_durable(result.revision)
        return build_tree_response(to_scale(codec.decode_tree(result.raw)), accepted)

    def _admit_body(
        self, info: RequestInfo, body: Any, user: User, options: WriteOptions, old: Any = None
    ) -> Any:
        """Run the policies on the body of a subresource that is not an object of the resource, such as a
        Binding; return the body as they change it. ApiError.
        """
        policies = self._admission.policies
        if not isinstance(body, dict) or not (policies.mutates or policies.validates):
            return body
        attributes = write_attributes(info, body, old, user, options, [])
        if policies.mutates:
            attributes.tree = policies.mutate(attributes, lambda changed: changed)
        policies.validate(attributes)
        return attributes.tree
