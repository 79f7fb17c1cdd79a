"""Defaults and validation of ConfigMap and Secret: keys, sizes, types and immutability.

Values of secrets are base64, stored in canonical form. `stringData` is merged into `data`.
"""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Iterable, Mapping

from plimsoll.api import codec
from plimsoll.api.names import byte_length
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    required,
    too_long,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import data_key
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.write_context import WriteContext
from plimsoll.errors import DecodeError, PlimsollError

DATA_MAX = 1024 * 1024

_DATA, _BINARY, _IMMUTABLE = FieldPath("data"), FieldPath("binaryData"), FieldPath("immutable")
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_FROZEN = "cannot be changed when `immutable` is set"
#: Secret type -> required keys.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_SIGN_IN = ("username", "password")


# -- bytes


def read_bytes(text: str, field: str) -> bytes:
    """Decode base64, ignoring line breaks; DecodeError names the field."""
    try:
        return binascii.a2b_base64(text.replace("\r", "").replace("\n", ""), strict_mode=True)
    except ValueError:
        raise DecodeError("must be base64", field) from None


def _normalize_bytes(tree: Tree, name: str) -> None:
    values = tree.get(name, {})
    for key, text in values.items():
        values[key] = b64encode(read_bytes(text, f"{name}[{key}]")).decode()


def decoded_size(texts: Iterable[str]) -> int:
    """Return the number of bytes that base64 strings in stored form encode."""
    return sum(len(text) // 4 * 3 - text[-2:].count("=") for text in texts)


# -- ConfigMap


def _set_config_map_defaults(tree: Tree) -> None:
    _normalize_bytes(tree, "binaryData")


def _validate_config_map(write: WriteContext[View]) -> FieldErrors:
    config = write.new
    if not write.is_create and write.old.immutable:
        old = write.old
        if not config.immutable:
            yield forbidden(_IMMUTABLE, _FROZEN)
        if config.data != old.data:
            yield forbidden(_DATA, _FROZEN)
        if config.binary_data != old.binary_data:
            yield forbidden(_BINARY, _FROZEN)
    yield from _validate_keys(config.data, _DATA)
    for key in config.data:
        if key in config.binary_data:
            yield invalid(_DATA.key(key), key, "is a key of binaryData too")
    yield from _validate_keys(config.binary_data, _BINARY)
    if sum(map(byte_length, config.data.values())) + decoded_size(config.binary_data.values()) > DATA_MAX:
        yield too_long(OBJECT_ROOT, DATA_MAX)


def _validate_keys(keys: Iterable[str], path: FieldPath) -> FieldErrors:
    for key in keys:
        for message in data_key(key):
            yield invalid(path.key(key), key, message)


# -- Secret


def _set_secret_defaults(tree: Tree) -> None:
    _normalize_bytes(tree, "data")
    texts = tree.pop("stringData", None)
    if texts:
        encoded = {key: b64encode(text.encode()).decode() for key, text in texts.items()}
        tree["data"] = {**tree.get("data", {}), **encoded}


def _validate_secret(write: WriteContext[View]) -> FieldErrors:
    secret = write.new
    if not write.is_create:
        old = write.old
        if secret.type != old.type:
            yield invalid(FieldPath("type"), secret.type, IMMUTABLE)
        if old.immutable and not secret.immutable:
            yield forbidden(_IMMUTABLE, _FROZEN)
        if old.immutable and secret.data != old.data:
            yield forbidden(_DATA, _FROZEN)
    yield from _validate_keys(secret.data, _DATA)
    if decoded_size(secret.data.values()) > DATA_MAX:
        yield too_long(_DATA, DATA_MAX)
    yield from _validate_type(secret)


def _validate_type(secret: View) -> FieldErrors:
    """Validate the keys that a secret of a known type requires."""
    for key in _NEEDED.get(secret.type, ()):
        if key not in secret.data or (key == "ssh-privatekey" and not secret.data[key]):
            yield required(_DATA.key(key))
        elif secret.type.startswith("kubernetes.io/docker") and not _is_json_object(secret.data[key]):
            yield invalid(_DATA.key(key), None, "must be a JSON object")
    if secret.type == "kubernetes.io/basic-auth" and not any(key in secret.data for key in _SIGN_IN):
        for key in _SIGN_IN:
            yield required(_DATA.key(key))
    if secret.type == _ACCOUNT_TOKEN and not secret.metadata.annotations.get(_ACCOUNT_NAME):
        yield required(FieldPath("metadata").child("annotations").key(_ACCOUNT_NAME))


def _is_json_object(text: str) -> bool:
    try:
        tree = codec.decode_tree(read_bytes(text, ""))
    except (PlimsollError, RecursionError):
        return False
    return tree is None or isinstance(tree, dict)


DATA_RULES: Mapping[str, KindRules] = {
    "ConfigMap": KindRules("core.v1", _set_config_map_defaults, validate=_validate_config_map),
    "Secret": KindRules("core.v1", _set_secret_defaults, validate=_validate_secret),
}
