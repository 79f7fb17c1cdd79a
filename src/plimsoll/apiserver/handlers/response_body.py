"""Response bodies: objects, lists and tables in the media type and version that the client asked for.

JSON in the storage version, the usual case, is the stored bytes themselves; all other forms are derived from
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.chunked_response import ChunkedBody, build_chunked_response
from plimsoll.apiserver.handlers.conversion import convert_raw, has_own_shape, is_storage_version
from plimsoll.apiserver.handlers.negotiation import JSON, YAML, AcceptedMediaType, negotiate
from plimsoll.apiserver.handlers.read import ListResult
from plimsoll.apiserver.handlers.watch_format import Render, WatchFormat
from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.apiserver.protobuf import ListBuilder
from plimsoll.apiserver.protobuf import encode_body as encode_protobuf
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.request import ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import not_acceptable
from plimsoll.apiserver.storage import StoredObject, type_prefix
from plimsoll.apiserver.tables import to_table
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.common.yaml import dump_document
from plimsoll.errors import ApiError, InputError

Tree = dict[str, Any]

_MAX_YAML_BYTES = 256 * 1024
_ROWS_PER_SLICE = 8


def build_tree_response(tree: Any, accepted: AcceptedMediaType, status: int = 200) -> ApiResponse:
    """Return a response with any object, such as a Status or a Scale."""
    return _encode(codec.encode(tree), accepted, status)


def build_raw_response(raw: bytes, accepted: AcceptedMediaType) -> ApiResponse:
    """Return a response with any object that has been encoded."""
    return _encode(raw, accepted)


def encode_error(response: ApiResponse, accept: str) -> ApiResponse:
    """Return an error in the media type that its client accepts: JSON if it accepts that, or nothing that the
    server knows.
    """
    if not accept or JSON in accept or "*/*" in accept:
        return response
    try:
        accepted = negotiate(accept)
    except ApiError:
        return response
    if accepted.media == JSON:
        return response
    assert isinstance(response.body, bytes)
    encoded = _encode(response.body, AcceptedMediaType(accepted.media), response.status)
    encoded.headers.update(response.headers)
    return encoded


class ResponseBuilder:
    """Builder of responses of one API."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    def build_response(
        self,
        info: RequestInfo,
        raw: bytes,
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        status: int = 200,
    ) -> ApiResponse:
        """Return a response with one object."""
        raw = convert_raw(raw, info.resource, info.version)
        if not accepted.parameters:
            return _encode(raw, accepted, status)
        if accepted.parameters.get("as") == "PartialObjectMetadataList":
            raise _wrong_form(accepted, f"is not a list ({info.resource.kind})")
        if accepted.table:
            return build_tree_response(self._table(info, [raw], accepted, query, {}), accepted, status)
        if accepted.partial:
            return _encode(_metadata_only(raw, accepted.partial), accepted, status)
        return _encode(raw, accepted, status)

    async def build_list_response(
        self,
        info: RequestInfo,
        listing: ListResult,
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        time_slice: TimeSlice,
    ) -> ApiResponse:
        """Return a response with a page of objects, yielding to other requests while it is built."""
        metadata: Tree = {"resourceVersion": str(listing.revision)}
        if listing.token:
            metadata["continue"] = listing.token
        if listing.remaining:
            metadata["remainingItemCount"] = listing.remaining
        if accepted.table:
            table = self._table(info, [], accepted, query, metadata)
            rows = await self._rows(info, listing.items, accepted, query, time_slice)
            return _finish_list(table, "rows", rows, accepted, time_slice)
        api_version, kind = info.api_version, info.resource.list_kind
        if accepted.parameters.get("as") == "PartialObjectMetadata":
            raise _wrong_form(accepted, f"is a list ({kind})")
        if accepted.partial:
            api_version, kind = f"meta.k8s.io/{accepted.partial}", "PartialObjectMetadataList"
        head = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        render = self._renderer(info, accepted)
        if accepted.media == PROTOBUF:
            return await _protobuf_list(head, listing.items, render, time_slice)
        if accepted.partial:
            items = await _render_each(listing.items, render, time_slice)
            return _finish_list(head, "items", items, accepted, time_slice)
        if has_own_shape(info.resource, info.version):
            items = await _render_each(listing.items, lambda raw: _without_type(render(raw)), time_slice)
        else:
            items = [stored.rest if stored.prefix else _without_type(stored.raw) for stored in listing.items]
        return _finish_list(head, "items", items, accepted, time_slice, opening=b"{")

    def make_watch_format(
        self, info: RequestInfo, accepted: AcceptedMediaType, query: Mapping[str, str]
    ) -> WatchFormat:
        """Return the form of a watch's events; ApiError 406 if the kind has no protobuf form."""
        needs_schema = accepted.media == PROTOBUF and not accepted.partial
        if needs_schema and schema_for(info.group, info.version, info.resource.kind) is None:
            raise not_acceptable((JSON,))
        return WatchFormat(info.resource, self._watch_renderer(info, accepted, query), accepted.media)

    def _watch_renderer(
        self, info: RequestInfo, accepted: AcceptedMediaType, query: Mapping[str, str]
    ) -> Render | None:
        if accepted.table:
            return _TableRenderer(self, info, accepted, query).render
        if not accepted.partial and is_storage_version(info.resource, info.version):
            return None
        return self._renderer(info, accepted)

    def _renderer(self, info: RequestInfo, accepted: AcceptedMediaType) -> Render:
        """Return the function from a stored object to the object or metadata that a client asked for."""
        resource, version = info.resource, info.version
        if accepted.partial:
            return lambda raw: _metadata_only(convert_raw(raw, resource, version), accepted.partial)
        return lambda raw: convert_raw(raw, resource, version)

    def _table(
        self,
        info: RequestInfo,
        raws: list[bytes],
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        metadata: Tree,
    ) -> Tree:
        return to_table(
            info.resource,
            [codec.decode_tree(raw) for raw in raws],
            now=self._context.now(),
            include_object=query.get("includeObject", "Metadata") or "Metadata",
            version=accepted.table,
            list_metadata=metadata,
        )

    async def _rows(
        self,
        info: RequestInfo,
        items: Sequence[StoredObject],
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
        time_slice: TimeSlice,
    ) -> list[bytes]:
        rows: list[bytes] = []
        for start in range(0, len(items), _ROWS_PER_SLICE):
            some = items[start : start + _ROWS_PER_SLICE]
            raws = [convert_raw(stored.raw, info.resource, info.version) for stored in some]
            table = self._table(info, raws, accepted, query, {})
            rows += map(codec.encode, table["rows"])
            if time_slice.is_expired:
                await time_slice.pause()
        return rows


class _TableRenderer:
    """Renderer of a watch in tables; only the first table has column definitions."""

    def __init__(
        self,
        builder: ResponseBuilder,
        info: RequestInfo,
        accepted: AcceptedMediaType,
        query: Mapping[str, str],
    ):
        self._builder, self._info, self._accepted, self._query = builder, info, accepted, query
        self._first = True

    def render(self, raw: bytes) -> bytes:
        raw = convert_raw(raw, self._info.resource, self._info.version)
        table = self._builder._table(self._info, [raw], self._accepted, self._query, {})
        if not self._first:
            table["columnDefinitions"] = None
        self._first = False
        return codec.encode(table)


def _metadata_only(raw: bytes, version: str) -> bytes:
    tree = codec.decode_tree(raw)
    head = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}"}
    return codec.encode({**head, "metadata": tree["metadata"]})


def _without_type(raw: bytes) -> bytes:
    """Return an object without its opening brace, and without apiVersion and kind, as items of lists have
    none.
    """
    prefix = type_prefix(raw)
    if prefix:
        return raw[len(prefix) :]
    tree = codec.decode_tree(raw)
    return codec.encode({name: tree[name] for name in tree if name not in ("apiVersion", "kind")})[1:]


def _wrong_form(accepted: AcceptedMediaType, found: str) -> ApiError:
    wanted = accepted.parameters["as"]
    return ApiError(406, "NotAcceptable", f"you requested {wanted}, but the requested object {found}")


async def _render_each(items: list[StoredObject], render: Render, time_slice: TimeSlice) -> list[bytes]:
    """Render every object, yielding to other requests."""
    rendered = []
    for stored in items:
        rendered.append(render(stored.raw))
        if time_slice.is_expired:
            await time_slice.pause()
    return rendered


def _finish_list(
    head: Tree,
    field: str,
    items: list[bytes],
    accepted: AcceptedMediaType,
    time_slice: TimeSlice,
    *,
    opening: bytes = b"",
) -> ApiResponse:
    """Return a list in JSON, or in YAML if it is short; `head` gets the items as its last field, each after
    its `opening`.
    """
    before = codec.encode({name: value for name, value in head.items() if name != field})
    start = before[:-1] + f',"{field}":['.encode() + (opening if items else b"")
    body = ChunkedBody(start, items, b"]}", b"," + opening)
    response = build_chunked_response(body, accepted.media, time_slice)
    if accepted.media == YAML and isinstance(response.body, bytes):
        return _encode(response.body, accepted)
    return response


async def _protobuf_list(
    head: Tree, items: list[StoredObject], render: Render, time_slice: TimeSlice
) -> ApiResponse:
    try:
        builder = ListBuilder(head)
        encoded = await _render_each(
            items, lambda raw: builder.encode_item(codec.decode_tree(render(raw))), time_slice
        )
    except InputError:
        raise not_acceptable([JSON, YAML]) from None
    return build_chunked_response(ChunkedBody(b"", builder.finish(encoded)), PROTOBUF, time_slice)


def _encode(raw: bytes, accepted: AcceptedMediaType, status: int = 200) -> ApiResponse:
    if accepted.media == PROTOBUF:
        try:
            return ApiResponse(status, encode_protobuf(codec.decode_tree(raw)), PROTOBUF)
        except InputError:
            raise not_acceptable([JSON, YAML]) from None
    if accepted.media == YAML:
        # JSON is YAML too: long responses are sent as JSON rather than delay other requests.
        return ApiResponse(
            status, raw if len(raw) > _MAX_YAML_BYTES else dump_document(codec.decode_tree(raw)), YAML
        )
    return ApiResponse(status, raw, JSON)


def add_warnings(response: ApiResponse, warnings: list[str]) -> None:
    """Add warnings as Warning headers, before others: at most 100, each shortened and escaped."""
    texts = []
    for text in dict.fromkeys(warnings[:100]):
        clean = "".join(c if c.isprintable() and c.isascii() else "?" for c in text[:256])
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        texts.append(f'299 - "{escaped}"')
    if texts:
        known = response.headers.get("Warning")
        response.headers["Warning"] = ", ".join([*texts, known] if known else texts)
