"""Answers to clients: objects, lists and tables in the form and version that was asked for.

Owns encoding. The usual form, JSON in the stored version, is the stored bytes themselves; all the others are
worked out from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.chunked_response import build_chunked_response, interleave_commas
from plimsoll.apiserver.handlers.conversion import convert_raw, is_storage_version
from plimsoll.apiserver.handlers.negotiation import JSON, YAML, AcceptedMediaType
from plimsoll.apiserver.handlers.read import ListResult
from plimsoll.apiserver.handlers.watch import Render
from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.apiserver.protobuf import ListBuilder
from plimsoll.apiserver.protobuf import encode_body as encode_protobuf
from plimsoll.apiserver.request import ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import not_acceptable
from plimsoll.apiserver.tables import to_table
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.common.yaml import dump_document
from plimsoll.errors import InputError

Tree = dict[str, Any]

_LONG = 256 * 1024
_ROWS_AT_ONCE = 8


def build_tree_response(tree: Any, accepted: AcceptedMediaType, status: int = 200) -> ApiResponse:
    """Any tree, such as a Status or a Scale."""
    return _encode(codec.encode(tree), accepted, status)


class ResponseBuilder:
    """Answers of one API."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    def answer(
        self,
        route: RequestInfo,
        raw: bytes,
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        status: int = 200,
    ) -> ApiResponse:
        """One object."""
        raw = convert_raw(raw, route.resource, route.version)
        if accepted.table:
            return build_tree_response(self._table(route, [raw], accepted, query, {}), accepted, status)
        if accepted.partial:
            return _encode(_partial(raw, accepted.partial), accepted, status)
        return _encode(raw, accepted, status)

    async def answer_list(
        self,
        route: RequestInfo,
        listing: ListResult,
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        turn: TimeSlice,
    ) -> ApiResponse:
        """A page of objects; other requests are served while a long one is put together."""
        metadata: Tree = {"resourceVersion": str(listing.revision)}
        if listing.token:
            metadata["continue"] = listing.token
        if listing.remaining:
            metadata["remainingItemCount"] = listing.remaining
        raws = [stored.raw for stored in listing.items]
        if not is_storage_version(route.resource, route.version):
            raws = await _each(raws, lambda raw: convert_raw(raw, route.resource, route.version), turn)
        if accepted.media == PROTOBUF:
            return await _protobuf_list(route, metadata, raws, turn)
        if accepted.table:
            table = self._table(route, [], accepted, query, metadata)
            rows = await self._rows(route, raws, accepted, query, turn)
            return _finish_list(table, "rows", rows, accepted, turn)
        api_version, kind = route.api_version, route.resource.list_kind
        if accepted.partial:
            api_version, kind = f"meta.k8s.io/{accepted.partial}", "PartialObjectMetadataList"
            raws = await _each(raws, lambda raw: _partial(raw, accepted.partial), turn)
        # DIFF: each item says its apiVersion and kind (test_items_of_a_list_say_what_they_are).
        head = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        return _finish_list(head, "items", raws, accepted, turn)

    def render_for(
        self, route: RequestInfo, accepted: AcceptedMediaType, query: Mapping[str, str]
    ) -> Render | None:
        """How a watch shows objects; None for the stored bytes themselves."""
        if accepted.table:
            return _TableRows(self, route, accepted, query).render
        if accepted.partial:
            return lambda raw: _partial(convert_raw(raw, route.resource, route.version), accepted.partial)
        if is_storage_version(route.resource, route.version):
            return None
        return lambda raw: convert_raw(raw, route.resource, route.version)

    def _table(
        self,
        route: RequestInfo,
        raws: list[bytes],
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        metadata: Tree,
    ) -> Tree:
        return to_table(
            route.resource,
            [codec.decode_tree(raw) for raw in raws],
            now=self._context.now(),
            include_object=query.get("includeObject", "Metadata") or "Metadata",
            version=accepted.table,
            list_metadata=metadata,
        )

    async def _rows(
        self,
        route: RequestInfo,
        raws: list[bytes],
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        turn: TimeSlice,
    ) -> list[bytes]:
        rows: list[bytes] = []
        for start in range(0, len(raws), _ROWS_AT_ONCE):
            table = self._table(route, raws[start : start + _ROWS_AT_ONCE], accepted, query, {})
            rows += map(codec.encode, table["rows"])
            if turn.due:
                await turn.pause()
        return rows


class _TableRows:
    """The rows of a watch in tables: only the first names the columns."""

    def __init__(
        self,
        documents: ResponseBuilder,
        route: RequestInfo,
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
    ):
        self._documents, self._route, self._accepted, self._query = documents, route, accepted, query
        self._first = True

    def render(self, raw: bytes) -> bytes:
        raw = convert_raw(raw, self._route.resource, self._route.version)
        table = self._documents._table(self._route, [raw], self._accepted, self._query, {})
        if not self._first:
            table["columnDefinitions"] = None
        self._first = False
        return codec.encode(table)


def _partial(raw: bytes, version: str) -> bytes:
    tree = codec.decode_tree(raw)
    head = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}"}
    return codec.encode({**head, "metadata": tree["metadata"]})


async def _each(raws: list[bytes], render: Callable[[bytes], bytes], turn: TimeSlice) -> list[bytes]:
    """Every object in another form."""
    rendered = []
    for raw in raws:
        rendered.append(render(raw))
        if turn.due:
            await turn.pause()
    return rendered


def _finish_list(
    head: Tree, field: str, items: list[bytes], accepted: AcceptedMediaType, turn: TimeSlice
) -> ApiResponse:
    """A list in JSON, or in YAML if it is short: `head` with the items in its last field."""
    before = codec.encode({name: value for name, value in head.items() if name != field})
    answer = build_chunked_response(
        [before[:-1], f',"{field}":['.encode(), *interleave_commas(items), b"]}"], accepted.media, turn
    )
    if accepted.media == YAML and isinstance(answer.body, bytes):
        return _encode(answer.body, accepted)
    return answer


async def _protobuf_list(
    route: RequestInfo, metadata: Tree, raws: list[bytes], turn: TimeSlice
) -> ApiResponse:
    head = {"apiVersion": route.api_version, "kind": route.resource.list_kind, "metadata": metadata}
    try:
        builder = ListBuilder(head)
        items = await _each(raws, lambda raw: builder.encode_item(codec.decode_tree(raw)), turn)
    except InputError:
        raise not_acceptable([JSON, YAML]) from None
    return build_chunked_response(builder.finish(items), PROTOBUF, turn)


def _encode(raw: bytes, accepted: AcceptedMediaType, status: int = 200) -> ApiResponse:
    if accepted.media == PROTOBUF:
        try:
            return ApiResponse(status, encode_protobuf(codec.decode_tree(raw)), PROTOBUF)
        except InputError:
            raise not_acceptable([JSON, YAML]) from None
    if accepted.media == YAML:
        # JSON is YAML too: long answers are left as they are rather than keep others waiting.
        return ApiResponse(status, raw if len(raw) > _LONG else dump_document(codec.decode_tree(raw)), YAML)
    return ApiResponse(status, raw, JSON)
