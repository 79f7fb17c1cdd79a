"""Protobuf (gnostic) encoding of OpenAPI version 2 documents.

Defines the field numbers of the messages in a document. Values of any type, such as vendor extensions, are
encoded as YAML strings; JSON is YAML.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.apiserver.protobuf import wire

Tree = dict[str, Any]
_Put: TypeAlias = Callable[[int, Any], bytes]


def encode_v2(tree: Tree) -> bytes:
    """Encode the document as protobuf."""
    return _message(tree, _DOCUMENT)


def _message(tree: Tree, fields: dict[str, tuple[int, _Put]], extensions: int = 0) -> bytes:
    parts = []
    for name, value in tree.items():
        known = fields.get(name)
        if known is not None:
            parts.append(known[1](known[0], value))
        elif extensions and name.startswith("x-"):
            parts.append(wire.put(extensions, _named(name, _any(value))))
    return b"".join(parts)


def _named(name: str, value: bytes) -> bytes:
    return wire.put(1, name.encode()) + wire.put(2, value)


def _any(value: Any) -> bytes:
    return wire.put(2, codec.encode(value) + b"\n")


def _text(number: int, value: Any) -> bytes:
    return wire.put(number, value.encode())


def _texts(number: int, value: Any) -> bytes:
    return b"".join(wire.put(number, item.encode()) for item in value)


def _bool(number: int, value: Any) -> bytes:
    return wire.put_number(number, int(value))


def _put_any(number: int, value: Any) -> bytes:
    return wire.put(number, _any(value))


def _of(fields: Callable[[], dict[str, tuple[int, _Put]]], extensions: int = 0) -> _Put:
    """Return an encoder for a message field; its fields are resolved lazily, since schemas contain
    schemas.
    """
    return lambda number, value: wire.put(number, _message(value, fields(), extensions))


def _map_of(inner: int, put: Callable[[Any], bytes]) -> _Put:
    """Return an encoder for a message field with a list of names and values."""

    def write(number: int, value: Any) -> bytes:
        return wire.put(
            number, b"".join(wire.put(inner, _named(name, put(part))) for name, part in value.items())
        )

    return write


def _schema(value: Tree) -> bytes:
    return _message(value, _SCHEMA, 31)


def _put_schema(number: int, value: Any) -> bytes:
    return wire.put(number, _schema(value))


def _put_type(number: int, value: Any) -> bytes:
    return wire.put(number, wire.put(1, value.encode()))


def _put_schema_item(number: int, value: Any) -> bytes:
    return wire.put(number, wire.put(1, _schema(value)))


_SCHEMA: dict[str, tuple[int, _Put]] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "description": (4, _text),
    "default": (5, _put_any),
    "required": (19, _texts),
    "additionalProperties": (21, _put_schema_item),
    "type": (22, _put_type),
    "items": (23, _put_schema_item),
    "properties": (25, _map_of(1, _schema)),
}


def _put_parameters(number: int, value: Any) -> bytes:
    return b"".join(wire.put(number, wire.put(1, _parameter(item))) for item in value)


def _parameter(tree: Tree) -> bytes:
    if tree["in"] == "body":
        return wire.put(1, _message(tree, _BODY_PARAMETER))
    number, fields = (3, _QUERY_PARAMETER) if tree["in"] == "query" else (4, _PATH_PARAMETER)
    return wire.put(2, wire.put(number, _message(tree, fields)))


_BODY_PARAMETER: dict[str, tuple[int, _Put]] = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _bool),
    "schema": (5, _put_schema),
}
_QUERY_PARAMETER: dict[str, tuple[int, _Put]] = {
    "required": (1, _bool),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "uniqueItems": (20, _bool),
}
_PATH_PARAMETER: dict[str, tuple[int, _Put]] = {
    "required": (1, _bool),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "uniqueItems": (19, _bool),
}


def _response(tree: Tree) -> bytes:
    return wire.put(1, _message(tree, _RESPONSE))


_RESPONSE: dict[str, tuple[int, _Put]] = {"description": (1, _text), "schema": (2, _put_schema_item)}
_OPERATION: dict[str, tuple[int, _Put]] = {
    "tags": (1, _texts),
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _put_parameters),
    "responses": (9, _map_of(1, _response)),
    "schemes": (10, _texts),
}
_put_operation = _of(lambda: _OPERATION, 13)
_PATH_ITEM: dict[str, tuple[int, _Put]] = {
    "get": (2, _put_operation),
    "put": (3, _put_operation),
    "post": (4, _put_operation),
    "delete": (5, _put_operation),
    "patch": (8, _put_operation),
    "parameters": (9, _put_parameters),
}


def _path_item(tree: Tree) -> bytes:
    return _message(tree, _PATH_ITEM)


def _put_security(number: int, value: Any) -> bytes:
    entries = (b"".join(wire.put(1, _named(name, b"")) for name in item) for item in value)
    return b"".join(wire.put(number, entry) for entry in entries)


def _key_security(tree: Tree) -> bytes:
    fields: dict[str, tuple[int, _Put]] = {
        "type": (1, _text),
        "name": (2, _text),
        "in": (3, _text),
        "description": (4, _text),
    }
    return wire.put(2, _message(tree, fields))


_INFO: dict[str, tuple[int, _Put]] = {"title": (1, _text), "version": (2, _text)}
_DOCUMENT: dict[str, tuple[int, _Put]] = {
    "swagger": (1, _text),
    "info": (2, _of(lambda: _INFO)),
    "paths": (8, _map_of(2, _path_item)),
    "definitions": (9, _map_of(1, _schema)),
    "security": (12, _put_security),
    "securityDefinitions": (13, _map_of(1, _key_security)),
}
