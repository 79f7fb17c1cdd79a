"""Kubernetes protobuf encoding, the default of kube-scheduler, kubelets and other Go programs.

Handles bodies, the envelope around a message: four magic bytes, then a message with apiVersion, kind and the
object's bytes. `decoding` and `encoding` convert the object's bytes from and to JSON trees by the field
numbers of the schemas; `wire` is the wire format.

Raises DecodeError for anything that is not such a body or of a kind without a schema. Fields without a number
(not part of any protobuf definition) are omitted, as upstream omits fields it does not know.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.protobuf import wire
from plimsoll.apiserver.protobuf.decoding import decode_message
from plimsoll.apiserver.protobuf.encoding import encode_message
from plimsoll.apiserver.registry.schema import SchemaType, schema_for
from plimsoll.errors import DecodeError

__all__ = ["CONTENT_TYPE", "ListBuilder", "decode_body", "encode_body", "encode_frame"]

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_TAIL = wire.put(3, b"") + wire.put(4, b"")


def decode_body(body: bytes) -> Any:
    """Decode an object in its envelope to a JSON tree; raises DecodeError."""
    if not body.startswith(_MAGIC):
        raise DecodeError("the body does not begin with the bytes that mark a Kubernetes protobuf object")
    api_version = kind = content_type = encoding = ""
    raw = b""
    for number, value in wire.read_fields(body[len(_MAGIC) :]):
        if number == 1:
            head = {n: wire.text(v) for n, v in wire.read_fields(wire.chunk(value)) if n in (1, 2)}
            api_version, kind = head.get(1, ""), head.get(2, "")
        elif number == 2:
            raw = wire.chunk(value)
        elif number == 3:
            encoding = wire.text(value)
        elif number == 4:
            content_type = wire.text(value)
    if encoding or content_type not in ("", CONTENT_TYPE):
        raise DecodeError(f"an object inside protobuf as {content_type or encoding} cannot be read")
    tree = {"apiVersion": api_version, "kind": kind}
    tree.update(decode_message(raw, _shape(api_version, kind)))
    return tree


def encode_body(tree: Any) -> bytes:
    """Encode a tree with apiVersion and kind in an envelope; raises DecodeError if it cannot be encoded."""
    if not isinstance(tree, dict):
        raise DecodeError("only objects can be encoded as protobuf")
    api_version, kind = tree.get("apiVersion"), tree.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise DecodeError("an object without apiVersion and kind cannot be encoded as protobuf")
    raw = encode_message(tree, _shape(api_version, kind))
    return _head(api_version, kind) + wire.put(2, raw) + _TAIL


class ListBuilder:
    """Incremental encoding of a list in its envelope; gives the same bytes as `encode_body` of the
    complete list.
    """

    def __init__(self, head: dict[str, Any]) -> None:
        """Start a list; `head` is the list without its items. Raises DecodeError for a kind without a
        schema.
        """
        self._api_version, self._kind = head["apiVersion"], head["kind"]
        shape = _shape(self._api_version, self._kind)
        items = shape.fields["items"]
        assert items.type.item is not None
        self._item, self._number = items.type.item, items.number
        self._start = encode_message(head, shape)

    def encode_item(self, tree: Any) -> bytes:
        """Encode one item as a field of the list; raises DecodeError."""
        return wire.put(self._number, encode_message(tree, self._item))

    def finish(self, items: list[bytes]) -> list[bytes]:
        """Return the parts of the body, in order."""
        length = len(self._start) + sum(map(len, items))
        return [_head(self._api_version, self._kind), wire.put_length(2, length), self._start, *items, _TAIL]


def _head(api_version: str, kind: str) -> bytes:
    return _MAGIC + wire.put(1, wire.put(1, api_version.encode()) + wire.put(2, kind.encode()))


def encode_frame(type: str, tree: Any) -> bytes:
    """Encode one event of a watch with `stream=watch`: its length in four bytes, then the event."""
    event = wire.put(1, type.encode()) + wire.put(2, wire.put(1, encode_body(tree)))
    return len(event).to_bytes(4, "big") + event


def _shape(api_version: str, kind: str) -> SchemaType:
    group, version = codec.split_api_version(api_version)
    shape = schema_for(group, version, kind)
    if shape is None:
        raise DecodeError(f"{api_version} {kind} has no protobuf form here; use JSON")
    return shape
