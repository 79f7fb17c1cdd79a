"""Answers to clients: objects, lists and tables in the form and version that was asked for.

Owns encoding. The usual form, JSON in the stored version, is the stored bytes themselves; all the others are
worked out from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.cluster.server.call import Answer
from plimsoll.cluster.server.context import Context
from plimsoll.cluster.server.negotiation import JSON, YAML, Accepted
from plimsoll.cluster.server.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.cluster.server.protobuf import encode_body as encode_protobuf
from plimsoll.cluster.server.reading import Listing
from plimsoll.cluster.server.route import Route
from plimsoll.cluster.server.shapes import is_stored_shape, to_version
from plimsoll.cluster.server.status import not_acceptable
from plimsoll.cluster.server.tables import to_table
from plimsoll.cluster.server.watching import Render
from plimsoll.cluster.yaml import dump_document
from plimsoll.errors import InputError

Tree = dict[str, Any]

_LONG = 256 * 1024


def answer_tree(tree: Any, accepted: Accepted, status: int = 200) -> Answer:
    """Any tree, such as a Status or a Scale."""
    return _encode(codec.encode(tree), accepted, status)


class Documents:
    """Answers of one API."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def answer(
        self, route: Route, raw: bytes, accepted: Accepted, query: Mapping[str, str], status: int = 200
    ) -> Answer:
        """One object."""
        raw = to_version(raw, route.resource, route.version)
        if accepted.table:
            return answer_tree(self._table(route, [raw], accepted, query, {}), accepted, status)
        if accepted.partial:
            return _encode(_partial(raw, accepted.partial), accepted, status)
        return _encode(raw, accepted, status)

    def answer_list(
        self, route: Route, listing: Listing, accepted: Accepted, query: Mapping[str, str]
    ) -> Answer:
        """A page of objects."""
        metadata: Tree = {"resourceVersion": str(listing.revision)}
        if listing.token:
            metadata["continue"] = listing.token
        if listing.remaining:
            metadata["remainingItemCount"] = listing.remaining
        raws: Iterable[bytes] = (stored.raw for stored in listing.items)
        if not is_stored_shape(route.resource, route.version):
            raws = (to_version(raw, route.resource, route.version) for raw in raws)
        if accepted.table:
            return answer_tree(self._table(route, list(raws), accepted, query, metadata), accepted)
        if accepted.partial:
            head = (f"meta.k8s.io/{accepted.partial}", "PartialObjectMetadataList")
            return _encode(
                _join(*head, metadata, (_partial(raw, accepted.partial) for raw in raws)), accepted
            )
        head = (route.api_version, route.resource.list_kind)
        return _encode(_join(*head, metadata, raws), accepted, 200)

    def render_for(self, route: Route, accepted: Accepted, query: Mapping[str, str]) -> Render | None:
        """How a watch shows objects; None for the stored bytes themselves."""
        if accepted.table:
            return _TableRows(self, route, accepted, query).render
        if accepted.partial:
            return lambda raw: _partial(to_version(raw, route.resource, route.version), accepted.partial)
        if is_stored_shape(route.resource, route.version):
            return None
        return lambda raw: to_version(raw, route.resource, route.version)

    def _table(
        self, route: Route, raws: list[bytes], accepted: Accepted, query: Mapping[str, str], metadata: Tree
    ) -> Tree:
        return to_table(
            route.resource,
            [codec.decode_tree(raw) for raw in raws],
            now=self._context.now(),
            include_object=query.get("includeObject", "Metadata") or "Metadata",
            version=accepted.table,
            list_metadata=metadata,
        )


class _TableRows:
    """The rows of a watch in tables: only the first names the columns."""

    def __init__(self, documents: Documents, route: Route, accepted: Accepted, query: Mapping[str, str]):
        self._documents, self._route, self._accepted, self._query = documents, route, accepted, query
        self._first = True

    def render(self, raw: bytes) -> bytes:
        raw = to_version(raw, self._route.resource, self._route.version)
        table = self._documents._table(self._route, [raw], self._accepted, self._query, {})
        if not self._first:
            table["columnDefinitions"] = None
        self._first = False
        return codec.encode(table)


def _partial(raw: bytes, version: str) -> bytes:
    tree = codec.decode_tree(raw)
    head = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}"}
    return codec.encode({**head, "metadata": tree["metadata"]})


def _join(api_version: str, kind: str, metadata: Tree, raws: Iterable[bytes]) -> bytes:
    """A list of stored bytes as they are.

    DIFF: each item says its apiVersion and kind (test_items_of_a_list_say_what_they_are).
    """
    head = codec.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return b'%s,"items":[%s]}' % (head[:-1], b",".join(raws))


def _encode(raw: bytes, accepted: Accepted, status: int = 200) -> Answer:
    if accepted.media == PROTOBUF:
        try:
            return Answer(status, encode_protobuf(codec.decode_tree(raw)), PROTOBUF)
        except InputError:
            raise not_acceptable([JSON, YAML]) from None
    if accepted.media == YAML:
        # JSON is YAML too: long answers are left as they are rather than keep others waiting.
        return Answer(status, raw if len(raw) > _LONG else dump_document(codec.decode_tree(raw)), YAML)
    return Answer(status, raw, JSON)
